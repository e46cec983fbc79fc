"""Registration: the Node has joined; give it what its claim promised and take it in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from msgspec.structs import replace

from dovetail import metrics
from dovetail.api import conditions, labels, reasons
from dovetail.api.conditions import REGISTERED
from dovetail.api.core import Node, Taint
from dovetail.api.meta import OwnerReference
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.taints import UNREGISTERED, matches
from dovetail.controllers.base import DONE, SOON, Cache, Result, after
from dovetail.controllers.messages import log_registered_claim
from dovetail.controllers.nodeclaim.steps import Step
from dovetail.controllers.nodepool.health import RegistrationHealth
from dovetail.controllers.owning import nodes_of
from dovetail.errors import Conflict, DovetailError
from dovetail.ports import Clock, Cloud, Kube, Recorder, RegistrationHook

__all__ = ["Registration"]

NODES_CREATED = metrics.counter(
    "karpenter_nodes_created_total", "Nodes that registered.", ("nodepool", "zone")
)
NO_NODE = "Node not registered with cluster"
MISSING_TAINT = (
    "Missing karpenter.sh/unregistered taint which prevents registration related race conditions "
    "on Karpenter-managed nodes"
)


@dataclass(frozen=True, slots=True)
class _Hooks:
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

    async def step(self, claim: NodeClaim) -> Step:
        now = self._clock.now()
        state = conditions.find(claim, REGISTERED)
        if state is not None and state.status != conditions.UNKNOWN:
            return Step(conditions.set_condition(claim, state, now))
        found = nodes_of(claim, self._nodes)
        if not found:
            return Step(conditions.set_unknown(claim, REGISTERED, now, reasons.NODE_NOT_FOUND, NO_NODE))
        if len(found) > 1:
            why = "Invariant violated, matched multiple nodes"
            return Step(conditions.set_false(claim, REGISTERED, now, reasons.MULTIPLE_NODES_FOUND, why))
        return await self._take_in(claim, found[0])

    async def _take_in(self, claim: NodeClaim, node: Node) -> Step:
        tainted = any(matches(taint, UNREGISTERED) for taint in node.spec.taints)
        if labels.REGISTERED not in node.labels and not tainted:
            self._recorder.event(
                claim, "UnregisteredTaintMissing", MISSING_TAINT, warning=True, dedupe=(claim.name,)
            )
        hooks = await self._hooks(claim)
        claim = hooks.claim
        wanted = _synced(node, claim)
        if not hooks.pending:
            wanted = _registered(wanted)
        try:
            node = await self._kube.patch(node, wanted, guarded=True)
        except Conflict:
            return Step(claim, SOON)
        if hooks.pending:
            waiting = ", ".join(hooks.pending)
            claim = conditions.set_unknown(
                claim, REGISTERED, self._clock.now(), reasons.REGISTRATION_HOOK_PENDING, waiting
            )
            error = ExceptionGroup("registration hooks", hooks.errors) if hooks.errors else None
            return Step(claim, hooks.result, error)
        return await self._done(claim, node)

    async def _done(self, claim: NodeClaim, node: Node) -> Step:
        claim = conditions.set_true(claim, REGISTERED, self._clock.now())
        claim = replace(claim, status=replace(claim.status, node_name=node.name))
        log_registered_claim(claim, node)
        NODES_CREATED.labels(claim.labels.get(labels.NODEPOOL, ""), node.labels.get(labels.ZONE, "")).inc()
        try:
            await self._health.succeeded(claim)
        except Conflict:
            return Step(claim, SOON)
        return Step(claim)

    async def _hooks(self, claim: NodeClaim) -> _Hooks:
        hooks = tuple(self._cloud.hooks)
        answers = await asyncio.gather(*(_asked(hook, claim) for hook in hooks))
        pending: list[str] = []
        delays: list[timedelta] = []
        for hook, answer in zip(hooks, answers, strict=True):
            if isinstance(answer, DovetailError):
                pending.append(hook.name)
                continue
            changed, delay = answer
            claim = _with_words_of(claim, changed)
            if delay is not None:
                pending.append(hook.name)
                delays.append(delay)
        errors = tuple(answer for answer in answers if isinstance(answer, DovetailError))
        if not pending:
            return _Hooks(claim)
        positive = [delay for delay in delays if delay > timedelta()]
        return _Hooks(claim, tuple(pending), after(min(positive)) if positive else SOON, errors)


async def _asked(
    hook: RegistrationHook, claim: NodeClaim
) -> tuple[NodeClaim, timedelta | None] | DovetailError:
    try:
        return await hook.settle(claim)
    except DovetailError as error:
        return error


def _with_words_of(claim: NodeClaim, changed: NodeClaim) -> NodeClaim:
    """The claim with the labels and annotations a hook gave it."""
    metadata = replace(
        claim.metadata,
        labels={**claim.labels, **changed.labels},
        annotations={**claim.annotations, **changed.annotations},
    )
    return replace(claim, metadata=metadata)


def _synced(node: Node, claim: NodeClaim) -> Node:
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
        taints = _with_missing(taints, (*claim.spec.taints, *claim.spec.startup_taints))
    metadata = replace(
        meta,
        finalizers=finalizers,
        owner_references=owners,
        annotations={**node.annotations, **claim.annotations},
        labels={**node.labels, **claim.labels},
    )
    return replace(node, metadata=metadata, spec=replace(node.spec, taints=taints))


def _registered(node: Node) -> Node:
    taints = tuple(taint for taint in node.spec.taints if not matches(taint, UNREGISTERED))
    metadata = replace(node.metadata, labels={**node.labels, labels.REGISTERED: labels.TRUE})
    return replace(node, metadata=metadata, spec=replace(node.spec, taints=taints))


def _with_missing(have: tuple[Taint, ...], wanted: Iterable[Taint]) -> tuple[Taint, ...]:
    taints = list(have)
    for taint in wanted:
        if not any(matches(taint, each) for each in taints):
            taints.append(taint)
    return tuple(taints)
