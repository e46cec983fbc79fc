"""The Situation before a decision of another autoscaler: what it bought is away, what it marked is not.

A look shows what was decided together with what came of it. To ask our own planner and methods the same
question, what came of it is taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from msgspec.structs import replace

from dovetail.api import conditions
from dovetail.api.meta import Condition
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.pod import Pod, PodStatus
from dovetail.api.predicates import is_active, owned_by_daemonset, owned_by_node
from dovetail.api.taints import DISRUPTED, is_same_taint
from dovetail.disruption.situation import Situation
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.snapshot import StateNode

__all__ = ["find_created", "find_key", "undo_marks", "undo_purchase"]

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def undo_purchase(
    situation: Situation, claims: Mapping[str, NodeClaim], states: Mapping[str, StateNode]
) -> Situation:
    """The Situation in which these NodeClaims, by uid, were decided on: they are away, and their pods wait.

    What was bought since then was not there either, and a pod that has been bound since had no place.
    """
    made = max(map(find_created, claims.values()))
    kept = tuple(
        state
        for state in situation.snapshot.nodes
        if state.claim is None
        or ((state.claim.uid or state.claim.name) not in claims and find_created(state.claim) <= made)
    )
    waiting: dict[str, Pod] = {pod.uid: pod for pod in situation.snapshot.pods if find_created(pod) <= made}
    freed = []
    for state in kept:
        late = [pod for pod in state.pods if _bound_after(pod, made)]
        waiting |= {pod.uid: _release(pod) for pod in late}
        if late:
            state = replace(state, pods=tuple(pod for pod in state.pods if pod not in late))
        freed.append(state)
    for uid in claims:
        mine = [pod for pod in states[uid].pods if _is_ours(pod) and find_created(pod) <= made]
        waiting |= {pod.uid: _release(pod) for pod in mine}
    snapshot = replace(
        situation.snapshot,
        nodes=tuple(freed),
        pods=tuple(waiting.values()),
        options=replace(situation.snapshot.options, now=max(made, situation.snapshot.options.now)),
    )
    return situation.with_snapshot(snapshot)


def _bound_after(pod: Pod, time: datetime) -> bool:
    """Whether a pod waited at the time, and has been bound since."""
    if not _is_ours(pod) or find_created(pod) > time:
        return False
    said = pod.status.find_condition("PodScheduled")
    since = said.last_transition_time if said is not None and said.status == "True" else None
    return since is not None and since > time


def _is_ours(pod: Pod) -> bool:
    return is_active(pod) and not owned_by_daemonset(pod) and not owned_by_node(pod)


def _release(pod: Pod) -> Pod:
    """The pod as it was when it had no place."""
    said = Condition(
        type="PodScheduled",
        status="False",
        reason="Unschedulable",
        last_transition_time=pod.metadata.creation_timestamp,
    )
    return replace(pod, node_name="", status=PodStatus(phase="Pending", conditions=(said,)))


def undo_marks(situation: Situation, keys: Iterable[str]) -> Situation:
    """The Situation in which nobody has taken these nodes yet."""
    wanted = set(keys)
    nodes = tuple(
        _undo_mark(state) if state.claim is not None and find_key(state) in wanted else state
        for state in situation.snapshot.nodes
    )
    pods = {
        pod.uid
        for state in nodes
        if state.claim is not None and find_key(state) in wanted
        for pod in state.pods
    }
    moving = tuple(pod for pod in situation.snapshot.moving if pod.uid not in pods)
    changed = situation.with_snapshot(replace(situation.snapshot, nodes=nodes, moving=moving))
    return replace(changed, queued=situation.queued - wanted)


def _undo_mark(state: StateNode) -> StateNode:
    node, claim = state.node, state.claim
    if node is not None:
        taints = tuple(each for each in node.spec.taints if not is_same_taint(each, DISRUPTED))
        meta = replace(node.metadata, deletion_timestamp=None)
        node = replace(node, metadata=meta, spec=replace(node.spec, taints=taints, unschedulable=False))
    if claim is not None:
        dropped = (conditions.DISRUPTION_REASON, conditions.INSTANCE_TERMINATING)
        kept = tuple(each for each in claim.status.conditions if each.type not in dropped)
        meta = replace(claim.metadata, deletion_timestamp=None)
        claim = replace(claim, metadata=meta, status=replace(claim.status, conditions=kept))
    return replace(state, node=node, claim=claim, marked=False)


def find_key(state: StateNode) -> str:
    """By what a node is known from look to look: its machine, or its name before it has one."""
    return views.read_provider_id(state) or views.read_name(state)


def find_created(obj: NodeClaim | Pod) -> datetime:
    """When an object was made; long ago where nobody says."""
    return obj.metadata.creation_timestamp or LONG_AGO
