"""A plan as people and programs read it: tables, one JSON document, and the difference of two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isinf

from dovetail.cli.output import Output, counted, put, structured, table
from dovetail.errors import BadInput
from dovetail.explain import Decision
from dovetail.scheduling.plan import Plan, PlannedNode
from dovetail.scheduling.snapshot import Snapshot

__all__ = ["Solved", "document", "show_change", "show_explanation", "show_plan"]

HOURS_A_MONTH = 730
SHOWN_TYPES = 3


@dataclass(frozen=True, slots=True)
class Solved:
    """A plan, the world it is for, and what finding it took."""

    snapshot: Snapshot
    plan: Plan
    seconds: float
    first_seconds: float
    first_price: float
    peak_bytes: int

    @property
    def gap(self) -> float:
        """How far above the proven floor the price is, as a share; 0 when nothing is proven."""
        plan = self.plan
        return plan.price / plan.bound - 1 if plan.bound > 0 else 0.0


def document(solved: Solved) -> dict[str, object]:
    """The whole plan, for programs."""
    plan = solved.plan
    decisions = {decision.pod: decision for decision in plan.decisions}
    left_out = {**plan.ignored, **plan.unschedulable}
    return {
        "nodes": [_node(node) for node in plan.new_nodes],
        "existing": {name: list(pods) for name, pods in plan.existing.items()},
        "unschedulable": [_left_out(pod, why, decisions.get(pod)) for pod, why in left_out.items()],
        "totalHourly": plan.price,
        "lowerBound": plan.bound,
        "gap": solved.gap,
        "provenPods": plan.proven_pods,
        "solveSeconds": solved.seconds,
        "firstPlanSeconds": solved.first_seconds,
        "firstPlanHourly": solved.first_price,
        "peakRssBytes": solved.peak_bytes,
    }


def _node(node: PlannedNode) -> dict[str, object]:
    offering = {"instanceType": node.instance_type, "zone": node.zone, "capacityType": node.capacity_type}
    return {
        "nodepool": node.pool,
        "instanceTypes": list(node.instance_types),
        "offering": offering,
        "price": None if isinf(node.price) else node.price,
        "requirements": [_requirement(entry) for entry in node.requirements.entries()],
        "pods": list(node.pods),
    }


def _requirement(entry: object) -> dict[str, object]:
    from dovetail.api.codec import to_dict
    from dovetail.api.nodepool import Requirement

    assert isinstance(entry, Requirement)
    return to_dict(entry)


def _left_out(pod: str, why: str, decision: Decision | None) -> dict[str, object]:
    return {"pod": pod, "error": why, "reasons": _reasons(decision)}


def _reasons(decision: Decision | None) -> list[dict[str, object]]:
    if decision is None or not decision.rejections:
        return []
    nearest = decision.nearest_miss
    tally = Counter(rejection.reason for rejection in decision.rejections).most_common()
    return [
        {
            "reason": str(reason),
            "count": count,
            "nearest": str(nearest) if nearest is not None and nearest.reason == reason else None,
        }
        for reason, count in tally
    ]


def show_plan(solved: Solved) -> None:
    """The plan as tables and a summary."""
    plan = solved.plan
    rows = [_row(kinds, number) for kinds, number in _grouped(plan.new_nodes)]
    if rows:
        table(("NODES", "POOL", "INSTANCE TYPE", "ALSO", "ZONE", "CAPACITY", "PODS", "$/H"), rows)
    for name, pods in plan.existing.items():
        if pods:
            put(f"{name} takes {counted(len(pods), 'more pod')}\n")
    put(_summary(solved))
    decisions = {decision.pod: decision for decision in plan.decisions}
    for pod, why in {**plan.ignored, **plan.unschedulable}.items():
        put(_sentence(pod, why, decisions.get(pod)))


def _grouped(nodes: Iterable[PlannedNode]) -> list[tuple[PlannedNode, int]]:
    """Nodes that look alike to a reader share a line."""
    groups: dict[tuple[object, ...], tuple[PlannedNode, int]] = {}
    for node in nodes:
        key = (node.pool, node.instance_type, node.zone, node.capacity_type, len(node.pods))
        first, number = groups.get(key, (node, 0))
        groups[key] = (first, number + 1)
    return list(groups.values())


def _row(node: PlannedNode, number: int) -> tuple[str, ...]:
    others = [name for name in node.instance_types if name != node.instance_type]
    also = ", ".join(others[:SHOWN_TYPES]) + (
        f" +{len(others) - SHOWN_TYPES}" if len(others) > SHOWN_TYPES else ""
    )
    price = "?" if isinf(node.price) else f"{node.price * number:.4f}"
    kind = node.instance_type or "?"
    return str(number), node.pool, kind, also, node.zone, node.capacity_type, str(len(node.pods)), price


def _summary(solved: Solved) -> str:
    plan = solved.plan
    placed = sum(len(node.pods) for node in plan.new_nodes) + sum(map(len, plan.existing.values()))
    nodes = counted(len(plan.new_nodes), "new node")
    lines = [
        f"{counted(placed, 'pod')} placed on {nodes}: ${plan.price:.2f} an hour, "
        f"${plan.price * HOURS_A_MONTH:,.0f} a month"
    ]
    used = _utilisation(solved)
    if used:
        lines.append("utilisation: " + ", ".join(f"{name} {share:.0%}" for name, share in used.items()))
    if plan.bound > 0:
        lines.append(
            f"no plan for {counted(plan.proven_pods, 'pod')} of these can cost less than ${plan.bound:.2f} an hour: "
            f"at most {solved.gap:.1%} could still be saved"
        )
    return "\n".join(lines) + "\n"


def _utilisation(solved: Solved) -> dict[str, float]:
    """What pods and daemons ask of the new nodes, as a share of what these would offer."""
    asked: Counter[str] = Counter()
    offered: Counter[str] = Counter()
    types = {each.name: each for catalog in solved.snapshot.catalogs for each in catalog}
    for node in solved.plan.new_nodes:
        chosen = types.get(node.instance_type)
        if chosen is None:
            continue
        allocatable = chosen.allocatable()
        for name in ("cpu", "memory"):
            if name in node.requests:
                asked[name] += node.requests[name].nano
            offered[name] += allocatable[name].nano
    return {name: asked[name] / offered[name] for name in ("cpu", "memory") if offered[name]}


def _sentence(pod: str, why: str, decision: Decision | None) -> str:
    if decision is None or not decision.rejections:
        return f"{pod} has no place: {why}\n"
    nearest = decision.nearest_miss
    return f"{decision}; nearest: {nearest}\n"


def show_explanation(solved: Solved, pod: str, output: Output) -> None:
    """Everything that was considered for one pod."""
    name = pod if "/" in pod else f"default/{pod}"
    decision = next((d for d in solved.plan.decisions if d.pod == name), None)
    if decision is None:
        raise BadInput(f"there is no waiting pod {name} in these files")
    if output is not Output.table:
        rejections = [
            {"place": r.place, "reason": str(r.reason), "detail": r.detail} for r in decision.rejections
        ]
        structured({"pod": decision.pod, "place": decision.place, "rejections": rejections}, output)
        return
    put(f"{decision}\n")
    for relaxed in decision.relaxed:
        put(f"  gave up: {relaxed}\n")
    for reason, group in _by_reason(decision).items():
        put(f"  {reason} ({len(group)})\n")
        for detail in group:
            put(f"    {detail}\n")


def _by_reason(decision: Decision) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for rejection in decision.rejections:
        detail = f"{rejection.place}: {rejection.detail}" if rejection.detail else rejection.place
        found.setdefault(str(rejection.reason), []).append(detail)
    return found


def show_change(before: Solved, after: Solved, output: Output) -> None:
    """What a change of pools alters: nodes, money, pods without a place."""
    old, new = _kinds(before.plan), _kinds(after.plan)
    rows = [
        (kind, old.get(kind, 0), new.get(kind, 0))
        for kind in sorted({*old, *new})
        if old.get(kind) != new.get(kind)
    ]
    lost = sorted(set(after.plan.unschedulable) - set(before.plan.unschedulable))
    found = sorted(set(before.plan.unschedulable) - set(after.plan.unschedulable))
    if output is not Output.table:
        structured(
            {
                "nodes": [{"kind": kind, "before": was, "after": now} for kind, was, now in rows],
                "hourlyBefore": before.plan.price,
                "hourlyAfter": after.plan.price,
                "newlyUnschedulable": lost,
                "newlyPlaced": found,
            },
            output,
        )
        return
    if rows:
        table(
            ("POOL / TYPE / CAPACITY", "BEFORE", "AFTER"),
            [(kind, str(was), str(now)) for kind, was, now in rows],
        )
    difference = after.plan.price - before.plan.price
    put(f"${before.plan.price:.2f} → ${after.plan.price:.2f} an hour ({difference:+.2f})\n")
    for word, pods in (("loses its place", lost), ("gains a place", found)):
        for pod in pods:
            put(f"{pod} {word}\n")
    if not rows and not lost and not found:
        put("the change alters nothing\n")


def _kinds(plan: Plan) -> Counter[str]:
    return Counter(f"{n.pool} / {n.instance_type} / {n.capacity_type}" for n in plan.new_nodes)
