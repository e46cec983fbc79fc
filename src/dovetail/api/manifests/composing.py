"""YAML events folded into plain values, without recursion and within limits.

PyYAML's own constructor follows Python's idea of YAML and trusts its input. This one follows
kubectl's, counts what it builds, and says where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import yaml

from dovetail.api.manifests.document import ReadLimits
from dovetail.api.manifests.positions import Mark, find_mark, parse_events
from dovetail.api.manifests.scalars import TAG, BadScalar, Scalar, as_key, parse_plain, parse_tagged


class Unreadable(Exception):
    """The text stops making sense here. Lines and columns count from 0, within the stretch read."""

    def __init__(self, message: str, line: int, column: int | None = None) -> None:
        super().__init__(message)
        self.message, self.line, self.column = message, line, column


@dataclass(frozen=True, slots=True)
class YamlFlaw:
    """A flaw that does not stop the reading, such as a key given twice."""

    message: str
    path: str
    line: int
    column: int
    fatal: bool = True


@dataclass(slots=True)
class ReadBudget:
    """What is left of the limits, shared by every document of a file."""

    limits: ReadLimits
    nodes: int = 0
    expanded: int = 0

    def spend_values(self, nodes: int, mark: Mark) -> None:
        """Count values as they are read."""
        self.nodes += nodes
        if self.nodes > self.limits.nodes:
            raise Unreadable(
                f"the file holds more than {self.limits.nodes} values; split it", mark.line, mark.column
            )

    def expand_alias(self, nodes: int, mark: Mark) -> None:
        """Count values that an alias repeats, before they are copied."""
        self.expanded += nodes
        if self.expanded > self.limits.expanded:
            message = f"aliases repeat more than {self.limits.expanded} values; write them out instead"
            raise Unreadable(message, mark.line, mark.column)
        self.spend_values(nodes, mark)


class _Merge:
    """The key `<<`, which is no key but a request to include other mappings."""


_MERGE = _Merge()
_NO_KEY = object()


@dataclass(slots=True)
class _Frame:
    """A mapping or list that is still open."""

    value: Any
    anchor: str | None
    spent: int  # the budget when it opened, to know its size when it closes
    mark: Mark
    key: Any = _NO_KEY
    merges: list[Any] = field(default_factory=list)


class Composer:
    """Turns the events of one stretch of text into values, one per document."""

    def __init__(self, text: bytes, budget: ReadBudget) -> None:
        self.text = text
        self.budget = budget
        self.slips: list[YamlFlaw] = []
        self._frames: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._finished: list[Any] = []

    def read_documents(self) -> Iterator[Any]:
        """Each document's value; raises Unreadable at the first place that makes no sense."""
        try:
            for event in parse_events(self.text):
                self._take_event(event)
                if isinstance(event, yaml.DocumentEndEvent):
                    self._anchors.clear()
                    yield self._finished.pop()
        except yaml.YAMLError as error:
            raise _build_unreadable(error, self.text) from error

    def _take_event(self, event: yaml.Event) -> None:
        match event:
            case yaml.ScalarEvent():
                self.budget.spend_values(1, find_mark(event))
                self._deliver_value(self._read_scalar(event), find_mark(event), event.anchor, 1)
            case yaml.AliasEvent():
                self._repeat_alias(event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open_frame(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close_frame()

    def _open_frame(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        mark = find_mark(event)
        if len(self._frames) >= self.budget.limits.depth:
            message = f"nested deeper than {self.budget.limits.depth} levels; no Kubernetes object is"
            raise Unreadable(message, mark.line, mark.column)
        value: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._frames.append(_Frame(value, event.anchor, self.budget.nodes, mark))
        self.budget.spend_values(1, mark)

    def _close_frame(self) -> None:
        frame = self._frames.pop()
        for merged in frame.merges:
            for key, value in merged.items():
                frame.value.setdefault(key, value)
        self._deliver_value(frame.value, frame.mark, frame.anchor, self.budget.nodes - frame.spent)

    def _repeat_alias(self, event: yaml.AliasEvent) -> None:
        mark = find_mark(event)
        if event.anchor not in self._anchors:
            raise Unreadable(f"*{event.anchor} refers to nothing above it", mark.line, mark.column)
        value, size = self._anchors[event.anchor]
        self.budget.expand_alias(size, mark)
        self._deliver_value(deepcopy(value), mark, None, size)

    def _read_scalar(self, event: yaml.ScalarEvent) -> Scalar | _Merge:
        mark = find_mark(event)
        try:
            if event.tag and event.tag != "!":
                self._check_tag(event.tag, mark)
                return parse_tagged(event.value, event.tag)
            if event.style:  # quoted, or a block
                return str(event.value)
            return _MERGE if event.value == "<<" and self._expects_key() else parse_plain(event.value)
        except BadScalar as error:
            raise Unreadable(str(error), mark.line, mark.column) from error

    def _check_tag(self, tag: str, mark: Mark) -> None:
        if not tag.startswith(TAG):
            message = f"the tag {tag} is ignored, as kubectl does; render templates before reading them"
            self.slips.append(YamlFlaw(message, self._describe_path(), mark.line, mark.column, fatal=False))

    def _expects_key(self) -> bool:
        return (
            bool(self._frames)
            and isinstance(self._frames[-1].value, dict)
            and self._frames[-1].key is _NO_KEY
        )

    def _deliver_value(self, value: Any, mark: Mark, anchor: str | None, size: int) -> None:
        if anchor:
            self._anchors[anchor] = (value, size)
        if not self._frames:
            self._finished.append(value)
        elif isinstance(self._frames[-1].value, list):
            self._frames[-1].value.append(value)
        elif self._frames[-1].key is _NO_KEY:
            self._take_key(self._frames[-1], value, mark)
        else:
            self._take_value(self._frames[-1], value, mark)

    def _take_key(self, frame: _Frame, value: Any, mark: Mark) -> None:
        if isinstance(value, _Merge):
            frame.key = value
            return
        if isinstance(value, dict | list):
            raise Unreadable("a key is itself a mapping or a list; keys are words", mark.line, mark.column)
        try:
            frame.key = as_key(value)
        except BadScalar as error:
            raise Unreadable(str(error), mark.line, mark.column) from error
        if frame.key in frame.value:
            message = f"the key {frame.key!r} is given twice; the last one counts, so remove the other"
            self.slips.append(YamlFlaw(message, self._describe_path(), mark.line, mark.column))

    def _take_value(self, frame: _Frame, value: Any, mark: Mark) -> None:
        key, frame.key = frame.key, _NO_KEY
        if not isinstance(key, _Merge):
            frame.value[key] = value
            return
        merged = value if isinstance(value, list) else [value]
        if not all(isinstance(one, dict) for one in merged):
            raise Unreadable("<< includes something that is not a mapping", mark.line, mark.column)
        frame.merges.extend(merged)

    def _describe_path(self) -> str:
        """Where we are, for people: open keys and list positions."""
        parts = ""
        for frame in self._frames:
            if isinstance(frame.value, list):
                parts += f"[{len(frame.value)}]"
            elif isinstance(frame.key, str):
                parts += f".{frame.key}" if parts else frame.key
        return parts


def _build_unreadable(error: yaml.YAMLError, text: bytes) -> Unreadable:
    """libyaml's error in one sentence, with its place."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        reason = getattr(error, "reason", None) or "the text is not YAML"
        return Unreadable(f"{reason}; save the file as plain UTF-8 text", 0)
    problem = getattr(error, "problem", None) or "the text is not YAML"
    return Unreadable(_describe_problem(problem, _line_at(text, mark)), mark.line, mark.column)


def _line_at(text: bytes, mark: Mark) -> str:
    lines = text.split(b"\n", mark.line + 1)
    return lines[mark.line].decode("utf-8", "replace") if mark.line < len(lines) else ""


def _describe_problem(problem: str, line: str) -> str:
    if "\t" in line[: len(line) - len(line.lstrip())] or (
        "\t" in line and "cannot start any token" in problem
    ):
        return "this is not YAML: the line is indented with a tab; use spaces"
    if "cannot start any token" in problem:
        return "this is not YAML: a special character starts a word here; put the word in quotes"
    if "mapping values are not allowed" in problem or "did not find expected" in problem:
        return f"this is not YAML: {problem}; check the indentation of this line and of the one above"
    return f"this is not YAML: {problem}"
