"""The last step of planning: a plan cut down to what spend limits allow.

    narrow    claims of limited NodePools lose types and capacity types far dearer than expected
    take      nodes in order (highest pod priority, longest waiting pod, dollars per pod) while there is room
    tiers     where not all fit, pods of high priority are planned before the others, in nodes that fit
    refill    pods that were left out are planned once more, onto nodes that are there or were taken
    hold      whoever is still without a place is deferred, with the limit, its window and what is missing

Without limits, and with limits that all nodes fit into, the plan stays what it was but for narrower claims.
Only where that does not help do claims list fewer than fifteen types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import inf, isfinite

from msgspec.structs import replace

from dovetail.api.labels import CAPACITY_TYPE
from dovetail.api.pod import Pod
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.plan import Plan, PlannedNode
from dovetail.scheduling.model.reasons import Decision, NodeReason, Reason
from dovetail.scheduling.model.requirements import Values
from dovetail.scheduling.model.snapshot import Snapshot, build_pools_and_catalogs
from dovetail.scheduling.postprocess import apply_plan
from dovetail.scheduling.sequential.results import build_plan
from dovetail.scheduling.sequential.scheduler import SequentialScheduler
from dovetail.scheduling.spend import compute_spend
from dovetail.scheduling.spend_caps import SpendCap
from dovetail.scheduling.spend_prices import LEAST_TYPES, PlannedPrices, PricedNode
from dovetail.scheduling.spend_room import SpendExcess, SpendRoom

__all__ = ["limit_plan", "read_priority"]

FindPlan = Callable[[Snapshot], Plan]
# So many levels of priority are planned one after another; those below are planned together.
MOST_TIERS = 4
# So often pods of one level are planned into what is left of limits, in ever smaller nodes.
MOST_ROUNDS = 4


def limit_plan(
    snapshot: Snapshot, plan: Plan, caps: Sequence[SpendCap], find_plan: FindPlan, cache: DecisionCache
) -> Plan:
    """The plan within these caps: the very same where none of them covers a node of it."""
    pools = {node.pool for node in plan.new_nodes}
    if not any(pools if cap.every else not pools.isdisjoint(cap.pools) for cap in caps):
        return plan
    spent = compute_spend(snapshot, cache)
    enforced = [cap for cap in caps if not cap.warn]
    cut = _PlanCut(snapshot, SpendRoom(enforced, spent), cache)
    for least in (LEAST_TYPES, 1) if enforced else ():
        narrow = cut.narrow_nodes(plan, least)
        if len(cut.take_nodes(narrow.new_nodes)) == len(plan.new_nodes):
            plan = narrow
            break
    else:
        plan = cut.plan_again(plan, find_plan) if enforced else plan
    warned = [cap for cap in caps if cap.warn]
    ranked = cut.rank_nodes(plan.new_nodes) if warned else ()
    exceeded = {cap.limit: _list_excess(ranked, SpendRoom((cap,), spent)) for cap in warned}
    told = {limit: names for limit, names in exceeded.items() if names}
    return replace(plan, spend_held={**plan.spend_held, **told}) if told else plan


def _list_excess(ranked: Iterable[tuple[PricedNode, float]], room: SpendRoom) -> tuple[str, ...]:
    """The pods of those nodes that limits would have no room for; nodes come in order, with priorities."""
    found: list[str] = []
    for priced, priority in ranked:
        if not room.covers(priced.node.pool):
            continue
        if room.find_excess(priced, priority) is None:
            room.charge_node(priced)
        else:
            found += priced.node.pods
    return tuple(found)


class _Order:
    """Which of two planned nodes comes first."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._pods = {pod.full_name: pod for pod in (*snapshot.pods, *snapshot.moving)}
        # Room for capacity buffers has the least priority of all.
        self._virtual = frozenset(pod.full_name for pod in snapshot.virtual)
        self._ranks: dict[int, tuple[tuple[str, ...], float, float]] = {}

    def _rank_pod(self, name: str) -> tuple[float, float]:
        """The pod's priority, and since when it is pending."""
        pod = self._pods.get(name)
        if pod is None or name in self._virtual:
            return -inf, inf
        return read_priority(pod), _read_since(pod)

    def _rank_node(self, node: PlannedNode) -> tuple[float, float]:
        """The highest priority of the node's pods, and since when the first of them is pending."""
        # The entry holds its pods, so that no other object can have the same id.
        known = self._ranks.get(id(node.pods))
        if known is None:
            ranks = [self._rank_pod(name) for name in node.pods]
            highest = max((priority for priority, _ in ranks), default=-inf)
            first = min((since for _, since in ranks), default=inf)
            known = self._ranks[id(node.pods)] = node.pods, highest, first
        return known[1], known[2]

    def find_priority(self, node: PlannedNode) -> float:
        """The highest priority of the node's pods."""
        return self._rank_node(node)[0]

    def build_key(self, node: PlannedNode) -> tuple[float, float, float, str]:
        highest, since = self._rank_node(node)
        price = node.price if isfinite(node.price) else inf
        return -highest, since, price / max(1, len(node.pods)), node.name

    def build_pod_key(self, name: str) -> tuple[float, float, str]:
        priority, since = self._rank_pod(name)
        return -priority, since, name


def read_priority(pod: Pod) -> float:
    """The pod's priority as its class gave it; 0 without one."""
    return float(pod.spec.priority or 0)


def _read_since(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created is not None else 0.0


@dataclass(slots=True)
class _Held:
    """Why pods wait: the node that was planned for each, and the limit that has no room for it."""

    by_pod: dict[str, tuple[str, SpendExcess]] = field(default_factory=dict)

    def add_node(self, node: PlannedNode, excess: SpendExcess) -> None:
        self.by_pod.update(dict.fromkeys(node.pods, (node.pool, excess)))


class _PlanCut:
    """One plan that is cut to what the caps allow."""

    def __init__(self, snapshot: Snapshot, room: SpendRoom, cache: DecisionCache) -> None:
        self._snapshot = snapshot
        self._room = room
        self._cache = cache
        self._order = _Order(snapshot)
        self._prices = PlannedPrices(snapshot, cache)
        self._held = _Held()
        # The nodes that were ranked last, and how.
        self._ranked: tuple[Sequence[PlannedNode], list[tuple[PricedNode, float]]] = ((), [])

    def narrow_nodes(self, plan: Plan, least: int) -> Plan:
        """The plan with narrower claims in limited NodePools, each of so many types at least."""
        return replace(plan, new_nodes=tuple(self._narrow_node(node, least) for node in plan.new_nodes))

    def _narrow_node(self, node: PlannedNode, least: int) -> PlannedNode:
        return self._prices.narrow_node(node, least) if self._room.covers(node.pool) else node

    def rank_nodes(self, nodes: Sequence[PlannedNode]) -> list[tuple[PricedNode, float]]:
        """The nodes with what they may cost and their priority, the most important first."""
        if nodes is not self._ranked[0]:
            ordered = sorted(nodes, key=self._order.build_key)
            found = [(self._prices.price_node(node), self._order.find_priority(node)) for node in ordered]
            self._ranked = nodes, found
        return self._ranked[1]

    def take_nodes(self, nodes: Sequence[PlannedNode]) -> list[PlannedNode]:
        """Those of the nodes that limits have room for, the most important first; the others are held."""
        self._room.forget_charges()
        return self._take_more(nodes)

    def _take_more(self, nodes: Sequence[PlannedNode]) -> list[PlannedNode]:
        taken: list[PlannedNode] = []
        for priced, priority in self.rank_nodes(nodes):
            excess = self._room.find_excess(priced, priority)
            if excess is not None:
                self._held.add_node(priced.node, excess)
                continue
            self._room.charge_node(priced)
            taken.append(priced.node)
        return taken

    def plan_again(self, plan: Plan, find_plan: FindPlan) -> Plan:
        """The most important pods first, each tier onto what those before it took, in nodes that fit."""
        self._room.forget_charges()
        world = replace(self._snapshot, pods=(), moving=(), virtual=())
        taken: list[PlannedNode] = []
        for levels in self._list_tiers(plan):
            waiting = self._list_waiting(levels, plan.left_out)
            for _ in range(MOST_ROUNDS):
                asked = self._restrict_types(self._add_pods(world, waiting))
                if not waiting or not any(asked.catalogs):
                    break
                found = find_plan(asked)
                nodes = [
                    replace(self._narrow_node(node, 1), name=f"{node.pool}/{len(taken)}-{at}")
                    for at, node in enumerate(found.new_nodes)
                ]
                more = self._take_more(nodes)
                taken += more
                world = apply_plan(asked, replace(found, new_nodes=tuple(more)))
                left = {name for node in nodes for name in node.pods}
                left -= {name for node in more for name in node.pods}
                waiting = [name for name in waiting if name in left]
                if not more:
                    break
        made = self._refill(taken, plan)
        return self._merge(plan, made, self.take_nodes(made.new_nodes))

    def _list_waiting(self, levels: tuple[float, ...], lost: AbstractSet[str]) -> list[str]:
        """The pods of these priorities that some node could take."""
        asked = self._snapshot
        found = [pod for pod in (*asked.pods, *asked.moving) if read_priority(pod) in levels]
        found += asked.virtual if -inf in levels else ()
        return [pod.full_name for pod in found if pod.full_name not in lost]

    def _add_pods(self, world: Snapshot, names: Iterable[str]) -> Snapshot:
        wanted, asked = frozenset(names), self._snapshot
        return replace(
            world,
            pods=tuple(pod for pod in asked.pods if pod.full_name in wanted),
            moving=tuple(pod for pod in asked.moving if pod.full_name in wanted),
            virtual=tuple(pod for pod in asked.virtual if pod.full_name in wanted),
        )

    def _restrict_types(self, world: Snapshot) -> Snapshot:
        """The world with what limits have room for: nothing of covered NodePools that is too dear."""
        offers = [
            (
                pool.nodepool,
                self._room.filter_types(pool.name, self._snapshot.list_types(pool))
                if self._room.covers(pool.name)
                else self._snapshot.list_types(pool),
            )
            for pool in self._snapshot.pools
        ]
        pools, catalogs = build_pools_and_catalogs(offers)
        return replace(world, pools=pools, catalogs=catalogs)

    def _list_tiers(self, plan: Plan) -> list[tuple[float, ...]]:
        """The priorities of pods that have a place in the plan, the highest first, the last ones together."""
        placed = {name for node in plan.new_nodes for name in node.pods}
        placed |= {name for names in plan.existing.values() for name in names}
        levels = {
            read_priority(pod)
            for pod in (*self._snapshot.pods, *self._snapshot.moving)
            if pod.full_name in placed
        }
        if any(pod.full_name in placed for pod in self._snapshot.virtual):
            levels.add(-inf)
        order = sorted(levels, reverse=True)
        first: list[tuple[float, ...]] = [(level,) for level in order[: MOST_TIERS - 1]]
        rest = tuple(order[MOST_TIERS - 1 :])
        return [*first, rest] if rest else first

    def _refill(self, taken: Sequence[PlannedNode], plan: Plan) -> Plan:
        """All pods again, one by one: those of taken nodes there, the others wherever there is room."""
        run = SequentialScheduler(self._snapshot, cache=self._cache)
        pods = {pod.full_name: pod for pod in run.batch}
        for node in taken:
            capacity_types = Values(
                frozenset(node.capacity_types), min_values=node.requirements[CAPACITY_TYPE].min_values
            )
            run.open_node(
                replace(node, requirements=node.requirements.replace_key(CAPACITY_TYPE, capacity_types)),
                [pods[name] for name in node.pods if name in pods],
            )
        run.templates = []
        everyone, lost = run.batch, plan.left_out
        run.batch = [
            pod for pod in everyone if pod.full_name not in run.placements and pod.full_name not in lost
        ]
        order = sorted((pod.full_name for pod in run.batch), key=self._order.build_pod_key)
        run.schedule_all(order, None)
        run.batch = everyone
        return build_plan(run)

    def _merge(self, plan: Plan, made: Plan, nodes: Sequence[PlannedNode]) -> Plan:
        """What was made, with those held who had a place in the plan before and have none now."""
        placed = {name for node in nodes for name in node.pods}
        placed |= {name for names in made.existing.values() for name in names}
        lost = plan.left_out
        held = [
            each.pod
            for each in plan.decisions
            if each.place is not None and each.pod not in placed and each.pod not in lost
        ]
        found, waits = {each.pod: each for each in made.decisions}, set(held)
        decisions = (
            found[each.pod] if each.pod in placed else self._hold_pod(each) if each.pod in waits else each
            for each in plan.decisions
        )
        by_limit: dict[str, list[str]] = {}
        for name in held:
            by_limit.setdefault(self._find_hold(name)[1].limit, []).append(name)
        return replace(
            plan,
            new_nodes=tuple(nodes),
            existing=made.existing,
            deferred={**plan.deferred, **{name: str(self._find_hold(name)[1]) for name in held}},
            decisions=tuple(decisions),
            timed_out=plan.timed_out or made.timed_out,
            bound=0.0,
            bound_as_asked=0.0,
            proven_pods=0,
            spend_held={limit: tuple(names) for limit, names in sorted(by_limit.items())},
        )

    def _find_hold(self, name: str) -> tuple[str, SpendExcess]:
        """The NodePool and the limit that a pod waits for; the last one's where its own is not known."""
        known = self._held.by_pod
        return known[name] if name in known else next(reversed(known.values()))

    def _hold_pod(self, decision: Decision) -> Decision:
        pool, excess = self._find_hold(decision.pod)
        reason = NodeReason(pool, Reason.SPEND, excess.told)
        return Decision(decision.pod, None, (reason,), str(excess))
