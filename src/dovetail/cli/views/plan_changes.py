"""What a change alters: nodes, dollars, pods that come, go and move, and what stands in the way."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from dovetail.app.changed_plan import ChangedPlan, DriftPace, HeldNodes
from dovetail.cli.views.disruptions import build_wave, show_waves
from dovetail.cli.views.output import (
    Output,
    format_count,
    merge_alike,
    print_note,
    print_structured,
    print_table,
    print_text,
    some_of,
)
from dovetail.cli.views.plans import describe_refusals
from dovetail.disruption.command import Command
from dovetail.scheduling.bill import HOURS_A_MONTH
from dovetail.scheduling.model.plan import Plan
from dovetail.state.changed_workloads import WorkloadChange
from dovetail.state.nodepool_change import DriftForecast
from dovetail.state.offline import OfflineCluster

__all__ = ["build_change_document", "show_planned_change"]

SHOWN_WORKLOADS = 20


def show_planned_change(planned: ChangedPlan, changed: OfflineCluster, output: Output) -> bool:
    """Print what the change alters, and what to know of how it was read; true when it leaves pods out."""
    if changed.unused:
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(changed.unused.items()))
        print_note(f"note: kinds that do not matter to a plan were left out: {listed}")
    for remark in planned.remarks:
        print_note(f"note: {remark}")
    if output is Output.table:
        _show_change(planned)
    else:
        print_structured(build_change_document(planned), output)
    return bool(planned.after.left_out)


def _show_change(planned: ChangedPlan) -> None:
    rows = _build_rows(planned)
    if rows:
        print_table(
            ("NEW NODES", "BEFORE", "AFTER", "CHANGE"),
            [(kind, str(was), str(now), f"{now - was:+d}") for kind, was, now in rows],
        )
        print_text("\n")
    workloads = planned.change.workloads
    if workloads:
        print_table(
            ("WORKLOAD", "PODS", "HOW"), [_build_workload_row(each) for each in workloads[:SHOWN_WORKLOADS]]
        )
        if len(workloads) > SHOWN_WORKLOADS:
            print_text(f"and {format_count(len(workloads) - SHOWN_WORKLOADS, 'more workload')}\n")
        print_text("\n")
    if planned.drifts:
        print_table(
            ("RUNNING NODE", "POOL", "EVICTIONS", "WHY"),
            merge_alike(_build_drift_row(planned, each) for each in planned.drifts),
        )
        print_text("\n")
        show_waves(planned.waves)
    if planned.held:
        print_table(
            ("PDB IN THE WAY", "BLOCKED NODES", "$/H", "SINCE"),
            [_build_held_row(each) for each in planned.held],
        )
        print_text("\n")
    _show_sums(planned)
    lost, found = planned.list_moved()
    for sentence in describe_refusals(planned.after, lost):
        print_text(f"becomes unschedulable: {sentence}\n")
    for pod in found:
        print_text(f"becomes schedulable: {pod}\n")
    if not (rows or workloads or lost or found or planned.drifts or planned.held or planned.leaving):
        print_text("the change alters nothing\n")


def _build_workload_row(each: WorkloadChange) -> tuple[str, ...]:
    return f"{each.kind} {each.full_name}", f"{each.before} → {each.after}", _describe_workload(each)


def _describe_workload(each: WorkloadChange) -> str:
    if each.rolled_out:
        return f"rolled out, {format_count(each.peak, 'pod')} at most"
    if not each.before:
        return "added"
    return "deleted" if not each.after else "scaled"


def _build_drift_row(planned: ChangedPlan, drift: DriftForecast) -> tuple[str, ...]:
    if drift.node in planned.leaving:
        return drift.node, drift.pool, str(len(drift.evicted)), drift.why
    return drift.node, drift.pool, "0", f"{drift.why}; but {_describe_hold(planned, drift)}"


def _describe_hold(planned: ChangedPlan, drift: DriftForecast) -> str:
    if drift.held_by:
        return f"{drift.held_by} does not allow it"
    held = next((each.why for each in planned.waves.held if each.name == drift.node), "")
    return held or "it is blocked"


def _build_held_row(held: HeldNodes) -> tuple[str, ...]:
    since = "before" if not held.newly else "the change"
    return held.budget, some_of(held.nodes), f"{held.hourly:.4f}", since


def _show_sums(planned: ChangedPlan) -> None:
    was, now = planned.hourly
    monthly = (now - was) * HOURS_A_MONTH
    print_text(f"${was:,.2f} → ${now:,.2f} an hour ({now - was:+,.2f}; {monthly:+,.0f} a month)\n")
    new = (*planned.before.plan.new_nodes, *planned.after.plan.new_nodes)
    if any(node.price_estimated for node in new):
        print_text("prices of new nodes in it are estimates where they are not known without asking AWS\n")
    least, still = planned.floors
    if least or still:
        print_text(f"no fleet for these pods costs less than ${least:,.2f} → ${still:,.2f} an hour\n")
    if planned.peak is not None:
        print_text(
            f"while it is rolled out: {format_count(len(planned.peak.plan.new_nodes), 'new node')}, "
            f"${planned.peak_hourly:,.2f} an hour at most\n"
        )
    if planned.leaving or planned.drifts:
        replaced, evicted = len(planned.leaving), len(planned.evicted)
        print_text(f"{format_count(replaced, 'node')} replaced, {format_count(evicted, 'pod')} evicted\n")
    for pace in planned.pace:
        print_text(f"{_describe_pace(pace)}\n")
    if planned.waves.waves and planned.drifts:
        print_text(f"all of it takes about {format_length(planned.lasts)}\n")
    bought = _count_first(planned.first)
    if bought:
        print_text(f"bought first: {', '.join(f'{count} × {kind}' for kind, count in bought.items())}\n")


def _describe_pace(pace: DriftPace) -> str:
    budget = f" by its budget of {pace.budget.replace('%', ' %')}" if pace.budget else ""
    nodes = format_count(pace.nodes, "node")
    return f"pool {pace.pool}: {nodes} in {format_count(pace.waves, 'wave')}, {pace.at_once} at once{budget}"


def format_length(length: timedelta) -> str:
    """A length of time for people who plan their day: `25 s`, `7 min`, `6 h`."""
    seconds = length.total_seconds()
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h".replace(".0 h", " h")


def _count_first(commands: tuple[Command, ...]) -> Counter[str]:
    new = (node for command in commands for node in command.replacements)
    return Counter(f"{each.instance_type or 'any type'} {each.capacity_type}".strip() for each in new)


def build_change_document(planned: ChangedPlan) -> dict[str, object]:
    """All of a change, for programs."""
    was, now = planned.hourly
    lost, found = planned.list_moved()
    misses = planned.after.near_misses
    return {
        "nodes": [
            {"pool": pool, "instanceType": name, "capacityType": capacity_type, "before": old, "after": new}
            for kind, old, new in _build_rows(planned)
            for pool, name, capacity_type in [kind.split(" / ")]
        ],
        "hourlyBefore": was,
        "hourlyAfter": now,
        "hourlyPeak": planned.peak_hourly or None,
        "floorBefore": planned.floors[0],
        "floorAfter": planned.floors[1],
        "workloads": [_build_workload(each) for each in planned.change.workloads],
        "replaced": [
            {
                "node": drift.node,
                "nodepool": drift.pool,
                "why": drift.why,
                "heldBy": _find_holder(planned, drift) or None,
            }
            for drift in planned.drifts
        ],
        "leaving": sorted(planned.leaving),
        "evicted": list(planned.evicted),
        "waves": [build_wave(each) for each in planned.waves.waves] if planned.drifts else [],
        "wavesSeconds": planned.lasts.total_seconds() if planned.drifts else 0.0,
        "pace": [
            {
                "nodepool": each.pool,
                "nodes": each.nodes,
                "atOnce": each.at_once,
                "budget": each.budget,
                "waves": each.waves,
            }
            for each in planned.pace
        ],
        "boughtFirst": dict(_count_first(planned.first)),
        "pdbs": [
            {
                "pdb": each.budget,
                "nodes": list(each.nodes),
                "newly": list(each.newly),
                "hourly": each.hourly,
            }
            for each in planned.held
        ],
        "newlyUnschedulable": lost,
        "nearest": {pod: str(misses[pod]) for pod in lost if pod in misses},
        "newlyPlaced": found,
        "remarks": list(planned.remarks),
    }


def _find_holder(planned: ChangedPlan, drift: DriftForecast) -> str:
    if drift.node in planned.leaving:
        return ""
    held = next((each for each in planned.waves.held if each.name == drift.node), None)
    return drift.held_by or (held.pod or held.why if held is not None else "")


def _build_workload(each: WorkloadChange) -> dict[str, object]:
    return {
        "kind": each.kind,
        "namespace": each.namespace,
        "name": each.name,
        "before": each.before,
        "after": each.after,
        "rolledOut": each.rolled_out,
        "peak": each.peak or None,
    }


def _build_rows(planned: ChangedPlan) -> list[tuple[str, int, int]]:
    old, new = _count_kinds(planned.before.plan), _count_kinds(planned.after.plan)
    return [(kind, old[kind], new[kind]) for kind in sorted({*old, *new}) if old[kind] != new[kind]]


def _count_kinds(plan: Plan) -> Counter[str]:
    return Counter(f"{node.pool} / {node.instance_type} / {node.capacity_type}" for node in plan.new_nodes)
