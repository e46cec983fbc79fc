"""Where recordings are: folders, files and buckets, opened by a process to write and by commands to read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from dovetail.app.cluster_source import SeenCluster
from dovetail.aws import Aws
from dovetail.errors import BadInput, Misconfigured
from dovetail.history.recording.anonymise import NameHider, hash_parts
from dovetail.history.recording.reader import RecordedLook, RecordingReader
from dovetail.ports import Clock, RecordingPlace, RunBlocking
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.recording import RecordingOptions
from dovetail.runtime.recording_folder import RecordingFolder, read_recording
from dovetail.settings import Settings, read_settings
from dovetail.settings.decision_log import LogPlace, parse_s3_place
from dovetail.settings.recording import parse_recording_place

if TYPE_CHECKING:
    from dovetail.aws.boto import BotoAws
    from dovetail.providers.aws.recording import RecordingBucket

__all__ = [
    "open_place",
    "open_recording",
    "parse_target",
    "read_beside",
    "read_look",
    "read_recording_options",
    "sample_looks",
    "see_look",
    "write_beside",
]


def parse_target(text: str) -> LogPlace:
    """Where a command writes to: a folder, or s3://bucket/prefix; BadInput for anything else."""
    try:
        if text.startswith(("s3://", "file:")):
            return parse_recording_place(text)
        return LogPlace("file", folder=str(Path(text).absolute()))
    except ValueError as error:
        raise BadInput(f"--to {text}: {error}") from error


def read_recording_options(settings: Settings, identity: str, chance: Random) -> RecordingOptions:
    """How the controller records, as its settings say; names are hashed with a salt that is kept nowhere."""
    hashed = settings.recording_names == "hash"
    rename = NameHider(hash_parts(chance.randbytes(32))).hide_line if hashed else None
    return RecordingOptions(
        every=settings.recording_every,
        keyframe=settings.recording_keyframe,
        keep=settings.recording_keep,
        names=settings.recording_names,
        settings={"PROVIDER": settings.provider, **settings.list_deciding()},
        identity=identity,
        rename=rename,
    )


def open_place(place: LogPlace, clock: Clock, in_thread: RunBlocking, aws: Aws | None) -> RecordingPlace:
    """The place where segments are written; a bucket is reached with `aws`, or as this environment says."""
    if place.kind == "file":
        return RecordingFolder(Path(place.folder), in_thread)
    from dovetail.providers.aws.recording import RecordingBucket

    return RecordingBucket(aws or _connect_aws(), place, clock)


@contextmanager
def open_recording(place: str, aws: Aws | None = None) -> Iterator[RecordingReader]:
    """The recording at a place, for a command: in a folder, in a file, or at s3://bucket/prefix."""
    if not place.startswith("s3://"):
        yield read_recording(place.removeprefix("file:"))
        return
    from dovetail.providers.aws.recording import RecordingBucket

    try:
        found = parse_s3_place(place)
    except ValueError as error:
        raise BadInput(str(error)) from error
    own = _connect_aws() if aws is None else None
    with asyncio.Runner() as runner:
        try:
            bucket = RecordingBucket(aws or own or _connect_aws(), found, SystemClock())
            sources = runner.run(bucket.list_segments(runner.run))
            if not sources:
                raise BadInput(
                    f"reading the recording {place}: there is none in it; one is made with RECORDING=s3://…"
                )
            yield RecordingReader(sources)
        finally:
            if own is not None:
                own.close()


def read_beside(place: str, name: str) -> bytes:
    """A small file that was kept beside a recording; nothing where there is none."""
    if not place.startswith("s3://"):
        path = Path(place.removeprefix("file:")) / name
        return path.read_bytes() if path.is_file() else b""
    return _run_with_bucket(place, lambda bucket: bucket.read_beside(name))


def write_beside(place: str, name: str, data: bytes) -> None:
    """Keep a small file beside a recording, in the place of its namesake, whole or not at all."""
    if place.startswith("s3://"):
        _run_with_bucket(place, lambda bucket: bucket.write_beside(name, data))
        return
    folder = Path(place.removeprefix("file:"))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=folder, prefix=f".{name}", delete=False) as file:
        file.write(data)
    Path(file.name).replace(folder / name)


def _run_with_bucket(place: str, work: Callable[[RecordingBucket], Coroutine[Any, Any, bytes]]) -> bytes:
    from dovetail.providers.aws.recording import RecordingBucket

    aws = _connect_aws()
    try:
        with asyncio.Runner() as runner:
            return runner.run(work(RecordingBucket(aws, parse_s3_place(place), SystemClock())))
    finally:
        aws.close()


def see_look(reader: RecordingReader, look: RecordedLook) -> SeenCluster:
    """The look as a cluster that was seen, with the settings of whoever recorded it."""
    recorded = dict(reader.segments[look.segment - 1].head.settings)
    provider = recorded.pop("PROVIDER", "kwok")
    # No decision depends on the cluster's name, and EC2 insists on one.
    settings = read_settings((), {"CLUSTER_NAME": "recording"} | recorded, provider=provider)
    return SeenCluster(look.situation, {}, settings)


def read_look(place: str, at: datetime) -> SeenCluster:
    """The cluster as the recording saw it last at a time; BadInput where it has no such look."""
    with open_recording(place) as reader:
        if not reader.segments:
            why = reader.troubles[0] if reader.troubles else "there is none in it"
            raise BadInput(f"reading the recording {place}: {why}")
        return see_look(reader, reader.at(at))


def sample_looks(place: str, count: int) -> list[tuple[datetime, SeenCluster]]:
    """So many looks of the recording, spread over its time, from its first to its last; each once."""
    with open_recording(place) as reader:
        if not reader.segments or reader.first is None:
            raise BadInput(f"reading the recording {place}: there is none in it")
        last = reader.at(datetime.max.replace(tzinfo=UTC))
        step = (last.at - reader.first) / max(count - 1, 1)
        times = [last.at - step * number for number in reversed(range(count))]
        looks = {look.at: look for look in (_find_look(reader, time) for time in times) if look is not None}
        return [(at, see_look(reader, look)) for at, look in sorted(looks.items())]


def _find_look(reader: RecordingReader, time: datetime) -> RecordedLook | None:
    try:
        return reader.at(time)
    except BadInput:
        return None  # before its first whole look, or in a gap


def _connect_aws() -> BotoAws:
    try:
        from dovetail.aws.boto import BotoAws
    except ImportError as error:
        raise Misconfigured(
            "a recording in S3 needs the package boto3; install dovetail with its extra `aws`"
        ) from error
    return BotoAws()
