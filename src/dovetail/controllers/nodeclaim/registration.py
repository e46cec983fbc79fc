"""Registration: the Node has joined; give it what its claim promised and take it in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from dovetail import metrics
from dovetail.api import conditions, labels, reasons
from dovetail.api.conditions import LAUNCHED, REGISTERED
from dovetail.api.core import Node, Taint
from dovetail.api.meta import OwnerReference
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.taints import UNREGISTERED, is_same_taint
from dovetail.controllers.base import DONE, SOON, Cache, Result, requeue_after
from dovetail.controllers.claim_history import LIFE
from dovetail.controllers.claim_messages import log_registered_claim, log_timed_out_claim
from dovetail.controllers.claim_metrics import count_disrupted_claim
from dovetail.controllers.nodeclaim.lifecycle import StageResult
from dovetail.controllers.nodepool.registrationhealth import RegistrationHealth
from dovetail.controllers.ownership import find_nodes_of_claim
from dovetail.errors import Conflict, DovetailError, Gone
from dovetail.history.drafts import of_claim
from dovetail.history.record import RecordKind
from dovetail.ports import Clock, Cloud, DecisionSink, Kube, Recorder, RegistrationHook
from dovetail.settings.durations import render_duration

__all__ = ["Liveness", "Registration"]

NODES_CREATED = metrics.counter(
    "karpenter_nodes_created_total", "Nodes that registered.", ("nodepool", "zone")
)
NO_NODE = "Node not registered with cluster"
MISSING_TAINT = (
    "Missing karpenter.sh/unregistered taint which prevents registration related race conditions "
    "on Karpenter-managed nodes"
)


@dataclass(frozen=True, slots=True)
class _HookAnswers:
    """What the hooks said: the claim as they would have it, who is not satisfied, and when to ask again."""

    claim: NodeClaim
    pending: tuple[str, ...] = ()
    result: Result = DONE
    errors: tuple[Exception, ...] = ()


class Registration:
    """Matches a claim with its Node and settles the Node's labels, taints and owner."""

    def __init__(
        self,
        kube: Kube,
        nodes: Cache[Node],
        cloud: Cloud,
        clock: Clock,
        recorder: Recorder,
        health: RegistrationHealth,
    ) -> None:
        self._kube = kube
        self._nodes = nodes
        self._cloud = cloud
        self._clock = clock
        self._recorder = recorder
        self._health = health

    async def step(self, claim: NodeClaim) -> StageResult:
        now = self._clock.now()
        state = conditions.find_condition(claim, REGISTERED)
        if state is not None and state.status != conditions.UNKNOWN:
            return StageResult(conditions.set_condition(claim, state, now))
        found = find_nodes_of_claim(claim, self._nodes)
        if not found:
            return StageResult(
                conditions.set_unknown(claim, REGISTERED, now, reasons.NODE_NOT_FOUND, NO_NODE)
            )
        if len(found) > 1:
            why = "Invariant violated, matched multiple nodes"
            return StageResult(
                conditions.set_false(claim, REGISTERED, now, reasons.MULTIPLE_NODES_FOUND, why)
            )
        return await self._register_node(claim, found[0])

    async def _register_node(self, claim: NodeClaim, node: Node) -> StageResult:
        tainted = any(is_same_taint(taint, UNREGISTERED) for taint in node.spec.taints)
        if labels.REGISTERED not in node.labels and not tainted:
            self._recorder.publish_event(
                claim, "UnregisteredTaintMissing", MISSING_TAINT, warning=True, dedupe=(claim.name,)
            )
        hooks = await self._run_hooks(claim)
        claim = hooks.claim
        wanted = _sync_node(node, claim)
        if not hooks.pending:
            wanted = _mark_registered(wanted)
        try:
            node = await self._kube.patch(node, wanted, guarded=True)
        except Conflict:
            return StageResult(claim, SOON)
        if hooks.pending:
            waiting = ", ".join(hooks.pending)
            claim = conditions.set_unknown(
                claim, REGISTERED, self._clock.now(), reasons.REGISTRATION_HOOK_PENDING, waiting
            )
            error = ExceptionGroup("registration hooks", hooks.errors) if hooks.errors else None
            return StageResult(claim, hooks.result, error)
        return await self._finish_registration(claim, node)

    async def _finish_registration(self, claim: NodeClaim, node: Node) -> StageResult:
        claim = conditions.set_true(claim, REGISTERED, self._clock.now())
        claim = replace(claim, status=replace(claim.status, node_name=node.name))
        log_registered_claim(claim, node)
        NODES_CREATED.labels(claim.labels.get(labels.NODEPOOL, ""), node.labels.get(labels.ZONE, "")).inc()
        try:
            await self._health.record_success(claim)
        except Conflict:
            return StageResult(claim, SOON)
        return StageResult(claim)

    async def _run_hooks(self, claim: NodeClaim) -> _HookAnswers:
        hooks = tuple(self._cloud.hooks)
        answers = await asyncio.gather(*(_run_hook(hook, claim) for hook in hooks))
        pending: list[str] = []
        delays: list[timedelta] = []
        for hook, answer in zip(hooks, answers, strict=True):
            if isinstance(answer, DovetailError):
                pending.append(hook.name)
                continue
            changed, delay = answer
            claim = _add_hook_metadata(claim, changed)
            if delay is not None:
                pending.append(hook.name)
                delays.append(delay)
        errors = tuple(answer for answer in answers if isinstance(answer, DovetailError))
        if not pending:
            return _HookAnswers(claim)
        positive = [delay for delay in delays if delay > timedelta()]
        return _HookAnswers(claim, tuple(pending), requeue_after(min(positive)) if positive else SOON, errors)


async def _run_hook(
    hook: RegistrationHook, claim: NodeClaim
) -> tuple[NodeClaim, timedelta | None] | DovetailError:
    try:
        return await hook.settle_claim(claim)
    except DovetailError as error:
        return error


def _add_hook_metadata(claim: NodeClaim, changed: NodeClaim) -> NodeClaim:
    """The claim with the labels and annotations a hook gave it."""
    metadata = replace(
        claim.metadata,
        labels={**claim.labels, **changed.labels},
        annotations={**claim.annotations, **changed.annotations},
    )
    return replace(claim, metadata=metadata)


def _sync_node(node: Node, claim: NodeClaim) -> Node:
    """The Node with everything its claim promised."""
    meta = node.metadata
    owners = meta.owner_references
    if not any((o.api_version, o.kind, o.uid) == ("karpenter.sh/v1", "NodeClaim", claim.uid) for o in owners):
        owner = OwnerReference(
            api_version="karpenter.sh/v1",
            kind="NodeClaim",
            name=claim.name,
            uid=claim.uid,
            block_owner_deletion=True,
        )
        owners = (*owners, owner)
    finalizers = meta.finalizers
    if labels.TERMINATION not in finalizers:
        finalizers = (*finalizers, labels.TERMINATION)
    taints = node.spec.taints
    if node.labels.get(labels.DO_NOT_SYNC_TAINTS) != labels.TRUE:
        taints = _add_missing_taints(taints, (*claim.spec.taints, *claim.spec.startup_taints))
    metadata = replace(
        meta,
        finalizers=finalizers,
        owner_references=owners,
        annotations={**node.annotations, **claim.annotations},
        labels={**node.labels, **claim.labels},
    )
    return replace(node, metadata=metadata, spec=replace(node.spec, taints=taints))


def _mark_registered(node: Node) -> Node:
    taints = tuple(taint for taint in node.spec.taints if not is_same_taint(taint, UNREGISTERED))
    metadata = replace(node.metadata, labels={**node.labels, labels.REGISTERED: labels.TRUE})
    return replace(node, metadata=metadata, spec=replace(node.spec, taints=taints))


def _add_missing_taints(have: tuple[Taint, ...], wanted: Iterable[Taint]) -> tuple[Taint, ...]:
    taints = list(have)
    for taint in wanted:
        if not any(is_same_taint(taint, each) for each in taints):
            taints.append(taint)
    return tuple(taints)


REGISTRATION = timedelta(minutes=15)


class Liveness:
    """Ends claims whose time is up. Time is counted from when a condition last turned."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        health: RegistrationHealth,
        history: DecisionSink,
        launch: timedelta = timedelta(minutes=5),
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._health = health
        self._history = history
        self._launch = launch

    async def step(self, claim: NodeClaim) -> StageResult:
        if conditions.is_true(claim, REGISTERED):
            return StageResult(claim)
        if not conditions.is_true(claim, LAUNCHED):
            left = self._time_left(claim, LAUNCHED, self._launch)
            if left > timedelta():
                return StageResult(claim, requeue_after(left))
            return await self._delete_claim(claim, self._launch, "launch_timeout")
        left = self._time_left(claim, REGISTERED, REGISTRATION)
        if left > timedelta():
            return StageResult(claim, requeue_after(left))
        return await self._delete_claim(claim, REGISTRATION, "registration_timeout")

    def _time_left(self, claim: NodeClaim, kind: str, allowed: timedelta) -> timedelta:
        state = conditions.find_condition(claim, kind)
        since: datetime | None = state.last_transition_time if state else claim.metadata.creation_timestamp
        return allowed - (self._clock.now() - since) if since is not None else allowed

    async def _delete_claim(self, claim: NodeClaim, allowed: timedelta, reason: str) -> StageResult:
        try:
            await self._health.record_failure(claim)
        except Conflict:
            return StageResult(claim, SOON)
        try:
            await self._kube.delete(claim, guarded=True)
        except Gone:
            return StageResult(claim, over=True)
        log_timed_out_claim(claim, allowed, reason)
        self._history.note_decision(
            of_claim(RecordKind.NODE_GIVEN_UP, claim, reason, f"not there within {render_duration(allowed)}"),
            parent=self._history.find_cause(claim.name, LIFE),
        )
        count_disrupted_claim(claim, reason)
        return StageResult(claim, over=True)
