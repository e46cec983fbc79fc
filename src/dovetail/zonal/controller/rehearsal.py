"""The whole cluster, for questions that nodes and pools alone cannot answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from dovetail.api import labels
from dovetail.api.core import DaemonSet, Deployment, Job, ReplicaSet, StatefulSet
from dovetail.api.cron import Schedule
from dovetail.api.meta import Object, ObjectMeta, OwnerReference
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.controllers.base import DONE, Backoff, Cache, PeriodicController, Result, requeue_after
from dovetail.ports import Clock, Compute, Recorder
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.zone_bound import ZoneBoundPod, find_zone_bound_pods
from dovetail.zonal import shift_metrics
from dovetail.zonal.model.rehearsal import Rehearsal, rehearse

__all__ = ["ClusterView", "RehearsalController"]

WORKLOAD_KINDS: Mapping[str, type[Object]] = {
    each.KIND.kind: each for each in (Deployment, ReplicaSet, StatefulSet, DaemonSet, Job)
}


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Only who sees everything can say what losing a zone would mean, and which pods wait for it."""

    take_snapshot: Callable[[], Awaitable[Snapshot]]
    compute: Compute
    replicasets: Cache[ReplicaSet]
    cache: DecisionCache = field(default_factory=DecisionCache)

    async def rehearse_zone(self, zone: str, addresses: Mapping[str, int] | None = None) -> Rehearsal:
        """What losing the zone, by its name, would mean now."""
        return await self.rehearse_loss(await self.take_snapshot(), zone, addresses)

    async def rehearse_loss(
        self, snapshot: Snapshot, zone: str, addresses: Mapping[str, int] | None = None
    ) -> Rehearsal:
        """What losing the zone would mean for a snapshot."""
        return await self.compute(rehearse, snapshot, zone, addresses=addresses, cache=self.cache)

    async def find_pending_for_zones(self, zones: Mapping[str, str]) -> tuple[ZoneBoundPod, ...]:
        """Pods that only these zones, names by id, could take."""
        return find_zone_bound_pods(await self.take_snapshot(), zones)

    def find_owner(self, pod: Pod) -> Object:
        """Whoever a person would say made the pod; the pod itself where nobody did."""
        owner = pod.metadata.controller
        found = (
            self.find_workload(owner.kind, pod.namespace, owner.name, owner.uid)
            if owner is not None
            else None
        )
        return found or pod

    def find_workload(self, kind: str, namespace: str, name: str, uid: str = "") -> Object | None:
        """A workload as an object to speak of; of a ReplicaSet, the Deployment behind it."""
        if kind == ReplicaSet.KIND.kind:
            there = self.replicasets.get(name, namespace)
            above = there.metadata.controller if there is not None else None
            if above is not None and above.kind in WORKLOAD_KINDS:
                return _build_workload(above, namespace)
        made = WORKLOAD_KINDS.get(kind)
        return made(metadata=ObjectMeta(name=name, namespace=namespace, uid=uid)) if made else None


def _build_workload(owner: OwnerReference, namespace: str) -> Object:
    return WORKLOAD_KINDS[owner.kind](
        metadata=ObjectMeta(name=owner.name, namespace=namespace, uid=owner.uid)
    )


# While nothing is known yet there is nothing to rehearse.
AGAIN = 60.0
# A queue keeps no longer waits than this; the rest is waited for in turns.
LONGEST = 3600.0
DAY = 86_400.0


class RehearsalController(PeriodicController):
    """Rehearses at the start and whenever the schedule says so; a zone that became less ready is told of."""

    name = "zonalrehearsal"
    backoff = Backoff(first=10.0, last=600.0)

    def __init__(
        self,
        seeing: ClusterView,
        pools: Cache[NodePool],
        schedule: Schedule,
        clock: Clock,
        recorder: Recorder,
    ) -> None:
        self._view, self._pools, self._schedule = seeing, pools, schedule
        self._clock, self._recorder = clock, recorder
        self._due: datetime | None = None
        self._before: dict[str, float] = {}

    async def reconcile(self, key: str) -> Result:
        now = self._clock.now()
        if self._due is not None and now < self._due:
            return requeue_after(min((self._due - now).total_seconds(), LONGEST))
        world = await self._view.take_snapshot()
        zones = _list_zones_with_nodes(world)
        if not zones:
            return requeue_after(AGAIN)
        for zone in zones:
            self._report_readiness(await self._view.rehearse_loss(world, zone), world)
        self._due = self._schedule.find_next(now)
        return DONE if self._due is None else requeue_after(min((self._due - now).total_seconds(), LONGEST))

    def _report_readiness(self, found: Rehearsal, world: Snapshot) -> None:
        zone, before = found.zone, self._before.get(found.zone, 1.0)
        self._before[zone] = found.readiness
        shift_metrics.set_readiness(zone, found.readiness)
        if found.readiness >= before:
            return
        why = ", ".join(f"{count} by {kind}" for kind, count in Counter(found.kinds.values()).most_common())
        note = (
            f"losing {zone} would now leave {len(found.homeless)} of {found.pods} pods unschedulable "
            f"({why}); `dovetail zonal-shift rehearse --zone {zone}` lists them"
        )
        for name in _list_pools_in_zone(world, zone):
            pool = self._pools.get(name)
            if pool is not None:
                told = (pool.uid, zone, f"{found.readiness:.3f}")
                self._recorder.publish_event(
                    pool, "ZonalReadinessFell", note, warning=True, dedupe=told, window=DAY
                )


def _list_zones_with_nodes(world: Snapshot) -> list[str]:
    """The zones that have a node."""
    zones = {state.node.labels.get(labels.ZONE, "") for state in world.nodes if state.node is not None}
    return sorted(zones - {""})


def _list_pools_in_zone(world: Snapshot, zone: str) -> list[str]:
    known = (state.node.labels for state in world.nodes if state.node is not None)
    return sorted({each.get(labels.NODEPOOL, "") for each in known if each.get(labels.ZONE) == zone} - {""})
