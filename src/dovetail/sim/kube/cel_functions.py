"""The CEL functions Kubernetes has and the library lacks, as plain Python over JSON values.

A method call `x.f(y)` arrives as `f(x, y)`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

from dovetail.sim.kube import cel_text as text
from dovetail.sim.kube.cel_text import FunctionError, need
from dovetail.sim.kube.cel_values import VALUES

__all__ = ["FUNCTIONS", "FunctionError"]

_LONGEST_RANGE = 100_000


def _numbers(name: str, items: Any) -> list[Any]:
    need(name, items, list)
    return list(items)


def is_sorted(items: Any) -> bool:
    values = _numbers("isSorted", items)
    return all(a <= b for a, b in pairwise(values))


def total(items: Any) -> Any:
    values = _numbers("sum", items)
    if values and isinstance(values[0], timedelta):
        return sum(values, timedelta())
    return sum(values)


def smallest(items: Any) -> Any:
    values = _numbers("min", items)
    if not values:
        raise FunctionError("min called on empty list")
    return min(values)


def largest(items: Any) -> Any:
    values = _numbers("max", items)
    if not values:
        raise FunctionError("max called on empty list")
    return max(values)


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _within(item: Any, items: list[Any]) -> bool:
    return any(_same(item, other) for other in items)


def contains(items: Any, item: Any) -> bool:
    need("contains", items, list)
    return _within(item, items)


def distinct(items: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        if not _within(item, kept):
            kept.append(item)
    return kept


def flatten(items: list[Any], depth: int = 1) -> list[Any]:
    flat: list[Any] = []
    for item in items:
        flat.extend(flatten(item, depth - 1) if isinstance(item, list) and depth > 0 else [item])
    return flat


def slice_(items: list[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(items):
        raise FunctionError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def counting(count: int) -> list[int]:
    if not 0 <= count <= _LONGEST_RANGE:
        raise FunctionError(f"range of {count} is out of bounds")
    return list(range(count))


def sets_contains(items: list[Any], wanted: list[Any]) -> bool:
    return all(_within(item, items) for item in wanted)


def sets_intersects(items: list[Any], others: list[Any]) -> bool:
    return any(_within(item, items) for item in others)


def reverse(items: Any) -> Any:
    need("reverse", items, list)
    return items[::-1]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "matchesPattern": text.matches,
    "find": text.find,
    "findAll": text.find_all,
    "split": text.split,
    "join": text.join,
    "charAt": text.char_at,
    "indexOf": text.index_of,
    "lastIndexOf": text.last_index_of,
    "substring": text.substring,
    "replace": text.replace,
    "trim": text.trim,
    "lowerAscii": text.lower_ascii,
    "upperAscii": text.upper_ascii,
    "reverse": reverse,
    "format": text.format_,
    "strings.quote": text.quote,
    "textOf": text.to_string,
    "bool": text.to_bool,
    "int": text.to_int,
    "isSorted": is_sorted,
    "sum": total,
    "min": smallest,
    "max": largest,
    "contains": contains,
    "distinct": distinct,
    "flatten": flatten,
    "slice": slice_,
    "sort": lambda items: sorted(_numbers("sort", items)),
    "lists.range": counting,
    "sets.contains": sets_contains,
    "sets.intersects": sets_intersects,
    "sets.equivalent": lambda a, b: sets_contains(a, b) and sets_contains(b, a),
    **VALUES,
}
