"""A whole batch: zones, running nodes, packing, and who goes where."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.scheduling.packing.batch import ANY_ZONE, ExistingCapacity, PackedNode, PackedPlan, PackingBatch
from dovetail.scheduling.packing.bound import compute_certified_bound
from dovetail.scheduling.packing.columns import Patterns
from dovetail.scheduling.packing.fill import fill_nodes, tilt_worths
from dovetail.scheduling.packing.host_rules import HostRules
from dovetail.scheduling.packing.improve import Effort, Packing, PackingTask, find_patterns, pack_problems
from dovetail.scheduling.packing.lp import compute_worths
from dovetail.scheduling.packing.pod_assignment import FilledNode, assign_groups, place_leftovers
from dovetail.scheduling.packing.problem import MANY, Bools, Floats, Ints, PackingProblem, list_distinct
from dovetail.scheduling.packing.scopes import OptionFronts, PackingScope, build_scope
from dovetail.scheduling.packing.zone_assignment import assign_zones

__all__ = [
    "MOST_SIZES",
    "coarsen_sizes",
    "compute_batch_bound",
    "fill_existing_nodes",
    "keep_exact_sizes",
    "pack_batch",
]

_WAYS = 16


def fill_existing_nodes(
    scope: PackingScope,
    running: ExistingCapacity,
    nodes: Ints,
    takes: Bools,
    worth: Floats,
    hosts: HostRules,
    rng: np.random.Generator,
) -> tuple[dict[int, dict[int, int]], Ints]:
    """Pods by group for each node, and the pods of each group that are left. `takes` is class x node."""
    members = scope.build_members()
    problem = scope.problem
    left = problem.count.copy()
    cap = problem.compute_cap()
    drive = tilt_worths(problem, worth)
    weights = np.exp(rng.normal(0.0, 0.8, (_WAYS, problem.request.shape[1])))
    placed: dict[int, dict[int, int]] = {}
    for at, node in enumerate(nodes.tolist()):
        useful = takes[:, at] & (left > 0) & (problem.request <= running.room[node]).all(axis=1)
        if not useful.any():
            continue
        room = np.maximum(running.room[node], 0.0)
        counts = _find_fullest(problem, room, useful, drive, worth, left, cap, weights)
        filled = FilledNode(-1, hosts.build_state(running.counted.get(node, ()), running.owned.get(node, ())))
        for index in np.flatnonzero(counts).tolist():
            taken = members.take(index, int(counts[index]), filled.state if scope.ruled[index] else None)
            filled.add_pods(taken)
            left[index] -= sum(pods for _, pods in taken)
        if filled.pods:
            placed[node] = filled.pods
    rest = scope.count.copy()
    for pods in placed.values():
        for group, n in pods.items():
            rest[group] -= n
    return placed, rest


def _find_fullest(
    problem: PackingProblem,
    room: Floats,
    useful: Bools,
    drive: Floats,
    worth: Floats,
    left: Ints,
    cap: Ints,
    weights: Floats,
) -> Ints:
    """The most worth this room can hold, of several fills."""
    one = PackingProblem(
        problem.request,
        left,
        room[None, :],
        np.ones(1),
        useful[:, None],
        problem.family,
        problem.limit,
    )
    counts = fill_nodes(one, np.zeros(len(weights), np.int64), weights, drive, left, cap)
    return np.asarray(counts[int((counts @ worth).argmax())])


MOST_SIZES = 400
_STEPS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)


def coarsen_sizes(request: Floats, up: bool) -> Floats:
    """The requests with at most about MOST_SIZES different rows; themselves when they are few enough."""
    if len(request) <= MOST_SIZES or len(set(map(bytes, request))) <= MOST_SIZES:
        return request
    kinds = _group_sizes(request)
    order = np.argsort(kinds, kind="stable")
    starts = np.flatnonzero(np.diff(kinds[order], prepend=-1))
    extreme = np.maximum if up else np.minimum
    return np.asarray(extreme.reduceat(request[order], starts, axis=0)[kinds])


def _group_sizes(request: Floats) -> Ints:
    """Rows whose amounts differ by no more than a step are of one kind; the finest step that will do."""
    logs = np.log(np.maximum(request, 1e-9))
    kinds = np.zeros(len(request), np.int64)
    for step in _STEPS:
        _, kinds = np.unique(np.ceil(logs / np.log1p(step)), axis=0, return_inverse=True)
        if int(kinds.max()) < MOST_SIZES:
            break
    return np.asarray(kinds.ravel(), np.int64)


def keep_exact_sizes(same: Bools, sizes: Floats, request: Floats) -> Floats:
    """The coarse sizes, but each row's own request where the coarse one would change where it can go."""
    return np.where(same[:, None], sizes, request)


_REPAIRS = 3


def pack_batch(
    batch: PackingBatch, effort: Effort, should_stop: Callable[[], bool] = lambda: False
) -> PackedPlan:
    """Pods of every group on nodes; `left` are those no option takes or whose zones cannot be kept."""
    work = _Work(batch, effort, should_stop)
    work.solve_scopes(work.split_scopes())
    return work.plan


def compute_batch_bound(batch: PackingBatch) -> float:
    """What no plan for these pods can undercut, whatever zones they go to."""
    work = _Work(batch, Effort(rounds=0), lambda: False, up=False)
    if batch.running is None:
        return compute_certified_bound(work.whole.problem)
    classes = [groups[0] for groups in work.whole.groups]
    takes = batch.running.takes[batch.running.kind[classes]]
    return compute_certified_bound(work.whole.problem, batch.running.room, takes)


class _Work:
    """One batch on its way to a plan."""

    def __init__(
        self, batch: PackingBatch, effort: Effort, should_stop: Callable[[], bool], up: bool = True
    ) -> None:
        self.batch, self.effort, self.should_stop = batch, effort, should_stop
        self.hosts = HostRules(len(batch.count), batch.hosts)
        self.fronts = OptionFronts(batch)
        self.offered = _find_offered_zones(batch, batch.request)
        self.sizes = _choose_sizes(batch, self.offered, up)
        self.shared: Patterns | None = None
        count = np.where(self.offered.any(axis=1), batch.count, 0)
        self.plan = PackedPlan([], {}, batch.count - count, 0.0)
        self.whole = build_scope(batch, self.hosts, ANY_ZONE, count, self.fronts, self.sizes)
        self.worth: Floats = np.zeros(len(count))
        self.class_worth = compute_worths(self.whole.problem) if count.any() else np.zeros(0)
        for groups, worth in zip(self.whole.groups, self.class_worth.tolist(), strict=True):
            self.worth[groups] = worth

    def split_scopes(self) -> list[PackingScope]:
        batch = self.batch
        if not self.whole.groups:
            return []
        if not (batch.spreads or batch.together or batch.pinned.any()) and batch.open.all():
            return [self.whole]
        own_host = (self.hosts.family >= 0) | (self.hosts.twin < MANY)
        dealt, failed = assign_zones(
            self.whole.count,
            self.worth,
            batch.open & self.offered,
            batch.spreads,
            batch.together,
            own_host,
            self._compute_room_worth(),
        )
        for group in failed:
            self.plan.left[group] = batch.count[group]
            dealt[group] = 0
        return [
            build_scope(batch, self.hosts, zone, dealt[:, zone], self.fronts, self.sizes)
            for zone in range(batch.zones)
            if dealt[:, zone].any()
        ]

    def _compute_room_worth(self) -> Floats:
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

    def solve_scopes(self, scopes: list[PackingScope]) -> None:
        """The pods of every scope on nodes. Pods that host rules leave over are packed again, a few times."""
        if self.batch.running is not None:
            scopes = [self._fill_existing(scope) for scope in scopes]
        nodes: list[list[FilledNode]] = [[] for _ in scopes]
        for _ in range(_REPAIRS):
            waiting = [at for at, scope in enumerate(scopes) if scope.groups]
            if not waiting:
                break
            tasks = [self._build_task(scopes[at]) for at in waiting]
            packed = pack_problems(tasks, self.effort, self.should_stop, not self.hosts.crossed)
            for at, packing in zip(waiting, packed, strict=True):
                scopes[at] = self._assign_pods(scopes[at], packing, nodes[at])
        for scope, made in zip(scopes, nodes, strict=True):
            self.plan.left += scope.count if scope.groups else 0
            self._keep_nodes(scope.zone, made)

    def _build_task(self, scope: PackingScope) -> PackingTask:
        worth = self.class_worth if scope is self.whole else None
        return PackingTask(scope.problem, self._find_known_patterns(scope), worth)

    def _assign_pods(self, scope: PackingScope, packing: Packing, nodes: list[FilledNode]) -> PackingScope:
        """Give the packed nodes pods of named groups; returns the scope of those that are left."""
        members = scope.build_members()
        made = assign_groups(scope.problem, packing.rows, members, self.hosts, scope.ruled)
        for node in made:
            node.option = int(scope.options[node.option])
        nodes += made
        if any(members.left.values()):
            self._place_leftovers(scope, nodes, members.left)
        rest = np.zeros(len(self.batch.count), np.int64)
        for group, pods in members.left.items():
            rest[group] = pods
        return build_scope(self.batch, self.hosts, scope.zone, rest, self.fronts, self.sizes)

    def _find_known_patterns(self, scope: PackingScope) -> Patterns | None:
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
            self.shared = find_patterns(whole, self.effort)
        at = {group: index for index, groups in enumerate(self.whole.groups) for group in groups}
        return Patterns(self.shared.counts[:, [at[groups[0]] for groups in scope.groups]])

    def _fill_existing(self, scope: PackingScope) -> PackingScope:
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
        placed, rest = fill_existing_nodes(scope, running, here, takes, worth, self.hosts, rng)
        self.plan.running.update(placed)
        return build_scope(self.batch, self.hosts, scope.zone, rest, self.fronts, self.sizes)

    def _place_leftovers(self, scope: PackingScope, nodes: list[FilledNode], left: dict[int, int]) -> None:
        used = self._sum_used(nodes)
        options = np.array([node.option for node in nodes])
        room = self.batch.room[options] - used
        takes = {g: self.batch.takes[self.batch.mask[g], options] for g, n in left.items() if n}
        place_leftovers(nodes, room, self.batch.request, left, takes)

    def _sum_used(self, nodes: list[FilledNode]) -> Floats:
        held = [len(node.pods) for node in nodes]
        groups = np.array([group for node in nodes for group in node.pods], np.int64)
        pods = np.array([number for node in nodes for number in node.pods.values()], np.int64)
        used = np.zeros((len(nodes), self.batch.request.shape[1]))
        # Whole numbers, so that the order in which they are summed does not matter.
        np.add.at(used, np.repeat(np.arange(len(nodes)), held), pods[:, None] * self.batch.request[groups])
        return used

    def _keep_nodes(self, zone: int, nodes: list[FilledNode]) -> None:
        """Each node on the cheapest option that holds what it really got."""
        if not nodes:
            return
        batch = self.batch
        masks = list_distinct(batch.mask[[g for node in nodes for g in node.pods]])
        options, price = self.fronts.find_front(zone, masks)
        holds = self._find_large_enough(nodes, options)
        best = np.where(holds, price[None, :], np.inf).argmin(axis=1)
        pinned: list[bool] = batch.pinned.tolist()
        for node, chosen in zip(nodes, best.tolist(), strict=True):
            where = zone if any(pinned[group] for group in node.pods) else ANY_ZONE
            self.plan.new.append(PackedNode(int(options[chosen]), where, node.pods))
            self.plan.cost += float(price[chosen])

    def _find_large_enough(self, nodes: list[FilledNode], options: Ints) -> Bools:
        """Which of the options has room for what a node got and takes all of it: node x option."""
        batch, need = self.batch, self._sum_used(nodes)
        holds = np.ones((len(nodes), len(options)), bool)
        for k in range(need.shape[1]):
            holds &= need[:, k, None] <= batch.room[options, k]
        mask: list[int] = batch.mask.tolist()
        known: dict[frozenset[int], Bools] = {}
        for at, node in enumerate(nodes):
            masks = frozenset([mask[group] for group in node.pods])
            if masks not in known:
                known[masks] = np.asarray(batch.takes[list(masks)][:, options].all(axis=0))
            holds[at] &= known[masks]
        return holds


def _choose_sizes(batch: PackingBatch, offered: Bools, up: bool) -> Floats:
    """What each group is taken to ask for: its own request, unless there are very many different ones."""
    sizes = coarsen_sizes(batch.request, up)
    if sizes is batch.request:
        return sizes
    return keep_exact_sizes((_find_offered_zones(batch, sizes) == offered).all(axis=1), sizes, batch.request)


def _find_offered_zones(batch: PackingBatch, request: Floats) -> Bools:
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
