"""Replacements that did not come up: how long a pool waits before the same is tried again.

Each loss in a row, for one reason of disruption, doubles the wait. A pool that was edited since is tried at
once, as the edit may be the remedy. What was lost is noted on the pool, for the next process to find.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodepool import NodePool

__all__ = [
    "ReplacementSetback",
    "add_loss",
    "drop_reason",
    "explain_backoff",
    "list_backoffs",
    "read_setbacks",
    "write_setbacks",
]

FIRST, LONGEST = timedelta(minutes=1), timedelta(minutes=30)
_NOTE = re.compile(r"([A-Za-z]{1,40})=([0-9]{1,6})@([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z)/([0-9]{1,12})")
_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class ReplacementSetback:
    """So many replacements in a row were lost, the last of them then, under this generation of the pool."""

    count: int
    at: datetime
    generation: int

    @property
    def wait(self) -> timedelta:
        doublings = min(self.count - 1, 10)
        return min(FIRST * (1 << doublings), LONGEST)

    def is_active(self, now: datetime) -> bool:
        """Whether the wait is still on; one that begins in the future is nobody's note."""
        return self.at <= now < self.at + self.wait

    def __str__(self) -> str:
        many = "replacement" if self.count == 1 else f"{self.count} replacements in a row"
        then = (self.at + self.wait).strftime("%H:%M:%SZ")
        return f"{many} did not come up; the next is tried at {then}, or when the pool is edited"


def read_setbacks(pool: NodePool) -> dict[str, ReplacementSetback]:
    """The losses noted on the pool that still count, by reason. What is no note is passed over."""
    found: dict[str, ReplacementSetback] = {}
    for note in pool.annotations.get(labels.LOST_REPLACEMENTS, "").split():
        read = _NOTE.fullmatch(note)
        if read is None:
            continue
        try:
            at = datetime.fromisoformat(read[3])
        except ValueError:
            continue
        setback = ReplacementSetback(max(1, int(read[2])), at, int(read[4]))
        if setback.generation == pool.metadata.generation:
            found[read[1]] = setback
    return found


def add_loss(pool: NodePool, reason: str, now: datetime) -> dict[str, ReplacementSetback]:
    """The pool's losses with one more of this reason; those of one wave count as one."""
    known = read_setbacks(pool)
    before = known.get(reason)
    if before is not None and before.is_active(now):
        return known
    count = before.count + 1 if before is not None else 1
    return {**known, reason: ReplacementSetback(count, now.replace(microsecond=0), pool.metadata.generation)}


def drop_reason(pool: NodePool, reason: str) -> dict[str, ReplacementSetback]:
    """The pool's losses without those of this reason: one came up."""
    return {key: setback for key, setback in read_setbacks(pool).items() if key != reason}


def write_setbacks(pool: NodePool, found: Mapping[str, ReplacementSetback]) -> NodePool:
    """The pool with exactly these losses noted on it."""
    kept = {key: text for key, text in pool.annotations.items() if key != labels.LOST_REPLACEMENTS}
    if found:
        kept[labels.LOST_REPLACEMENTS] = " ".join(_format_setback(*each) for each in sorted(found.items()))
    return replace(pool, metadata=replace(pool.metadata, annotations=kept))


def _format_setback(reason: str, setback: ReplacementSetback) -> str:
    return f"{reason}={setback.count}@{setback.at.strftime(_TIME)}/{setback.generation}"


def explain_backoff(pool: NodePool, reason: str, now: datetime) -> str:
    """Why nodes of the pool are not replaced for this reason now; empty when they may be."""
    return list_backoffs(read_setbacks(pool), now).get(reason, "")


def list_backoffs(found: Mapping[str, ReplacementSetback], now: datetime) -> dict[str, str]:
    """The waits that are still on, in words, by reason."""
    return {key: f"{key}: {setback}" for key, setback in sorted(found.items()) if setback.is_active(now)}
