"""The one place log messages are declared.

Messages are declared beside the code that says them, through `debug`, `info` and `error` below: a constant
sentence and the keys of its fields, spelled as Karpenter spells them. Saying one goes through the standard
library's `logging`, under the logger `dovetail`: code that acts needs no logger handed in, and nothing is
written until a process asks for lines (runtime/logs). Code that decides says nothing.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

__all__ = ["MESSAGES", "Changes", "LogMessage", "build_reference", "debug", "error", "first_of", "info"]

MESSAGES: dict[str, LogMessage] = {}
"""Every declared message by its text."""

ROOT = "dovetail"
REMEMBERED = 100_000


class LogMessage:
    """A sentence of the log: its level, when it is said, and the keys it carries."""

    def __init__(
        self, text: str, level: int, about: str, keys: Sequence[str], ours: bool, logger: str
    ) -> None:
        self.text, self.level, self.about, self.keys, self.ours = text, level, about, tuple(keys), ours
        self._log = logging.getLogger(f"{ROOT}.{logger}" if logger else ROOT)
        if text in MESSAGES:
            raise ValueError(f"the log message {text!r} is declared twice")
        MESSAGES[text] = self

    @property
    def heard(self) -> bool:
        """Whether anybody asked for lines of this level; nothing costly is made for nobody."""
        return self._log.isEnabledFor(self.level)

    def __call__(self, fields: Mapping[str, object] | None = None) -> None:
        if self.heard:
            self._log.log(self.level, "%s", self.text, extra={"fields": dict(fields or {})}, stacklevel=2)


def debug(
    text: str, about: str, keys: Sequence[str] = (), *, ours: bool = False, logger: str = ""
) -> LogMessage:
    """A message for those who look closely. `ours` are those that Karpenter does not have."""
    return LogMessage(text, logging.DEBUG, about, keys, ours, logger)


def info(
    text: str, about: str, keys: Sequence[str] = (), *, ours: bool = False, logger: str = ""
) -> LogMessage:
    """A message for everybody who reads the log."""
    return LogMessage(text, logging.INFO, about, keys, ours, logger)


def error(
    text: str, about: str, keys: Sequence[str] = (), *, ours: bool = False, logger: str = ""
) -> LogMessage:
    """A message that somebody may have to act upon; the cause goes into the field `error`."""
    return LogMessage(text, logging.ERROR, about, keys, ours, logger)


def build_reference(name: str, namespace: str = "") -> dict[str, str]:
    """An object as lines name it."""
    return {"name": name, "namespace": namespace} if namespace else {"name": name}


def first_of(names: Iterable[str], count: int, most: int = 5) -> str:
    """The first few of so many names, and how many more there are: `a, b and 3 other(s)`."""
    shown = ", ".join(islice(names, most))
    return shown if count <= most else f"{shown} and {count - most} other(s)"


class Changes:
    """Keys with what was last said of them: the same is said again only after a while. Seconds."""

    def __init__(self, now: Callable[[], float], lasts: float = 3600.0) -> None:
        self._now = now
        self._lasts = lasts
        self._said: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def has_changed(self, key: str, value: str) -> bool:
        """Whether this is news; from now on it is not."""
        now = self._now()
        before, until = self._said.get(key, ("", now))
        if before == value and now < until:
            return False
        self._said[key] = (value, now + self._lasts)
        self._said.move_to_end(key)
        while len(self._said) > REMEMBERED:
            self._said.popitem(last=False)
        return True
