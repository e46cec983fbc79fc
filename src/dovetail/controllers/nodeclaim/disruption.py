"""nodeclaim.disruption: which claims may be consolidated, and which have drifted."""

from __future__ import annotations

from datetime import timedelta

from dovetail.api import conditions, labels, reasons
from dovetail.api.conditions import CONSOLIDATABLE, DRIFTED, INITIALIZED, LAUNCHED
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.controllers.base import (
    DONE,
    SOON,
    Backoff,
    ConcurrencyRange,
    RecentKeys,
    Result,
    Trigger,
    choose_soonest,
    requeue_after,
    wake_on,
)
from dovetail.controllers.context import ControllerContext
from dovetail.disruption.methods.drift import (
    find_pool_drift,
    is_old_enough,
    is_type_gone,
)
from dovetail.errors import Conflict, DovetailError, Gone
from dovetail.settings.durations import parse_or_never
from dovetail.zonal.model.ledgers import remove_shift_edits

__all__ = ["DisruptionConditions"]

PACE = ConcurrencyRange(10, 1000)
DRIFT_EVERY = 300.0
TYPE_CHECK_EVERY = 1800.0


class DisruptionConditions:
    """Keeps Consolidatable and Drifted on every claim of a pool."""

    name = "nodeclaim.disruption"
    singleton = False
    backoff = Backoff()

    def __init__(self, context: ControllerContext) -> None:
        self._kube = context.kube
        self._claims = context.claims
        self._pools = context.pools
        self._class_kind = context.class_kind
        self._cluster = context.cluster
        self._ownership = context.ownership
        self._cloud = context.cloud
        self._clock = context.clock
        self._type_checked = RecentKeys(TYPE_CHECK_EVERY)
        self.concurrency = PACE.scale_to(context.millicores)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (
            wake_on(NodeClaim),
            wake_on(
                NodePool,
                lambda pool: [c.name for c in self._claims if c.labels.get(labels.NODEPOOL) == pool.name],
            ),
            wake_on(Pod, self._find_claim_of_pod),
            wake_on(
                self._class_kind,
                lambda node_class: [
                    c.name for c in self._claims if c.spec.node_class_ref.name == node_class.name
                ],
            ),
        )

    def _find_claim_of_pod(self, pod: Pod) -> list[str]:
        tracked = self._cluster.find_by_node(pod.node_name) if pod.node_name else None
        return [tracked.claim.name] if tracked is not None and tracked.claim is not None else []

    async def reconcile(self, key: str) -> Result:
        claim = self._claims.get(key)
        if claim is None or claim.deleting or not self._ownership.owns_claim(claim):
            return DONE
        pool = self._pools.get(claim.labels.get(labels.NODEPOOL, ""))
        if pool is None:
            return DONE
        changed, result, failure = claim, DONE, None
        try:
            changed, result = await self._set_drifted(claim, pool)
        except DovetailError as error:
            # What can be said about consolidation is said all the same.
            failure = error
        if not pool.static:
            changed, later = self._set_consolidatable(changed, pool)
            result = choose_soonest((result, later))
        if changed != claim:
            try:
                await self._kube.patch(claim, changed, status=True, guarded=True)
            except Conflict:
                return SOON
            except Gone:
                return DONE
        if failure is not None:
            raise failure
        return result

    def _set_consolidatable(self, claim: NodeClaim, pool: NodePool) -> tuple[NodeClaim, Result]:
        text = pool.spec.disruption.consolidate_after
        wait = parse_or_never(text) if text is not None else timedelta()
        initialized = conditions.find_condition(claim, INITIALIZED)
        if wait is None or initialized is None or initialized.status != conditions.TRUE:
            return conditions.clear_condition(claim, CONSOLIDATABLE), DONE
        since = claim.status.last_pod_event_time or initialized.last_transition_time
        now = self._clock.now()
        if since is not None and wait > timedelta() and now - since < wait:
            return conditions.clear_condition(claim, CONSOLIDATABLE), requeue_after(since + wait - now)
        return conditions.set_true(claim, CONSOLIDATABLE, now), DONE

    async def _set_drifted(self, claim: NodeClaim, pool: NodePool) -> tuple[NodeClaim, Result]:
        # A launch stores its status first and its labels after: in between it only looks drifted.
        if not conditions.is_true(claim, LAUNCHED) or labels.INSTANCE_TYPE not in claim.labels:
            return conditions.clear_condition(claim, DRIFTED), DONE
        reason = (
            # A zone that a shift takes out of the pool makes none of its nodes there drifted.
            find_pool_drift(remove_shift_edits(pool), claim)
            or await self._find_type_drift(claim, pool)
            or await self._find_cloud_drift(claim)
        )
        if not reason:
            return conditions.clear_condition(claim, DRIFTED), requeue_after(DRIFT_EVERY)
        return conditions.set_true(claim, DRIFTED, self._clock.now(), reason, reason), requeue_after(
            DRIFT_EVERY
        )

    async def _find_type_drift(self, claim: NodeClaim, pool: NodePool) -> str:
        now = self._clock.monotonic()
        if self._type_checked.seconds_left(claim.uid, now) > 0 or not is_old_enough(claim, self._clock.now()):
            return ""
        if is_type_gone(claim, await self._cloud.list_instance_types(pool)):
            return reasons.INSTANCE_TYPE_NOT_FOUND
        self._type_checked.add(claim.uid, now)
        return ""

    async def _find_cloud_drift(self, claim: NodeClaim) -> str:
        try:
            return await self._cloud.find_drift_reason(claim)
        except Gone:
            return ""
