"""A world before and after a change: both plans, what drifts in which waves, what holds it, what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from difflib import get_close_matches

from msgspec.structs import replace

from dovetail.api.nodepool import Budget
from dovetail.api.pod import Pod
from dovetail.api.zoneshift import ZoneShift
from dovetail.app.cluster_source import SeenCluster
from dovetail.app.solved_plan import SolvedPlan, build_disruption_input, solve_situation
from dovetail.disruption.blocked_reason import PASSING, BlockedReason
from dovetail.disruption.budgets import BadBudget, compute_allowances, is_active, list_budgets
from dovetail.disruption.candidates import BlockedNode, DisruptionClass, find_candidates
from dovetail.disruption.command import DRIFTED, Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.drift import choose_drift
from dovetail.disruption.methods.drift_waves import DriftWaves, plan_waves
from dovetail.disruption.policy import read_default_annotations
from dovetail.disruption.situation import Situation
from dovetail.errors import BadInput, shorten_text
from dovetail.scheduling.bill import PriceList
from dovetail.scheduling.commitments import Ledger
from dovetail.scheduling.fleet_cost import (
    bill_running_nodes,
    compute_fleet_floor,
    find_node_price,
)
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.plan_cover import cover_plan
from dovetail.scheduling.sunk_prices import CommitmentBook, list_usage_kinds
from dovetail.settings import Settings
from dovetail.state.changed_pods import WorldChange
from dovetail.state.changed_pools import KnownWorld
from dovetail.state.changes import SnapshotChange, apply_change, drain_nodes
from dovetail.state.nodepool_change import DriftForecast
from dovetail.state.situation import change_commitments, change_spend_limits
from dovetail.zonal.model.manifest_shifts import exclude_offerings, find_shifted_zones, index_zones
from dovetail.zonal.model.rehearsal import WARM_UP
from dovetail.zonal.options import from_settings

__all__ = ["ChangedPlan", "DriftPace", "HeldNodes", "change_cluster", "change_situation", "plan_change"]

USUAL_GRACE = 30


@dataclass(frozen=True, slots=True)
class HeldNodes:
    """Nodes that one PodDisruptionBudget blocks, and what they cost an hour."""

    budget: str
    nodes: tuple[str, ...]
    hourly: float
    # Those of them that were not blocked by it before the change.
    newly: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DriftPace:
    """How fast a NodePool's drifted nodes go: so many at once, in so many waves."""

    pool: str
    nodes: int
    at_once: int
    budget: str
    waves: int


@dataclass(frozen=True)
class ChangedPlan:
    """Everything that a change alters. `hourly` and `floors` are dollars an hour, before and after."""

    change: SnapshotChange
    before: SolvedPlan
    after: SolvedPlan
    leaving: frozenset[str]
    waves: DriftWaves
    first: tuple[Command, ...] = ()
    held: tuple[HeldNodes, ...] = ()
    pace: tuple[DriftPace, ...] = ()
    lasts: timedelta = timedelta()
    peak: SolvedPlan | None = None
    floors: tuple[float, float] = (0.0, 0.0)
    remarks: tuple[str, ...] = field(default=())

    @property
    def drifts(self) -> tuple[DriftForecast, ...]:
        return self.change.drifts

    @property
    def hourly(self) -> tuple[float, float]:
        """The whole bill before and after: nodes that run and stay, and new ones."""
        return _sum_bill(self.before), _sum_bill(self.after, self.leaving)

    @property
    def peak_hourly(self) -> float:
        """The bill while rollouts have old and new pods side by side; 0 without a rollout."""
        if self.peak is None:
            return 0.0
        return _sum_bill(self.peak)

    @property
    def evicted(self) -> tuple[str, ...]:
        """The pods that are evicted from nodes that leave."""
        nodes = {views.read_name(each): each for each in self.after.snapshot.nodes}
        moved = {pod.full_name for pod in self.after.snapshot.moving}
        return tuple(
            pod.full_name
            for name in sorted(self.leaving)
            for pod in nodes[name].pods
            if pod.full_name in moved
        )

    def list_moved(self) -> tuple[list[str], list[str]]:
        """Pods that become unschedulable by the change, and pods that become schedulable."""
        before, after = set(self.before.left_out), set(self.after.left_out)
        there = {pod.full_name for pod in _list_all_pods(self.after.snapshot)}
        return sorted(after - before), sorted((before - after) & there)


def change_cluster(seen: SeenCluster, change: WorldChange) -> SnapshotChange:
    """The cluster that was seen, with a change applied to it."""
    known = KnownWorld(
        None,
        read_default_annotations(seen.settings),
        seen.class_hashes,
        extra=seen.settings.find_node_extra(),
    )
    return apply_change(seen.snapshot, change, known)


def plan_change(
    seen: SeenCluster, change: SnapshotChange, quick: bool, step: Callable[[str], None]
) -> ChangedPlan:
    """Plan before and after, as the cluster's controller would."""
    cache, situation = DecisionCache(), seen.situation
    before = solve_situation(situation, quick, step, cache)
    changed, told = change_situation(seen, change)
    step("what drifts, and in which waves")
    inputs = build_disruption_input(SeenCluster(changed, {}, seen.settings), cache=cache)
    waves = plan_waves(inputs)
    stuck = {each.name for each in waves.held if each.blocked_reason not in PASSING}
    leaving = change.leaving | {each.node for each in change.drifts if each.node not in stuck}
    drained = changed.with_snapshot(drain_nodes(changed.snapshot, leaving))
    after = solve_situation(drained, quick, step, cache)
    peak = None
    if change.peak is not None:
        rolling = replace(change.peak, pools=drained.snapshot.pools, catalogs=drained.snapshot.catalogs)
        peak = solve_situation(drained.with_snapshot(rolling), True, step, cache)
    step("the least that any fleet could cost")
    drifted = {each.node for each in change.drifts}
    return ChangedPlan(
        change,
        before,
        after,
        leaving,
        waves,
        first=tuple(choose_drift(inputs, at_once=None).commands) if drifted else (),
        held=_list_held(build_disruption_input(seen, cache=cache), inputs, drifted),
        pace=tuple(_list_paces(inputs, waves)) if drifted else (),
        lasts=_estimate_length(changed.snapshot, waves),
        peak=peak,
        floors=(
            _compute_bill_floor(before.snapshot, before.left_out.keys(), cache),
            _compute_bill_floor(drained.snapshot, after.left_out.keys(), cache),
        ),
        remarks=(*change.remarks, *told, *_tell_prices(before.snapshot)),
    )


def change_situation(seen: SeenCluster, change: SnapshotChange) -> tuple[Situation, tuple[str, ...]]:
    """What the cluster's controller would decide from after a change, and what to know of it."""
    changed, told = close_shifted_zones(
        seen.situation.with_snapshot(change.after), change.shifts, seen.settings
    )
    _check_deleted("SpendLimit", change.deleted_limits, {cap.limit for cap in changed.spend_caps})
    committed = {terms.name for terms in changed.snapshot.commitments}
    _check_deleted("Commitment", change.deleted_commitments, committed)
    if change.commitments or committed:
        changed = change_commitments(changed, change.commitments, change.deleted_commitments)
    if change.commitments and seen.settings.commitments == "Off":
        told = (*told, "the controller of this cluster counts no Commitments; set COMMITMENTS=Follow for it")
    if not (change.spend_limits or change.deleted_limits or seen.spend_limits):
        return changed, told
    if change.spend_limits and not seen.settings.spend_limits:
        told = (*told, "the controller of this cluster follows no SpendLimits; set SPEND_LIMITS=true for it")
    limits = seen.spend_limits
    return change_spend_limits(changed, limits, change.spend_limits, change.deleted_limits), told


def _sum_bill(solved: SolvedPlan, leaving: AbstractSet[str] = frozenset()) -> float:
    """Dollars an hour of the nodes that run and stay and of new ones, after commitments."""
    snapshot = solved.snapshot
    staying = tuple(each for each in snapshot.nodes if views.read_name(each) not in leaving)
    cover = cover_plan(replace(snapshot, nodes=staying), solved.plan)
    return bill_running_nodes(snapshot, leaving).total + (solved.price if cover is None else cover.total)


def _compute_bill_floor(snapshot: Snapshot, left_out: AbstractSet[str], cache: DecisionCache) -> float:
    """What the bill of no fleet for these pods can be below, whatever commitments pay of it."""
    listed = compute_fleet_floor(snapshot, left_out, cache)
    if not snapshot.commitments:
        return listed
    ledger = Ledger(snapshot.commitments)
    running = CommitmentBook().count_usage(snapshot, snapshot.commitments)
    most = ledger.find_most_saved(list_usage_kinds(snapshot.catalogs) | running.keys())
    return ledger.committed + max(0.0, listed - most)


def _check_deleted(kind: str, deleted: frozenset[str], there: set[str]) -> None:
    for name in sorted(deleted - there):
        near = get_close_matches(name, there, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise BadInput(f"there is no {kind} {shorten_text(name)} to delete{hint}")


def _tell_prices(snapshot: Snapshot) -> Iterable[str]:
    unknown = len(bill_running_nodes(snapshot).unpriced)
    if unknown:
        nodes = f"{unknown:,} running node{'s' if unknown > 1 else ''}"
        yield f"the price of {nodes} is not known and counts as 0"


def close_shifted_zones(
    situation: Situation, shifts: Iterable[ZoneShift], settings: Settings
) -> tuple[Situation, tuple[str, ...]]:
    """The situation with the zones closed that ZoneShifts of a change shift away, and what to know of it."""
    listed, snapshot = tuple(shifts), situation.snapshot
    if not listed:
        return situation, ()
    types = [each for catalog in snapshot.catalogs for each in catalog]
    nodes = [state.node for state in snapshot.nodes if state.node is not None]
    options = from_settings(settings)
    found = find_shifted_zones(
        listed,
        index_zones(types, nodes, ()),
        snapshot.options.now,
        policies=options.policies,
        min_healthy=options.min_healthy,
    )
    away = found.names
    catalogs = tuple(tuple(exclude_offerings(each, away) for each in types) for types in snapshot.catalogs)
    closed = {each.spec.zone_id: found.by_shift[each.name] for each in listed if each.name in found.by_shift}
    changed = replace(
        situation,
        snapshot=replace(snapshot, catalogs=catalogs),
        excluded_zones=situation.excluded_zones | away,
        closed_zones={**situation.closed_zones, **closed},
    )
    return changed, found.remarks


def _list_held(before: DisruptionInput, after: DisruptionInput, drifted: set[str]) -> tuple[HeldNodes, ...]:
    """By budget, the nodes it blocks: those that drift, and those that it did not block before."""
    was = {(name, each.name) for name, each in _list_blocked(before)}
    prices = PriceList.from_snapshot(after.snapshot)
    found: dict[str, list[BlockedNode]] = {}
    for budget, each in _list_blocked(after):
        if each.name in drifted or (budget, each.name) not in was:
            found.setdefault(budget, []).append(each)
    return tuple(
        HeldNodes(
            budget,
            tuple(sorted(each.name for each in nodes)),
            sum(find_node_price(prices, each.state) or 0.0 for each in nodes),
            tuple(sorted(each.name for each in nodes if (budget, each.name) not in was)),
        )
        for budget, nodes in sorted(found.items())
    )


def _list_blocked(inputs: DisruptionInput) -> Iterable[tuple[str, BlockedNode]]:
    """Nodes that may not be disrupted by choice, each with the first budget that guards one of its pods."""
    now = inputs.snapshot.options.now
    for each in find_candidates(inputs, DisruptionClass.GRACEFUL)[1]:
        if each.blocked_reason is BlockedReason.PDB:
            guarding = (name for pod in each.state.pods for name in inputs.limits.find_blocking_now(pod, now))
            yield min(guarding), each


def _list_paces(inputs: DisruptionInput, waves: DriftWaves) -> Iterable[DriftPace]:
    pool_of = {views.read_name(state): views.read_pool_name(state) for state in inputs.snapshot.nodes}
    allowed, now = compute_allowances(inputs, DRIFTED.reason).allowed, inputs.snapshot.options.now
    drifting: dict[str, list[int]] = {}
    for number, wave in enumerate(waves.waves):
        for node in wave.nodes:
            drifting.setdefault(pool_of[node], []).append(number)
    for pool, numbers in sorted(drifting.items()):
        spoken = [
            budget.nodes
            for budget in list_budgets(inputs.pools[pool])
            if (budget.reasons is None or DRIFTED.reason in budget.reasons) and _is_in_force(budget, now)
        ]
        most = min(allowed.get(pool, 0), len(numbers))
        yield DriftPace(pool, len(numbers), most, ", ".join(spoken), len(set(numbers)))


def _is_in_force(budget: Budget, now: datetime) -> bool:
    try:
        return is_active(budget, now)
    except BadBudget:
        return True  # it allows nothing


def _estimate_length(snapshot: Snapshot, waves: DriftWaves) -> timedelta:
    """About how long all waves take: new nodes warm up, and the longest grace period of each wave passes."""
    nodes = {views.read_name(state): state for state in snapshot.nodes}
    spent = timedelta()
    for wave in waves.waves:
        graces = (
            pod.spec.termination_grace_period_seconds for name in wave.nodes for pod in nodes[name].pods
        )
        longest = max((USUAL_GRACE if each is None else each for each in graces), default=0)
        warm_up = timedelta(minutes=WARM_UP) if wave.replacements else timedelta()
        spent = max(spent, wave.after) + warm_up + timedelta(seconds=longest)
    return spent


def _list_all_pods(snapshot: Snapshot) -> Iterable[Pod]:
    yield from snapshot.pods
    for state in snapshot.nodes:
        yield from state.pods
