"""JSON lines in the layout operators' tools already parse; the home of structlog.

{"level":"INFO","time":"2026-01-02T03:04:05.678Z","logger":"controller","message":"…","commit":"…",…}

What is said through dovetail.logs, and by libraries through the standard library, becomes lines here.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec
import structlog

from dovetail.errors import Misconfigured, describe_error
from dovetail.logs import CONTROLLER, ROOT, LogLine

__all__ = ["bind_context", "configure_logging"]

LEVELS = {"debug": 10, "info": 20, "error": 40, "": 20}
SHOWN = {"warning": "WARN", "exception": "ERROR", "critical": "ERROR"}
FIRST, EVERY = 100, 100
# The build's revision, which the image sets; and what is shown where nobody knows it, as Karpenter does.
COMMIT, UNKNOWN = "DOVETAIL_COMMIT", "unknown"
# Modules through which a line passes on its way: who called them is the caller.
PASSED = ("structlog", "logging", "dovetail.logs", __name__)
Line = MutableMapping[str, Any]
_fields: ContextVar[Mapping[str, object]] = ContextVar("fields of every line")


@contextmanager
def bind_context(**fields: object) -> Iterator[None]:
    """Fields that every line inside carries: the controller, the object, the reconcile's id."""
    token = _fields.set({**_fields.get({}), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


_files: list[TextIO] = []
"""Log files that are open; a new configuration closes the old one's."""


def configure_logging(level: str = "info", paths: Sequence[str] = ("stdout",), commit: str = "") -> None:
    """Send lines of this level and above to these places: `stdout`, `stderr` or file names."""
    commit = commit or os.environ.get(COMMIT, "") or UNKNOWN
    sinks = [_open_sink(path) for path in paths]
    while _files:
        with suppress(OSError):  # what a full disk did not take is lost already
            _files.pop().close()
    _files.extend(sink for sink in sinks if isinstance(sink, io.TextIOBase))
    layout = _Layout(commit)
    to_sinks = _Lines(sinks, layout)
    structlog.configure(
        processors=[
            _add_context,
            *([_add_caller] if level == "debug" else []),
            Sampler(),
            layout,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=to_sinks,
        cache_logger_on_first_use=False,
    )
    # What libraries say through the standard library joins the same lines, from warnings up; what we say
    # there, at every level that was asked for.
    on_record = structlog.wrap_logger(
        to_sinks,
        processors=[_add_context, layout],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
    )
    logging.basicConfig(handlers=[_ToStructlog(on_record)], level=logging.WARNING, force=True)
    logging.getLogger(ROOT).setLevel(LEVELS[level])


class _ToStructlog(logging.Handler):
    """Hands lines to structlog: those on record past its level and its sampler."""

    def __init__(self, on_record: structlog.typing.FilteringBoundLogger) -> None:
        super().__init__()
        self._on_record = on_record

    def emit(self, record: logging.LogRecord) -> None:
        said = record.msg if isinstance(record.msg, LogLine) else _read_library_line(record)
        logger: structlog.typing.FilteringBoundLogger = (
            self._on_record if said.on_record else structlog.get_logger()
        )
        bound = logger.bind(logger_name=said.logger, **said.fields)
        bound.log(_find_level(record.levelno), said.message)


def _read_library_line(record: logging.LogRecord) -> LogLine:
    """What a library said, under a name below ours."""
    fields = {"error": record.exc_info[1]} if record.exc_info and record.exc_info[1] is not None else {}
    ours = record.name == ROOT or record.name.startswith(f"{ROOT}.")
    return LogLine(CONTROLLER if ours else f"{CONTROLLER}.{record.name}", record.getMessage(), fields)


def _find_level(number: int) -> int:
    """The nearest of the levels that have a name."""
    return next((level for level in (40, 30, 20) if number >= level), 10)


def _add_context(_: object, method: str, line: Line) -> Line:
    return {**_fields.get({}), **line}


class _Standard:
    """Whatever stdout or stderr is at the moment of writing: who runs us in-process may change them."""

    def __init__(self, name: str) -> None:
        self._name = name

    def write(self, text: str) -> None:
        getattr(sys, self._name).write(text)

    def flush(self) -> None:
        getattr(sys, self._name).flush()


def _open_sink(path: str) -> TextIO | _Standard:
    if path in ("stdout", "stderr"):
        return _Standard(path)
    try:
        return open(path, "a", buffering=1, encoding="utf-8")
    except OSError as error:
        raise Misconfigured(
            f"writing the log to {path}: {error.strerror}; choose a path that can be written"
        ) from error


class _Lines:
    """structlog's way to a file object: one write per line.

    A full disk or a reader that went away costs lines, and never what is done: whoever speaks is in the midst
    of launching or draining something. The first line that can be written again says how many were lost.
    """

    def __init__(self, sinks: Sequence[TextIO | _Standard], layout: _Layout) -> None:
        self._sinks, self._layout = sinks, layout
        self._lost = [0] * len(sinks)

    def __call__(self, *_: object) -> _Lines:
        return self

    def msg(self, line: str) -> None:
        for number, sink in enumerate(self._sinks):
            try:
                sink.write(self._tell_lost(number) + line + "\n")
                sink.flush()
                self._lost[number] = 0
            except (OSError, ValueError):  # full, closed, or nobody reads
                self._lost[number] += 1

    def _tell_lost(self, number: int) -> str:
        """A line of its own for what was lost; what was left of the last one ends before it."""
        if not self._lost[number]:
            return ""
        told = self._layout(None, "warning", {"event": "log lines were lost", "lines": self._lost[number]})
        return f"\n{told}\n"

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
            **({"caller": line.pop("caller")} if "caller" in line else {}),
            "message": line.pop("event"),
            "commit": self._commit,
        }
        line.pop("exc_info", None)
        error = line.pop("error", None)
        shown |= line
        if error is not None:
            shown["error"] = describe_error(error) if isinstance(error, Exception) else str(error)
        return _encode_line(shown)


def _encode_line(shown: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(shown, enc_hook=str).decode()
    except UnicodeEncodeError:
        # Half a character, as only foreign text has it, is not a reason to say nothing.
        return json.dumps(shown, default=str)


def _add_caller(_: object, method: str, line: Line) -> Line:
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_skipped(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    parts = frame.f_code.co_filename.split("/")[-2:]
    line["caller"] = f"{'/'.join(parts)}:{frame.f_lineno}"
    return line


def _is_skipped(module: str) -> bool:
    return module.endswith("messages") or any(module == p or module.startswith(f"{p}.") for p in PASSED)
