"""Where one pod will run, or what stands in its way: the answer, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isinf

from msgspec.structs import replace

from dovetail.api import conditions, predicates
from dovetail.api.pod import Pod
from dovetail.app.cluster_source import SeenCluster
from dovetail.app.solved_plan import FEW
from dovetail.cli.views.output import Output, format_count, print_structured, print_text
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.scheduling.explain import NearMiss, find_near_misses
from dovetail.scheduling.missing_resources import (
    MissingResource,
    describe_decision,
    find_missing_resources,
)
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.plan import Plan, PlannedNode
from dovetail.scheduling.model.reasons import Decision, NodeReason, Reason, shorten_detail
from dovetail.scheduling.model.snapshot import Snapshot, SnapshotPool, StateNode
from dovetail.scheduling.solve import QUICK, THOROUGH

__all__ = ["PodAnswer", "explain_pod", "show_pod"]

WAITING, MOVING, PLACED, ASIDE = "waiting", "moving", "placed", "aside"
SHOWN = 3  # places named for each reason, unless all are asked for


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """What is known about one pod. `state` is one of waiting, moving, placed and aside."""

    pod: str
    state: str
    sentence: str
    place: str | None = None
    decision: Decision | None = None
    planned: PlannedNode | None = None
    miss: NearMiss | None = None
    pools: tuple[str, ...] = ()
    missing: tuple[MissingResource, ...] = ()
    pool_names: frozenset[str] = frozenset()

    @property
    def stuck(self) -> bool:
        """It is pending and unschedulable."""
        return self.decision is not None and self.decision.place is None

    @property
    def nearest(self) -> str:
        """The nearest miss in words; empty when nothing was turned down."""
        if self.miss is not None:
            return str(self.miss)
        miss = self.decision.nearest_miss if self.decision else None
        return "" if miss is None else miss.brief

    def group_by_reason(self) -> list[tuple[Reason, list[NodeReason]]]:
        """The places that were turned down, by why: pools before nodes, then the most frequent reason."""
        found: dict[Reason, list[NodeReason]] = {}
        rejections = self.decision.rejections if self.decision else ()
        for rejection in sorted(rejections, key=lambda each: each.place not in self.pool_names):
            found.setdefault(rejection.reason, []).append(rejection)
        return sorted(
            found.items(), key=lambda item: (item[1][0].place not in self.pool_names, -len(item[1]))
        )


def explain_pod(seen: SeenCluster, name: str) -> PodAnswer:
    """What there is to say about a pod that is known to exist."""
    snapshot = seen.snapshot
    if any(pod.full_name == name for pod in snapshot.pods):
        return _explain_decision(seen.situation, name, WAITING)
    home = next((s for s in snapshot.nodes for pod in s.pods if pod.full_name == name), None)
    if home is None:
        return PodAnswer(name, ASIDE, f"{name} {_why_aside(seen.pods[name])}")
    if any(pod.full_name == name for pod in snapshot.moving):
        return _explain_decision(
            seen.situation, name, MOVING, f"its node {views.read_name(home)} is being removed; "
        )
    leaving = ", which is being removed" if views.is_deleting(home) else ""
    return PodAnswer(name, PLACED, f"{name} is on {_describe_node(home)}{leaving}", views.read_name(home))


def _explain_decision(situation: Situation, name: str, state: str, before: str = "") -> PodAnswer:
    cache, snapshot = DecisionCache(), situation.snapshot
    plan = decide_plan(situation, QUICK if len(snapshot.pods) > FEW else THOROUGH, cache)
    left_out = {**plan.ignored, **plan.deferred, **plan.unschedulable}
    undecided = Decision(name, None, error=left_out.get(name, ""))
    decision = next((each for each in plan.decisions if each.pod == name), undecided)
    planned = next((node for node in plan.new_nodes if node.name == decision.place), None)
    missing = _list_missing(snapshot, decision)
    return PodAnswer(
        name,
        state,
        before + describe_decision(decision, planned, missing),
        decision.place,
        decision,
        planned,
        _near_miss(snapshot, plan, decision, cache),
        tuple(_pools_aside(snapshot, plan)) if decision.place is None else (),
        missing,
        frozenset(pool.name for pool in snapshot.pools),
    )


def _list_missing(snapshot: Snapshot, decision: Decision) -> tuple[MissingResource, ...]:
    if decision.place is not None or not decision.rejections:
        return ()
    waiting = (*snapshot.pods, *snapshot.moving)
    pod = next(each for each in waiting if each.full_name == decision.pod)
    return find_missing_resources(snapshot, pod)


def _near_miss(snapshot: Snapshot, plan: Plan, decision: Decision, cache: DecisionCache) -> NearMiss | None:
    """Asked for this pod alone: what the others are missing costs time, and nobody wants to know."""
    if decision.place is not None or not decision.rejections:
        return None
    return find_near_misses(snapshot, replace(plan, decisions=(decision,)), cache).get(decision.pod)


def _pools_aside(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Pools that were not even asked, and why."""
    for pool in snapshot.pools:
        why = plan.pool_problems.get(pool.name) or _why_unused(pool)
        if why:
            yield f"pool {pool.name} is not used: {why}"


def _why_unused(pool: SnapshotPool) -> str:
    nodepool = pool.nodepool
    if nodepool.deleting:
        return "it is being deleted"
    if nodepool.static:
        return "it is static, with a fixed number of nodes"
    ready = conditions.find_condition(nodepool, conditions.READY)
    if ready is None or ready.status != conditions.TRUE:
        said = (ready.message or ready.reason) if ready is not None else ""
        return f"it is not ready ({said})" if said else "it is not ready"
    return ""


def _describe_node(state: StateNode) -> str:
    """A place, and what it is if it is not a running node."""
    what = "node" if state.node is not None and views.is_registered(state) else "nodeclaim"
    pool = views.read_pool_name(state)
    return f"{what} {views.read_name(state)}" + (f" of pool {pool}" if pool else "")


def _why_aside(pod: Pod) -> str:
    """Why no node is looked for."""
    gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
    nominated = pod.status.nominated_node_name
    answers = (
        (predicates.is_terminal(pod), f"has run to its end ({pod.status.phase})"),
        (bool(pod.node_name), f"is bound to node {pod.node_name}, which does not exist"),
        (
            predicates.owned_by_daemonset(pod),
            "belongs to a DaemonSet: it runs on the nodes there are, and no node is created for it",
        ),
        (predicates.owned_by_node(pod), "is a static pod: its kubelet runs it"),
        (predicates.is_terminating(pod), "is being deleted"),
        (bool(gates), f"is not scheduled because of its scheduling gates: {gates}"),
        (bool(nominated), f"is pending until kube-scheduler has freed capacity for it on node {nominated}"),
    )
    found = next((words for applies, words in answers if applies), "")
    return found or "is new: kube-scheduler has not said yet that it is unschedulable; ask again in a moment"


def show_pod(answer: PodAnswer, output: Output, everything: bool) -> None:
    """Write the answer."""
    if output is not Output.table:
        print_structured(_build_document(answer, everything), output)
        return
    print_text(f"{answer.sentence}\n")
    for line in _list_lines(answer, everything):
        print_text(f"  {line}\n")


def _list_lines(answer: PodAnswer, everything: bool) -> Iterator[str]:
    if answer.planned is not None:
        yield from _planned_lines(answer.planned)
    for number, each in enumerate(answer.missing):
        yield from ((str(each),) if number else ())
        yield from each.list_lines()
    if answer.missing:
        yield str(answer.decision)
    for given_up in answer.decision.relaxed if answer.decision else ():
        yield f"gave up: {given_up}"
    if answer.stuck:
        if answer.nearest and not answer.missing:
            yield f"nearest: {answer.nearest}"
        for reason, places in answer.group_by_reason():
            yield f"{reason} ({len(places)})"
            shown = places if everything else places[:SHOWN]
            yield from (f"  {_describe_rejection(each, everything)}" for each in shown)
            if len(places) > len(shown):
                yield f"  and {len(places) - len(shown):,} more; --all shows them"
    yield from answer.pools


def _describe_rejection(rejection: NodeReason, whole: bool) -> str:
    """A place and its particular. All that was required of a new node is for those who want everything."""
    detail = rejection.detail if whole else shorten_detail(rejection.detail)
    return f"{rejection.place}: {detail}" if detail else rejection.place


def _planned_lines(node: PlannedNode) -> Iterator[str]:
    price = "at an unknown price" if isinf(node.price) else f"${node.price:.4f} an hour"
    yield f"with {format_count(len(node.pods) - 1, 'other pod')}"
    yield f"cheapest: {node.instance_type} in {node.zone}, {node.capacity_type}, {price}"
    others = len(node.instance_types) - 1
    if others:
        yield f"or one of {format_count(others, 'other type')}"


def _build_document(answer: PodAnswer, everything: bool) -> dict[str, object]:
    decision, planned = answer.decision, answer.planned
    document: dict[str, object] = {
        "kind": "Pod",
        "name": answer.pod,
        "state": answer.state,
        "explanation": answer.sentence,
        "place": answer.place,
        "newNode": None if planned is None else _planned_document(planned),
        "relaxed": list(decision.relaxed) if decision else [],
        "reasons": [
            {"reason": str(reason), "count": len(places), "example": str(places[0])}
            for reason, places in answer.group_by_reason()
        ]
        if answer.stuck
        else [],
        "nearest": answer.nearest or None if answer.stuck else None,
        "unusedPools": list(answer.pools),
        "missingResources": [_missing_document(each) for each in answer.missing],
    }
    if everything:
        document["rejections"] = [
            {"place": each.place, "reason": str(each.reason), "detail": each.detail}
            for each in (decision.rejections if decision else ())
        ]
    return document


def _missing_document(missing: MissingResource) -> dict[str, object]:
    return {
        "resource": missing.resource,
        "requested": str(missing.requested),
        "instanceTypes": list(missing.types),
        "excludedBy": [
            {"nodepool": each.pool, "requirement": each.requirement, "instanceTypes": each.count}
            for each in missing.excluded_by
        ],
    }


def _planned_document(node: PlannedNode) -> dict[str, object]:
    return {
        "pool": node.pool,
        "instanceType": node.instance_type,
        "zone": node.zone,
        "capacityType": node.capacity_type,
        "price": None if isinf(node.price) else node.price,
        "instanceTypes": list(node.instance_types),
        "otherPods": len(node.pods) - 1,
    }
