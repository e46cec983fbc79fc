"""JSON lines in the layout operators' tools already parse; the home of structlog.

{"level":"INFO","time":"2026-01-02T03:04:05.678Z","logger":"controller","message":"…","commit":"…",…}
"""

from __future__ import annotations

import io
import logging
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec
import structlog

from dovetail.errors import Misconfigured

__all__ = ["configure", "context", "get"]

LEVELS = {"debug": 10, "info": 20, "error": 40, "": 20}
SHOWN = {"warning": "WARN", "exception": "ERROR", "critical": "ERROR"}
FIRST, EVERY = 100, 100
Line = MutableMapping[str, Any]


def get(name: str = "controller") -> structlog.typing.FilteringBoundLogger:
    """A logger; sub-loggers append to its name with a dot."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(logger_name=name)
    return logger


@contextmanager
def context(**fields: object) -> Iterator[None]:
    """Fields that every line inside carries: the controller, the object, the reconcile's id."""
    tokens = structlog.contextvars.bind_contextvars(**fields)
    try:
        yield
    finally:
        structlog.contextvars.reset_contextvars(**tokens)


_files: list[TextIO] = []
"""Log files that are open; a new configuration closes the old one's."""


def configure(level: str = "info", paths: Sequence[str] = ("stdout",), commit: str = "") -> None:
    """Send lines of this level and above to these places: `stdout`, `stderr` or file names."""
    sinks = [_sink(path) for path in paths]
    while _files:
        _files.pop().close()
    _files.extend(sink for sink in sinks if isinstance(sink, io.TextIOBase))
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *([_caller] if level == "debug" else []),
            Sampler(),
            _Layout(commit),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=_Lines(sinks),
        cache_logger_on_first_use=False,
    )
    # What libraries say through the standard library joins the same lines, from warnings up.
    logging.basicConfig(handlers=[_FromLibraries()], level=logging.WARNING, force=True)


class _FromLibraries(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        fields = {"error": error} if error is not None else {}
        tell = get(f"controller.{record.name}")
        (tell.error if record.levelno >= logging.ERROR else tell.warning)(record.getMessage(), **fields)


class _Standard:
    """Whatever stdout or stderr is at the moment of writing: who runs us in-process may change them."""

    def __init__(self, name: str) -> None:
        self._name = name

    def write(self, text: str) -> None:
        getattr(sys, self._name).write(text)

    def flush(self) -> None:
        getattr(sys, self._name).flush()


def _sink(path: str) -> TextIO | _Standard:
    if path in ("stdout", "stderr"):
        return _Standard(path)
    try:
        return open(path, "a", buffering=1, encoding="utf-8")
    except OSError as error:
        raise Misconfigured(
            f"writing the log to {path}: {error.strerror}; choose a path that can be written"
        ) from error


class _Lines:
    """structlog's way to a file object: one write per line."""

    def __init__(self, sinks: Sequence[TextIO | _Standard]) -> None:
        self._sinks = sinks

    def __call__(self, *_: object) -> _Lines:
        return self

    def msg(self, line: str) -> None:
        for sink in self._sinks:
            sink.write(line + "\n")
            sink.flush()

    log = debug = info = warning = error = critical = exception = msg


class Sampler:
    """Per second and message: the first hundred lines, then every hundredth."""

    def __init__(self) -> None:
        self._second = 0
        self._seen: dict[str, int] = {}

    def __call__(self, _: object, method: str, line: Line) -> Line:
        second = int(datetime.now(UTC).timestamp())
        if second != self._second:
            self._second, self._seen = second, {}
        count = self._seen[line["event"]] = self._seen.get(line["event"], 0) + 1
        if count > FIRST and (count - FIRST) % EVERY:
            raise structlog.DropEvent
        return line


class _Layout:
    """Keys in zap's order and spelling; structured errors lifted to keys of their own."""

    def __init__(self, commit: str) -> None:
        self._commit = commit

    def __call__(self, _: object, method: str, line: Line) -> str:
        now = datetime.now(UTC)
        shown: dict[str, Any] = {
            "level": SHOWN.get(method, method.upper()),
            "time": now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z",
            "logger": line.pop("logger_name", "controller"),
            "message": line.pop("event"),
        }
        if "caller" in line:
            shown["caller"] = line.pop("caller")
        if self._commit:
            shown["commit"] = self._commit
        line.pop("exc_info", None)
        error = line.pop("error", None)
        shown |= line
        if isinstance(error, BaseException):
            shown |= {_kebab(k): v for k, v in _facts(error).items()}
        if error is not None:
            shown["error"] = str(error)
        return msgspec.json.encode(shown, enc_hook=str).decode()


def _facts(error: BaseException) -> Mapping[str, object]:
    facts = getattr(error, "facts", {})
    return facts if isinstance(facts, Mapping) else {}


def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", "-", name).lower()


def _caller(_: object, method: str, line: Line) -> Line:
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_globals.get("__name__", "").startswith("structlog")
        or frame.f_globals.get("__name__") == __name__
    ):
        frame = frame.f_back
    parts = frame.f_code.co_filename.split("/")[-2:]
    line["caller"] = f"{'/'.join(parts)}:{frame.f_lineno}"
    return line
