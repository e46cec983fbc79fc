"""A whole batch: zones, running nodes, packing, and who goes where."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.scheduling.packing.batch import ANY_ZONE, Batch, BulkNode, BulkPlan
from dovetail.scheduling.packing.bound import certified_bound
from dovetail.scheduling.packing.coarse import coarse, kept_where
from dovetail.scheduling.packing.columns import Patterns
from dovetail.scheduling.packing.existing import fill_running
from dovetail.scheduling.packing.hosts import Hosts
from dovetail.scheduling.packing.improve import Effort, pack, patterns
from dovetail.scheduling.packing.prices import worths
from dovetail.scheduling.packing.problem import MANY, Bools, Floats
from dovetail.scheduling.packing.realise import Filled, place_in_room, realise
from dovetail.scheduling.packing.scopes import Fronts, Scope, scope_of
from dovetail.scheduling.packing.zones import assign

__all__ = ["batch_bound", "place"]

_REPAIRS = 3


def place(batch: Batch, effort: Effort, should_stop: Callable[[], bool] = lambda: False) -> BulkPlan:
    """Pods of every group on nodes; `left` are those no option takes or whose zones cannot be kept."""
    work = _Work(batch, effort, should_stop)
    for scope in work.scopes():
        work.solve(scope)
    return work.plan


def batch_bound(batch: Batch) -> float:
    """What no plan for these pods can undercut, whatever zones they go to."""
    work = _Work(batch, Effort(rounds=0), lambda: False, up=False)
    if batch.running is None:
        return certified_bound(work.whole.problem)
    classes = [groups[0] for groups in work.whole.groups]
    takes = batch.running.takes[batch.running.kind[classes]]
    return certified_bound(work.whole.problem, batch.running.room, takes)


class _Work:
    """One batch on its way to a plan."""

    def __init__(
        self, batch: Batch, effort: Effort, should_stop: Callable[[], bool], up: bool = True
    ) -> None:
        self.batch, self.effort, self.should_stop = batch, effort, should_stop
        self.hosts = Hosts(len(batch.count), batch.hosts)
        self.fronts = Fronts(batch)
        self.offered = _offered(batch, batch.request)
        self.sizes = _sizes(batch, self.offered, up)
        self.shared: Patterns | None = None
        count = np.where(self.offered.any(axis=1), batch.count, 0)
        self.plan = BulkPlan([], {}, batch.count - count, 0.0)
        self.whole = scope_of(batch, self.hosts, ANY_ZONE, count, self.fronts, self.sizes)
        self.worth: Floats = np.zeros(len(count))
        self.class_worth = worths(self.whole.problem) if count.any() else np.zeros(0)
        for groups, worth in zip(self.whole.groups, self.class_worth.tolist(), strict=True):
            self.worth[groups] = worth

    def scopes(self) -> list[Scope]:
        batch = self.batch
        if not self.whole.groups:
            return []
        if not (batch.spreads or batch.together or batch.pinned.any()) and batch.open.all():
            return [self.whole]
        seated = (self.hosts.family >= 0) | (self.hosts.twin < MANY)
        dealt, failed = assign(
            self.whole.count,
            self.worth,
            batch.open & self.offered,
            batch.spreads,
            batch.together,
            seated,
            self._room_worth(),
        )
        for group in failed:
            self.plan.left[group] = batch.count[group]
            dealt[group] = 0
        return [
            scope_of(batch, self.hosts, zone, dealt[:, zone], self.fronts, self.sizes)
            for zone in range(batch.zones)
            if dealt[:, zone].any()
        ]

    def _room_worth(self) -> Floats:
        """What the free room of running nodes is worth by zone, at what its scarcest resource costs pods."""
        running, batch = self.batch.running, self.batch
        out = np.zeros(batch.zones)
        if running is None:
            return out
        total = batch.count @ batch.request
        share = np.maximum(running.room, 0.0) / np.maximum(total, 1.0)
        placed = running.zone != ANY_ZONE
        np.add.at(out, running.zone[placed], share[placed].min(axis=1) * float(batch.count @ self.worth))
        return out

    def solve(self, scope: Scope) -> None:
        if self.batch.running is not None:
            scope = self._on_running(scope)
        nodes: list[Filled] = []
        for _ in range(_REPAIRS):
            if not scope.groups:
                break
            worth = self.class_worth if scope is self.whole else None
            known, simple = self._known(scope), not self.hosts.crossed
            packing = pack(scope.problem, self.effort, known, worth, self.should_stop, simple)
            members = scope.members()
            made = realise(scope.problem, packing.rows, members, self.hosts, scope.ruled)
            for node in made:
                node.option = int(scope.options[node.option])
            nodes += made
            if any(members.left.values()):
                self._into_room(scope, nodes, members.left)
            rest = np.zeros(len(self.batch.count), np.int64)
            for group, pods in members.left.items():
                rest[group] = pods
            scope = scope_of(self.batch, self.hosts, scope.zone, rest, self.fronts, self.sizes)
        self.plan.left += scope.count if scope.groups else 0
        self._keep(scope.zone, nodes)

    def _known(self, scope: Scope) -> Patterns | None:
        """Patterns of all zones together, where this one sells the same at the same prices."""
        if not self.effort.rounds or scope.zone == ANY_ZONE or self.should_stop():
            return None
        whole = self.whole.problem
        if not (
            np.array_equal(scope.options, self.whole.options)
            and np.array_equal(scope.problem.price, whole.price)
        ):
            return None
        if self.shared is None:
            self.shared = patterns(whole, self.effort)
        at = {group: index for index, groups in enumerate(self.whole.groups) for group in groups}
        return Patterns(self.shared.counts[:, [at[groups[0]] for groups in scope.groups]])

    def _on_running(self, scope: Scope) -> Scope:
        running = self.batch.running
        assert running is not None
        here = (
            np.arange(len(running.room))
            if scope.zone == ANY_ZONE
            else np.flatnonzero(running.zone == scope.zone)
        )
        classes = [groups[0] for groups in scope.groups]
        takes = running.takes[running.kind[classes]][:, here]
        rng = np.random.Generator(np.random.PCG64(self.effort.seed))
        worth = self.worth[classes]
        placed, rest = fill_running(scope, running, here, takes, worth, self.hosts, rng)
        self.plan.running.update(placed)
        return scope_of(self.batch, self.hosts, scope.zone, rest, self.fronts, self.sizes)

    def _into_room(self, scope: Scope, nodes: list[Filled], left: dict[int, int]) -> None:
        used = self._used(nodes)
        options = np.array([node.option for node in nodes])
        room = self.batch.room[options] - used
        takes = {g: self.batch.takes[self.batch.mask[g], options] for g, n in left.items() if n}
        place_in_room(nodes, room, self.batch.request, left, takes)

    def _used(self, nodes: list[Filled]) -> Floats:
        used = np.zeros((len(nodes), self.batch.request.shape[1]))
        for at, node in enumerate(nodes):
            groups = list(node.pods)
            used[at] = np.array([node.pods[g] for g in groups]) @ self.batch.request[groups]
        return used

    def _keep(self, zone: int, nodes: list[Filled]) -> None:
        """Each node on the cheapest option that holds what it really got."""
        if not nodes:
            return
        batch = self.batch
        masks = np.unique(batch.mask[[g for node in nodes for g in node.pods]])
        options, price = self.fronts.of(zone, masks)
        need = self._used(nodes)
        holds: Bools = np.asarray((need[:, None, :] <= batch.room[options][None, :, :]).all(axis=2))
        for at, node in enumerate(nodes):
            holds[at] &= batch.takes[np.unique(batch.mask[list(node.pods)])][:, options].all(axis=0)
        best = np.where(holds, price[None, :], np.inf).argmin(axis=1)
        for node, chosen in zip(nodes, best.tolist(), strict=True):
            pinned = bool(batch.pinned[list(node.pods)].any())
            self.plan.new.append(BulkNode(int(options[chosen]), zone if pinned else ANY_ZONE, node.pods))
            self.plan.cost += float(price[chosen])


def _sizes(batch: Batch, offered: Bools, up: bool) -> Floats:
    """What each group is taken to ask for: its own request, unless there are very many different ones."""
    sizes = coarse(batch.request, up)
    if sizes is batch.request:
        return sizes
    return kept_where((_offered(batch, sizes) == offered).all(axis=1), sizes, batch.request)


def _offered(batch: Batch, request: Floats) -> Bools:
    """Zones where some option takes a pod of the group: group x zone."""
    sold = np.isfinite(batch.price)
    options = [np.flatnonzero(takes) for takes in batch.takes]
    rows: dict[tuple[int, bytes], Bools] = {}
    out = np.zeros((len(batch.count), batch.zones), bool)
    for g, mask in enumerate(batch.mask.tolist()):
        key = (mask, request[g].tobytes())
        if key not in rows:
            among = options[mask]
            fits = (request[g] <= batch.room[among]).all(axis=1)
            rows[key] = sold[among[fits]].any(axis=0)
        out[g] = rows[key]
    return out
