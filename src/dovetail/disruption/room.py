"""What room there is, reckoned once per scene: enough to settle many questions without the engine.

Only what can be shown with resources alone is said here: a pod that no node has room for needs a new one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from dovetail.api import predicates
from dovetail.api.pod import Pod
from dovetail.scheduling import nodes as views
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.requirements import Requirements
from dovetail.scheduling.resources import Nano, nano, needs, plus
from dovetail.scheduling.snapshot import Pool, Snapshot, StateNode
from dovetail.scheduling.templates import dynamic_pools

__all__ = ["Room", "room_in"]


@dataclass(frozen=True)
class Spot:
    """A node that stays, and what is free on it."""

    key: str
    cpu: int
    free: Nano
    state: StateNode


@dataclass(frozen=True)
class Room:
    """Free room by node, least cpu first, and what can be bought: price and size, cheapest first.

    `plain` says that no running pod and no pool cares which nodes there are or how many; `limited`, that
    some pool may buy only so much.
    """

    spots: tuple[Spot, ...]
    sold: tuple[tuple[float, Nano], ...]
    plain: bool
    limited: bool

    def homeless(self, pods: Iterable[Pod], without: AbstractSet[str]) -> Nano | None:
        """What the pods that fit on no node take together; None when there are none of them."""
        total: Nano | None = None
        for pod in pods:
            wanted = needs(pod)
            if not any(_holds(spot.free, wanted) for spot in self._from(wanted, without)):
                total = plus(total or {}, wanted)
        return total

    def cheapest(self, wanted: Nano) -> float | None:
        """The least a node that holds this would cost; None when there is no such node."""
        return next((price for price, size in self.sold if _holds(size, wanted)), None)

    def less(self, names: AbstractSet[str]) -> Room:
        """The room without these nodes and those that are going."""
        spots = tuple(spot for spot in self.spots if views.name(spot.state) not in names)
        return replace(self, spots=spots)

    def _from(self, wanted: Nano, without: AbstractSet[str]) -> Iterable[Spot]:
        start = bisect_left(self.spots, wanted.get("cpu", 0), key=lambda spot: spot.cpu)
        return (spot for spot in self.spots[start:] if spot.key not in without)


def room_in(snapshot: Snapshot) -> Room:
    """The room of a snapshot."""
    spots = [
        Spot(views.provider_id(each), free.get("cpu", 0), free, each)
        for each in snapshot.nodes
        if not views.deleting(each)
        for free in (views.available(each),)
    ]
    pools = dynamic_pools(snapshot.pools)
    limited = any(pool.nodepool.spec.limits for pool in pools)
    return Room(
        spots=tuple(sorted(spots, key=lambda spot: spot.cpu)),
        sold=tuple(sorted(_sold(_types(snapshot, pools)), key=lambda sale: sale[0])),
        plain=_plain(snapshot) and not limited,
        limited=limited,
    )


def _types(snapshot: Snapshot, pools: Iterable[Pool]) -> Iterable[InstanceType]:
    """Everything some pool could buy, each kind once."""
    known: dict[str, InstanceType] = {}
    for pool in pools:
        wanted = Requirements.of(pool.nodepool.spec.template.spec.requirements or ())
        for each in snapshot.types(pool):
            if wanted.compatible(each.requirements, snapshot.options.flavour.well_known):
                known[f"{pool.catalog}/{each.name}"] = each
    return known.values()


def _sold(types: Iterable[InstanceType]) -> Iterable[tuple[float, Nano]]:
    for each in types:
        prices = [offering.price for offering in each.offerings if offering.available]
        if prices:
            sizes = [nano(group.allocatable) for group in each.allocatable_groups()]
            yield from ((min(prices), size) for size in sizes)


def _plain(snapshot: Snapshot) -> bool:
    if snapshot.options.default_spread or not snapshot.options.ignore_dra:
        return False
    return not any(predicates.required_anti_affinity(pod) for each in snapshot.nodes for pod in each.pods)


def counts_nobody(pod: Pod) -> bool:
    """Whether where it may go has nothing to do with where others are."""
    affinity = pod.spec.affinity
    if pod.spec.topology_spread_constraints or pod.spec.resource_claims or pod.spec.volumes:
        return False
    return affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None)


def _holds(free: Nano, wanted: Nano) -> bool:
    return all(amount <= free.get(name, 0) for name, amount in wanted.items() if amount > 0)
