"""Drafts of records from the results of deciding: plans, disruption choices and commands.

Of verdicts, only those that differ from the ones known before become drafts: words are made for nothing else.
The sentences are those that `explain` and `plan --disruption` print.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.disruption.candidates import Candidate
from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.command import Command, Method
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.report import BlockedDetail, BlockedNodeExplainer, DisruptionReport
from dovetail.history.record import MOST_PODS, RecordDraft, RecordKind
from dovetail.history.verdicts import Verdict, VerdictKey
from dovetail.scheduling.missing_resources import describe_decision
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.plan import Plan, PlannedNode
from dovetail.scheduling.model.reasons import Decision
from dovetail.scheduling.model.snapshot import StateNode

__all__ = [
    "of_choices",
    "of_claim",
    "of_command",
    "of_commands",
    "of_order",
    "of_plan",
    "of_pod",
    "of_refused_order",
    "of_report",
]

Verdicts = Mapping[str, VerdictKey]
# The reasons of the events that tell of the same.
NOMINATED, FAILED_SCHEDULING = "Nominated", "FailedScheduling"
LONGEST = 500


def of_plan(plan: Plan, before: Verdicts, claims: Mapping[str, str] | None = None) -> list[Verdict]:
    """The pods whose place or refusal in the plan is another than before.

    `claims` has the NodeClaim of each node: a pod's place is the same before and after its node registers.
    """
    known = claims or {}
    planned = {node.name: node for node in plan.new_nodes}
    found = []
    for decision in plan.decisions:
        node = planned.get(decision.place or "")
        claim = known.get(decision.place or "", "")
        place = f"new node of pool {node.pool}" if node else claim or decision.place or ""
        kind = RecordKind.POD_PLACED if decision.place else RecordKind.POD_UNSCHEDULABLE
        key = (kind, _read_reason(decision), place)
        if before.get(f"pod/{decision.pod}") != key:
            found.append(Verdict(key, _draft_pod(key, decision, node, claim)))
    return found


def _read_reason(decision: Decision) -> str:
    """Why a pod is unschedulable: the reason of the place that came nearest."""
    if decision.place:
        return NOMINATED
    nearest = decision.nearest_miss
    return FAILED_SCHEDULING if nearest is None else str(nearest.reason)


def _draft_pod(key: VerdictKey, decision: Decision, node: PlannedNode | None, claim: str) -> RecordDraft:
    nearest = decision.nearest_miss if not decision.place else None
    sentence = describe_decision(decision, node)
    place = decision.place if node is None else None  # a planned node has no name yet
    return RecordDraft(
        kind=key[0],
        subject=f"pod/{decision.pod}",
        reason=key[1],
        message=sentence if nearest is None else f"{sentence}; nearest: {nearest.brief}",
        pool=node.pool if node else "",
        names=tuple(dict.fromkeys(name for name in (place, claim) if name)),
    )


def of_choices(
    inputs: DisruptionInput,
    choices: Sequence[tuple[Method, DisruptionChoice]],
    before: Verdicts,
    only: Container[str] | None = None,
) -> list[Verdict]:
    """The nodes that are removable or blocked otherwise than before, from all methods of one turn.

    `only` has the provider ids of nodes of which something new was said; the others are not looked at.
    """
    states = {views.read_provider_id(state): state for state in inputs.snapshot.nodes}
    said = BlockedNodeExplainer(states, inputs, choices)
    commands = [command for _, choice in choices for command in choice.commands]
    drafts = list(_draft_removable(commands, before))
    going = {candidate.key for command in commands for candidate in command.candidates}
    for key, state in states.items():
        if (only is None or key in only) and key not in going and state.claim is not None:
            drafts += _draft_blocked(state, said.explain_node(state)[0], before)
    return drafts


def of_commands(commands: Sequence[Command], before: Verdicts) -> list[Verdict]:
    """The nodes of commands, as far as they were not known to be removable for that reason."""
    return list(_draft_removable(commands, before))


def of_report(report: DisruptionReport, before: Verdicts) -> list[Verdict]:
    """The nodes that are removable or blocked otherwise than before, as `plan --disruption` has them."""
    drafts = list(_draft_removable(report.commands, before))
    for blocked in report.blocked_nodes:
        if blocked.state.claim is not None:
            drafts += _draft_blocked(blocked.state, blocked.main, before)
    return drafts


def _draft_removable(commands: Sequence[Command], before: Verdicts) -> Iterator[Verdict]:
    for command in commands:
        reason = command.method.reason
        for candidate in command.candidates:
            subject, key = _name_subject(candidate.state), (RecordKind.NODE_REMOVABLE, reason, "")
            if before.get(subject) == key:
                continue
            draft = RecordDraft(
                kind=RecordKind.NODE_REMOVABLE,
                subject=subject,
                reason=reason,
                message=f"{reason}, {command.describe_for(candidate)}; {command.saving}",
                pool=candidate.pool.name,
                names=_list_names(candidate.state),
                pods=_name_pods(candidate),
                pod_count=len(candidate.pods),
                price_before=candidate.price or None,
            )
            yield Verdict(key, draft)


def _draft_blocked(state: StateNode, detail: BlockedDetail, before: Verdicts) -> Iterator[Verdict]:
    subject, reason = _name_subject(state), str(detail.blocked_reason)
    key = (RecordKind.NODE_BLOCKED, reason, "")
    if before.get(subject) != key:
        draft = RecordDraft(
            kind=RecordKind.NODE_BLOCKED,
            subject=subject,
            reason=reason,
            message=detail.why,
            pool=views.read_pool_name(state),
            names=_list_names(state),
            pods=(detail.pod,) if detail.pod else (),
        )
        yield Verdict(key, draft)


def of_command(
    kind: RecordKind, command: Command, command_id: str, *, reason: str = "", why: str = ""
) -> RecordDraft:
    """What becomes of a command. `reason` is the method's unless another says more, such as `budget`.

    Every node of it can find it by its names, as far as these fit; beyond that, by the `parent` of its own.
    """
    told = f"{command.sentence}; {command.saving}"
    if len(told) > LONGEST:
        told = f"{command.method.reason}, {command.describe_for(command.candidates[0])}; {command.saving}"
    pools = tuple(dict.fromkeys(candidate.pool.name for candidate in command.candidates))
    names = [name for each in command.candidates for name in (each.name, *_list_names(each.state))]
    cost = command.cost or None
    return RecordDraft(
        kind=kind,
        subject=f"command/{command_id}",
        reason=reason or command.method.reason,
        message=f"{told}; {why}" if why else told,
        pool=pools[0] if len(pools) == 1 else "",
        names=(*(f"pool/{pool}" for pool in pools if len(pools) > 1), *dict.fromkeys(names)),
        pods=tuple(pod.full_name for each in command.candidates for pod in each.pods[:MOST_PODS])[:MOST_PODS],
        pod_count=command.evictions,
        price_before=cost,
        price_after=None if cost is None else cost - command.savings,
    )


def of_order(planned: PlannedNode, claim: NodeClaim, why: str = "") -> RecordDraft:
    """A NodeClaim that was created for the pods of a planned node."""
    return RecordDraft(
        kind=RecordKind.NODE_ORDERED,
        subject=f"claim/{claim.name}",
        reason=why,
        message=planned.sentence,
        pool=planned.pool,
        pods=planned.pods[:MOST_PODS],
        pod_count=len(planned.pods),
        price_before=0.0,
        price_after=planned.price,
    )


def of_refused_order(planned: PlannedNode, why: str) -> list[Verdict]:
    """The pods of a planned node whose NodeClaim could not be created."""
    key = (RecordKind.POD_UNSCHEDULABLE, FAILED_SCHEDULING, "")
    return [
        Verdict(key, RecordDraft(key[0], f"pod/{pod}", key[1], why, planned.pool)) for pod in planned.pods
    ]


def of_claim(
    kind: RecordKind, claim: NodeClaim, reason: str, message: str, pods: Sequence[str] = ()
) -> RecordDraft:
    """What happened to the node of a NodeClaim; to the claim itself while it has no node."""
    state = StateNode(claim=claim)
    node = claim.status.node_name
    return RecordDraft(
        kind=kind,
        subject=f"node/{node}" if node else f"claim/{claim.name}",
        reason=reason,
        message=message,
        pool=claim.labels.get(labels.NODEPOOL, ""),
        names=_list_names(state),
        pods=tuple(pods[:MOST_PODS]),
        pod_count=len(pods),
    )


def of_pod(kind: RecordKind, pod: str, claim: NodeClaim | None, reason: str, message: str) -> RecordDraft:
    """What happened to a pod, named `namespace/name`, on the node of a NodeClaim."""
    node = (claim.status.node_name,) if claim is not None and claim.status.node_name else ()
    return RecordDraft(
        kind=kind,
        subject=f"pod/{pod}",
        reason=reason,
        message=message,
        pool=claim.labels.get(labels.NODEPOOL, "") if claim is not None else "",
        names=(*node, *_list_names(StateNode(claim=claim))) if claim is not None else (),
    )


def _name_subject(state: StateNode) -> str:
    if state.node is not None:
        return f"node/{state.node.name}"
    assert state.claim is not None, "a StateNode has a Node or a NodeClaim"
    return f"claim/{state.claim.name}"


def _list_names(state: StateNode) -> tuple[str, ...]:
    """The names of a node besides its own: its NodeClaim's and its instance's."""
    claim = state.claim.name if state.claim is not None else ""
    provider_id = state.claim.status.provider_id if state.claim is not None else ""
    if state.node is not None and state.node.spec.provider_id:
        provider_id = state.node.spec.provider_id
    return tuple(name for name in (claim, provider_id) if name)


def _name_pods(candidate: Candidate) -> tuple[str, ...]:
    return tuple(pod.full_name for pod in candidate.pods[:MOST_PODS])
