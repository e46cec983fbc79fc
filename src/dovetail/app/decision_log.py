"""Decision logs in folders and in S3: written by the controller, and read and checked by commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from dovetail.aws import Aws, FencedAws
from dovetail.errors import BadInput, Misconfigured, escape_text
from dovetail.history.chain import LogPart, check_chain
from dovetail.history.log_parts import list_records, parse_hour, parse_object, split_lines
from dovetail.history.record import DecisionRecord
from dovetail.ports import Clock, LogSink, RunBlocking
from dovetail.runtime.decision_log import DecisionLog, LogLane, LogLines
from dovetail.runtime.file_log import FileLog, LogFolder
from dovetail.settings import Settings
from dovetail.settings.decision_log import LogPlace, parse_s3_place

if TYPE_CHECKING:
    from dovetail.aws.boto import BotoAws

__all__ = ["LogPlumbing", "LogReport", "build_decision_log", "check_log", "read_log"]

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class LogReport:
    """What a check of a log found. `fault` is a sentence about the first thing that is wrong, or empty."""

    parts: int
    records: int
    terms: int
    declared_gaps: int
    unlinked_terms: int
    head: str
    fault: str


@dataclass(frozen=True, slots=True)
class LogPlumbing:
    """What a log is written with: a clock, AWS where there is one, and where work that waits is done."""

    clock: Clock
    aws: Aws | None
    # Whether this process leads; asked before every write.
    lasts: Callable[[], bool]
    in_thread: RunBlocking

    def connect_aws(self) -> Aws:
        """The provider's door to AWS, or one of our own; either way closed to who no longer leads."""
        return FencedAws(self.aws or _connect_aws(), self.lasts)


def build_decision_log(settings: Settings, plumbing: LogPlumbing) -> DecisionLog | None:
    """The log that DECISION_LOG asks for, written while this process leads; None when it asks for none."""
    if not settings.decision_log:
        return None
    lines, lanes = None, []
    for place in settings.decision_log:
        if place.kind == "log":
            lines = LogLines()
        else:
            sink = _build_sink(place, settings, plumbing)
            lanes.append(LogLane(sink, plumbing.clock, plumbing.in_thread))
    return DecisionLog(lanes, lines, plumbing.lasts)


def _build_sink(place: LogPlace, settings: Settings, plumbing: LogPlumbing) -> LogSink:
    clock, in_thread = plumbing.clock, plumbing.in_thread
    if place.kind == "file":
        return FileLog(place.folder, settings.decision_log_keep, clock, in_thread)
    # Who logs into a folder need not load a provider.
    from dovetail.providers.aws.decision_log import LogBucket, S3Log, name_log_folder

    folder = name_log_folder(place.prefix, settings.cluster_name)
    return S3Log(LogBucket(plumbing.connect_aws(), place.bucket, folder), clock, in_thread)


def read_log(
    place: str, since: datetime | None = None, until: datetime | None = None, *, aws: Aws | None = None
) -> Iterator[DecisionRecord]:
    """The records of the decision log in a folder or at s3://bucket/prefix, oldest first.

    BadInput in one sentence when there is no log. Lines that are no records are passed over: `check_log`
    finds them. It is for commands: S3 is asked in an event loop of its own, so none may be running here.
    """
    with _open_place(place, aws) as parts:
        for name in parts.list_names(since):
            yield from list_records(parts.read_lines(name), since, until)


def check_log(place: str, head: str = "", *, aws: Aws | None = None) -> LogReport:
    """Follow the chain of a decision log from its first record to its last.

    `head` is what an earlier check reported: that record must be there still, so that nothing was cut off
    the end since. For commands, as `read_log` is.
    """
    damage: list[str] = []
    with _open_place(place, aws) as parts:
        names = parts.list_names(None)
        report = check_chain(_read_parts(parts, names, damage), "" if damage else head)
    fault = str(report.fault) if report.fault is not None else "".join(damage[:1])
    return LogReport(
        len(names),
        report.records,
        report.terms,
        report.declared_gaps,
        report.unlinked_terms,
        report.head,
        fault,
    )


def _read_parts(parts: _LogParts, names: list[str], damage: list[str]) -> Iterator[LogPart]:
    """Every part up to the first that is damaged."""

    def read_lines(name: str) -> Iterator[bytes]:
        try:
            yield from parts.read_lines(name)
        except BadInput as error:
            damage.append(str(error))

    for name in names:
        if damage:
            return
        yield LogPart(name, read_lines(name))


class _LogParts(Protocol):
    """The parts of a log wherever they are, by name."""

    def list_names(self, since: datetime | None) -> list[str]: ...

    def read_lines(self, name: str) -> Iterator[bytes]: ...

    def __enter__(self) -> _LogParts: ...

    def __exit__(self, *_: object) -> None: ...


def _open_place(place: str, aws: Aws | None) -> _LogParts:
    if not place.startswith("s3://"):
        return _FolderParts(place.removeprefix("file:"))
    try:
        found = parse_s3_place(place)
    except ValueError as error:
        raise BadInput(str(error)) from error
    return _BucketParts(place, found.bucket, f"{found.prefix}/" if found.prefix else "", aws)


class _FolderParts:
    def __init__(self, place: str) -> None:
        self._place = place
        self._folder = LogFolder(place)

    def __enter__(self) -> _FolderParts:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def list_names(self, since: datetime | None) -> list[str]:
        if not self._folder.path.is_dir():
            raise BadInput(f"reading history in {self._place}: there is no such folder")
        names = self._folder.list_parts()
        if not names:
            raise _no_log(self._place, "file:…")
        return [name for name in names if since is None or _parse_end(name) >= since]

    def read_lines(self, name: str) -> Iterator[bytes]:
        return self._folder.read_lines(name)


def _parse_end(name: str) -> datetime:
    hour = parse_hour(name)
    assert hour is not None, "only parts of a log are listed"
    return hour + HOUR


class _BucketParts:
    def __init__(self, place: str, bucket: str, folder: str, aws: Aws | None) -> None:
        self._place = place
        self._runner = asyncio.Runner()
        # Who reads a folder need not load a provider.
        from dovetail.providers.aws.decision_log import LogBucket

        self._own = None
        if aws is None:
            aws = self._own = _connect_aws()
        self._bucket = LogBucket(aws, bucket, folder)

    def __enter__(self) -> _BucketParts:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()
        if self._own is not None:
            self._own.close()

    def list_names(self, since: datetime | None) -> list[str]:
        listed = self._runner.run(self._bucket.list_parts())
        if not listed:
            raise _no_log(self._place, "s3://…")
        folders = sorted({part.folder for part in listed})
        if len(folders) > 1:
            shown = ", ".join(escape_text(folder.strip("/").rpartition("/")[2]) for folder in folders[:5])
            raise BadInput(
                f"reading history in {self._place}: there are logs of {len(folders)} clusters, such as "
                f"{shown}; name one of them: s3://{self._bucket.bucket}/{escape_text(folders[0].strip('/'))}"
            )
        return [part.render_key() for part in listed if since is None or part.minute + MINUTE >= since]

    def read_lines(self, name: str) -> Iterator[bytes]:
        part = parse_object(name)
        assert part is not None, "only parts of a log are listed"
        yield from split_lines(self._runner.run(self._bucket.read_part(part)))


def _no_log(place: str, written: str) -> BadInput:
    return BadInput(
        f"reading history in {place}: there is no decision log in it; "
        f"it is written with DECISION_LOG={written}"
    )


def _connect_aws() -> BotoAws:
    try:
        from dovetail.aws.boto import BotoAws
    except ImportError as error:
        raise Misconfigured(
            "a decision log in S3 needs the package boto3; install dovetail with its extra `aws`"
        ) from error
    return BotoAws()
