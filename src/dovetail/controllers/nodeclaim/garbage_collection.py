"""nodeclaim.garbagecollection: claims whose instance vanished behind our back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta

from dovetail.api import conditions
from dovetail.api.conditions import REGISTERED
from dovetail.api.core import Node
from dovetail.api.meta import ObjectMeta
from dovetail.api.nodeclaim import NodeClaim, NodeClaimStatus
from dovetail.api.predicates import is_reschedulable
from dovetail.controllers.base import (
    DONE,
    Backoff,
    Cache,
    PeriodicController,
    RecentKeys,
    Result,
    Trigger,
    requeue_after,
    retry_refusals,
    run_all,
)
from dovetail.controllers.claim_messages import (
    log_collected_instance,
    log_collected_node,
    log_collecting_claim,
)
from dovetail.controllers.claim_metrics import count_disrupted_claim
from dovetail.controllers.ownership import BY_PROVIDER_ID, Ownership, find_nodes_of_claim
from dovetail.errors import Gone
from dovetail.history.drafts import of_claim
from dovetail.history.record import RecordKind
from dovetail.ports import Clock, Cloud, DecisionSink, Instance, Kube
from dovetail.state.cluster import Cluster

__all__ = ["InstanceGarbageCollection", "NodeClaimGarbageCollection", "StateGarbageCollection"]

EVERY = 120.0
AT_ONCE = 20


class NodeClaimGarbageCollection(PeriodicController):
    """Every two minutes: a registered claim whose instance the cloud no longer has is ended."""

    name = "nodeclaim.garbagecollection"
    backoff = Backoff(first=1.0, last=120.0)

    def __init__(
        self,
        kube: Kube,
        claims: Cache[NodeClaim],
        nodes: Cache[Node],
        cluster: Cluster,
        cloud: Cloud,
        ownership: Ownership,
        history: DecisionSink,
    ) -> None:
        self._kube = kube
        self._claims = claims
        self._nodes = nodes
        self._cluster = cluster
        self._cloud = cloud
        self._ownership = ownership
        self._history = history

    async def reconcile(self, key: str) -> Result:
        # Claims first: one that is launched between the two lists must not look like a loss.
        candidates = [
            claim
            for claim in self._claims
            if self._ownership.owns_claim(claim)
            and not claim.deleting
            and conditions.is_true(claim, REGISTERED)
        ]
        with retry_refusals():
            alive = {i.provider_id for i in await self._cloud.list() if not i.deleting}
            lost = [claim for claim in candidates if claim.status.provider_id not in alive]
            await run_all(
                (self._delete_claim(claim) for claim in lost if not self._has_ready_node(claim)),
                at_once=AT_ONCE,
            )
        return requeue_after(EVERY)

    def _has_ready_node(self, claim: NodeClaim) -> bool:
        """A kubelet that reports Ready is evidence enough that the machine is there."""
        nodes = find_nodes_of_claim(claim, self._nodes)
        if len(nodes) != 1:
            return False
        ready = nodes[0].status.find_condition("Ready")
        return ready is not None and ready.status == "True"

    async def _delete_claim(self, claim: NodeClaim) -> None:
        try:
            await self._kube.delete(claim, guarded=True)
        except Gone:
            return
        log_collecting_claim(claim)
        told = f"the cloud has no instance {claim.status.provider_id}"
        self._history.note_decision(of_claim(RecordKind.NODE_GIVEN_UP, claim, "GarbageCollected", told))
        pods = self._cluster.list_pods_on(claim.status.node_name) if claim.status.node_name else ()
        count_disrupted_claim(claim, "garbage_collected", sum(map(is_reschedulable, pods)))


TOO_YOUNG = timedelta(seconds=30)
EAGER_PASSES, EAGER_EVERY, INSTANCES_EVERY = 20, 10.0, 120.0
INSTANCES_AT_ONCE = 100
BEFORE_ORPHANED = frozenset((RecordKind.NODE_GONE, RecordKind.NODE_LAUNCHED, RecordKind.NODE_ORDERED))


class InstanceGarbageCollection(PeriodicController):
    """Ends instances that were launched for a claim which no longer exists, and their Nodes with them."""

    name = "instance.garbagecollection"
    backoff = Backoff(first=1.0, last=120.0)

    def __init__(
        self, kube: Kube, cloud: Cloud, nodes: Cache[Node], clock: Clock, history: DecisionSink
    ) -> None:
        self._kube = kube
        self._cloud = cloud
        self._nodes = nodes
        self._clock = clock
        self._history = history
        self._passes = 0

    async def reconcile(self, key: str) -> Result:
        # Instances first: one whose claim is stored between the two looks must not seem orphaned.
        with retry_refusals():
            instances = await self._cloud.list()
            claims = await self._kube.list(NodeClaim)
            claimed = {claim.status.provider_id for claim in claims}
            launching = {c.name for c in claims if not c.status.provider_id and not c.deleting}
            orphans = [each for each in instances if self._is_orphaned(each, claimed, launching)]
            await run_all((self._delete_instance(each) for each in orphans), at_once=INSTANCES_AT_ONCE)
        self._passes += 1
        return requeue_after(EAGER_EVERY if self._passes <= EAGER_PASSES else INSTANCES_EVERY)

    def _is_orphaned(self, instance: Instance, claimed: set[str], launching: set[str]) -> bool:
        if not instance.claim or instance.deleting or instance.provider_id in claimed:
            return False
        if instance.claim in launching:
            # Its claim is there and will hear of it: the answer is on its way, or its writing down is.
            return False
        return instance.created is None or self._clock.now() - instance.created > TOO_YOUNG

    async def _delete_instance(self, instance: Instance) -> None:
        stand_in = NodeClaim(
            metadata=ObjectMeta(name=instance.claim),
            status=NodeClaimStatus(provider_id=instance.provider_id),
        )
        with suppress(Gone):
            await self._cloud.delete(stand_in)
            log_collected_instance(instance)
            self._note_orphan(stand_in)
        for node in self._nodes.by(BY_PROVIDER_ID, instance.provider_id):
            try:
                await self._kube.delete(node, guarded=True)
            except Gone:
                continue
            log_collected_node(instance, node)

    def _note_orphan(self, stand_in: NodeClaim) -> None:
        """Its NodeClaim is gone, or was never heard of; what is known of that is the cause."""
        told = f"the instance {stand_in.status.provider_id} has no NodeClaim"
        self._history.note_decision(
            of_claim(RecordKind.NODE_GIVEN_UP, stand_in, "Orphaned", told),
            parent=self._history.find_cause(stand_in.name, BEFORE_ORPHANED),
        )


PATIENCE = 15.0


class StateGarbageCollection:
    """Fifteen seconds after an order: if the API server has no such claim, neither have we."""

    name = "state.nodeclaimgc"
    singleton = False
    concurrency = 10
    backoff = Backoff()

    def __init__(self, kube: Kube, cluster: Cluster, clock: Clock) -> None:
        self._kube = kube
        self._cluster = cluster
        self._clock = clock
        self._young = RecentKeys(PATIENCE)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(NodeClaim, self._wake_on_created),)

    def on_item(self, add: Callable[[str], None]) -> None:
        """Be woken for what we ordered ourselves, too: its whole life may be over before it is heard of."""

        def ordered(claim: NodeClaim) -> None:
            for key in self._wake_on_created(None, claim):
                add(key)

        self._cluster.add_order_listener(ordered)

    def _wake_on_created(self, before: NodeClaim | None, claim: NodeClaim | None) -> Iterable[str]:
        if before is not None or claim is None:
            return ()
        self._young.add(claim.name, self._clock.monotonic())
        return (claim.name,)

    async def reconcile(self, key: str) -> Result:
        left = self._young.seconds_left(key, self._clock.monotonic())
        if left > 0:
            return requeue_after(left)
        tracked = self._cluster.find_by_claim(key)
        if tracked is None or tracked.claim is None or tracked.claim.status.provider_id:
            return DONE
        try:
            await self._kube.get(NodeClaim, key)
        except Gone:
            self._cluster.forget_unlaunched(key)
        return DONE
