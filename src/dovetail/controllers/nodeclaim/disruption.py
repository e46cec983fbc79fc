"""nodeclaim.disruption: which claims may be consolidated, and which have drifted."""

from __future__ import annotations

from datetime import timedelta

from dovetail.api import conditions, labels
from dovetail.api.conditions import CONSOLIDATABLE, DRIFTED, INITIALIZED, LAUNCHED
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.controllers.base import (
    DONE,
    SOON,
    Backoff,
    Cache,
    Pace,
    Remembered,
    Result,
    Trigger,
    after,
    on,
    soonest,
)
from dovetail.controllers.owning import Ownership
from dovetail.disruption.drift import INSTANCE_TYPE_NOT_FOUND, old_enough, pool_drift, type_gone
from dovetail.errors import Conflict, DovetailError, Gone
from dovetail.ports import Clock, Cloud, Kube
from dovetail.settings.durations import parse_or_never
from dovetail.state import Cluster
from dovetail.zonal.drift import as_wanted

__all__ = ["DisruptionConditions"]

PACE = Pace(10, 1000)
DRIFT_EVERY = 300.0
TYPE_CHECK_EVERY = 1800.0


class DisruptionConditions:
    """Keeps Consolidatable and Drifted on every claim of a pool."""

    name = "nodeclaim.disruption"
    backoff = Backoff()

    def __init__(
        self,
        kube: Kube,
        claims: Cache[NodeClaim],
        pools: Cache[NodePool],
        class_kind: type[Object],
        cluster: Cluster,
        ownership: Ownership,
        cloud: Cloud,
        clock: Clock,
        *,
        millicores: int = 1000,
    ) -> None:
        self._kube = kube
        self._claims = claims
        self._pools = pools
        self._class_kind = class_kind
        self._cluster = cluster
        self._ownership = ownership
        self._cloud = cloud
        self._clock = clock
        self._type_checked = Remembered(TYPE_CHECK_EVERY)
        self.concurrency = PACE.at(millicores)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (
            on(NodeClaim),
            on(
                NodePool,
                lambda pool: [c.name for c in self._claims if c.labels.get(labels.NODEPOOL) == pool.name],
            ),
            on(Pod, self._claim_under),
            on(
                self._class_kind,
                lambda node_class: [
                    c.name for c in self._claims if c.spec.node_class_ref.name == node_class.name
                ],
            ),
        )

    def _claim_under(self, pod: Pod) -> list[str]:
        place = self._cluster.of_node(pod.node_name) if pod.node_name else None
        return [place.claim.name] if place is not None and place.claim is not None else []

    async def reconcile(self, key: str) -> Result:
        claim = self._claims.get(key)
        if claim is None or claim.deleting or not self._ownership.of_claim(claim):
            return DONE
        pool = self._pools.get(claim.labels.get(labels.NODEPOOL, ""))
        if pool is None:
            return DONE
        changed, result, failure = claim, DONE, None
        try:
            changed, result = await self._drift(claim, pool)
        except DovetailError as error:
            # What can be said about consolidation is said all the same.
            failure = error
        if not pool.static:
            changed, later = self._consolidatable(changed, pool)
            result = soonest((result, later))
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

    def _consolidatable(self, claim: NodeClaim, pool: NodePool) -> tuple[NodeClaim, Result]:
        text = pool.spec.disruption.consolidate_after
        wait = parse_or_never(text) if text is not None else timedelta()
        initialized = conditions.find(claim, INITIALIZED)
        if wait is None or initialized is None or initialized.status != conditions.TRUE:
            return conditions.clear(claim, CONSOLIDATABLE), DONE
        since = claim.status.last_pod_event_time or initialized.last_transition_time
        now = self._clock.now()
        if since is not None and wait > timedelta() and now - since < wait:
            return conditions.clear(claim, CONSOLIDATABLE), after(since + wait - now)
        return conditions.set_true(claim, CONSOLIDATABLE, now), DONE

    async def _drift(self, claim: NodeClaim, pool: NodePool) -> tuple[NodeClaim, Result]:
        # A launch stores its status first and its labels after: in between it only looks drifted.
        if not conditions.is_true(claim, LAUNCHED) or labels.INSTANCE_TYPE not in claim.labels:
            return conditions.clear(claim, DRIFTED), DONE
        reason = (
            # A zone that a shift takes out of the pool makes none of its nodes there drifted.
            pool_drift(as_wanted(pool), claim)
            or await self._type_drift(claim, pool)
            or await self._cloud_drift(claim)
        )
        if not reason:
            return conditions.clear(claim, DRIFTED), after(DRIFT_EVERY)
        return conditions.set_true(claim, DRIFTED, self._clock.now(), reason, reason), after(DRIFT_EVERY)

    async def _type_drift(self, claim: NodeClaim, pool: NodePool) -> str:
        now = self._clock.monotonic()
        if self._type_checked.left(claim.uid, now) > 0 or not old_enough(claim, self._clock.now()):
            return ""
        if type_gone(claim, await self._cloud.instance_types(pool)):
            return INSTANCE_TYPE_NOT_FOUND
        self._type_checked.add(claim.uid, now)
        return ""

    async def _cloud_drift(self, claim: NodeClaim) -> str:
        try:
            return await self._cloud.drifted(claim)
        except Gone:
            return ""
