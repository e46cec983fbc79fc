"""Which line a field was written on.

Values are kept without positions; the events are replayed, once, when somebody first asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import yaml
from yaml._yaml import CParser

from dovetail.api.manifests.scalars import BadScalar, as_key, parse_plain


class Mark(Protocol):
    """A place in a text, counted from 0."""

    line: int
    column: int


def parse_events(text: bytes) -> Iterator[yaml.Event]:
    """Every event up to the end of the text; raises yaml.YAMLError where it makes no sense."""
    parser = CParser(text)
    try:
        while True:
            event = parser.get_event()
            if event is None or isinstance(event, yaml.StreamEndEvent):
                return
            yield event
    finally:
        parser.dispose()


def find_mark(event: yaml.Event) -> Mark:
    """Where an event begins; the ones libyaml emits always know."""
    return cast(Mark, event.start_mark)


Step = str | int
Path = Sequence[Step]

_STEP = re.compile(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|\[([^\]]*)\]|([^.\[]+)')
# libyaml rejects the surrogate halves that JSON uses for emoji; any letter holds their place.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def parse_path(path: str) -> tuple[Step, ...]:
    """`a.b[0]["c.d"]` as its steps."""
    steps: list[Step] = []
    for quoted, number, bracketed, word in _STEP.findall(path):
        steps.append(int(number) if number else quoted.replace('\\"', '"') or bracketed or word)
    return tuple(steps)


@dataclass(slots=True)
class Positions:
    """The lines of one document of one stretch of text, found when first needed."""

    text: bytes = b""
    first_line: int = 1
    ordinal: int = 0  # which document of the stretch
    depth: int = 128
    start: int | None = None  # the document's own first line, where that is already known
    _lines: dict[tuple[Step, ...], int] | None = field(default=None, repr=False)

    def line_of(self, path: tuple[Step, ...]) -> int | None:
        """The line of the path, or of its nearest written ancestor."""
        if self._lines is None:
            self._lines = self._find_lines()
        found: tuple[Step, ...] | None = () if () in self._lines else None
        rest = list(path)
        here: tuple[Step, ...] = ()
        while rest:
            taken = self._find_next(here, rest)
            if not taken:
                break
            here = found = (*here, taken[0])
            del rest[: taken[1]]
        return self.start if found is None else self._lines[found]

    def _find_next(self, here: tuple[Step, ...], rest: list[Step]) -> tuple[Step, int] | None:
        """The next step that exists, and how many steps of a plainly dotted key it swallowed."""
        lines = self._lines or {}
        joined = ""
        for count, step in enumerate(rest, 1):
            if isinstance(step, int):
                return (step, 1) if count == 1 and (*here, step) in lines else None
            joined = f"{joined}.{step}" if joined else step
            if (*here, joined) in lines:
                return joined, count
        return None

    def _find_lines(self) -> dict[tuple[Step, ...], int]:
        lines: dict[tuple[Step, ...], int] = {}
        try:
            for path, line in _list_places(_SURROGATE.sub(rb"\\u0041", self.text), self.ordinal, self.depth):
                lines.setdefault(path, line + self.first_line)
        except (yaml.YAMLError, BadScalar):
            pass  # what was replayed up to here still has its lines
        return lines


def _list_places(text: bytes, ordinal: int, depth: int) -> Iterator[tuple[tuple[Step, ...], int]]:
    """Every path of one document with the line, from 0, of its key or list item."""
    path: list[Step | None] = []  # None: a mapping waiting for its next key
    documents = -1
    for event in parse_events(text):
        if len(path) > depth:
            return
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        elif documents == ordinal:
            yield from _follow_event(event, path)


def _follow_event(event: yaml.Event, path: list[Step | None]) -> Iterator[tuple[tuple[Step, ...], int]]:
    """Move through the document by one event; `path` always ends with where the next value goes."""
    if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
        path.pop()
        _advance_path(path)
        return
    if not isinstance(event, yaml.NodeEvent):
        return
    if path and path[-1] is None and isinstance(event, yaml.ScalarEvent):
        path[-1] = as_key(event.value if event.style or event.tag else parse_plain(event.value))
        yield tuple(step for step in path if step is not None), find_mark(event).line
        return
    if not path or isinstance(path[-1], int):
        yield tuple(step for step in path if step is not None), find_mark(event).line
    if isinstance(event, yaml.MappingStartEvent):
        path.append(None)
    elif isinstance(event, yaml.SequenceStartEvent):
        path.append(0)
    else:
        _advance_path(path)


def _advance_path(path: list[Step | None]) -> None:
    """A value ended: the next one is the following item, or waits for a key."""
    if path:
        last = path[-1]
        path[-1] = last + 1 if isinstance(last, int) else None
