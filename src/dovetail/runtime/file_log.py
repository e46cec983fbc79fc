"""A decision log in a folder: a file for each hour, closed ones compressed, old ones deleted.

Lines are handed to the system each second, and to the disk each ten. A writer that was killed may have left
half a line behind: the next one cuts it off before it goes on. A file is compressed beside itself and takes
its place when it is whole, so that at every moment each hour can be read.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from dovetail.errors import BadInput, Retry
from dovetail.history.chain import LogEnd, find_log_end
from dovetail.history.log_parts import COMPRESSED, list_records, name_hour, parse_hour, sort_files
from dovetail.history.record import MOST_BYTES, DecisionRecord
from dovetail.ports import Clock, LogPace, LogTerm, RunBlocking

__all__ = ["FileLog", "LogFolder"]

PACE = LogPace(every=1.0, most_bytes=4 * 1024 * 1024)
SYNC_EVERY = 10.0
# How long to leave a folder alone in which something could not be compressed or deleted. Seconds.
TIDY_AGAIN = 600.0
HOUR = timedelta(hours=1)
UNFINISHED = ".part"
CHUNK = 1024 * 1024
# Many times the longest record: who looks for the end of a file reads no more of it, and no longer line.
TAIL = 64 * MOST_BYTES


class LogFolder:
    """The files of a decision log, to be read."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder)

    def list_parts(self) -> list[str]:
        """The names of its files, oldest first."""
        try:
            return sort_files(os.listdir(self.path))
        except OSError as error:
            raise _describe_trouble("reading", self.path, error) from error

    def read_lines(self, name: str) -> Iterator[bytes]:
        """The lines of a file with their ends; BadInput where it is damaged."""
        path = self.path / name
        try:
            with gzip.open(path) if name.endswith(COMPRESSED) else open(path, "rb") as file:
                while line := file.readline(TAIL):
                    if len(line) == TAIL:
                        raise BadInput(f"{name}: a line of it is longer than any record")
                    yield line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BadInput(f"{name}: it was changed or cut off: {error}") from error
        except OSError as error:
            raise _describe_trouble("reading", path, error) from error

    def read_newest(self, since: datetime, most: int) -> list[DecisionRecord]:
        """The newest records since then, oldest first; what is damaged is passed over."""
        found: list[DecisionRecord] = []
        for name in reversed(self.list_parts()):
            hour = parse_hour(name)
            if len(found) >= most or hour is None or hour + HOUR < since:
                break
            newest: deque[DecisionRecord] = deque(maxlen=most - len(found))
            with suppress(BadInput):
                newest.extend(list_records(self.read_lines(name), since))
            found[:0] = newest
        return found

    def find_end(self, name: str) -> LogEnd | None:
        """Where a file ends; None when it holds no whole record."""
        if name.endswith(COMPRESSED):
            tail: deque[bytes] = deque(maxlen=TAIL // MOST_BYTES)
            with suppress(BadInput):
                tail.extend(self.read_lines(name))
            return find_log_end(b"".join(tail))
        try:
            with open(self.path / name, "rb") as file:
                before = max(0, file.seek(0, os.SEEK_END) - TAIL)
                file.seek(before)
                end = find_log_end(file.read())
        except OSError as error:
            raise _describe_trouble("reading", self.path / name, error) from error
        return end and end._replace(whole_bytes=before + end.whole_bytes)


class FileLog:
    """A LogSink that writes files."""

    to, pace = "file", PACE

    def __init__(self, folder: str | Path, keep: timedelta, clock: Clock, in_thread: RunBlocking) -> None:
        self._folder = LogFolder(folder)
        self._keep = keep
        self._clock = clock
        self._in_thread = in_thread
        # The file that is written or was written last, and how much of it is known to be whole.
        self._name = ""
        self._whole = 0
        self._file: int | None = None
        self._unsynced_since: float | None = None
        self._tidy_at = 0.0

    async def open_term(self, term: LogTerm) -> LogEnd | None:
        return await self._in_thread(self._open_last)

    async def write_lines(self, lines: Sequence[bytes]) -> int:
        return await self._in_thread(lambda: self._append_lines(lines))

    async def keep_up(self) -> float | None:
        now, written = self._clock.monotonic(), self._unsynced_since
        if written is not None and now >= written + SYNC_EVERY:
            await self._in_thread(self._sync_file)
        if now >= self._tidy_at:
            await self._in_thread(self._tidy_folder)
        written = self._unsynced_since
        due = self._tidy_at if written is None else min(self._tidy_at, written + SYNC_EVERY)
        return max(0.0, due - self._clock.monotonic())

    async def read_back(self, since: datetime, most: int) -> list[DecisionRecord]:
        def read() -> list[DecisionRecord]:
            # The folder of a log that was never written is not there yet, which is no trouble.
            return self._folder.read_newest(since, most) if os.path.exists(self._folder.path) else []

        return await self._in_thread(read)

    async def close(self) -> None:
        def sync_and_close() -> None:
            self._sync_file()
            self._close_file()

        await self._in_thread(sync_and_close)

    def _open_last(self) -> LogEnd | None:
        """Go on with the newest file, behind its last whole record."""
        self._close_file()
        self._make_folder()
        names = self._folder.list_parts()
        end = next(filter(None, map(self._folder.find_end, reversed(names))), None)
        self._name = names[-1].removesuffix(COMPRESSED) if names else ""
        if names and names[-1] == self._name:
            last = self._folder.find_end(self._name)
            self._open_file(self._name, last.whole_bytes if last is not None else 0)
        return end

    def _make_folder(self) -> None:
        try:
            self._folder.path.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise _describe_trouble("writing", self._folder.path, error) from error

    def _append_lines(self, lines: Sequence[bytes]) -> int:
        if self._file is None and self._name:
            self._mend_file()
        name = self._choose_name()
        if self._file is None or name != self._name:
            self._sync_file()
            self._close_file()
            self._open_file(name, 0)
        assert self._file is not None
        text = b"".join([line + b"\n" for line in lines])
        try:
            _write_whole(self._file, text)
        except OSError as error:
            # Half a line may be there: it is cut off before anything else is written.
            self._close_file()
            raise _describe_trouble("writing", self._folder.path / name, error) from error
        self._whole += len(text)
        if self._unsynced_since is None:
            self._unsynced_since = self._clock.monotonic()
        return len(text)

    def _choose_name(self) -> str:
        """The file of this hour; a clock that was set back does not make a log go back."""
        name = max(name_hour(self._clock.now()), self._name)
        while (self._folder.path / (name + COMPRESSED)).exists():
            hour = parse_hour(name)
            assert hour is not None
            name = name_hour(hour + HOUR)
        return name

    def _mend_file(self) -> None:
        """Go back to what was whole when writing failed."""
        if (self._folder.path / self._name).exists():
            self._open_file(self._name, self._whole)

    def _open_file(self, name: str, whole: int) -> None:
        path = self._folder.path / name
        self._make_folder()
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
            self._name, self._whole = name, min(whole, os.fstat(self._file).st_size)
            os.ftruncate(self._file, self._whole)
            _sync_folder(self._folder.path)
        except OSError as error:
            self._close_file()
            raise _describe_trouble("writing", path, error) from error

    def _sync_file(self) -> None:
        if self._file is None or self._unsynced_since is None:
            return
        try:
            os.fsync(self._file)
        except OSError as error:
            raise _describe_trouble("writing", self._folder.path / self._name, error) from error
        self._unsynced_since = None

    def _close_file(self) -> None:
        opened, self._file, self._unsynced_since = self._file, None, None
        if opened is not None:
            with suppress(OSError):
                os.close(opened)

    def _tidy_folder(self) -> None:
        """Compress the files of hours that are over, and delete those that are kept no longer."""
        now = self._clock.now()
        wait = (HOUR - (now - now.replace(minute=0, second=0, microsecond=0))).total_seconds()
        try:
            if self._file is not None and self._name < name_hour(now):
                self._sync_file()
                self._close_file()
            for name in os.listdir(self._folder.path):
                if (hour := parse_hour(name.removesuffix(UNFINISHED))) is not None:
                    self._tidy_file(name, hour + HOUR, now)
        except (OSError, Retry):
            wait = min(wait, TIDY_AGAIN)
        self._tidy_at = self._clock.monotonic() + wait

    def _tidy_file(self, name: str, ended: datetime, now: datetime) -> None:
        path = self._folder.path / name
        written = name == self._name
        if name.endswith(UNFINISHED) or ended + self._keep < now:
            path.unlink(missing_ok=True)
        elif not name.endswith(COMPRESSED) and ended <= now and not (written and self._file is not None):
            if written:
                self._mend_file()
                self._close_file()
            _compress_file(path)


def _compress_file(path: Path) -> None:
    """Put a compressed file into the place of a file; nothing is lost whenever this is broken off."""
    done = path.with_name(path.name + COMPRESSED)
    if not done.exists():
        unfinished = done.with_name(done.name + UNFINISHED)
        packing = zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        with open(path, "rb") as source, open(unfinished, "wb") as target:
            while chunk := source.read(CHUNK):
                target.write(packing.compress(chunk))
            target.write(packing.flush())
            target.flush()
            os.fsync(target.fileno())
        os.rename(unfinished, done)
        _sync_folder(path.parent)
    path.unlink()


def _write_whole(file: int, text: bytes) -> None:
    left = memoryview(text)
    while left:
        left = left[os.write(file, left) :]


def _sync_folder(path: Path) -> None:
    """Names are kept by the folder: it is what must reach the disk when a file is made or renamed."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _describe_trouble(doing: str, path: Path, error: OSError) -> Retry:
    return Retry(f"{doing} the decision log in {path}: {error.strerror or error}")
