"""A change: the cluster as it is beside the same cluster with some objects applied to it."""

from __future__ import annotations

from dovetail.picture import ChangeDocument, ChangedPodCount, Picture
from dovetail.scheduling.bill import HOURS_A_MONTH
from dovetail.web.page import (
    Cell,
    Fact,
    WebPage,
    WebTable,
    format_count,
    names_cell,
    number_cell,
    price_cell,
    prose_cell,
    text_cell,
    word_cell,
)

__all__ = ["build_change_page"]

BESIDE = (("what", "What"), ("before", "Now"), ("after", "After"), ("difference", "Difference"))
NODES = (
    ("pool", "Pool"),
    ("instanceType", "Type"),
    ("capacityType", "Capacity type"),
    ("before", "Now"),
    ("after", "After"),
)
WORKLOADS = (
    ("kind", "Kind"),
    ("name", "Workload"),
    ("before", "Pods now"),
    ("after", "Pods after"),
    ("peak", "At most"),
    ("how", "How"),
)
REPLACED = (("node", "Node"), ("pool", "Pool"), ("why", "Because"), ("heldBy", "Blocked by"))
WAVES = (("wave", "Wave"), ("after", "After"), ("nodes", "Nodes"), ("pods", "Pods evicted"))
PDBS = (("pdb", "PodDisruptionBudget"), ("nodes", "Blocked nodes"), ("since", "Since"), ("price", "$/h"))
PODS = (("pod", "Pod"), ("becomes", "Becomes"), ("nearest", "Nearest miss"))


def build_change_page(picture: Picture) -> WebPage | None:
    """What the change alters; None where nobody asked about one."""
    change = picture.change
    if change is None:
        return None
    return WebPage(
        "Change",
        _describe_change(change),
        (
            Fact(
                "hourlyAfter",
                "Price an hour after",
                price_cell(change.hourly_after, 2),
                _describe_month(change),
            ),
            Fact("replaced", "Nodes replaced", number_cell(len(change.leaving))),
            Fact("evicted", "Pods evicted", number_cell(len(change.evicted)), _describe_length(change)),
            Fact(
                "newlyUnschedulable",
                "Pods that become unschedulable",
                number_cell(
                    len(change.newly_unschedulable), tone="bad" if change.newly_unschedulable else "good"
                ),
            ),
        ),
        (
            _build_beside(change),
            _build_nodes(change),
            _build_workloads(change),
            _build_replaced(change),
            _build_waves(change),
            _build_pdbs(change),
            _build_pods(change),
        ),
        remarks=change.remarks,
    )


def _describe_change(change: ChangeDocument) -> str:
    was, now = change.hourly_before, change.hourly_after
    told = f"With the change the cluster costs ${now:,.2f} an hour, and ${was:,.2f} without it."
    lost = len(change.newly_unschedulable)
    return f"{told} {format_count(lost, 'pod')} would have no place." if lost else told


def _describe_month(change: ChangeDocument) -> str:
    return f"{(change.hourly_after - change.hourly_before) * HOURS_A_MONTH:+,.0f} dollars a month"


def _describe_length(change: ChangeDocument) -> str:
    return f"in about {change.waves_seconds / 60:,.0f} min" if change.waves else ""


def _build_beside(change: ChangeDocument) -> WebTable:
    rows = [
        _build_dollars("the bill, $/h", change.hourly_before, change.hourly_after),
        _build_dollars("the least that any fleet costs, $/h", change.floor_before, change.floor_after),
    ]
    if change.hourly_peak:
        peak = price_cell(change.hourly_peak, 2)
        rows.append(
            (text_cell("while it is rolled out, at most, $/h"), price_cell(None), peak, text_cell(None))
        )
    return WebTable("beside", "Now and after", BESIDE, tuple(rows), "Nothing is known of its cost.")


def _build_dollars(what: str, was: float, now: float) -> tuple[Cell, ...]:
    difference = Cell(round(now - was, 6), f"{now - was:+,.2f}", "number")
    return text_cell(what), price_cell(was, 2), price_cell(now, 2), difference


def _build_nodes(change: ChangeDocument) -> WebTable:
    rows = tuple(
        (
            text_cell(each.pool),
            text_cell(each.instance_type),
            text_cell(each.capacity_type),
            number_cell(each.before),
            number_cell(each.after),
        )
        for each in change.nodes
    )
    return WebTable("nodes", "New nodes", NODES, rows, "As many nodes would be bought as now.")


def _build_workloads(change: ChangeDocument) -> WebTable:
    rows = tuple(
        (
            text_cell(each.kind),
            text_cell(f"{each.namespace}/{each.name}"),
            number_cell(each.before),
            number_cell(each.after),
            number_cell(each.peak or each.after),
            word_cell(_describe_workload(each)),
        )
        for each in change.workloads
    )
    return WebTable("workloads", "Workloads", WORKLOADS, rows, "No workload changes.")


def _describe_workload(each: ChangedPodCount) -> str:
    if each.rolled_out:
        return "rolled out"
    return "added" if not each.before else "scaled" if each.after else "deleted"


def _build_replaced(change: ChangeDocument) -> WebTable:
    rows = tuple(
        (
            text_cell(each.node, link=f"nodes/{each.node}"),
            text_cell(each.nodepool),
            prose_cell(each.why),
            prose_cell(each.held_by, tone="warn"),
        )
        for each in change.replaced
    )
    return WebTable("drifts", "Running nodes that drift", REPLACED, rows, "No running node drifts.")


def _build_waves(change: ChangeDocument) -> WebTable:
    rows = []
    for number, each in enumerate(change.waves, 1):
        seconds = each.after_seconds
        after = Cell(seconds, f"{seconds / 60:,.0f} min", "number")
        rows.append((number_cell(number), after, names_cell(each.nodes), number_cell(each.pods)))
    return WebTable("waves", "Waves", WAVES, tuple(rows), "Nothing is replaced.")


def _build_pdbs(change: ChangeDocument) -> WebTable:
    rows = tuple(
        (
            text_cell(each.pdb),
            names_cell(each.nodes),
            word_cell("the change" if each.newly else "before"),
            price_cell(each.hourly),
        )
        for each in change.pdbs
    )
    return WebTable("pdbs", "PodDisruptionBudgets in the way", PDBS, rows, "None.")


def _build_pods(change: ChangeDocument) -> WebTable:
    lost = (
        (text_cell(pod), word_cell("unschedulable", "bad"), prose_cell(change.nearest.get(pod)))
        for pod in change.newly_unschedulable
    )
    found = (
        (text_cell(pod), word_cell("schedulable", "good"), prose_cell(None)) for pod in change.newly_placed
    )
    return WebTable("pods", "Pods", PODS, (*lost, *found), "Every pod is as schedulable as now.")
