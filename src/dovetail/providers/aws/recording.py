"""RecordingBucket: the segments of a recording as objects of S3, each in parts that are never overwritten."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import Any

from dovetail.aws import Aws, AwsAbsent, AwsError, list_pages
from dovetail.history.recording.reader import SegmentSource
from dovetail.ports import Clock
from dovetail.settings.decision_log import LogPlace

__all__ = ["RecordingBucket"]

# A part is put when it has so many bytes, or when its segment ends. A look waits for five minutes at most.
PART_BYTES, PART_SECONDS = 4 * 1024 * 1024, 300.0
THERE_ALREADY = "PreconditionFailed"
SUFFIX = ".dovetail-recording.gz"
RunNow = Callable[[Coroutine[Any, Any, bytes]], bytes]
"""Waits for bytes where no event loop runs, as commands do."""


class RecordingBucket:
    """Writes and reads segments below a prefix: `prefix/SEGMENT/000001.dovetail-recording.gz` and so on."""

    def __init__(self, aws: Aws, place: LogPlace, clock: Clock) -> None:
        self._aws = aws
        self._clock = clock
        self._bucket = place.bucket
        self._folder = f"{place.prefix}/" if place.prefix else ""
        self._put_at = 0.0
        self._segment = ""
        self._part = 0
        self._waiting: list[bytes] = []
        self._size = 0

    async def begin_segment(self, name: str) -> None:
        self._segment, self._part, self._waiting, self._size = name, 0, [], 0

    async def append_bytes(self, data: bytes) -> None:
        self._waiting.append(data)
        self._size += len(data)
        due = self._clock.monotonic() - self._put_at >= PART_SECONDS
        # The keyframe is put at once: without it, what follows says nothing.
        if due or self._size >= PART_BYTES or self._part == 0:
            await self.put_part()

    async def end_segment(self) -> None:
        await self.put_part()

    async def forget_before(self, time: datetime) -> None:
        """Nothing: a bucket has lifecycle rules."""

    async def put_part(self) -> None:
        """Put what waits as the next part; nothing when nothing does."""
        if not self._waiting:
            return
        self._part += 1
        key, body = f"{self._folder}{self._segment}/{self._part:06d}{SUFFIX}", b"".join(self._waiting)
        asked = {"Bucket": self._bucket, "Key": key, "Body": body, "IfNoneMatch": "*"}
        asked |= {"ContentType": "application/gzip", "ChecksumAlgorithm": "SHA256"}
        try:
            await self._aws.call("s3", "PutObject", asked)
        except AwsError as error:
            # The answer to a put may be lost; what is there after the next try is this very part.
            if error.code != THERE_ALREADY or not await self._holds(key, body):
                raise
        self._waiting, self._size = [], 0
        self._put_at = self._clock.monotonic()

    async def _holds(self, key: str, body: bytes) -> bool:
        answer = await self._aws.call("s3", "GetObject", {"Bucket": self._bucket, "Key": key})
        return bytes(answer["Body"]) == body

    async def read_beside(self, name: str) -> bytes:
        """An object beside the segments; nothing where there is none."""
        try:
            answer = await self._aws.call(
                "s3", "GetObject", {"Bucket": self._bucket, "Key": self._folder + name}
            )
        except AwsAbsent:
            return b""
        return bytes(answer["Body"])

    async def write_beside(self, name: str, data: bytes) -> bytes:
        """Put an object beside the segments, in the place of its namesake."""
        asked = {"Bucket": self._bucket, "Key": self._folder + name, "Body": data}
        await self._aws.call("s3", "PutObject", asked | {"ContentType": "application/json"})
        return data

    async def list_segments(self, run: RunNow) -> list[SegmentSource]:
        """The segments of the recording, the oldest first; `run` waits for bytes when one is read."""
        parts: dict[str, list[str]] = {}
        asked = {"Bucket": self._bucket, "Prefix": self._folder}
        async for page in list_pages(self._aws, "s3", "ListObjectsV2", asked):
            for each in page.get("Contents") or ():
                key = str(each["Key"])
                segment, _, name = key.removeprefix(self._folder).rpartition("/")
                if segment and name.endswith(SUFFIX):
                    parts.setdefault(segment, []).append(key)
        return [
            SegmentSource(segment, partial(self._read_now, run, sorted(keys)))
            for segment, keys in sorted(parts.items())
        ]

    def _read_now(self, run: RunNow, keys: list[str]) -> bytes:
        return run(self._read_parts(keys))

    async def _read_parts(self, keys: list[str]) -> bytes:
        found: list[Any] = [
            (await self._aws.call("s3", "GetObject", {"Bucket": self._bucket, "Key": key}))["Body"]
            for key in keys
        ]
        return b"".join(map(bytes, found))
