"""A plan for programs: the one document that `dovetail plan -o json` and `-o yaml` write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from math import isinf

import msgspec

from dovetail.api.codec import to_dict
from dovetail.api.labels import INITIALIZED, REGISTERED
from dovetail.cli.output import Output, put, structured
from dovetail.cli.solved import Solved, peak_bytes
from dovetail.explain import Rejection
from dovetail.scheduling.plan import PlannedNode

__all__ = ["PSEUDO", "write"]

AT_ONCE = 200
PSEUDO = frozenset((INITIALIZED, REGISTERED))  # true of every node in the end, and on no NodeClaim


def write(solved: Solved, output: Output) -> None:
    """The whole plan. JSON has a line per node and is written in parts: all together could be large."""
    lists = {"nodes": map(_node, solved.plan.new_nodes), "unschedulable": _left_out(solved)}
    if output is Output.json:
        parts = _parts(solved, lists)
        while some := "".join(islice(parts, AT_ONCE)):
            put(some)
    else:
        structured({**{name: list(items) for name, items in lists.items()}, **_rest(solved)}, output)


def _parts(solved: Solved, lists: Mapping[str, Iterable[object]]) -> Iterator[str]:
    yield "{\n"
    for name, items in lists.items():
        yield f'"{name}": ['
        between = "\n"
        for item in items:
            yield between + _text(item)
            between = ",\n"
        yield "],\n"
    rest = _rest(solved)
    yield ",\n".join(f'"{name}": {_text(value)}' for name, value in rest.items())
    yield "\n}\n"


def _text(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _rest(solved: Solved) -> dict[str, object]:
    plan = solved.plan
    return {
        "existing": {name: list(pods) for name, pods in plan.existing.items()},
        "totalHourly": solved.price,
        "lowerBound": plan.bound,
        "gap": solved.gap,
        "provenPods": plan.proven_pods,
        "solveSeconds": solved.seconds,
        "firstPlanSeconds": solved.first_seconds,
        "firstPlanHourly": solved.first_price,
        "peakRssBytes": peak_bytes(),
    }


def _node(node: PlannedNode) -> dict[str, object]:
    offering = {"instanceType": node.instance_type, "zone": node.zone, "capacityType": node.capacity_type}
    return {
        "nodepool": node.pool,
        "instanceTypes": list(node.instance_types),
        "offering": offering,
        "price": None if isinf(node.price) else node.price,
        "requirements": [to_dict(entry) for entry in node.requirements.without(PSEUDO).entries()],
        "pods": list(node.pods),
    }


def _left_out(solved: Solved) -> Iterator[dict[str, object]]:
    for pod, why in solved.left_out.items():
        yield {"pod": pod, "reasons": _reasons(solved, pod, why)}


def _reasons(solved: Solved, pod: str, why: str) -> list[dict[str, object]]:
    """The reasons by count, each with the place that came nearest; one sentence where no place was asked."""
    decision = solved.decisions.get(pod)
    if decision is None or not decision.rejections:
        return [{"reason": why, "count": 1, "nearest": None}]
    miss = solved.near_misses.get(pod)
    nearest: dict[str, Rejection] = {}
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
