"""static.provisioning and static.deprovisioning: a static pool keeps its number of nodes."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.api import conditions, labels, predicates
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.controllers.base import DONE, Backoff, Cache, Result, Trigger, requeue_after, run_all
from dovetail.controllers.ordering import NodeOrder, NodeOrdering
from dovetail.controllers.ownership import Ownership
from dovetail.controllers.plan_messages import log_limit_reached, log_replicas_missing
from dovetail.disruption.candidates import compute_lifetime_remaining, compute_node_cost
from dovetail.errors import DovetailError, Gone, Retry, describe_error
from dovetail.history.drafts import of_claim
from dovetail.history.record import RecordKind
from dovetail.ports import Clock, DecisionSink, Kube
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.model.requirements import Requirements
from dovetail.settings.durations import parse_or_never
from dovetail.state.cluster import Cluster
from dovetail.state.tracked_node import TrackedNode

__all__ = ["StaticDeprovisioning", "StaticProvisioning"]

STEADY, AT_LIMIT, UNSYNCED = 60.0, 30.0, 1.0
# Between attempts to delete a claim; after the last, the failure is told.
PAUSES = (0.01, 0.05, 0.25)


class StaticProvisioning:
    """Orders what a static pool lacks."""

    name = "static.provisioning"
    singleton = False
    concurrency = 10
    backoff = Backoff()

    def __init__(
        self, pools: Cache[NodePool], cluster: Cluster, ownership: Ownership, ordering: NodeOrdering
    ) -> None:
        self._pools = pools
        self._cluster = cluster
        self._ownership = ownership
        self._ordering = ordering

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(NodePool, _wake_on_growth), Trigger(NodeClaim, _wake_on_terminating))

    async def reconcile(self, key: str) -> Result:
        pool = self._pools.get(key)
        if pool is None or pool.deleting or pool.spec.replicas is None or not self._ownership.owns_pool(pool):
            return DONE
        if not conditions.is_true(pool, conditions.READY):
            return DONE
        if not self._cluster.ever_synced and not self._cluster.synced:
            return requeue_after(UNSYNCED)
        active, pending, _ = self._cluster.nodepool_state.count_claims(pool.name)
        if active + pending >= pool.spec.replicas:
            return requeue_after(STEADY)
        limit = pool.spec.limits.get(labels.NODES)
        most = limit.value if limit is not None else None
        granted = self._cluster.nodepool_state.reserve_nodes(pool.name, most, pool.spec.replicas - active)
        if granted <= 0:
            log_limit_reached(pool.name)
            return requeue_after(AT_LIMIT)
        log_replicas_missing(pool.name, active, pool.spec.replicas, granted)
        try:
            await run_all(self._order_node(pool) for _ in range(granted))
        except (DovetailError, ExceptionGroup) as error:
            raise Retry(f"creating nodeclaims of {pool.name}: {describe_error(error)}") from error
        return requeue_after(STEADY)

    async def _order_node(self, pool: NodePool) -> None:
        try:
            await self._ordering.order_node(NodeOrder(_plan_static_node(pool)))
        finally:
            # Its NodeClaim counts by itself now, or will not come.
            self._cluster.nodepool_state.release_nodes(pool.name)


def _plan_static_node(pool: NodePool) -> PlannedNode:
    """A node with the pool's own requirements and nothing more: the provider picks the type."""
    wanted = Requirements.from_expressions(pool.spec.template.spec.requirements or ())
    return PlannedNode(name="", pool=pool.name, requirements=wanted, instance_types=(), pods=(), requests={})


def _wake_on_growth(before: NodePool | None, pool: NodePool | None) -> Iterable[str]:
    if pool is None or not pool.static:
        return ()
    if before is None or before.spec.replicas != pool.spec.replicas:
        return (pool.name,)
    became_ready = conditions.is_true(pool, conditions.READY) and not conditions.is_true(
        before, conditions.READY
    )
    return (pool.name,) if became_ready else ()


def _wake_on_terminating(before: NodeClaim | None, claim: NodeClaim | None) -> Iterable[str]:
    gone = claim is None or (claim.deleting and before is not None and not before.deleting)
    known = claim or before
    return (known.labels.get(labels.NODEPOOL, ""),) if gone and known is not None else ()


class StaticDeprovisioning:
    """Ends what a static pool has too much of: unlaunched first, then empty, then the cheapest to move."""

    name = "static.deprovisioning"
    singleton = False
    concurrency = 10
    backoff = Backoff()

    def __init__(
        self,
        kube: Kube,
        pools: Cache[NodePool],
        cluster: Cluster,
        ownership: Ownership,
        clock: Clock,
        history: DecisionSink,
    ) -> None:
        self._kube = kube
        self._pools = pools
        self._cluster = cluster
        self._ownership = ownership
        self._clock = clock
        self._history = history

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(NodePool, _wake_on_resize), Trigger(NodeClaim, _wake_on_arrival))

    async def reconcile(self, key: str) -> Result:
        pool = self._pools.get(key)
        if pool is None or pool.deleting or pool.spec.replicas is None or not self._ownership.owns_pool(pool):
            return DONE
        active, _, _ = self._cluster.nodepool_state.count_claims(pool.name)
        excess = active - pool.spec.replicas
        if excess <= 0:
            return requeue_after(STEADY)
        await run_all(
            self._delete_claim(pool.name, tracked) for tracked in self._list_candidates(pool.name)[:excess]
        )
        return requeue_after(STEADY)

    def _list_candidates(self, pool: str) -> list[TrackedNode]:
        mine = [
            tracked
            for tracked in self._cluster
            if tracked.claim is not None
            and tracked.claim.labels.get(labels.NODEPOOL) == pool
            and not tracked.deleting
        ]
        return sorted(mine, key=self._rank_candidate)

    def _rank_candidate(self, tracked: TrackedNode) -> tuple[int, bool, float, str]:
        assert tracked.claim is not None
        if not tracked.claim.status.provider_id:
            return 0, False, 0.0, tracked.claim.name
        now, pods = self._clock.now(), list(tracked.pods.values())
        held = any(predicates.do_not_disrupt(pod, now).active for pod in pods)
        if not held and all(predicates.owned_by_daemonset(pod) for pod in pods):
            return 1, False, 0.0, tracked.claim.name
        return 2, held, self._compute_cost(tracked.claim, pods), tracked.claim.name

    def _compute_cost(self, claim: NodeClaim, pods: list[Pod]) -> float:
        now = self._clock.now()
        lasts = parse_or_never(claim.spec.expire_after) if claim.spec.expire_after else None
        return compute_node_cost(
            pods, compute_lifetime_remaining(lasts, claim.metadata.creation_timestamp or now, now)
        )

    async def _delete_claim(self, pool: str, tracked: TrackedNode) -> None:
        assert tracked.claim is not None
        for pause in (*PAUSES, None):
            try:
                await self._kube.delete(tracked.claim, guarded=True)
                break
            except Gone:
                return
            except Retry:
                if pause is None:
                    raise
                await self._clock.sleep(pause)
        self._cluster.nodepool_state.mark_deleting(pool, tracked.claim.name)
        why = f"pool {pool} has more nodes than replicas"
        self._history.note_decision(of_claim(RecordKind.NODE_RELEASED, tracked.claim, "Replicas", why))


def _wake_on_resize(before: NodePool | None, pool: NodePool | None) -> Iterable[str]:
    if pool is None or not pool.static:
        return ()
    return (pool.name,) if before is None or before.spec.replicas != pool.spec.replicas else ()


def _wake_on_arrival(before: NodeClaim | None, claim: NodeClaim | None) -> Iterable[str]:
    return (claim.labels.get(labels.NODEPOOL, ""),) if before is None and claim is not None else ()
