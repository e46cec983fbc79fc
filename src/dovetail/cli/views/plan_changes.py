"""What a change of NodePools alters: nodes, dollars, and pods that would have to move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from dovetail.api import labels
from dovetail.app.solved_plan import SolvedPlan
from dovetail.cli.views.output import (
    Output,
    format_count,
    merge_alike,
    print_structured,
    print_table,
    print_text,
)
from dovetail.cli.views.plans import HOURS_A_MONTH
from dovetail.scheduling.model import state_node
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.state.nodepool_change import DriftForecast

__all__ = ["PlanChange", "show_change"]


@dataclass(frozen=True, slots=True)
class PlanChange:
    """The world before, after, and the nodes that the change turns out."""

    before: SolvedPlan
    after: SolvedPlan
    fates: tuple[DriftForecast, ...]

    @property
    def leaving(self) -> frozenset[str]:
        return frozenset(fate.node for fate in self.fates if not fate.held_by)

    @property
    def evicted(self) -> tuple[str, ...]:
        return tuple(pod for fate in self.fates if not fate.held_by for pod in fate.evicted)

    def sum_hourly(self) -> tuple[float, float]:
        """Dollars an hour of everything, running and new, before and after."""
        stays = running_price(self.before.snapshot, self.leaving)
        return self.before.price + running_price(self.before.snapshot), self.after.price + stays


def running_price(snapshot: Snapshot, without: Iterable[str] = ()) -> float:
    """What nodes that run cost, as far as the catalogue knows their offerings."""
    gone = frozenset(without)
    prices = {
        (each.name, offering.zone, offering.capacity_type): offering.price
        for catalog in snapshot.catalogs
        for each in catalog
        for offering in each.offerings
    }
    states = [
        state
        for state in snapshot.nodes
        if state_node.is_managed(state) and state_node.read_name(state) not in gone
    ]
    keys = (labels.INSTANCE_TYPE, labels.ZONE, labels.CAPACITY_TYPE)
    bought = (tuple(state_node.read_labels(state).get(key, "") for key in keys) for state in states)
    return sum(prices.get((name, zone, capacity_type), 0.0) for name, zone, capacity_type in bought)


def show_change(change: PlanChange, output: Output) -> None:
    """Print what the change alters, and nothing else."""
    if output is not Output.table:
        print_structured(_build_document(change), output)
        return
    rows = _build_rows(change)
    if rows:
        print_table(
            ("NEW NODES", "BEFORE", "AFTER", "CHANGE"),
            [(kind, str(was), str(now), f"{now - was:+d}") for kind, was, now in rows],
        )
        print_text("\n")
    if change.fates:
        print_table(("RUNNING NODE", "POOL", "EVICTIONS", "WHY"), merge_alike(map(_fate_row, change.fates)))
        print_text("\n")
    _show_sums(change)
    lost, found = _list_moved(change)
    for word, pods in (("becomes unschedulable", lost), ("becomes schedulable", found)):
        for pod in pods:
            print_text(f"{pod} {word}\n")
    if not rows and not lost and not found and not change.fates:
        print_text("the change alters nothing\n")


def _show_sums(change: PlanChange) -> None:
    was, now = change.sum_hourly()
    monthly = (now - was) * HOURS_A_MONTH
    print_text(f"${was:,.2f} → ${now:,.2f} an hour ({now - was:+,.2f}; {monthly:+,.0f} a month)\n")
    if change.fates:
        replaced, evicted = len(change.leaving), len(change.evicted)
        print_text(f"{format_count(replaced, 'node')} replaced, {format_count(evicted, 'pod')} evicted\n")


def _fate_row(fate: DriftForecast) -> tuple[str, ...]:
    held = f"; but {fate.held_by} does not allow it" if fate.held_by else ""
    return fate.node, fate.pool, "0" if fate.held_by else str(len(fate.evicted)), fate.why + held


def _build_document(change: PlanChange) -> dict[str, object]:
    was, now = change.sum_hourly()
    lost, found = _list_moved(change)
    return {
        "nodes": [
            {"pool": pool, "instanceType": name, "capacityType": capacity_type, "before": old, "after": new}
            for kind, old, new in _build_rows(change)
            for pool, name, capacity_type in [kind.split(" / ")]
        ],
        "hourlyBefore": was,
        "hourlyAfter": now,
        "replaced": [
            {"node": fate.node, "nodepool": fate.pool, "why": fate.why, "heldBy": fate.held_by or None}
            for fate in change.fates
        ],
        "evicted": list(change.evicted),
        "newlyUnschedulable": lost,
        "newlyPlaced": found,
    }


def _build_rows(change: PlanChange) -> list[tuple[str, int, int]]:
    old, new = _count_kinds(change.before.plan), _count_kinds(change.after.plan)
    return [(kind, old[kind], new[kind]) for kind in sorted({*old, *new}) if old[kind] != new[kind]]


def _count_kinds(plan: Plan) -> Counter[str]:
    return Counter(f"{node.pool} / {node.instance_type} / {node.capacity_type}" for node in plan.new_nodes)


def _list_moved(change: PlanChange) -> tuple[list[str], list[str]]:
    """Pods that become unschedulable by the change, and pods that become schedulable."""
    before, after = set(change.before.left_out), set(change.after.left_out)
    return sorted(after - before), sorted(before - after)
