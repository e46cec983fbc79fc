"""Objects that survive a restart: the whole store in one file, written so that a crash cannot tear it.

A file is a line with the checksum and length of what follows, then the store's own dump. It is written
beside its place, flushed, and moved there; the one before it is kept. A file that does not agree with
its first line is reported and the one before it is used. One process at a time has the folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from threading import Lock
from types import TracebackType

from dovetail.errors import Misconfigured

__all__ = ["StateFolder"]

CURRENT, BEFORE, FRESH, LOCK = "cluster.state", "cluster.state.before", "cluster.state.new", "lock"
MAGIC = b"dovetail-state-1"


class StateFolder:
    """Where a cluster's objects are kept between runs; a context, as it holds the folder's lock."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = -1
        self._saving = Lock()

    def __enter__(self) -> StateFolder:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.__exit__(None, None, None)
            raise Misconfigured(
                f"keeping objects in {self._folder}: another cluster is using it; "
                "stop that one or choose another --data-dir"
            ) from error
        except OSError as error:
            raise Misconfigured(
                f"keeping objects in {self._folder}: {error.strerror}; choose another --data-dir"
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def load_state(self) -> tuple[bytes | None, str]:
        """The last good state, if any, and a word about one that was not good."""
        complaint = ""
        # The fresh one counts where the process ended between the two moves of a save.
        whole = (self._folder / CURRENT).exists()
        for name in (CURRENT, BEFORE) if whole else (FRESH, BEFORE):
            path = self._folder / name
            content = _read_content(path)
            if content is None:
                continue
            state = _check_content(content)
            if state is not None:
                return state, complaint and f"{complaint}; using the state before it"
            complaint = complaint or f"{path} is torn or was changed by hand"
        return None, complaint and f"{complaint}; starting empty"

    def save_state(self, state: bytes) -> None:
        """Keep a state; the one kept so far becomes the one before it, if it is good."""
        with self._saving:
            self._write_state(state)

    def _write_state(self, state: bytes) -> None:
        current, before, fresh = (self._folder / name for name in (CURRENT, BEFORE, FRESH))
        first = b"%s %s %d\n" % (MAGIC, hashlib.sha256(state).hexdigest().encode(), len(state))
        try:
            with open(fresh, "wb", opener=_open_private) as file:
                file.write(first)
                file.write(state)
                file.flush()
                os.fsync(file.fileno())
            content = _read_content(current)
            # A torn file must not push out the good one before it.
            if content is not None and _check_content(content) is not None:
                os.replace(current, before)
            os.replace(fresh, current)
        except OSError as error:
            raise Misconfigured(f"keeping objects in {self._folder}: {error.strerror}") from error


def _read_content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Misconfigured(f"reading {path}: {error.strerror}; choose another --data-dir") from error


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _check_content(content: bytes) -> bytes | None:
    first, _, state = content.partition(b"\n")
    parts = first.split(b" ")
    if len(parts) != 3 or parts[0] != MAGIC or not parts[2].isdigit():
        return None
    whole = len(state) == int(parts[2]) and hashlib.sha256(state).hexdigest().encode() == parts[1]
    return state if whole else None
