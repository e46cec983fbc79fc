"""A plan as people read it: tables, sentences, and everything that was considered for one pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from difflib import get_close_matches
from math import isinf

from dovetail.cli.output import Output, alike, counted, put, some_of, structured, table
from dovetail.cli.plandocument import PSEUDO
from dovetail.cli.solved import Solved
from dovetail.errors import BadInput
from dovetail.explain import Decision
from dovetail.scheduling.plan import PlannedNode
from dovetail.scheduling.requirements import text
from dovetail.scheduling.snapshot import Snapshot

__all__ = ["HOURS_A_MONTH", "show_explanation", "show_plan"]

HOURS_A_MONTH = 730
SHOWN_PODS = 3
MORE_TYPES = 10
COLUMNS = ("NODES", "POOL", "INSTANCE TYPE", "OR", "ZONE", "CAPACITY", "PODS EACH", "$/H", "$/MONTH")


def show_plan(solved: Solved) -> None:
    """The plan as tables and a summary."""
    plan = solved.plan
    rows = [_row(node, number) for node, number in _grouped(plan.new_nodes)]
    if rows:
        table(COLUMNS, rows)
        put("\n")
    taken = [(name, str(len(pods))) for name, pods in plan.existing.items() if pods]
    if taken:
        table(("RUNNING NODE", "MORE PODS"), alike(taken))
        put("\n")
    put(_summary(solved))
    for pool, problem in plan.pool_problems.items():
        put(f"pool {pool} cannot be used: {problem}\n")
    for sentence in _left_out(solved):
        put(f"{sentence}\n")


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
    price = ("?", "?")
    if not isinf(node.price):
        price = (f"{node.price * number:.4f}", f"{node.price * number * HOURS_A_MONTH:,.2f}")
    return (
        str(number),
        node.pool,
        node.instance_type,
        some_of(others),
        node.zone,
        node.capacity_type,
        str(len(node.pods)),
        *price,
    )


def _summary(solved: Solved) -> str:
    plan, asked = solved.plan, solved.snapshot
    if not (asked.pods or asked.moving or asked.virtual):
        return _nothing_pending(asked)
    fresh = sum(len(node.pods) for node in plan.new_nodes)
    joined = sum(map(len, plan.existing.values()))
    price = f"${solved.price:,.2f} an hour, ${solved.price * HOURS_A_MONTH:,.0f} a month"
    lines = [f"{counted(fresh, 'pod')} on {counted(len(plan.new_nodes), 'new node')}: {price}"]
    if joined:
        lines.append(f"{counted(joined, 'pod')} on nodes that run already")
    used = _utilisation(solved)
    if used:
        lines.append("utilisation: " + ", ".join(f"{name} {share:.0%}" for name, share in used.items()))
    if plan.bound > 0:
        lines.append(
            f"proven for {counted(plan.proven_pods, 'pod')}: no plan costs less than ${plan.bound:,.2f} "
            f"an hour, so at most {solved.gap:.1%} could be saved"
        )
    return "\n".join(lines) + "\n"


def _nothing_pending(asked: Snapshot) -> str:
    """Says that there was nothing to plan for, and what was looked at."""
    held = counted(sum(len(node.pods) for node in asked.nodes), "pod")
    nodes, pools = counted(len(asked.nodes), "node"), counted(len(asked.pools), "NodePool")
    return f"no pod is pending: looked at {nodes} with {held} and at {pools}\n"


def _utilisation(solved: Solved) -> dict[str, float]:
    """What pods and daemons ask of the new nodes, as a share of what these would offer."""
    asked: Counter[str] = Counter()
    offered: Counter[str] = Counter()
    chosen = {(node.pool, node.instance_type) for node in solved.plan.new_nodes}
    room = {
        (pool.name, each.name): each.allocatable()
        for pool in solved.snapshot.pools
        for each in solved.snapshot.types(pool)
        if (pool.name, each.name) in chosen
    }
    for node in solved.plan.new_nodes:
        allocatable = room[node.pool, node.instance_type]
        for name in ("cpu", "memory"):
            if name in allocatable:
                asked[name] += node.requests[name].nano if name in node.requests else 0
                offered[name] += allocatable[name].nano
    return {name: asked[name] / offered[name] for name in offered if offered[name]}


def _left_out(solved: Solved) -> Iterable[str]:
    """A sentence for each reason to have no place, however many pods it is about."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for pod, why in solved.left_out.items():
        alike.setdefault(_sentence(solved, pod, why), []).append(pod)
    for (one, several, rest), pods in alike.items():
        shown = ", ".join(pods[:SHOWN_PODS])
        more = f" and {len(pods) - SHOWN_PODS:,} more" if len(pods) > SHOWN_PODS else ""
        yield " ".join(filter(None, (f"{shown}{more}", one if len(pods) == 1 else several, rest)))


def _sentence(solved: Solved, pod: str, why: str) -> tuple[str, str, str]:
    """The verb for one pod, the verb for several, and the rest."""
    decision = solved.decisions.get(pod)
    if decision is None or not decision.rejections:
        return "has", "have", f"no place: {why}"
    missing = solved.missing(pod)
    if missing:
        return "", "", "; ".join((str(missing[0]), *missing[0].lines()))
    miss = solved.near_misses.get(pod) or decision.nearest_miss
    # The whole of a refusal, with everything that was required, is for --explain.
    nearest = str(miss).partition(", requirements=")[0]
    return "fits", "fit", f"{str(decision).removeprefix(f'{pod} fits ')}; nearest: {nearest}"


def show_explanation(solved: Solved, pod: str, output: Output) -> None:
    """Everything that was considered for one pod."""
    name = pod if "/" in pod else f"default/{pod}"
    decision = solved.decisions.get(name)
    if decision is None and name in solved.left_out:
        decision = Decision(name, None, error=solved.left_out[name])
    if decision is None:
        raise BadInput(f"there is no waiting pod {name} in these files{_hint(solved, name)}")
    if output is not Output.table:
        structured(_explained(solved, decision), output)
        return
    for each in solved.missing(name):
        put(f"{name} {each}\n" + "".join(f"  {line}\n" for line in each.lines()))
    put(f"{decision}\n")
    node = next((each for each in solved.plan.new_nodes if each.name == decision.place), None)
    if node is not None:
        _show_node(node)
    for given_up in decision.relaxed:
        put(f"  gave up: {given_up}\n")
    for reason, details in _by_reason(decision).items():
        put(f"  {reason} ({len(details)})\n" + "".join(f"    {detail}\n" for detail in details))
    if name in solved.near_misses:
        put(f"  nearest: {solved.near_misses[name]}\n")


def _hint(solved: Solved, name: str) -> str:
    running = next((s for s in solved.snapshot.nodes for pod in s.pods if pod.full_name == name), None)
    if running is not None and running.node is not None:
        return f"; it runs on {running.node.name}"
    near = get_close_matches(name, [*solved.decisions, *solved.left_out], 1)
    return f"; did you mean {near[0]}?" if near else ""


def _show_node(node: PlannedNode) -> None:
    """The new node a pod goes to: what it may become, and who else is there."""
    put(f"  a new node of pool {node.pool}, with {counted(len(node.pods) - 1, 'other pod')}\n")
    put(f"  cheapest: {node.instance_type} in {node.zone}, {node.capacity_type}, ${node.price:.4f} an hour\n")
    others = node.instance_types[1:]
    if others:
        more = f" and {len(others) - MORE_TYPES:,} more" if len(others) > MORE_TYPES else ""
        named = f"{', '.join(others[:MORE_TYPES])}{more}"
        put(f"  or one of {counted(len(others), 'other type')}, cheapest first: {named}\n")
    wanted = node.requirements.without(PSEUDO)
    put("  it must have:\n" + "".join(f"    {text(key, wanted[key])}\n" for key in sorted(wanted)))


def _explained(solved: Solved, decision: Decision) -> dict[str, object]:
    miss = solved.near_misses.get(decision.pod)
    return {
        "pod": decision.pod,
        "place": decision.place,
        "error": decision.error,
        "relaxed": list(decision.relaxed),
        "rejections": [
            {"place": each.place, "reason": str(each.reason), "detail": each.detail}
            for each in decision.rejections
        ],
        "nearest": None if miss is None else str(miss),
    }


def _by_reason(decision: Decision) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for rejection in decision.rejections:
        detail = f"{rejection.place}: {rejection.detail}" if rejection.detail else rejection.place
        found.setdefault(str(rejection.reason), []).append(detail)
    return found
