"""One node or claim: what it is, what runs there, and whether it may be disrupted now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from dovetail.api import conditions, labels
from dovetail.api.meta import Condition
from dovetail.app.cluster_source import SeenCluster
from dovetail.app.solved_plan import build_disruption_input
from dovetail.cli.views.output import Output, print_structured, print_table, print_text
from dovetail.disruption.budgets import compute_allowances
from dovetail.disruption.candidates import (
    QUIET,
    BlockedNode,
    Candidate,
    DisruptionClass,
    evaluate_node,
)
from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.command import DRIFTED, EMPTY, SINGLE, Method
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.consolidation import explain_unconsolidatable, judge_single_node
from dovetail.disruption.methods.drift import choose_drift
from dovetail.disruption.methods.drift_waves import limit_drift
from dovetail.disruption.methods.emptiness import choose_empty_nodes, explain_not_empty
from dovetail.disruption.policy import find_rest_block
from dovetail.disruption.report import BlockedNodeExplainer
from dovetail.scheduling.bill import find_running_price
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.resources import (
    Nano,
    add_resources,
    compute_nano_requests,
    convert_to_quantities,
)
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.settings.durations import NEVER, parse_duration

__all__ = ["NodeAnswer", "explain_node", "show_node"]

RESOURCES = ("cpu", "memory", "pods")


@dataclass(frozen=True, slots=True)
class DisruptionAnswer:
    """Whether a node may be disrupted for one reason; if not, why not."""

    reason: str
    allowed: bool
    why: str


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What is known about one node."""

    state: StateNode
    price: float
    verdicts: tuple[DisruptionAnswer, ...]
    held: str

    @property
    def sentence(self) -> str:
        name, going = _name_node(self.state), [each.reason for each in self.verdicts if each.allowed]
        if going:
            return f"{name} may be disrupted now: {', '.join(going)}"
        return f"{name} is blocked: {self.held}" if self.held else f"{name} is not removable now"


def explain_node(seen: SeenCluster, state: StateNode) -> NodeAnswer:
    """What there is to say about a node or claim of the cluster."""
    inputs = build_disruption_input(seen)
    known = views.read_labels(state)
    chosen = inputs.types.get(views.read_pool_name(state), {}).get(known.get(labels.INSTANCE_TYPE, ""))
    return _NodeJudge(inputs, state).judge_node(find_running_price(known, chosen) or 0.0)


class _NodeJudge:
    """Asks the rules of each disruption method about one node, and says why with the report's words."""

    def __init__(self, inputs: DisruptionInput, state: StateNode) -> None:
        self._inputs, self._state = inputs, state
        self._words = BlockedNodeExplainer({views.read_provider_id(state): state}, inputs, ())

    def judge_node(self, price: float) -> NodeAnswer:
        inputs, state = self._inputs, self._state
        graceful = evaluate_node(inputs, state, DisruptionClass.GRACEFUL)
        eventual = evaluate_node(inputs, state, DisruptionClass.EVENTUAL)
        verdicts = (
            self._judge_choice(EMPTY, graceful, self._why_not_empty(graceful), choose_empty_nodes),
            self._judge_choice(DRIFTED, eventual, _why_not_drifted(state), _choose_all_drift),
            self._judge_underutilized(graceful),
        )
        held = self._words.describe_block(SINGLE, graceful).why if isinstance(graceful, BlockedNode) else ""
        return NodeAnswer(state, price, verdicts, held)

    def _judge_method(self, method: Method, judged: Candidate | BlockedNode, why: str) -> DisruptionAnswer:
        if isinstance(judged, BlockedNode):
            return DisruptionAnswer(method.reason, False, self._words.describe_block(method, judged).why)
        allowance = compute_allowances(self._inputs, method.reason)
        if method == DRIFTED:
            limit_drift(self._inputs, allowance)
        if not why and allowance.count_left(judged.pool.name) <= 0:
            reason, told = allowance.explain_block(judged.pool.name)
            why = self._words.describe_block(method, BlockedNode(judged.state, told, QUIET, reason)).why
        return DisruptionAnswer(method.reason, not why, why)

    def _judge_choice(
        self,
        method: Method,
        judged: Candidate | BlockedNode,
        why: str,
        choose: Callable[[DisruptionInput], DisruptionChoice],
    ) -> DisruptionAnswer:
        """What the method itself says of a node that it may choose; of others, why it may not."""
        if why or isinstance(judged, BlockedNode):
            return self._judge_method(method, judged, why)
        choice = choose(self._inputs)
        if any(each.key == judged.key for command in choice.commands for each in command.candidates):
            return DisruptionAnswer(method.reason, True, "")
        for blocked in choice.blocked:
            if views.read_provider_id(blocked.state) == judged.key:
                return DisruptionAnswer(method.reason, False, self._words.describe_block(method, blocked).why)
        return self._judge_method(method, judged, why)

    def _judge_underutilized(self, judged: Candidate | BlockedNode) -> DisruptionAnswer:
        verdict = self._judge_method(SINGLE, judged, self._why_not_consolidated(judged))
        if not verdict.allowed or isinstance(judged, BlockedNode):
            return verdict
        command, why = judge_single_node(self._inputs, judged)
        return DisruptionAnswer(verdict.reason, command is not None, command.saving if command else why)

    def _why_not_empty(self, judged: Candidate | BlockedNode) -> str:
        if isinstance(judged, BlockedNode):
            return ""
        why = explain_not_empty(self._inputs, judged)
        if why is None:
            return ""
        return why or (self._why_not_yet(judged) if judged.empty else "pods on it would have to move")

    def _why_not_consolidated(self, judged: Candidate | BlockedNode) -> str:
        if isinstance(judged, BlockedNode):
            return ""
        why = explain_unconsolidatable(judged)
        if why is None:
            rest = find_rest_block(judged, self._inputs.snapshot.options.now)
            return "" if rest is None else rest.why
        return why or (
            "it is empty" if judged.empty and not judged.pool.static else self._why_not_yet(judged)
        )

    def _why_not_yet(self, candidate: Candidate) -> str:
        if candidate.pool.static:
            return f"pool {candidate.pool.name} is static and it has not drifted"
        return self._words.describe_not_yet(candidate)


def _choose_all_drift(inputs: DisruptionInput) -> DisruptionChoice:
    return choose_drift(inputs, at_once=None)


def _why_not_drifted(state: StateNode) -> str:
    drifted = state.claim is not None and conditions.is_true(state.claim, conditions.DRIFTED)
    return "" if drifted else "it has not drifted"


def _name_node(state: StateNode) -> str:
    if state.node is not None:
        return f"node {state.node.name}"
    return f"nodeclaim {views.read_name(state)}"


def _describe_stage(state: StateNode) -> str:
    """How far it has come."""
    if views.is_deleting(state):
        return "being removed"
    if state.claim is None:
        return "running, not managed by Dovetail"
    if state.node is None:
        return "launched" if state.claim.status.provider_id else "ordered"
    if views.is_initialized(state):
        return "running"
    return "registered" if views.is_registered(state) else "joining"


def _find_expiry(state: StateNode) -> datetime | None:
    claim = state.claim
    after = claim.spec.expire_after if claim else None
    if claim is None or not after or after == NEVER or claim.metadata.creation_timestamp is None:
        return None
    return claim.metadata.creation_timestamp + parse_duration(after)


def _list_conditions(state: StateNode) -> tuple[Condition, ...]:
    """The claim's conditions, which tell its story; of a node without a claim, the node's."""
    if state.claim is not None:
        return state.claim.status.conditions
    return state.node.status.conditions if state.node else ()


def _sum_requests(state: StateNode) -> Nano:
    used: Nano = {}
    for pod in views.list_running_pods(state.pods):
        used = add_resources(used, compute_nano_requests(pod))
    return used


def show_node(answer: NodeAnswer, output: Output) -> None:
    """Write the answer."""
    if output is not Output.table:
        print_structured(_build_document(answer), output)
        return
    print_text(f"{answer.sentence}\n")
    for name, value in _list_facts(answer):
        print_text(f"  {name}: {value}\n")
    print_text("\n")
    print_table(
        ("REASON", "NOW", "BECAUSE"),
        [(v.reason, "yes" if v.allowed else "no", v.why) for v in answer.verdicts],
    )
    said = [(c.type, c.status, c.reason, c.message) for c in _list_conditions(answer.state)]
    if said:
        print_text("\n")
        print_table(("CONDITION", "STATUS", "REASON", "MESSAGE"), said)
    pods = [(pod.full_name, pod.status.phase) for pod in answer.state.pods]
    if pods:
        print_text("\n")
        print_table(("POD", "PHASE"), pods)


def _list_facts(answer: NodeAnswer) -> Iterator[tuple[str, str]]:
    state, known = answer.state, views.read_labels(answer.state)
    yield "state", _describe_stage(state)
    if state.claim is not None:
        yield "nodeclaim", state.claim.name
    named = (("pool", labels.NODEPOOL), ("type", labels.INSTANCE_TYPE), ("zone", labels.ZONE))
    yield from (
        (name, known[key]) for name, key in (*named, ("capacity type", labels.CAPACITY_TYPE)) if key in known
    )
    if answer.price:
        yield "price", f"${answer.price:.4f} an hour"
    used, room = (
        convert_to_quantities(_sum_requests(state)),
        convert_to_quantities(views.read_allocatable(state)),
    )
    asked = [f"{name} {used.get(name, 0)} of {room[name]}" for name in RESOURCES if name in room]
    if asked:
        yield "requested", ", ".join(asked)
    expires = _find_expiry(state)
    if expires is not None:
        yield "expires", expires.isoformat()


def _build_document(answer: NodeAnswer) -> dict[str, object]:
    state, known, expires = answer.state, views.read_labels(answer.state), _find_expiry(answer.state)
    return {
        "kind": "Node" if state.node is not None else "NodeClaim",
        "name": state.node.name if state.node else views.read_name(state),
        "nodeClaim": state.claim.name if state.claim else None,
        "explanation": answer.sentence,
        "state": _describe_stage(state),
        "pool": known.get(labels.NODEPOOL),
        "instanceType": known.get(labels.INSTANCE_TYPE),
        "zone": known.get(labels.ZONE),
        "capacityType": known.get(labels.CAPACITY_TYPE),
        "price": answer.price or None,
        "expires": expires.isoformat() if expires else None,
        "allocatable": {
            name: str(amount) for name, amount in convert_to_quantities(views.read_allocatable(state)).items()
        },
        "requests": {
            name: str(amount) for name, amount in convert_to_quantities(_sum_requests(state)).items()
        },
        "disruption": {
            "allowed": any(each.allowed for each in answer.verdicts),
            "heldBy": answer.held or None,
            "reasons": [{"reason": v.reason, "allowed": v.allowed, "why": v.why} for v in answer.verdicts],
        },
        "conditions": [
            {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message}
            for c in _list_conditions(state)
        ],
        "pods": [{"name": pod.full_name, "phase": pod.status.phase} for pod in state.pods],
    }
