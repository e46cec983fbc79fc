"""The one logger: a constant message and named fields.

    log = get_logger()
    log.warning("the queue cannot be read", queue=name, error=error)

Messages that operators rely on are declared beside the code that says them, through `debug`, `info` and
`error` below, with the keys of their fields as Karpenter spells them; the reference lists those. Every line
goes through the standard library's `logging`, under the logger `dovetail`: code that acts needs no logger
handed in, and nothing is written until a process asks for lines, by runtime/logs (structlog) or, in a
function without dependencies, by `write_json_lines`. Code that decides says nothing.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

__all__ = [
    "MESSAGES",
    "SILENT",
    "Changes",
    "LogLine",
    "LogMessage",
    "Logger",
    "audit",
    "build_reference",
    "debug",
    "error",
    "first_of",
    "get_logger",
    "info",
    "write_json_lines",
]

MESSAGES: dict[str, LogMessage] = {}
"""Every declared message by its text."""

ROOT = "dovetail"
CONTROLLER = "controller"
REMEMBERED = 100_000
# For a library that insists on a logger where nothing is to be said.
SILENT = logging.getLogger(f"{ROOT}.silent")
SILENT.disabled = True
LEVELS = {"DEBUG": "DEBUG", "INFO": "INFO", "WARNING": "WARN", "ERROR": "ERROR"}


class LogLine:
    """One line: the logger's name as it is shown, a constant message, and fields.

    A line `on_record` is written whatever level was asked for, and however many of its kind there are.
    """

    __slots__ = ("fields", "logger", "message", "on_record")

    def __init__(
        self, logger: str, message: str, fields: Mapping[str, object], on_record: bool = False
    ) -> None:
        self.logger, self.message, self.fields, self.on_record = logger, message, fields, on_record

    def __str__(self) -> str:
        """The line for a handler that knows nothing of fields."""
        return " ".join((self.message, *(f"{key}={value}" for key, value in self.fields.items())))


class Logger:
    """Says messages under one name: `controller`, a name below it, or `bus`."""

    def __init__(self, name: str) -> None:
        below = name.removeprefix(CONTROLLER).lstrip(".")
        self._name, self._log = name, logging.getLogger(f"{ROOT}.{below}" if below else ROOT)

    def is_enabled(self, level: int) -> bool:
        """Whether anybody asked for lines of this level; nothing costly is made for nobody."""
        return self._log.isEnabledFor(level)

    def log(self, level: int, message: str, fields: Mapping[str, object]) -> None:
        if self._log.isEnabledFor(level):
            self._log.log(level, LogLine(self._name, message, fields))

    def put_on_record(self, level: int, message: str, fields: Mapping[str, object]) -> None:
        """Write a line past every level and sampler."""
        line = LogLine(self._name, message, fields, on_record=True)
        self._log.handle(self._log.makeRecord(self._log.name, level, "", 0, line, (), None))

    def debug(self, message: str, /, **fields: object) -> None:
        self.log(logging.DEBUG, message, fields)

    def info(self, message: str, /, **fields: object) -> None:
        self.log(logging.INFO, message, fields)

    def warning(self, message: str, /, **fields: object) -> None:
        self.log(logging.WARNING, message, fields)

    def error(self, message: str, /, **fields: object) -> None:
        self.log(logging.ERROR, message, fields)


def get_logger(name: str = CONTROLLER) -> Logger:
    """A logger; sub-loggers append to its name with a dot."""
    return Logger(name)


class _JsonLines(logging.Handler):
    """Writes what we say as lines of JSON, with the standard library alone."""

    def __init__(self, write: Callable[[str], object]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        said = record.msg if isinstance(record.msg, LogLine) else LogLine(ROOT, record.getMessage(), {})
        line = {"level": LEVELS.get(record.levelname, record.levelname), "logger": said.logger}
        shown = {**line, "message": said.message, **said.fields}
        self._write(json.dumps(shown, default=str, separators=(",", ":")))


def write_json_lines(write: Callable[[str], object], level: str = "info") -> None:
    """Hand each line to `write`, for a function that has no room for structlog: info, or debug as well."""
    ours = logging.getLogger(ROOT)
    ours.handlers[:] = [_JsonLines(write)]
    # The function's runtime has a handler of its own above, which would write each line a second time.
    ours.propagate = False
    ours.setLevel(logging.DEBUG if level == "debug" else logging.INFO)


class LogMessage:
    """A declared message: its level, when it is said, and the keys it carries."""

    def __init__(
        self,
        text: str,
        level: int,
        about: str,
        keys: Sequence[str],
        ours: bool,
        logger: str,
        on_record: bool = False,
    ) -> None:
        self.text, self.level, self.about, self.keys, self.ours = text, level, about, tuple(keys), ours
        self._on_record = on_record
        self._log = get_logger(f"{CONTROLLER}.{logger}" if logger else CONTROLLER)
        if text in MESSAGES:
            raise ValueError(f"the log message {text!r} is declared twice")
        MESSAGES[text] = self

    @property
    def heard(self) -> bool:
        """Whether anybody asked for lines of this level; nothing costly is made for nobody."""
        return self._on_record or self._log.is_enabled(self.level)

    def __call__(self, fields: Mapping[str, object] | None = None) -> None:
        say = self._log.put_on_record if self._on_record else self._log.log
        say(self.level, self.text, dict(fields or {}))


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


def audit(text: str, about: str, keys: Sequence[str] = (), *, logger: str = "audit") -> LogMessage:
    """A message of what was written or decided, for those who check on us: never filtered, never sampled."""
    return LogMessage(text, logging.INFO, about, keys, ours=True, logger=logger, on_record=True)


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
