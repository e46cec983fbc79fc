"""A node that is a large part of the fleet is hard to give back: where two halves cost no more, buy halves.

What is bought for some hours attracts pods that stay. One large node then runs on for the few that are left,
while of two halves one can go as soon as the other has room for its pods. So the packing is asked again
without the largest types, as long as the answer costs the same and holds up once the scheduler has its say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as swap

import numpy as np
from msgspec.structs import replace

from dovetail.api.labels import ZONE
from dovetail.api.pod import Pod
from dovetail.scheduling import nodes as views
from dovetail.scheduling.counting import Counted
from dovetail.scheduling.plan import Plan, PlannedNode
from dovetail.scheduling.resources import Nano, nano, needs
from dovetail.scheduling.snapshot import Snapshot
from dovetail.scheduling.unplanned import Seats, all_seated

__all__ = ["Below", "finer"]

_LARGE = 1 / 8  # of the fleet
_TRICKLE = 50  # pods: what comes in larger numbers is packed for its own sake
_SAME = 1e-9
_JUST = 1 - 1e-6


class Below:
    """The fleet, with what it is about to get, and the share of it that no new node may reach."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.types = {pool.name: {t.name: t for t in snapshot.types(pool)} for pool in snapshot.pools}
        running = [views.allocatable(state) for state in views.active(snapshot.nodes) if views.managed(state)]
        self.pods = (*snapshot.pods, *snapshot.moving, *snapshot.virtual)
        known = [*running, *map(needs, self.pods)]
        self.total = {name: sum(each.get(name, 0) for each in known) for name in ("cpu", "memory")}
        # Halves smaller than the nodes that run already would only be crumbs.
        self.usual = sum(map(self._share, running)) / len(running) if running else 1.0
        self.share = 1.0

    def room(self, node: PlannedNode) -> Nano:
        return nano(self.types[node.pool][node.instance_type].allocatable())

    def _share(self, room: Nano) -> float:
        return max(room.get(name, 0) / max(total, 1) for name, total in self.total.items())

    def largest(self, plan: Plan) -> float:
        return max((self._share(self.room(node)) for node in plan.new_nodes), default=0.0)

    def narrowed(self, counted: Counted) -> Counted:
        """The batch without the options that reach the share."""
        rooms = (each.template.table.allocatable[each.type] for each in counted.options)
        large = np.array([self._share(room) >= self.share for room in rooms], bool)
        price = np.where(large[:, None], np.inf, counted.batch.price)
        return swap(counted, batch=swap(counted.batch, price=price))


def finer(snapshot: Snapshot, plan: Plan, again: Callable[[Below], Plan | None]) -> Plan:
    """The plan in smaller nodes for the same money, if `again` can make one; else the plan itself."""
    waiting = len(snapshot.pods) + len(snapshot.moving) + len(snapshot.virtual)
    if not plan.new_nodes or not snapshot.nodes or waiting > _TRICKLE:
        return plan
    below = Below(snapshot)
    while (largest := below.largest(plan)) > max(_LARGE, 2 * below.usual):
        below.share = largest * _JUST
        found = again(below)
        if found is None or _worse(found, plan) or not _holds_up(below, found):
            return plan
        proven = {"bound": plan.bound, "bound_as_asked": plan.bound_as_asked}
        plan = replace(found, proven_pods=plan.proven_pods, **proven)
    return plan


def _worse(found: Plan, plan: Plan) -> bool:
    others = not found.left_out <= plan.left_out
    return others or found.price > plan.price + _SAME or len(found.new_nodes) <= len(plan.new_nodes)


def _holds_up(below: Below, plan: Plan) -> bool:
    """Whether all new pods find room if the scheduler puts each, in turn, where most is free.

    It does not know the plan: on nodes that are just large enough, small pods may take the large ones' room.
    """
    new = plan.new_nodes
    home = {name: at for at, node in enumerate(new) for name in node.pods}
    pods = [pod for pod in below.pods if pod.full_name in home]
    rooms = map(below.room, new)
    return all_seated(
        pods,
        [Seats(room, room) for room in rooms],
        lambda pod, at: _may_use(pod, new[home[pod.full_name]], new[at]),
    )


def _may_use(pod: Pod, planned: PlannedNode, node: PlannedNode) -> bool:
    """Nodes like the planned one; only a pod with no wishes about where it runs goes to any zone."""
    spec = pod.spec
    free = not (spec.topology_spread_constraints or spec.affinity or spec.node_selector)
    return node.pool == planned.pool and (free or node.requirements[ZONE] == planned.requirements[ZONE])
