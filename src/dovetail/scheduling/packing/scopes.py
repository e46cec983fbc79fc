"""Where pods are packed together: one zone, or all of them when no pod cares.

A scope turns the groups that were dealt to it into packing classes, and the options sold there into a
short list without those another beats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.scheduling.packing.batch import ANY_ZONE, PackingBatch, find_cheapest_zone_prices
from dovetail.scheduling.packing.host_rules import HostRules
from dovetail.scheduling.packing.pod_assignment import ClassMembers
from dovetail.scheduling.packing.problem import (
    MANY,
    Bools,
    Floats,
    Ints,
    PackingProblem,
    find_column_kinds,
    find_undominated,
    index_distinct,
)

__all__ = ["OptionFronts", "PackingScope", "build_scope"]


@dataclass(frozen=True, slots=True)
class PackingScope:
    """One zone's problem, and how to read its answer."""

    zone: int
    problem: PackingProblem
    options: Ints  # option of the problem -> option of the batch
    groups: list[list[int]]  # class -> groups
    count: Ints  # group: pods dealt to this scope
    ruled: list[bool]  # class: some group of it has host rules

    def build_members(self) -> ClassMembers:
        left = {g: int(self.count[g]) for groups in self.groups for g in groups}
        return ClassMembers([list(groups) for groups in self.groups], left)


class OptionFronts:
    """Options worth looking at, by the masks in use and the prices of a zone; made once, used by all."""

    def __init__(self, batch: PackingBatch) -> None:
        self.batch = batch
        self._known: dict[tuple[bytes, bytes], tuple[Ints, Floats]] = {}
        self._alike: dict[tuple[bytes, bytes], Ints] = {}

    def find_front(self, zone: int, masks: Ints) -> tuple[Ints, Floats]:
        """(options, their prices) that could be bought for some of these masks."""
        price = find_cheapest_zone_prices(self.batch) if zone == ANY_ZONE else self.batch.price[:, zone]
        key = (price.tobytes(), masks.tobytes())
        if key not in self._known:
            self._known[key] = self._build_front(price, self.batch.takes[masks])
        return self._known[key]

    def _find_undominated(self, room: Floats, price: Floats) -> Ints:
        """Pools often sell the same types at the same prices: look once."""
        key = (room.tobytes(), price.tobytes())
        if key not in self._alike:
            self._alike[key] = find_undominated(room, price)
        return self._alike[key]

    def _build_front(self, price: Floats, takes: Bools) -> tuple[Ints, Floats]:
        sold = np.flatnonzero(np.isfinite(price) & takes.any(axis=0))
        if not len(sold):
            return sold, price[sold]
        _, kind = find_column_kinds(takes[:, sold])
        kept = []
        for each in range(int(kind.max()) + 1):
            same = sold[kind == each]
            kept.append(same[self._find_undominated(self.batch.room[same], price[same])])
        options = np.sort(np.concatenate(kept))
        return options, price[options]


def build_scope(
    batch: PackingBatch, hosts: HostRules, zone: int, count: Ints, fronts: OptionFronts, sizes: Floats
) -> PackingScope:
    """The packing problem of the pods dealt to one zone, each taken to be of its group's size."""
    keys: dict[tuple[bytes, int, int, int, int], int] = {}
    kind = None if batch.running is None else batch.running.kind
    groups: list[list[int]] = []
    for g in np.flatnonzero(count).tolist():
        key = (
            sizes[g].tobytes(),
            int(batch.mask[g]),
            int(hosts.family[g]),
            hosts.twin_limit[g],
            0 if kind is None else int(kind[g]),
        )
        at = keys.setdefault(key, len(groups))
        if at == len(groups):
            groups.append([])
        groups[at].append(g)
    first = np.array([each[0] for each in groups], np.int64)
    masks, mask = index_distinct(batch.mask[first])
    options, price = fronts.find_front(zone, masks)
    families, family = index_distinct(hosts.family[first])
    lowest = int(len(families) > 0 and families[0] == -1)
    limits = np.array([hosts.limits[f] for f in families.tolist() if f >= 0], np.int64)
    twinned = [hosts.twin_limit[g] < MANY for g in first.tolist()]
    problem = PackingProblem(
        request=sizes[first],
        count=np.array([int(count[each].sum()) for each in groups], np.int64),
        room=batch.room[options],
        price=price,
        allowed=batch.takes[masks][:, options][mask],
        family=family - lowest,
        limit=limits,
        twins=_count_twins(groups, twinned, count) if any(twinned) else (),
        per_twin=np.array([min(hosts.twin_limit[g], MANY) for g in first.tolist()], np.int64),
    )
    ruled = [twin or any(hosts.touched[g] for g in each) for twin, each in zip(twinned, groups, strict=True)]
    return PackingScope(zone, problem, options, groups, count, ruled)


def _count_twins(groups: list[list[int]], twinned: list[bool], count: Ints) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(int(count[g]) for g in each) if twin else () for each, twin in zip(groups, twinned, strict=True)
    )
