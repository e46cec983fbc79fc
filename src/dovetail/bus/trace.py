"""Follow one instance or one event through the router's log. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["trace"]

FIELDS = ("id", "source", "instance", "instances")


def trace(lines: Iterable[str], what: str) -> Iterator[Mapping[str, Any]]:
    """The log's lines about an instance id, an event id or a message id, in their order.

    Deliveries are told at level debug; what was dropped, parked, kept or broadcast is told at any level.
    """
    for line in lines:
        if what not in line:
            continue
        try:
            told = json.loads(line)
        except ValueError:
            continue  # another program's line
        if isinstance(told, dict) and any(_names(told.get(field), what) for field in FIELDS):
            yield told


def _names(value: Any, what: str) -> bool:
    return what in value if isinstance(value, list) else value == what
