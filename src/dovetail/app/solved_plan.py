"""A world and its plan: the first complete one, then the best, and the time each took."""

from __future__ import annotations

import dataclasses
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from msgspec.structs import replace

from dovetail.api.pod import Pod
from dovetail.app.cluster_source import SeenCluster
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.scheduling.bill import sum_known_prices
from dovetail.scheduling.explain import NearMiss, find_near_misses
from dovetail.scheduling.missing_resources import MissingResource, find_missing_resources
from dovetail.scheduling.model.capacity_buffers import count_virtual_pods_by_node
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.reasons import Decision
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.plan_cover import PlanCover, cover_plan
from dovetail.scheduling.solve import QUICK, THOROUGH, build_first_plan, solve

__all__ = [
    "FEW",
    "SolvedPlan",
    "build_disruption_input",
    "peak_bytes",
    "solve_situation",
]

# Up to so many pods the plan is the very one the controller would make; beyond it, the first complete one.
FEW = 300


@dataclass(frozen=True)
class SolvedPlan:
    """A plan, the world it is for, and what finding it took."""

    snapshot: Snapshot
    plan: Plan
    seconds: float
    first_seconds: float
    first_price: float
    cache: DecisionCache = field(default_factory=DecisionCache, compare=False, repr=False)

    @property
    def price(self) -> float:
        """Dollars an hour of the new nodes whose price is known."""
        return sum_known_prices(self.plan.new_nodes)

    @property
    def gap(self) -> float:
        """How far above the proven floor the price is, as a share; 0 when nothing is proven."""
        return max(0.0, self.price / self.plan.bound - 1) if self.plan.bound > 0 else 0.0

    @cached_property
    def cover(self) -> PlanCover | None:
        """What commitments pay for of the new nodes; None where none are known."""
        return cover_plan(self.snapshot, self.plan)

    @cached_property
    def decisions(self) -> Mapping[str, Decision]:
        return {decision.pod: decision for decision in self.plan.decisions}

    @cached_property
    def left_out(self) -> Mapping[str, str]:
        """Every pod that gets no place, and why in one sentence."""
        return {**self.plan.ignored, **self.plan.deferred, **self.plan.unschedulable}

    def find_missing(self, name: str) -> tuple[MissingResource, ...]:
        """What a pod without a place requests and no pool has; pods that were refused alike ask once."""
        decision = self.decisions.get(name)
        if decision is None or decision.place is not None or not decision.rejections:
            return ()
        known = self._missing.get(id(decision.rejections))
        if known is None:
            pod = self._pods.get(name)
            known = () if pod is None else find_missing_resources(self.snapshot, pod)
            self._missing[id(decision.rejections)] = known
        return known

    @cached_property
    def _missing(self) -> dict[int, tuple[MissingResource, ...]]:
        return {}

    @cached_property
    def _pods(self) -> Mapping[str, Pod]:
        return {pod.full_name: pod for pod in (*self.snapshot.pods, *self.snapshot.moving)}

    @cached_property
    def near_misses(self) -> Mapping[str, NearMiss]:
        return find_near_misses(self.snapshot, self.plan, self.cache) if self.plan.unschedulable else {}


def solve_situation(
    situation: Situation, quick: bool, step: Callable[[str], None], cache: DecisionCache | None = None
) -> SolvedPlan:
    """The plan for a cluster as its controller would make it; pods that wait for a zone are deferred."""
    cache = DecisionCache() if cache is None else cache
    solved: list[SolvedPlan] = []

    def find_plan(snapshot: Snapshot) -> Plan:
        solved.append(_solve_snapshot(snapshot, quick, step, cache))
        return solved[-1].plan

    plan = decide_plan(situation, find_plan=find_plan, cache=cache)
    first = solved[0]
    if len(solved) > 1:  # parts of it, for what commitments pay for and for the rest
        first = dataclasses.replace(
            first,
            seconds=sum(each.seconds for each in solved),
            first_seconds=sum(each.first_seconds for each in solved),
            first_price=plan.price,
        )
    return dataclasses.replace(first, snapshot=situation.snapshot, plan=plan)


def _solve_snapshot(
    snapshot: Snapshot, quick: bool, step: Callable[[str], None], cache: DecisionCache | None = None
) -> SolvedPlan:
    """The plan for a world: the first complete one, or that and then the best."""
    cache = DecisionCache() if cache is None else cache
    started = time.perf_counter()
    step("a first plan")
    first = solve(snapshot, QUICK, cache=cache) if quick else build_first_plan(snapshot, cache=cache)
    first_seconds = time.perf_counter() - started
    if quick and first is not None:
        return SolvedPlan(snapshot, first, first_seconds, first_seconds, first.price, cache)
    step(
        "a first plan" if first is None else f"${first.price:.2f} an hour so far; looking for a cheaper plan"
    )
    best = solve(snapshot, THOROUGH, cache=cache)
    seconds = time.perf_counter() - started
    if first is None:
        # Nothing could be counted together, so that the sequential scheduler's plan was the first.
        return SolvedPlan(snapshot, best, seconds, seconds, best.price, cache)
    return SolvedPlan(snapshot, best, seconds, first_seconds, first.price, cache)


def peak_bytes() -> int:
    """The most memory this process has had. In getrusage Linux counts what came before exec, too."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            line = next(line for line in status if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def build_disruption_input(
    seen: SeenCluster, plan: Plan | None = None, cache: DecisionCache | None = None
) -> DisruptionInput:
    """The input as the cluster's controller would have it; `plan` is that for its pending pods, if known."""
    cache = DecisionCache() if cache is None else cache
    situation = seen.situation
    if situation.snapshot.virtual and not situation.buffered:
        situation = replace(situation, buffered=_find_buffer_nodes(situation, plan, cache))
    return DisruptionInput.from_situation(situation, cache)


def _find_buffer_nodes(situation: Situation, plan: Plan | None, cache: DecisionCache) -> frozenset[str]:
    """The nodes that have room for capacity buffers, by the plan that a pass of provisioning would make."""
    snapshot = situation.snapshot
    if plan is None:
        plan = decide_plan(situation, QUICK if len(snapshot.pods) > FEW else THOROUGH, cache)
    return frozenset(count_virtual_pods_by_node(plan, snapshot.virtual))
