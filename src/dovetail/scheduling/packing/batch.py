"""A batch of pods in arrays: groups, what each may use, and what ties groups to each other.

A group is a set of pods nobody could tell apart. `solve.py` makes the batch from a snapshot and turns
the answer, counts of groups on nodes, back into names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dovetail.scheduling.packing.host_rules import HostRule
from dovetail.scheduling.packing.problem import Bools, Floats, Ints
from dovetail.scheduling.packing.zone_assignment import ZoneAffinity, ZoneSpread

__all__ = ["ANY_ZONE", "ExistingCapacity", "PackedNode", "PackedPlan", "PackingBatch"]

ANY_ZONE = -1


@dataclass(frozen=True, slots=True, eq=False)
class ExistingCapacity:
    """Nodes that are there or on their way: room that is paid for."""

    room: Floats  # node x resource
    zone: Ints  # node: index of its zone, or ANY_ZONE
    kind: Ints  # group: row of `takes`
    takes: Bools  # kind x node
    # Pods already there that host rules look at: by node, (rule, pods counted) and rules carried.
    counted: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    owned: dict[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class PackingBatch:
    """Everything the packing needs to know about one batch."""

    request: Floats  # group x resource
    count: Ints  # group
    mask: Ints  # group: row of `takes`
    takes: Bools  # mask x option
    open: Bools  # group x zone
    room: Floats  # option x resource
    price: Floats  # option x zone, infinite where not offered
    pinned: Bools  # group: its node must say which zone it is in
    spreads: tuple[ZoneSpread, ...] = ()
    together: tuple[ZoneAffinity, ...] = ()
    hosts: tuple[HostRule, ...] = ()
    running: ExistingCapacity | None = None

    @property
    def zones(self) -> int:
        return int(self.price.shape[1])


@dataclass(frozen=True, slots=True)
class PackedNode:
    """One new node: the cheapest option that holds it, its zone if it matters, and pods by group."""

    option: int
    zone: int
    pods: dict[int, int]


@dataclass(slots=True)
class PackedPlan:
    """The answer to a batch; `left` are pods for which another way must be found."""

    new: list[PackedNode]
    running: dict[int, dict[int, int]]
    left: Ints
    cost: float
    rounds: int = 0

    @property
    def complete(self) -> bool:
        return not self.left.any()


def find_cheapest_zone_prices(batch: PackingBatch) -> Floats:
    """What each option costs where it is cheapest."""
    return np.asarray(batch.price.min(axis=1, initial=np.inf))
