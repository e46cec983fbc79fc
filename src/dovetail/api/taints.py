"""The taints Dovetail sets, waits for and overlooks. Taints match by key and effect; values do not count."""

from __future__ import annotations

from typing import Final

from dovetail.api import labels
from dovetail.api.core import Taint

__all__ = [
    "DISRUPTED",
    "KNOWN_EPHEMERAL",
    "NO_EXECUTE",
    "NO_SCHEDULE",
    "PREFER_NO_SCHEDULE",
    "UNREGISTERED",
    "is_ephemeral",
    "is_same_taint",
]

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"

DISRUPTED: Final = Taint(key=labels.DISRUPTED_TAINT, effect=NO_SCHEDULE)
UNREGISTERED: Final = Taint(key=labels.UNREGISTERED_TAINT, effect=NO_EXECUTE)

KNOWN_EPHEMERAL: Final = (
    Taint(key=labels.NOT_READY_TAINT, effect=NO_SCHEDULE),
    Taint(key=labels.NOT_READY_TAINT, effect=NO_EXECUTE),
    Taint(key=labels.UNREACHABLE_TAINT, effect=NO_SCHEDULE),
    Taint(key=labels.UNINITIALIZED_TAINT, value="true", effect=NO_SCHEDULE),
    UNREGISTERED,
)
"""Taints a new node sheds by itself: until it is initialised they do not keep pods away."""

_EPHEMERAL = frozenset((taint.key, taint.effect) for taint in KNOWN_EPHEMERAL)


def is_same_taint(one: Taint, other: Taint) -> bool:
    """The same taint, whatever its value."""
    return one.key == other.key and one.effect == other.effect


def is_ephemeral(taint: Taint) -> bool:
    """Whether a new node sheds this taint by itself."""
    return (taint.key, taint.effect) in _EPHEMERAL or taint.key.startswith(labels.READINESS_TAINT_PREFIX)
