"""A cluster whose rules are priced, what all its prices have in common, and a price itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as swap
from enum import StrEnum
from functools import cached_property

from msgspec.structs import replace

from dovetail.api.meta import Condition, Record
from dovetail.api.pod import Pod, PodStatus
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.rules import Rule, list_movable_pods
from dovetail.disruption.settling import SettledCluster, build_planned_cluster, settle_disruption
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.scheduling.commitments import Ledger
from dovetail.scheduling.fleet_cost import bill_running_nodes
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.solve import THOROUGH, Effort

__all__ = ["PriceKind", "PricedCluster", "RulePrice", "bound_bill", "sum_bill"]

# Less than half a cent an hour is printed as $0.00, and not listed.
HALF_CENT = 0.005
SEARCHES = 3
UNSCHEDULABLE = Condition(type="PodScheduled", status="False", reason="Unschedulable")
PENDING = PodStatus(phase="Pending", conditions=(UNSCHEDULABLE,))


class PriceKind(StrEnum):
    """What a price is about: nodes that stay, or the fleet that pods need."""

    HELD = "held"
    SHAPE = "shape"


class RulePrice(Record, frozen=True):
    """What one rule costs an hour, at most, and how that would be saved.

    `nodes` are those that it holds and that would go, each with its part of the price.
    """

    rule: Rule
    kind: PriceKind
    costs_now: float = 0.0
    at_most: float = 0.0
    how: str = ""
    nodes: Mapping[str, float] = {}

    @property
    def listed(self) -> bool:
        """Whether it comes to a cent an hour."""
        return self.costs_now >= HALF_CENT


@dataclass(frozen=True)
class PricedCluster:
    """A cluster, and what the prices of all its rules are compared with."""

    situation: Situation
    effort: Effort = THOROUGH
    cache: DecisionCache = field(default_factory=DecisionCache, compare=False, repr=False)

    @cached_property
    def settled(self) -> SettledCluster:
        """The cluster with pending pods placed, when disruption has done what it does with every rule."""
        situation, snapshot = self.calm, self.calm.snapshot
        if snapshot.pods or snapshot.moving or any(map(views.is_deleting, snapshot.nodes)):
            plan = decide_plan(situation, self.effort, self.cache)
            snapshot = build_planned_cluster(snapshot, plan, "pending")
        return settle_disruption(
            DisruptionInput.from_situation(situation.with_snapshot(snapshot), self.cache)
        )

    @property
    def calm(self) -> Situation:
        """The cluster without what passes in seconds: nodes that pods were just sent to."""
        return replace(self.situation, nominated=frozenset(), unseen=frozenset())

    @cached_property
    def fresh(self) -> Situation:
        """The cluster with all its pods looking for a place, and without the nodes they could have anew."""
        snapshot = self.situation.snapshot
        buying = {pool.name for pool in snapshot.pools if not pool.nodepool.static}
        nodes = tuple(state for state in snapshot.nodes if not _can_be_bought_anew(state, buying))
        staying = {pod.full_name for state in nodes for pod in state.pods}
        pods = {pod.full_name: pod for pod in (*list_movable_pods(snapshot), *snapshot.moving)}
        waiting = tuple(_unbind_pod(pod) for name, pod in pods.items() if name not in staying)
        return self.situation.with_snapshot(replace(snapshot, nodes=nodes, pods=waiting, moving=()))

    @cached_property
    def fresh_plan(self) -> Plan:
        """The nodes for all pods, with every rule: the best of some searches.

        A rule is charged for what one search without it finds below that: chance is no rule's fault.
        """
        seeds = (swap(self.effort, seed=self.effort.seed + number) for number in range(SEARCHES))
        plans = [decide_plan(self.fresh, effort, self.cache) for effort in seeds]
        return min(plans, key=lambda plan: (len(plan.left_out), round(plan.price, 9)))

    @cached_property
    def placed(self) -> Situation:
        """The cluster afresh, with those pods alone that have a place with every rule."""
        left_out = {*self.fresh_plan.left_out, *self.fresh_plan.ignored}
        snapshot = self.fresh.snapshot
        kept = tuple(pod for pod in snapshot.pods if pod.full_name not in left_out)
        return self.fresh.with_snapshot(replace(snapshot, pods=kept))

    @cached_property
    def fleet(self) -> Snapshot:
        """The cluster afresh once its plan is done."""
        return build_planned_cluster(self.placed.snapshot, self.fresh_plan, "fresh")

    def prepare_prices(self, kinds: Iterable[PriceKind]) -> None:
        """Work out what prices of these kinds share, so that who is sent this need not."""
        for kind in kinds:
            _ = self.settled if kind is PriceKind.HELD else self.fleet


def _can_be_bought_anew(state: StateNode, pools: set[str]) -> bool:
    return views.is_deleting(state) or (views.is_managed(state) and views.read_pool_name(state) in pools)


def _unbind_pod(pod: Pod) -> Pod:
    return replace(pod, node_name="", status=PENDING) if pod.node_name else pod


def sum_bill(snapshot: Snapshot) -> float:
    """What the nodes of a cluster cost an hour, by its bill: after what commitments have paid."""
    return bill_running_nodes(snapshot).total


def bound_bill(snapshot: Snapshot, floor: float) -> float:
    """What no bill can come to less than, of a fleet whose list prices add up to the floor at least.

    Commitments may have paid for any node of it: then they alone are sure to be on the bill.
    """
    return Ledger(snapshot.commitments).committed if snapshot.commitments else floor
