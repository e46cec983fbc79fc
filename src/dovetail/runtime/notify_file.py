"""NotifyFile: the file that says who is told of which decisions, read at the start and when it changes."""

from __future__ import annotations

from pathlib import Path

from dovetail.errors import Misconfigured
from dovetail.history.notify import Notify, describe_complaint, parse_notify
from dovetail.logs import get_logger
from dovetail.metrics import gauge
from dovetail.ports import RunBlocking
from dovetail.runtime.decision_log import run_inline

__all__ = ["NotifyFile", "load_notify"]

# Forty sinks with all their rules are a tenth of this.
MOST_BYTES = 256 << 10
INVALID = gauge(
    "dovetail_notify_file_invalid",
    "1 while NOTIFY_FILE cannot be used as it is now, and the rules before it are kept.",
    brief="nonzero",
)


def load_notify(path: str) -> Notify:
    """The rules in a file; Misconfigured says what is wrong with it, with its line."""
    return _parse_file(path, _read_file(path))


def _read_file(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            found = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Misconfigured(f"reading {path}: {error.strerror}") from error
    if len(found) > MOST_BYTES:
        raise Misconfigured(f"reading {path}: it is longer than {MOST_BYTES >> 10} KiB")
    return found


def _parse_file(path: str, text: bytes) -> Notify:
    parsed = parse_notify(text, path)
    if parsed.notify is not None:
        return parsed.notify
    first, *others = map(describe_complaint, parsed.complaints)
    more = f" ({len(others)} more: `dovetail validate -f {path}` lists them)" if others else ""
    raise Misconfigured(f"{first}{more}")


class NotifyFile:
    """A file of rules that may change while we run: a Secret's is replaced as a whole, by a symbolic link."""

    def __init__(self, path: str, run_blocking: RunBlocking = run_inline) -> None:
        self._path = path
        self._run_blocking = run_blocking
        # What was read last, and what was wrong with it.
        self._seen: bytes | None = None
        self._complaint = ""
        self._log = get_logger()

    def load(self) -> Notify:
        """The rules at the start; Misconfigured where there are none."""
        found = self._seen = _read_file(self._path)
        return _parse_file(self._path, found)

    async def read_change(self) -> Notify | None:
        """New rules that can be used. Of others there is one warning, and the rules before them stay."""
        try:
            notify: Notify | None = await self._run_blocking(self._look)
        except Misconfigured as error:
            INVALID.set(1)
            if str(error) != self._complaint:
                self._complaint = str(error)
                self._log.warning("NOTIFY_FILE cannot be used; the rules before it stay", error=error)
            return None
        if notify is not None:
            INVALID.set(0)
            self._complaint = ""
            self._log.info("NOTIFY_FILE was read", sinks=len(notify.sinks))
        return notify

    def _look(self) -> Notify | None:
        before, self._seen = self._seen, None
        found = self._seen = _read_file(self._path)
        if found == before:
            return None
        return _parse_file(self._path, found)
