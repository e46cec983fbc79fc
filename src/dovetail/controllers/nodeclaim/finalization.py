"""The end of a claim: its Nodes are drained and go, then its instance, then the claim itself."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from dovetail import metrics
from dovetail.api import conditions, labels
from dovetail.api.conditions import INSTANCE_TERMINATING, REGISTERED
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.base import DONE, SOON, Cache, Result, requeue_after, run_all
from dovetail.controllers.claim_messages import log_annotated_claim, log_deleted_claim
from dovetail.controllers.claim_metrics import CLAIMS_TERMINATED
from dovetail.controllers.ownership import find_nodes_of_claim
from dovetail.errors import Conflict, Gone
from dovetail.ports import Clock, Cloud, Kube, Recorder
from dovetail.settings.durations import parse_duration as parse_duration

__all__ = ["Finalization", "format_rfc3339"]

AGAIN = 5.0
TERMINATION_SECONDS = metrics.histogram(
    "karpenter_nodeclaims_termination_duration_seconds",
    "From a NodeClaim's deletion to its end.",
    ("nodepool",),
    tuple(2.0**k for k in range(12)),
)
INSTANCE_SECONDS = metrics.histogram(
    "karpenter_nodeclaims_instance_termination_duration_seconds",
    "From the request to terminate an instance to its end.",
    ("nodepool",),
    tuple(2.0**k for k in range(11)),
)


class Finalization:
    """Lets a deleted claim go, in an order that loses nothing."""

    def __init__(
        self, kube: Kube, nodes: Cache[Node], cloud: Cloud, clock: Clock, recorder: Recorder
    ) -> None:
        self._kube = kube
        self._nodes = nodes
        self._cloud = cloud
        self._clock = clock
        self._recorder = recorder

    async def reconcile(self, claim: NodeClaim) -> Result:
        if labels.TERMINATION not in claim.metadata.finalizers:
            return DONE
        try:
            return await self._finalize_claim(claim)
        except Conflict:
            return SOON
        except Gone:
            return DONE

    async def _finalize_claim(self, claim: NodeClaim) -> Result:
        claim = await self._annotate_deadline(claim)
        if conditions.is_true(claim, REGISTERED):
            nodes = find_nodes_of_claim(claim, self._nodes)
            if nodes:
                # Their own finalizer drains them; their going wakes us again.
                await run_all(self._delete_node(node) for node in nodes if not node.deleting)
                return DONE
        if claim.status.provider_id:
            claim, gone = await self._terminate_instance(claim)
            if not gone:
                return requeue_after(AGAIN)
        await self._remove_finalizer(claim)
        return DONE

    async def _annotate_deadline(self, claim: NodeClaim) -> NodeClaim:
        """From its deletion on, a claim with a grace period has a moment after which nothing is asked."""
        grace = claim.spec.termination_grace_period
        deleted = claim.metadata.deletion_timestamp
        if grace is None or deleted is None or labels.TERMINATION_TIMESTAMP in claim.annotations:
            return claim
        deadline = format_rfc3339(deleted + parse_duration(grace))
        note = f"All pods will be deleted by {deadline}"
        self._recorder.publish_event(
            claim, "TerminationGracePeriodExpiring", note, warning=True, dedupe=(claim.name,)
        )
        annotations = {**claim.annotations, labels.TERMINATION_TIMESTAMP: deadline}
        marked = replace(claim, metadata=replace(claim.metadata, annotations=annotations))
        claim = await self._kube.patch(claim, marked, guarded=True)
        log_annotated_claim(claim)
        return claim

    async def _delete_node(self, node: Node) -> None:
        try:
            await self._kube.delete(node, guarded=True)
        except Gone:
            return

    async def _terminate_instance(self, claim: NodeClaim) -> tuple[NodeClaim, bool]:
        gone = False
        try:
            await self._cloud.delete(claim)
        except Gone:
            gone = True
        now = self._clock.now()
        marked = conditions.set_true(claim, INSTANCE_TERMINATING, now)
        if marked != claim:
            claim = await self._kube.patch(claim, marked, status=True, guarded=True)
        if gone:
            begun = conditions.find_condition(claim, INSTANCE_TERMINATING)
            since = begun.last_transition_time if begun else None
            INSTANCE_SECONDS.labels(_pool_name(claim)).observe(_seconds_since(since, now))
        return claim, gone

    async def _remove_finalizer(self, claim: NodeClaim) -> None:
        left = tuple(f for f in claim.metadata.finalizers if f != labels.TERMINATION)
        freed = replace(claim, metadata=replace(claim.metadata, finalizers=left))
        await self._kube.patch(claim, freed, guarded=True)
        log_deleted_claim(claim)
        now = self._clock.now()
        TERMINATION_SECONDS.labels(_pool_name(claim)).observe(
            _seconds_since(claim.metadata.deletion_timestamp, now)
        )
        about = claim.labels
        CLAIMS_TERMINATED.labels(
            _pool_name(claim), about.get(labels.CAPACITY_TYPE, ""), about.get(labels.ZONE, "")
        ).inc()


def format_rfc3339(moment: datetime) -> str:
    """A moment as annotations carry it, in whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _pool_name(claim: NodeClaim) -> str:
    return claim.labels.get(labels.NODEPOOL, "")


def _seconds_since(since: datetime | None, now: datetime) -> float:
    return max(now - since, timedelta()).total_seconds() if since is not None else 0.0
