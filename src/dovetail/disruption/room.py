"""What room there is, reckoned once per scene: enough to settle many questions without the engine.

Only what can be shown with resources alone is said here: a pod that no node has room for needs a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from dovetail.api import predicates
from dovetail.api.pod import Pod
from dovetail.disruption.ground import Ground
from dovetail.scheduling.catalog import cheapest_offering
from dovetail.scheduling.requirements import Requirements
from dovetail.scheduling.resources import Nano, nano, needs, plus
from dovetail.scheduling.snapshot import Pool, Snapshot
from dovetail.scheduling.templates import dynamic_pools

__all__ = ["Room", "room_in"]


@dataclass(frozen=True)
class Room:
    """Free room by node, and what can be bought: price and size, cheapest first.

    `plain` says that no running pod and no pool cares which nodes there are or how many; `limited`, that
    some pool may buy only so much.
    """

    ground: Ground
    sold: tuple[tuple[float, Nano], ...]
    plain: bool
    limited: bool

    def homeless(self, pods: Iterable[Pod], without: AbstractSet[str]) -> Nano | None:
        """What the pods that fit on no node take together; None when there are none of them."""
        total: Nano | None = None
        there = self.ground.there(without)
        for pod in pods:
            wanted = needs(pod)
            if not there & ~self.ground.roomless(wanted):
                total = plus(total or {}, wanted)
        return total

    def cheapest(self, wanted: Nano) -> float | None:
        """The least a node that holds this would cost; None when there is no such node."""
        return next((price for price, size in self.sold if _holds(size, wanted)), None)


def room_in(snapshot: Snapshot, ground: Ground) -> Room:
    """The room of a snapshot."""
    pools = dynamic_pools(snapshot.pools)
    limited = any(pool.nodepool.spec.limits for pool in pools)
    sales = {sale for pool in pools for sale in _sold(snapshot, pool)}
    return Room(
        ground=ground,
        sold=tuple((price, dict(size)) for price, size in sorted(sales)),
        plain=_plain(snapshot) and not limited,
        limited=limited,
    )


def _sold(snapshot: Snapshot, pool: Pool) -> Iterator[tuple[float, tuple[tuple[str, int], ...]]]:
    """Everything the pool could buy: the least it costs, and how much it holds."""
    wanted = Requirements.of(pool.nodepool.spec.template.spec.requirements or ())
    known = snapshot.options.flavour.well_known
    for each in snapshot.types(pool):
        best = cheapest_offering(each, wanted, known) if wanted.compatible(each.requirements, known) else None
        if best is not None:
            for group in each.allocatable_groups():
                yield best.price, tuple(sorted(nano(group.allocatable).items()))


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
