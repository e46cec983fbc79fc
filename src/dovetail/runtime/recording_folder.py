"""RecordingFolder: the segments of a recording as files, written by one process and read by others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path

from dovetail.errors import BadInput
from dovetail.history.recording.reader import RecordingReader, SegmentSource
from dovetail.history.recording.segment import split_segments
from dovetail.ports import RunBlocking
from dovetail.runtime.recording import parse_segment_time

__all__ = ["SUFFIX", "RecordingFolder", "read_recording"]

SUFFIX = ".dovetail-recording.gz"


class RecordingFolder:
    """Writes segments into a folder, each a file that only grows; readable by its owner alone."""

    def __init__(self, folder: Path, in_thread: RunBlocking) -> None:
        self._folder = folder
        self._in_thread = in_thread
        self._file, self._path, self._size = -1, folder, 0

    async def begin_segment(self, name: str) -> None:
        await self._in_thread(lambda: self._open(name))

    async def append_bytes(self, data: bytes) -> None:
        await self._in_thread(lambda: self._write(data))

    async def end_segment(self) -> None:
        await self._in_thread(self._close)

    async def forget_before(self, time: datetime) -> None:
        await self._in_thread(lambda: self._delete_before(time))

    def _open(self, name: str) -> None:
        self._drop()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path, self._size = self._folder / f"{name}{SUFFIX}", 0
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            if not self._size:
                # Without its first look it says nothing, and a full disk would be tried again all night.
                self._path.unlink(missing_ok=True)
            raise
        self._size += len(data)

    def _close(self) -> None:
        if self._file >= 0:
            os.fsync(self._file)
        self._drop()

    def _drop(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _delete_before(self, time: datetime) -> None:
        """Delete what is older; a segment is as old as the one after it."""
        paths = list_segments(self._folder)
        for path, following in pairwise(paths):
            ended = parse_segment_time(following.name)
            if ended is not None and ended < time:
                path.unlink(missing_ok=True)


def list_segments(folder: Path) -> list[Path]:
    """The files of a recording, the oldest first."""
    return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))


def read_recording(place: str) -> RecordingReader:
    """The recording in a folder or in one file; BadInput in a sentence when there is none."""
    path = Path(place)
    try:
        paths = [path] if path.is_file() else list_segments(path)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise BadInput(f"reading the recording {place}: {why}") from error
    if not paths:
        raise BadInput(
            f"reading the recording {place}: there is none in it; one is made with RECORDING=file:… "
            "or with `dovetail record --to …`"
        )
    if path.is_file():
        return RecordingReader(_split_file(path))
    return RecordingReader(SegmentSource(path.name, path.read_bytes) for path in paths)


def _split_file(path: Path) -> Iterator[SegmentSource]:
    """A file may hold several segments, as one that was cut does."""
    for number, data in enumerate(split_segments(path.read_bytes()), 1):
        yield SegmentSource(f"{path.name}, segment {number}", partial(bytes, data))
