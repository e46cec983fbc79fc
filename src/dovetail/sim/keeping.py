"""Objects that survive a restart: the whole store in one file, written so that a crash cannot tear it.

A file is a line with the checksum and length of what follows, then the store's own dump. It is written
beside its place, flushed, and moved there; the one before it is kept. A file that does not agree with
its first line is reported and the one before it is used.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from dovetail.errors import Misconfigured

__all__ = ["Keeping"]

CURRENT, BEFORE = "cluster.state", "cluster.state.before"
MAGIC = b"dovetail-state-1"


class Keeping:
    """Where a cluster's objects are kept between runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise Misconfigured(
                f"keeping objects in {folder}: {error.strerror}; choose another --data-dir"
            ) from error

    def load(self) -> tuple[bytes | None, str]:
        """The last good state, if any, and a word about one that was not good."""
        complaint = ""
        for name in (CURRENT, BEFORE):
            path = self._folder / name
            if not path.exists():
                continue
            state = _checked(path.read_bytes())
            if state is not None:
                return state, complaint and f"{complaint}; using the state before it"
            complaint = complaint or f"{path} is torn or was changed by hand"
        return None, complaint and f"{complaint}; starting empty"

    def save(self, state: bytes) -> None:
        """Keep a state; the one kept so far becomes the one before it."""
        current, before, fresh = (self._folder / name for name in (CURRENT, BEFORE, CURRENT + ".new"))
        first = b"%s %s %d\n" % (MAGIC, hashlib.sha256(state).hexdigest().encode(), len(state))
        try:
            with open(fresh, "wb", opener=_private) as file:
                file.write(first)
                file.write(state)
                file.flush()
                os.fsync(file.fileno())
            if current.exists():
                os.replace(current, before)
            os.replace(fresh, current)
        except OSError as error:
            raise Misconfigured(f"keeping objects in {self._folder}: {error.strerror}") from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _checked(content: bytes) -> bytes | None:
    first, _, state = content.partition(b"\n")
    parts = first.split(b" ")
    if len(parts) != 3 or parts[0] != MAGIC or not parts[2].isdigit():
        return None
    whole = len(state) == int(parts[2]) and hashlib.sha256(state).hexdigest().encode() == parts[1]
    return state if whole else None
