"""node.termination: a deleted Node is tainted, drained, relieved of its volumes and its machine, and let go.

    taint ─► drain ─► volumes detached ─► instance gone ─► finalizer removed
               │            │                  │
               └─ 1 s ──────┴─ 1 s ────────────┴─ 5 s      each looks again until it is over

A Node whose machine is already gone is let go at once: there is nobody left to drain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from msgspec import structs

from dovetail import metrics
from dovetail.api import conditions, labels, predicates, reasons
from dovetail.api.conditions import DRAINED, INSTANCE_TERMINATING, VOLUMES_DETACHED
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.pod import Pod
from dovetail.api.taints import DISRUPTED, is_same_taint
from dovetail.controllers.base import (
    DONE,
    SOON,
    Backoff,
    ConcurrencyRange,
    Result,
    Trigger,
    requeue_after,
    run_all,
    wake_on,
)
from dovetail.controllers.claim_history import ClaimHistory
from dovetail.controllers.claim_messages import log_deleted_node, log_drained_node, log_tainted_node
from dovetail.controllers.context import ControllerContext
from dovetail.controllers.node import termination_events
from dovetail.controllers.node.drain import DrainStep, list_blocking_attachments, plan_drain_step
from dovetail.controllers.node.eviction import EvictionQueue
from dovetail.controllers.ownership import find_claim_of_node
from dovetail.errors import Conflict, DovetailError, Gone, Refused, Retry

__all__ = ["NodeTermination", "parse_termination_time"]

PACE = ConcurrencyRange(100, 5000)
LOOK_AGAIN = 1.0
INSTANCE_LOOK_AGAIN = 5.0
# A pod may have been bound just before the scheduler saw the taint; this is long enough to hear of it.
SHORTEST_DRAIN = timedelta(seconds=5)
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

TERMINATED = metrics.counter(
    "karpenter_nodes_terminated_total", "Nodes that were let go.", ("nodepool", "zone")
)
NODES_DRAINED = metrics.counter(
    "karpenter_nodes_drained_total", "Nodes whose drain was completed.", ("nodepool",)
)
TERMINATION_SECONDS = metrics.summary(
    "karpenter_nodes_termination_duration_seconds", "From a Node's deletion to its end.", ("nodepool",)
)
LIFETIME_SECONDS = metrics.histogram(
    "karpenter_nodes_lifetime_duration_seconds",
    "How old nodes were when they ended.",
    ("nodepool",),
    (
        *(15 * MINUTE, 30 * MINUTE, 45 * MINUTE),
        *(hours * HOUR for hours in (1, 2, 4, 6, 8, 10, 12, 16, 20)),
        *(days * DAY for days in (1, 2, 3, 5, 10, 15, 20, 25, 30)),
    ),
)


@dataclass(frozen=True, slots=True)
class _TerminationState:
    """How far a Node has come. `wait` is set by a phase that is not over, `error` by one that failed."""

    node: Node
    claim: NodeClaim | None
    deadline: datetime | None
    now: datetime
    wait: Result | None = None
    error: Exception | None = None

    def set_unknown(self, condition: str, reason: str, message: str) -> _TerminationState:
        if self.claim is None:
            return self
        claim = conditions.set_unknown(self.claim, condition, self.now, reason, message)
        return replace(self, claim=claim)

    def set_false(self, condition: str, reason: str) -> _TerminationState:
        if self.claim is None:
            return self
        return replace(self, claim=conditions.set_false(self.claim, condition, self.now, reason, reason))

    def set_true(self, condition: str) -> _TerminationState:
        if self.claim is None:
            return self
        return replace(self, claim=conditions.set_true(self.claim, condition, self.now))

    def wait_for(self, seconds: float) -> _TerminationState:
        return replace(self, wait=requeue_after(seconds))


class NodeTermination:
    """Ends Nodes that are being deleted, in an order that loses nothing."""

    name = "node.termination"
    singleton = False

    def __init__(
        self, context: ControllerContext, evictions: EvictionQueue, claim_history: ClaimHistory
    ) -> None:
        self._kube = context.kube
        self._nodes = context.nodes
        self._claims = context.claims
        self._volumes = context.volumes
        self._cluster = context.cluster
        self._evictions = evictions
        self._claim_history = claim_history
        self._ownership = context.ownership
        self._cloud = context.cloud
        self._clock = context.clock
        self._recorder = context.recorder
        self.concurrency = PACE.scale_to(context.millicores)
        per_second = -(-self.concurrency // 10)
        self.backoff = Backoff(0.1, 10.0, per_second=per_second, burst=10 * per_second)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (wake_on(Node),)

    async def reconcile(self, key: str) -> Result:
        node = self._nodes.get(key)
        if node is None or not node.deleting or not self._ownership.owns_node(node):
            return DONE
        if labels.TERMINATION not in node.metadata.finalizers:
            return DONE
        try:
            return await self._terminate_node(node)
        except Conflict:
            return SOON
        except Gone:
            # Someone else let the Node go.
            return DONE
        except Refused as error:
            # What is refused today may be granted tomorrow, and nothing else would wake us then.
            raise Retry(str(error)) from error

    async def _terminate_node(self, node: Node) -> Result:
        claim = find_claim_of_node(node, self._claims)
        if claim is not None and not claim.deleting:
            await self._delete_claim(claim)
        if await self._is_machine_gone(node):
            return await self._remove_finalizer(node, claim)
        deadline = self._read_deadline(node, claim)
        node = await self._taint_node(node, claim)
        ending = await self._run_phases(_TerminationState(node, claim, deadline, self._clock.now()))
        await self._write_conditions(node, claim, ending.claim)
        if ending.error is not None:
            raise ending.error
        return ending.wait if ending.wait is not None else await self._remove_finalizer(node, claim)

    async def _delete_claim(self, claim: NodeClaim) -> None:
        try:
            await self._kube.delete(claim, guarded=True)
        except Gone:
            return

    async def _is_machine_gone(self, node: Node) -> bool:
        """Whether the machine under a Node that does not answer is there at all. Ready nodes are believed."""
        ready = node.status.find_condition("Ready")
        if (ready is not None and ready.status == conditions.TRUE) or not node.spec.provider_id:
            return False
        try:
            await self._cloud.get(node.spec.provider_id)
        except Gone:
            return True
        return False

    def _read_deadline(self, node: Node, claim: NodeClaim | None) -> datetime | None:
        text = claim.annotations.get(labels.TERMINATION_TIMESTAMP) if claim is not None else None
        if text is None:
            return None
        termination_events.record_deadline(self._recorder, node, text)
        return parse_termination_time(text)

    async def _taint_node(self, node: Node, claim: NodeClaim | None) -> Node:
        """Nothing new comes here, from the scheduler or from load balancers."""
        taints = node.spec.taints
        if not any(is_same_taint(taint, DISRUPTED) for taint in taints):
            taints = (*(taint for taint in taints if taint.key != DISRUPTED.key), DISRUPTED)
        excluded = {**node.labels, labels.EXCLUDE_FROM_LOAD_BALANCERS: "karpenter"}
        marked = structs.replace(
            node,
            metadata=structs.replace(node.metadata, labels=excluded),
            spec=structs.replace(node.spec, taints=taints),
        )
        if marked == node:
            return node
        node = await self._kube.patch(node, marked, guarded=True)
        log_tainted_node(node, claim)
        return node

    async def _run_phases(self, ending: _TerminationState) -> _TerminationState:
        for phase in (self._drain_node, self._wait_for_volumes, self._terminate_instance):
            try:
                ending = await phase(ending)
            except (DovetailError, ExceptionGroup) as error:
                return replace(ending, error=error)
            if ending.wait is not None:
                break
        return ending

    async def _drain_node(self, ending: _TerminationState) -> _TerminationState:
        if ending.claim is not None and conditions.find_condition(ending.claim, DRAINED) is None:
            self._claim_history.note_draining(ending.claim)
            ending = ending.set_unknown(DRAINED, reasons.DRAINING, reasons.DRAINING)
        name = ending.node.name
        step = plan_drain_step(self._cluster.list_pods_on(name), ending.deadline, ending.now)
        if step.drained and _is_too_early(ending):
            return ending.wait_for(LOOK_AGAIN)
        if step.drained and (ending.claim is None or not conditions.is_true(ending.claim, DRAINED)):
            # What we believe may be behind, and the next step cannot be undone: ask, once.
            pods = await self._kube.list(Pod, fields=f"spec.nodeName={name}")
            step = plan_drain_step(pods, ending.deadline, ending.now)
        if step.drained:
            return ending.set_true(DRAINED)
        why = f"{step.waiting} pods are waiting to be evicted"
        termination_events.record_failing_drain(self._recorder, ending.node, why)
        await self._evict_pods(step, ending)
        return ending.wait_for(LOOK_AGAIN)

    async def _evict_pods(self, step: DrainStep, ending: _TerminationState) -> None:
        for pod in step.tier:
            if predicates.is_active(pod):
                termination_events.record_do_not_disrupt(
                    self._recorder, pod, predicates.do_not_disrupt(pod, ending.now)
                )
        deleted = {pod.full_name for pod, _ in step.delete}
        self._evictions.add((pod for pod in step.evict if pod.full_name not in deleted), ending.deadline)
        if ending.deadline is not None:
            await run_all(self._evictions.force_delete(pod, ending.deadline) for pod, _ in step.delete)

    async def _wait_for_volumes(self, ending: _TerminationState) -> _TerminationState:
        name = ending.node.name
        blocking = list_blocking_attachments(
            name,
            self._cluster.list_pods_on(name),
            self._volumes.attachments,
            self._volumes.claims,
            ending.now,
        )
        if not blocking:
            return ending.set_true(VOLUMES_DETACHED)
        if ending.deadline is not None and ending.now > ending.deadline:
            return ending.set_false(VOLUMES_DETACHED, reasons.TERMINATION_GRACE_PERIOD_ELAPSED)
        termination_events.record_awaited_volumes(self._recorder, ending.node, blocking)
        reason = reasons.AWAITING_VOLUME_DETACHMENT
        return ending.set_unknown(VOLUMES_DETACHED, reason, reason).wait_for(LOOK_AGAIN)

    async def _terminate_instance(self, ending: _TerminationState) -> _TerminationState:
        if ending.claim is None:
            # Nobody ordered it, as far as we know; instances without a claim are the provider's to collect.
            return ending
        try:
            await self._cloud.delete(ending.claim)
        except Gone:
            return ending.set_true(INSTANCE_TERMINATING)
        return ending.set_true(INSTANCE_TERMINATING).wait_for(INSTANCE_LOOK_AGAIN)

    async def _write_conditions(self, node: Node, before: NodeClaim | None, now: NodeClaim | None) -> None:
        """Write what became of the claim's conditions."""
        if before is None or now is None or before == now:
            return
        try:
            await self._kube.patch(before, now, status=True, guarded=True)
        except Gone:
            return
        if conditions.is_true(now, DRAINED) and not conditions.is_true(before, DRAINED):
            log_drained_node(node, now)
            NODES_DRAINED.labels(now.labels.get(labels.NODEPOOL, "")).inc()

    async def _remove_finalizer(self, node: Node, claim: NodeClaim | None) -> Result:
        left = tuple(each for each in node.metadata.finalizers if each != labels.TERMINATION)
        freed = structs.replace(node, metadata=structs.replace(node.metadata, finalizers=left))
        # Guarded, because the list is written as a whole and others have finalizers in it too.
        await self._kube.patch(node, freed, guarded=True)
        log_deleted_node(node, claim)
        now, pool = self._clock.now(), node.labels.get(labels.NODEPOOL, "")
        TERMINATED.labels(pool, node.labels.get(labels.ZONE, "")).inc()
        TERMINATION_SECONDS.observe(_seconds_since(node.metadata.deletion_timestamp, now), pool)
        LIFETIME_SECONDS.labels(pool).observe(_seconds_since(node.metadata.creation_timestamp, now))
        return DONE


def parse_termination_time(text: str) -> datetime:
    """The moment an annotation names; only whole RFC 3339 instants are one."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise Retry(f"reading {labels.TERMINATION_TIMESTAMP} {text!r}: {error}") from error
    if moment.tzinfo is None:
        raise Retry(f"reading {labels.TERMINATION_TIMESTAMP} {text!r}: it names no time zone")
    return moment


def _is_too_early(ending: _TerminationState) -> bool:
    begun = conditions.find_condition(ending.claim, DRAINED) if ending.claim is not None else None
    if begun is None or begun.status != conditions.UNKNOWN or begun.last_transition_time is None:
        return False
    return ending.now - begun.last_transition_time < SHORTEST_DRAIN


def _seconds_since(since: datetime | None, now: datetime) -> float:
    return max((now - since).total_seconds(), 0.0) if since is not None else 0.0
