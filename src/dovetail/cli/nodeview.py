"""One node or claim: what it is, what runs there, and whether it may be disrupted now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from dovetail.api import conditions, labels
from dovetail.api.meta import Condition
from dovetail.cli.output import Output, put, structured, table
from dovetail.disruption.allowance import allowances
from dovetail.disruption.candidates import Candidate, Class, Scene, Stays, judge, price_of
from dovetail.disruption.command import DRIFTED, EMPTY, SINGLE, Method
from dovetail.disruption.consolidation import consider, why_unconsolidatable
from dovetail.disruption.emptiness import why_not_empty
from dovetail.disruption.waves import restrain
from dovetail.scheduling import nodes as views
from dovetail.scheduling.resources import Nano, amounts, needs, plus
from dovetail.scheduling.snapshot import Snapshot, StateNode
from dovetail.settings.durations import NEVER, parse

__all__ = ["NodeAnswer", "about_node", "show_node"]

RESOURCES = ("cpu", "memory", "pods")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a node may go for one reason; if not, why not."""

    reason: str
    allowed: bool
    why: str


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What is known about one node."""

    state: StateNode
    price: float
    verdicts: tuple[Verdict, ...]
    held: str

    @property
    def sentence(self) -> str:
        name, going = _title(self.state), [each.reason for each in self.verdicts if each.allowed]
        if going:
            return f"{name} may be disrupted now: {', '.join(going)}"
        return f"{name} stays: {self.held}" if self.held else f"{name} stays for now"


def about_node(snapshot: Snapshot, state: StateNode) -> NodeAnswer:
    """What there is to say about a node or claim of the snapshot."""
    scene = Scene(snapshot)
    known = views.labels(state)
    chosen = scene.types.get(views.pool(state), {}).get(known.get(labels.INSTANCE_TYPE, ""))
    graceful = judge(scene, state, Class.GRACEFUL)
    verdicts = (
        _verdict(scene, EMPTY, graceful, _why_not_empty(scene, graceful)),
        _verdict(scene, DRIFTED, judge(scene, state, Class.EVENTUAL), _why_not_drifted(state)),
        _underutilized(scene, graceful),
    )
    held = graceful.why if isinstance(graceful, Stays) else ""
    return NodeAnswer(state, price_of(known, chosen), verdicts, held)


def _verdict(scene: Scene, method: Method, judged: Candidate | Stays, why: str) -> Verdict:
    if isinstance(judged, Stays):
        return Verdict(method.reason, False, judged.why)
    allowance = allowances(scene, method.reason)
    if method == DRIFTED:
        restrain(scene, allowance)
    if not why and allowance.left(judged.pool.name) <= 0:
        _, why = allowance.held(judged.pool.name)
    return Verdict(method.reason, not why, why)


def _underutilized(scene: Scene, judged: Candidate | Stays) -> Verdict:
    verdict = _verdict(scene, SINGLE, judged, _why_not_consolidated(judged))
    if not verdict.allowed or isinstance(judged, Stays):
        return verdict
    outcome = consider(scene, (judged,), SINGLE)
    if outcome.command is None:
        return Verdict(verdict.reason, False, outcome.why)
    return Verdict(verdict.reason, True, f"saves ${outcome.command.savings:.4f} an hour")


def _why_not_empty(scene: Scene, judged: Candidate | Stays) -> str:
    if isinstance(judged, Stays):
        return ""
    why = why_not_empty(scene, judged)
    if why is None:
        return ""
    return why or (_why_not_yet(judged) if judged.empty else "pods on it would have to move")


def _why_not_consolidated(judged: Candidate | Stays) -> str:
    if isinstance(judged, Stays):
        return ""
    why = why_unconsolidatable(judged)
    if why is None:
        return ""
    return why or ("it is empty" if judged.empty and not judged.pool.static else _why_not_yet(judged))


def _why_not_yet(candidate: Candidate) -> str:
    if candidate.pool.static:
        return f"pool {candidate.pool.name} is static"
    after = candidate.pool.spec.disruption.consolidate_after or "0s"
    return f"it is not yet consolidatable (consolidateAfter is {after})"


def _why_not_drifted(state: StateNode) -> str:
    drifted = state.claim is not None and conditions.is_true(state.claim, conditions.DRIFTED)
    return "" if drifted else "it has not drifted"


def _title(state: StateNode) -> str:
    if state.node is not None:
        return f"node {state.node.name}"
    return f"nodeclaim {views.name(state)}"


def _stage(state: StateNode) -> str:
    """How far it has come."""
    if views.deleting(state):
        return "being removed"
    if state.claim is None:
        return "running, not managed by Dovetail"
    if state.node is None:
        return "launched" if state.claim.status.provider_id else "ordered"
    if views.initialized(state):
        return "running"
    return "registered" if views.registered(state) else "joining"


def _expires(state: StateNode) -> datetime | None:
    claim = state.claim
    after = claim.spec.expire_after if claim else None
    if claim is None or not after or after == NEVER or claim.metadata.creation_timestamp is None:
        return None
    return claim.metadata.creation_timestamp + parse(after)


def _conditions(state: StateNode) -> tuple[Condition, ...]:
    """The claim's conditions, which tell its story; of a node without a claim, the node's."""
    if state.claim is not None:
        return state.claim.status.conditions
    return state.node.status.conditions if state.node else ()


def _used(state: StateNode) -> Nano:
    used: Nano = {}
    for pod in views.running(state.pods):
        used = plus(used, needs(pod))
    return used


def show_node(answer: NodeAnswer, output: Output) -> None:
    """Write the answer."""
    if output is not Output.table:
        structured(_document(answer), output)
        return
    put(f"{answer.sentence}\n")
    for name, value in _facts(answer):
        put(f"  {name}: {value}\n")
    put("\n")
    table(
        ("REASON", "NOW", "BECAUSE"),
        [(v.reason, "yes" if v.allowed else "no", v.why) for v in answer.verdicts],
    )
    said = [(c.type, c.status, c.reason, c.message) for c in _conditions(answer.state)]
    if said:
        put("\n")
        table(("CONDITION", "STATUS", "REASON", "MESSAGE"), said)
    pods = [(pod.full_name, pod.status.phase) for pod in answer.state.pods]
    if pods:
        put("\n")
        table(("POD", "PHASE"), pods)


def _facts(answer: NodeAnswer) -> Iterator[tuple[str, str]]:
    state, known = answer.state, views.labels(answer.state)
    yield "state", _stage(state)
    if state.claim is not None:
        yield "nodeclaim", state.claim.name
    named = (("pool", labels.NODEPOOL), ("type", labels.INSTANCE_TYPE), ("zone", labels.ZONE))
    yield from (
        (name, known[key]) for name, key in (*named, ("capacity", labels.CAPACITY_TYPE)) if key in known
    )
    if answer.price:
        yield "price", f"${answer.price:.4f} an hour"
    used, room = amounts(_used(state)), amounts(views.allocatable(state))
    asked = [f"{name} {used.get(name, 0)} of {room[name]}" for name in RESOURCES if name in room]
    if asked:
        yield "asked for", ", ".join(asked)
    expires = _expires(state)
    if expires is not None:
        yield "expires", expires.isoformat()


def _document(answer: NodeAnswer) -> dict[str, object]:
    state, known, expires = answer.state, views.labels(answer.state), _expires(answer.state)
    return {
        "kind": "Node" if state.node is not None else "NodeClaim",
        "name": state.node.name if state.node else views.name(state),
        "nodeClaim": state.claim.name if state.claim else None,
        "explanation": answer.sentence,
        "state": _stage(state),
        "pool": known.get(labels.NODEPOOL),
        "instanceType": known.get(labels.INSTANCE_TYPE),
        "zone": known.get(labels.ZONE),
        "capacityType": known.get(labels.CAPACITY_TYPE),
        "price": answer.price or None,
        "expires": expires.isoformat() if expires else None,
        "allocatable": {name: str(amount) for name, amount in amounts(views.allocatable(state)).items()},
        "requests": {name: str(amount) for name, amount in amounts(_used(state)).items()},
        "disruption": {
            "allowed": any(each.allowed for each in answer.verdicts),
            "heldBy": answer.held or None,
            "reasons": [{"reason": v.reason, "allowed": v.allowed, "why": v.why} for v in answer.verdicts],
        },
        "conditions": [
            {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message}
            for c in _conditions(state)
        ],
        "pods": [{"name": pod.full_name, "phase": pod.status.phase} for pod in state.pods],
    }
