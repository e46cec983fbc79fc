"""Pools that ask more of disruption than their spec can say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.conditions import DRIFT_PAUSED
from dovetail.api.nodepool import NodePool
from support.builders import condition

WORDS: Mapping[str, str] = {
    "consolidation": labels.CONSOLIDATION,
    "min_saving": labels.MIN_SAVING,
    "min_saving_percent": labels.MIN_SAVING_PERCENT,
    "max_payback": labels.MAX_PAYBACK,
    "rest": labels.REST,
    "rate": labels.RATE,
    "recent": labels.RECENT,
    "drift": labels.DRIFT,
    "drift_pause_after": labels.DRIFT_PAUSE_AFTER,
}


def asking(pool: NodePool, **knobs: str) -> NodePool:
    """The pool with these annotations of its own."""
    said = {**pool.annotations, **{WORDS[name]: value for name, value in knobs.items()}}
    return replace(pool, metadata=replace(pool.metadata, annotations=said))


def paused(pool: NodePool, since: datetime, reason: str = "ReplacementLost") -> NodePool:
    """The pool after its drift was paused."""
    said = replace(condition(DRIFT_PAUSED, reason=reason, since=since), message="a replacement was lost")
    return replace(pool, status=replace(pool.status, conditions=(*pool.status.conditions, said)))
