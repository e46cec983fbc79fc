"""Supply: what the cloud of a recording did by itself: how long machines booted, and which it took back.

A reclaim is told by what it leaves behind: a spot node goes that nobody chose to remove and that did not
expire. Catalogues tell the rest: what was sold at each moment, where and for how much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from dovetail.api import conditions, labels
from dovetail.api.meta import Record
from dovetail.api.nodeclaim import NodeClaim
from dovetail.disruption.situation import Situation
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.settings.durations import parse_duration

__all__ = ["BootTime", "BootTimes", "ReclaimReader", "RecordedReclaim", "SpotPlace"]

# Where a recording has no node that booted: seconds until it registers, and from then until it is ready.
UNKNOWN_BOOT = (30.0, 10.0)


class BootTime(NamedTuple):
    """Seconds from launch until the node registered, and from then until it was ready for pods."""

    registers: float
    ready: float


@dataclass(slots=True)
class BootTimes:
    """How long nodes took to boot, by NodePool and zone, as recorded NodeClaims tell."""

    known: dict[tuple[str, str], list[BootTime]] = field(default_factory=dict)
    _read: set[str] = field(default_factory=set)

    def read_look(self, situation: Situation) -> None:
        """Take in the NodeClaims that are ready and were not before."""
        for state in situation.snapshot.nodes:
            claim = state.claim
            if claim is None or (claim.uid or claim.name) in self._read:
                continue
            found = _read_boot(claim)
            if found is not None:
                self._read.add(claim.uid or claim.name)
                where = claim.labels.get(labels.NODEPOOL, ""), claim.labels.get(labels.ZONE, "")
                self.known.setdefault(where, []).append(found)

    def choose(self, pool: str, zone: str, pick: Callable[[int], int]) -> BootTime:
        """A boot time as they were here; else as in the NodePool, else as anywhere. `pick` draws a number."""
        of_pool = [each for (name, _), found in self.known.items() if name == pool for each in found]
        anywhere = [each for found in self.known.values() for each in found]
        for found in (self.known.get((pool, zone), []), of_pool, anywhere):
            if found:
                return found[pick(len(found))]
        return BootTime(*UNKNOWN_BOOT)


def _read_boot(claim: NodeClaim) -> BootTime | None:
    times = []
    for kind in (conditions.LAUNCHED, conditions.REGISTERED, conditions.INITIALIZED):
        found = claim.status.find_condition(kind)
        if found is None or found.status != conditions.TRUE or found.last_transition_time is None:
            return None
        times.append(found.last_transition_time)
    launched, registered, ready = times
    return BootTime(
        max((registered - launched).total_seconds(), 0.0), max((ready - registered).total_seconds(), 0.0)
    )


class SpotPlace(NamedTuple):
    """Where spot capacity comes from: one instance type in one zone."""

    instance_type: str
    zone: str


class RecordedReclaim(Record, frozen=True):
    """At a time the cloud took back so many of the spot nodes of one place."""

    at: datetime
    place: SpotPlace
    taken: int
    among: int

    @property
    def share(self) -> float:
        """The part of the place's nodes that was taken."""
        return self.taken / self.among if self.among else 0.0


@dataclass(slots=True)
class ReclaimReader:
    """Reads looks in their order and tells which spot nodes were taken back."""

    reclaims: int = 0
    spot_hours: float = 0.0
    places: set[SpotPlace] = field(default_factory=set)
    _running: dict[str, tuple[SpotPlace, StateNode]] = field(default_factory=dict)
    _last: datetime | None = None

    @property
    def hazard(self) -> float:
        """The share of spot nodes that is taken back in an hour."""
        return self.reclaims / self.spot_hours if self.spot_hours else 0.0

    def read_look(self, at: datetime, situation: Situation) -> list[RecordedReclaim]:
        """The reclaims since the look before, by place."""
        if self._last is not None:
            self.spot_hours += len(self._running) * (at - self._last) / timedelta(hours=1)
        now = {}
        ended: dict[SpotPlace, int] = {}
        states = {}
        for state in situation.snapshot.nodes:
            place = find_spot_place(state)
            if place is not None and state.claim is not None:
                claim = state.claim.uid or state.claim.name  # a node has another name before it registers
                states[claim] = state
                if not _is_ending(state):
                    now[claim] = place, state
        among: dict[SpotPlace, int] = {}
        for name, (place, before) in self._running.items():
            among[place] = among.get(place, 0) + 1
            if name not in now and _was_reclaimed(before, states.get(name), at):
                ended[place] = ended.get(place, 0) + 1
        self._running, self._last = now, at
        self.places.update(place for place, _ in now.values())
        self.reclaims += sum(ended.values())
        return [
            RecordedReclaim(at=at, place=place, taken=taken, among=among[place])
            for place, taken in sorted(ended.items())
        ]


def find_spot_place(state: StateNode) -> SpotPlace | None:
    """The place of a managed spot node; None for all others."""
    known = views.read_labels(state)
    if state.claim is None or known.get(labels.CAPACITY_TYPE) != labels.SPOT:
        return None
    return SpotPlace(known.get(labels.INSTANCE_TYPE, ""), known.get(labels.ZONE, ""))


def _is_ending(state: StateNode) -> bool:
    claim, node = state.claim, state.node
    return (claim is not None and claim.deleting) or (node is not None and node.deleting)


def _was_reclaimed(before: StateNode, after: StateNode | None, at: datetime) -> bool:
    """Whether nobody chose to remove a node that goes.

    Whoever chooses marks the node first, and says why when it goes; a mark that comes with its end is none.
    """
    if views.has_disruption_mark(before) or _has_reason(before.claim):
        return False
    if after is not None and _has_reason(after.claim):
        return False
    claim = before.claim
    return claim is not None and not _has_expired(claim, at)


def _has_reason(claim: NodeClaim | None) -> bool:
    found = claim.status.find_condition(conditions.DISRUPTION_REASON) if claim is not None else None
    return found is not None and found.status == conditions.TRUE


def _has_expired(claim: NodeClaim, at: datetime) -> bool:
    created = claim.metadata.creation_timestamp
    try:
        limit = parse_duration(claim.spec.expire_after) if claim.spec.expire_after else None
    except ValueError:
        return False
    return created is not None and limit is not None and at - created >= limit
