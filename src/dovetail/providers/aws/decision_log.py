"""A decision log in S3: an object of five minutes or 4 MiB after another, none ever overwritten.

Objects are put only where there is none, so that a bucket may have Object Lock on. A put whose answer was
lost is repeated with the same bytes; if the object is there by then, it is our own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import groupby

from dovetail.aws import Aws, AwsError, list_pages
from dovetail.aws.errors import AwsDenied, AwsTrouble
from dovetail.errors import BadInput, Retry
from dovetail.history.chain import LogEnd, find_log_end, read_part_order
from dovetail.history.log_parts import (
    MOST_PART_BYTES,
    ObjectName,
    compress_part,
    expand_part,
    floor_minute,
    list_records,
    parse_object,
    split_lines,
)
from dovetail.history.record import DecisionRecord
from dovetail.ports import Clock, LogPace, LogTerm, RunBlocking

__all__ = ["LogBucket", "S3Log", "name_log_folder"]

PACE = LogPace(every=300.0, most_bytes=4 * 1024 * 1024)
THERE_ALREADY = "PreconditionFailed"
# How far back the end of a log is looked for before all of it is listed.
RECENT = timedelta(days=2)
TRIES = 5


def name_log_folder(prefix: str, cluster: str) -> str:
    """Where in a bucket the log of a cluster is, with a slash at its end."""
    own = re.sub(r"[^A-Za-z0-9._-]", "-", cluster) or "cluster"
    return f"{prefix}/{own}/" if prefix else f"{own}/"


class LogBucket:
    """The objects of a decision log, to be read. `folder` is where they are, with a slash at its end."""

    def __init__(self, aws: Aws, bucket: str, folder: str) -> None:
        self.aws, self.bucket, self.folder = aws, bucket, folder
        self._sizes: dict[str, int] = {}

    async def list_parts(self, since: datetime | None = None) -> list[ObjectName]:
        """The parts that were written since then, oldest first."""
        asked = {"Bucket": self.bucket, "Prefix": self.folder}
        if since is not None:
            asked["StartAfter"] = f"{self.folder}{since.astimezone(UTC):%Y/%m/%d/%H-%M}"
        found = []
        async for page in list_pages(self.aws, "s3", "ListObjectsV2", asked):
            for each in page.get("Contents", ()):
                if (part := parse_object(each["Key"])) is not None:
                    self._sizes[each["Key"]] = int(each.get("Size", 0))
                    found.append(part)
        return await self._sort_parts(found)

    async def read_part(self, part: ObjectName) -> bytes:
        """The text of a part; BadInput when it is damaged."""
        key = part.render_key()
        if self._sizes.get(key, 0) > MOST_PART_BYTES:
            raise BadInput(f"{key}: it is larger than any part of a log")
        answer = await self.aws.call("s3", "GetObject", {"Bucket": self.bucket, "Key": key})
        return expand_part(key, answer["Body"])

    async def _sort_parts(self, parts: Sequence[ObjectName]) -> list[ObjectName]:
        """By name; leaders that could not see one another's parts and share a minute, by their records."""
        ordered = []
        for _, alike in groupby(sorted(parts), key=lambda part: part.minute):
            runs = [list(run) for _, run in groupby(alike, key=lambda part: (part.folder, part.leader))]
            if len(runs) > 1:
                firsts = {run[0]: await self._read_first_id(run[0]) for run in runs}
                runs.sort(key=lambda run: firsts[run[0]])
            ordered += [part for run in runs for part in run]
        return ordered

    async def _read_first_id(self, part: ObjectName) -> str:
        try:
            return read_part_order((await self.read_part(part)).partition(b"\n")[0])
        except BadInput:
            return ""


class S3Log:
    """A sink of the decision log that writes objects."""

    to, pace = "s3", PACE

    def __init__(self, bucket: LogBucket, clock: Clock, in_thread: RunBlocking) -> None:
        self._bucket = bucket
        self._clock = clock
        self._in_thread = in_thread
        self._leader = ""
        self._last: ObjectName | None = None
        # The part that is being put: its name, its bytes, and whether an attempt ended without an answer.
        self._part: tuple[ObjectName, bytes] | None = None
        self._unanswered = False

    async def open_term(self, term: LogTerm) -> LogEnd | None:
        """Find the last record of the newest part that has one."""
        begun = f"{term.record.by}\0{term.record.id}".encode()
        self._leader = sha256(begun).hexdigest()[:8]
        parts = await self._bucket.list_parts(self._clock.now() - RECENT) or await self._bucket.list_parts()
        self._last = parts[-1] if parts else None
        for part in reversed(parts):
            end = await self._find_end(part)
            if end is not None:
                return end
        return None

    async def write_lines(self, lines: Sequence[bytes]) -> int:
        if self._part is None:
            body = await self._in_thread(lambda: compress_part(b"".join([line + b"\n" for line in lines])))
            self._part = self._name_part(), body
            self._unanswered = False
        for _ in range(TRIES):
            if await self._put_part(*self._part):
                self._last, body = self._part
                self._part = None
                return len(body)
            # Somebody else's object has our name: it stays, and ours gets the next number.
            self._last = self._part[0]
            self._part = self._name_part(), self._part[1]
        raise Retry(f"writing the decision log to s3://{self._bucket.bucket}: every name is taken")

    async def keep_up(self) -> float | None:
        return None

    async def read_back(self, since: datetime, most: int) -> list[DecisionRecord]:
        found: list[DecisionRecord] = []
        for part in reversed(await self._bucket.list_parts(since)):
            if len(found) >= most:
                break
            found[:0] = await self._read_records(part, since)
        return found[max(0, len(found) - most) :]

    async def close(self) -> None:
        """Nothing is open."""

    def _name_part(self) -> ObjectName:
        now = self._clock.now()
        if self._last is None:
            return ObjectName(floor_minute(now), self._leader, 1, self._bucket.folder)
        return self._last.name_next(self._leader, now)

    async def _put_part(self, name: ObjectName, body: bytes) -> bool:
        """Put the part where nothing is; False when something else is there."""
        asked = {"Bucket": self._bucket.bucket, "Key": name.render_key(), "Body": body}
        asked |= {"IfNoneMatch": "*", "ContentType": "application/gzip", "ChecksumAlgorithm": "SHA256"}
        try:
            await self._bucket.aws.call("s3", "PutObject", asked)
        except AwsTrouble:
            self._unanswered = True
            raise
        except AwsError as error:
            if error.code != THERE_ALREADY:
                raise
            return await self._is_ours(name, body)
        return True

    async def _is_ours(self, name: ObjectName, body: bytes) -> bool:
        asked = {"Bucket": self._bucket.bucket, "Key": name.render_key()}
        try:
            answer = await self._bucket.aws.call("s3", "GetObject", asked)
        except AwsDenied:
            # Who may not look knows only whether an answer was lost; nobody else has names of this term.
            return self._unanswered
        return bytes(answer["Body"]) == body

    async def _find_end(self, part: ObjectName) -> LogEnd | None:
        try:
            return find_log_end(await self._bucket.read_part(part))
        except BadInput:
            return None

    async def _read_records(self, part: ObjectName, since: datetime) -> list[DecisionRecord]:
        try:
            text = await self._bucket.read_part(part)
        except BadInput:
            return []
        return await self._in_thread(lambda: list(list_records(split_lines(text), since)))
