"""A plan as people read it: tables, sentences, and everything that was considered for one pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from math import isinf

import msgspec

from dovetail.api.codec import to_dict
from dovetail.api.labels import INITIALIZED, REGISTERED
from dovetail.app.solved_plan import SolvedPlan, peak_bytes
from dovetail.cli.views.output import (
    Output,
    format_count,
    merge_alike,
    print_structured,
    print_table,
    print_text,
    some_of,
)
from dovetail.errors import BadInput
from dovetail.scheduling.bill import HOURS_A_MONTH
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.model.reasons import Decision, NodeReason
from dovetail.scheduling.model.requirements import describe_values
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.plan_cover import PlanCover

__all__ = ["PSEUDO", "describe_refusals", "show_explanation", "show_plan", "write_plan"]

AT_ONCE = 200
PSEUDO = frozenset((INITIALIZED, REGISTERED))  # true of every node in the end, and on no NodeClaim


def write_plan(solved: SolvedPlan, output: Output) -> None:
    """The whole plan. JSON has a line per node and is written in parts: all together could be large."""
    nodes = (_build_node(node, solved.cover) for node in solved.plan.new_nodes)
    lists = {"nodes": nodes, "unschedulable": _list_unschedulable(solved)}
    if output is Output.json:
        parts = _list_parts(solved, lists)
        while some := "".join(islice(parts, AT_ONCE)):
            print_text(some)
    else:
        print_structured(
            {**{name: list(items) for name, items in lists.items()}, **_build_rest(solved)}, output
        )


def _list_parts(solved: SolvedPlan, lists: Mapping[str, Iterable[object]]) -> Iterator[str]:
    yield "{\n"
    for name, items in lists.items():
        yield f'"{name}": ['
        between = "\n"
        for item in items:
            yield between + _encode_json(item)
            between = ",\n"
        yield "],\n"
    rest = _build_rest(solved)
    yield ",\n".join(f'"{name}": {_encode_json(value)}' for name, value in rest.items())
    yield "\n}\n"


def _encode_json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _build_rest(solved: SolvedPlan) -> dict[str, object]:
    plan, cover = solved.plan, solved.cover
    paid = {} if cover is None else {"effectiveHourly": cover.total, "effectiveLowerBound": cover.floor}
    return {
        "existing": {name: list(pods) for name, pods in plan.existing.items()},
        "totalHourly": solved.price,
        **paid,
        "lowerBound": plan.bound,
        "gap": solved.gap,
        "provenPods": plan.proven_pods,
        "solveSeconds": solved.seconds,
        "firstPlanSeconds": solved.first_seconds,
        "firstPlanHourly": solved.first_price,
        "peakRssBytes": peak_bytes(),
    }


def _build_node(node: PlannedNode, cover: PlanCover | None) -> dict[str, object]:
    offering = {"instanceType": node.instance_type, "zone": node.zone, "capacityType": node.capacity_type}
    return {
        "nodepool": node.pool,
        "instanceTypes": list(node.instance_types),
        "offering": offering,
        "price": None if isinf(node.price) else node.price,
        **({"extras": node.extras} if node.extras else {}),
        **({"priceEstimated": True} if node.price_estimated else {}),
        **_build_cover(node, cover),
        "requirements": [to_dict(entry) for entry in node.requirements.drop_keys(PSEUDO).list_entries()],
        "pods": list(node.pods),
    }


def _build_cover(node: PlannedNode, cover: PlanCover | None) -> dict[str, object]:
    if cover is None or isinf(node.price):
        return {}
    by = {"coveredBy": cover.covered_by[node.name]} if node.name in cover.covered_by else {}
    return {"effective": cover.find_left(node.name, node.price), **by}


def _list_unschedulable(solved: SolvedPlan) -> Iterator[dict[str, object]]:
    for pod, why in solved.left_out.items():
        # One that only waits, for its zone or for a reservation, says so; the others are as they were.
        deferred = {"deferred": True} if pod in solved.plan.deferred else {}
        yield {"pod": pod, "reasons": _list_reasons(solved, pod, why), **deferred}


def _list_reasons(solved: SolvedPlan, pod: str, why: str) -> list[dict[str, object]]:
    """The reasons by count, each with the place that came nearest; one sentence where no place was asked."""
    decision = solved.decisions.get(pod)
    if decision is None or not decision.rejections:
        return [{"reason": why, "count": 1, "nearest": None}]
    miss = solved.near_misses.get(pod)
    nearest: dict[str, NodeReason] = {}
    for rejection in decision.rejections:
        nearest.setdefault(rejection.reason, rejection)
    tally = Counter(rejection.reason for rejection in decision.rejections).most_common()
    return [
        {
            "reason": str(reason),
            "count": count,
            "nearest": str(miss) if miss is not None and miss.reason is reason else str(nearest[reason]),
        }
        for reason, count in tally
    ]


SHOWN_PODS = 3
MORE_TYPES = 10
COLUMNS = ("NODES", "POOL", "INSTANCE TYPE", "OR", "ZONE", "CAPACITY TYPE", "PODS EACH")
# What is not the instance's is shown apart where there is any, and is part of the prices.
EXTRAS = "EXTRAS $/H"
# What commitments leave to pay, where there are any.
COVERED = ("LEFT TO PAY $/H", "COVERED BY")
PRICES = ("$/H", "$/MONTH")
ESTIMATED = "~"  # before every price that stands for one that is not known


def show_plan(solved: SolvedPlan) -> None:
    """The plan as tables and a summary."""
    plan = solved.plan
    extras = any(node.extras for node in plan.new_nodes)
    rows = [_build_row(nodes, extras, solved.cover) for nodes in _group_nodes(plan.new_nodes, solved.cover)]
    if rows:
        covered = COVERED if solved.cover is not None else ()
        print_table((*COLUMNS, *((EXTRAS,) if extras else ()), *PRICES, *covered), rows)
        print_text("\n")
    taken = [(name, str(len(pods))) for name, pods in plan.existing.items() if pods]
    if taken:
        print_table(("RUNNING NODE", "MORE PODS"), merge_alike(taken))
        print_text("\n")
    print_text(_describe_plan(solved))
    for pool, problem in plan.pool_problems.items():
        print_text(f"pool {pool} cannot be used: {problem}\n")
    for sentence in describe_refusals(solved, solved.left_out):
        print_text(f"{sentence}\n")


def _group_nodes(nodes: Iterable[PlannedNode], cover: PlanCover | None) -> list[list[PlannedNode]]:
    """Nodes that look alike to a reader share a line."""
    groups: dict[tuple[object, ...], list[PlannedNode]] = {}
    for node in nodes:
        by = "" if cover is None else cover.covered_by.get(node.name, "")
        key = (node.pool, node.instance_type, node.zone, node.capacity_type, len(node.pods), by)
        groups.setdefault(key, []).append(node)
    return list(groups.values())


def _build_row(nodes: Sequence[PlannedNode], extras: bool, cover: PlanCover | None) -> tuple[str, ...]:
    node, number = nodes[0], len(nodes)
    others = [name for name in node.instance_types if name != node.instance_type]
    price: tuple[str, ...] = ("?", "?")
    if not isinf(node.price):
        mark = ESTIMATED if node.price_estimated else ""
        price = (
            f"{mark}{node.price * number:.4f}",
            f"{mark}{node.price * number * HOURS_A_MONTH:,.2f}",
        )
    if extras:
        price = (f"{node.extras * number:.4f}", *price)
    return (
        str(number),
        node.pool,
        node.instance_type,
        some_of(others),
        node.zone,
        node.capacity_type,
        str(len(node.pods)),
        *price,
        *_build_cover_cells(nodes, cover),
    )


def _build_cover_cells(nodes: Sequence[PlannedNode], cover: PlanCover | None) -> tuple[str, ...]:
    if cover is None:
        return ()
    left = sum(cover.find_left(node.name, node.price) for node in nodes)
    return ("?" if isinf(left) else f"{left:.4f}"), cover.covered_by.get(nodes[0].name, "")


def _describe_plan(solved: SolvedPlan) -> str:
    plan, asked = solved.plan, solved.snapshot
    if not (asked.pods or asked.moving or asked.virtual):
        return _nothing_pending(asked)
    fresh = sum(len(node.pods) for node in plan.new_nodes)
    joined = sum(map(len, plan.existing.values()))
    price = f"${solved.price:,.2f} an hour, ${solved.price * HOURS_A_MONTH:,.0f} a month"
    lines = [f"{format_count(fresh, 'pod')} on {format_count(len(plan.new_nodes), 'new node')}: {price}"]
    lines += _describe_prices(plan.new_nodes)
    if solved.cover is not None and plan.new_nodes:
        lines.append(_describe_cover(solved.price, solved.cover))
    if joined:
        lines.append(f"{format_count(joined, 'pod')} on nodes that run already")
    used = _compute_utilisation(solved)
    if used:
        lines.append("utilisation: " + ", ".join(f"{name} {share:.0%}" for name, share in used.items()))
    if plan.bound > 0:
        paid = solved.cover is not None and solved.cover.total < solved.price
        proven = format_count(plan.proven_pods, "pod")
        lines.append(
            f"proven for {proven}: no plan costs less than ${plan.bound:,.2f} an hour"
            + (" by list prices" if paid else f", so at most {solved.gap:.1%} could be saved")
        )
    return "\n".join(lines) + "\n"


def _describe_cover(price: float, cover: PlanCover) -> str:
    """What the new nodes add to the bill after commitments, and what is proven of that."""
    proven = f"; no plan adds less than ${cover.floor:,.2f}" if cover.floor > 0 else ""
    return (
        f"commitments pay for ${max(0.0, price - cover.total):,.2f} an hour of it: "
        f"the new nodes add ${cover.total:,.2f} an hour to the bill{proven}"
    )


def _describe_prices(nodes: Sequence[PlannedNode]) -> Iterator[str]:
    """What of the price is not the instances', and how many prices are estimates."""
    extras = sum(node.extras for node in nodes)
    if extras:
        yield f"${extras:,.4f} an hour of it are extras: volumes, public IPv4 addresses and what you add"
    guessed = sum(node.price_estimated for node in nodes)
    if guessed:
        whose = "all of them" if guessed == len(nodes) else format_count(guessed, "node")
        yield f"{ESTIMATED} marks estimates: the price of {whose} is not known without asking AWS"


def _nothing_pending(asked: Snapshot) -> str:
    """Says that there was nothing to plan for, and what was looked at."""
    held = format_count(sum(len(node.pods) for node in asked.nodes), "pod")
    nodes, pools = format_count(len(asked.nodes), "node"), format_count(len(asked.pools), "NodePool")
    return f"no pod is pending: looked at {nodes} with {held} and at {pools}\n"


def _compute_utilisation(solved: SolvedPlan) -> dict[str, float]:
    """What pods and daemons ask of the new nodes, as a share of what these would offer."""
    asked: Counter[str] = Counter()
    offered: Counter[str] = Counter()
    chosen = {(node.pool, node.instance_type) for node in solved.plan.new_nodes}
    room = {
        (pool.name, each.name): each.allocatable()
        for pool in solved.snapshot.pools
        for each in solved.snapshot.list_types(pool)
        if (pool.name, each.name) in chosen
    }
    for node in solved.plan.new_nodes:
        allocatable = room[node.pool, node.instance_type]
        for name in ("cpu", "memory"):
            if name in allocatable:
                asked[name] += node.requests[name].nano if name in node.requests else 0
                offered[name] += allocatable[name].nano
    return {name: asked[name] / offered[name] for name in offered if offered[name]}


def describe_refusals(solved: SolvedPlan, names: Iterable[str]) -> Iterable[str]:
    """One sentence for each reason that these pods are unschedulable, however many it is about."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for pod in names:
        alike.setdefault(_describe_refusal(solved, pod, solved.left_out[pod]), []).append(pod)
    for (one, several, rest), pods in alike.items():
        shown = ", ".join(pods[:SHOWN_PODS])
        more = f" and {len(pods) - SHOWN_PODS:,} more" if len(pods) > SHOWN_PODS else ""
        yield " ".join(filter(None, (f"{shown}{more}", one if len(pods) == 1 else several, rest)))


def _describe_refusal(solved: SolvedPlan, pod: str, why: str) -> tuple[str, str, str]:
    """The verb for one pod, the verb for several, and the rest."""
    decision = solved.decisions.get(pod)
    if decision is None or not decision.rejections:
        word = "deferred" if pod in solved.plan.deferred else "unschedulable"
        return "is", "are", f"{word}: {why}"
    missing = solved.find_missing(pod)
    if missing:
        return "", "", "; ".join((str(missing[0]), *missing[0].list_lines()))
    miss = solved.near_misses.get(pod) or decision.nearest_miss
    # The whole of a refusal, with everything that was required, is for --explain.
    nearest = str(miss).partition(", requirements=")[0]
    return "fits", "fit", f"{str(decision).removeprefix(f'{pod} fits ')}; nearest: {nearest}"


def show_explanation(solved: SolvedPlan, pod: str, output: Output) -> None:
    """Everything that was considered for one pod."""
    name = pod if "/" in pod else f"default/{pod}"
    decision = solved.decisions.get(name)
    if decision is None and name in solved.left_out:
        decision = Decision(name, None, error=solved.left_out[name])
    if decision is None:
        raise BadInput(f"there is no pending pod {name} in these files{_suggest_pod(solved, name)}")
    if output is not Output.table:
        print_structured(_build_explanation(solved, decision), output)
        return
    for each in solved.find_missing(name):
        print_text(f"{name} {each}\n" + "".join(f"  {line}\n" for line in each.list_lines()))
    print_text(f"{decision}\n")
    node = next((each for each in solved.plan.new_nodes if each.name == decision.place), None)
    if node is not None:
        _show_node(node)
    for given_up in decision.relaxed:
        print_text(f"  gave up: {given_up}\n")
    for reason, details in _group_by_reason(decision).items():
        print_text(f"  {reason} ({len(details)})\n" + "".join(f"    {detail}\n" for detail in details))
    if name in solved.near_misses:
        print_text(f"  nearest: {solved.near_misses[name]}\n")


def _suggest_pod(solved: SolvedPlan, name: str) -> str:
    running = next((s for s in solved.snapshot.nodes for pod in s.pods if pod.full_name == name), None)
    if running is not None and running.node is not None:
        return f"; it runs on {running.node.name}"
    near = get_close_matches(name, [*solved.decisions, *solved.left_out], 1)
    return f"; did you mean {near[0]}?" if near else ""


def _show_node(node: PlannedNode) -> None:
    """The new node a pod goes to: what it may become, and who else is there."""
    print_text(f"  a new node of pool {node.pool}, with {format_count(len(node.pods) - 1, 'other pod')}\n")
    beside = f", of which ${node.extras:.4f} beside the instance" if node.extras else ""
    guess = " (estimated)" if node.price_estimated else ""
    price = f"${node.price:.4f} an hour{guess}{beside}"
    print_text(f"  cheapest: {node.instance_type} in {node.zone}, {node.capacity_type}, {price}\n")
    others = node.instance_types[1:]
    if others:
        more = f" and {len(others) - MORE_TYPES:,} more" if len(others) > MORE_TYPES else ""
        named = f"{', '.join(others[:MORE_TYPES])}{more}"
        print_text(f"  or one of {format_count(len(others), 'other type')}, cheapest first: {named}\n")
    wanted = node.requirements.drop_keys(PSEUDO)
    print_text(
        "  it must have:\n" + "".join(f"    {describe_values(key, wanted[key])}\n" for key in sorted(wanted))
    )


def _build_explanation(solved: SolvedPlan, decision: Decision) -> dict[str, object]:
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


def _group_by_reason(decision: Decision) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for rejection in decision.rejections:
        detail = f"{rejection.place}: {rejection.detail}" if rejection.detail else rejection.place
        found.setdefault(str(rejection.reason), []).append(detail)
    return found
