"""The little JSONPath that printer columns and scale paths use.

.a.b    ['key']    [0]    [*]    [?(@.type=="Ready")].status
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

Step = Callable[[Any], Iterator[Any]]

_FILTER = re.compile(
    r"\[\?\(\s*@((?:\.[\w\-/\\.]+|\['[^']*'\])*)\s*(==|!=)?\s*(\"[^\"]*\"|'[^']*'|[\w.\-]+)?\s*\)\]"
)
_STEP = re.compile(
    r"\.((?:\\.|[^.\[\]\\])+)|\['((?:\\.|[^'\\])*)'\]|\[\"((?:\\.|[^\"\\])*)\"\]|\[(-?\d+|\*)\]"
)


class PathError(ValueError):
    """A path outside the subset."""


def find(path: str, value: Any) -> list[Any]:
    """Everything the path leads to, in order; nothing where it leads nowhere."""
    found = [value]
    for step in _steps(path):
        found = [below for item in found for below in step(item)]
    return found


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[Step, ...]:
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    text = text.removeprefix("$")
    steps: list[Step] = []
    position = 0
    while position < len(text):
        if match := _FILTER.match(text, position):
            steps.append(_filter(*match.groups()))
        elif match := _STEP.match(text, position):
            steps.append(_child(match))
        else:
            raise PathError(f"the JSON path {path!r} is not understood at {text[position:]!r}")
        position = match.end()
    return tuple(steps)


def _child(match: re.Match[str]) -> Step:
    dotted, single, double, index = match.groups()
    if index == "*" or dotted == "*":
        return _every
    if index is not None:
        return lambda value: _element(value, int(index))
    key = re.sub(r"\\(.)", r"\1", next(name for name in (dotted, single, double) if name is not None))
    return lambda value: _member(value, key)


def _member(value: Any, key: str) -> Iterator[Any]:
    if isinstance(value, dict) and key in value:
        yield value[key]


def _element(value: Any, index: int) -> Iterator[Any]:
    if isinstance(value, list) and -len(value) <= index < len(value):
        yield value[index]


def _every(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield from value.values() if isinstance(value, dict) else value


def _filter(path: str, operator: str | None, literal: str | None) -> Step:
    wanted = _literal(literal)

    def keep(value: Any) -> Iterator[Any]:
        for item in _every(value):
            found = find(path, item)
            if operator is None:
                matches = bool(found)
            else:
                matches = bool(found) and (found[0] == wanted) is (operator == "==")
            if matches:
                yield item

    return keep


def _literal(text: str | None) -> Any:
    if text is None:
        return None
    if text[0] in "\"'":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text
