"""nodepool.counter: what a pool's nodes add up to, written to its status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from dovetail import metrics
from dovetail.api import labels
from dovetail.api.meta import Amounts
from dovetail.api.nodepool import NodePool
from dovetail.api.quantity import ZERO
from dovetail.controllers.base import DONE, Backoff, Cache, Result, Trigger, requeue_after
from dovetail.controllers.ownership import Ownership
from dovetail.errors import Gone
from dovetail.ports import Kube
from dovetail.state.cluster import Cluster

if TYPE_CHECKING:
    from prometheus_client import Gauge

__all__ = ["NodePoolCounter"]

ALWAYS = ("cpu", "memory", "pods", "ephemeral-storage", labels.NODES)
EVERY = 5.0
UNSYNCED = 1.0
USAGE = metrics.gauge(
    "karpenter_nodepools_usage", "What a pool's nodes add up to.", ("resource_type", "nodepool")
)
LIMIT = metrics.gauge(
    "karpenter_nodepools_limit", "What a pool may add up to.", ("resource_type", "nodepool")
)


class NodePoolCounter:
    """Counts each pool every few seconds and writes what changed."""

    name = "nodepool.counter"
    singleton = False
    concurrency = 10
    backoff = Backoff()

    def __init__(self, kube: Kube, pools: Cache[NodePool], cluster: Cluster, ownership: Ownership) -> None:
        self._kube = kube
        self._pools = pools
        self._cluster = cluster
        self._ownership = ownership
        self._shown: dict[str, set[tuple[Gauge, str]]] = {}

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(NodePool, _wake_on_created_or_deleted),)

    async def reconcile(self, key: str) -> Result:
        pool = self._pools.get(key)
        if pool is None or not self._ownership.owns_pool(pool):
            self._hide_gauges(key)
            return DONE
        if not self._cluster.synced:
            return requeue_after(UNSYNCED)
        resources = dict.fromkeys(ALWAYS, ZERO) | self._cluster.compute_usage(pool.name)
        self._show_gauges(pool, resources)
        status = replace(pool.status, resources=resources, nodes=resources[labels.NODES].value)
        if status.resources != pool.status.resources or status.nodes != pool.status.nodes:
            try:
                await self._kube.patch(pool, replace(pool, status=status), status=True)
            except Gone:
                return DONE
        return requeue_after(EVERY)

    def _show_gauges(self, pool: NodePool, resources: Amounts) -> None:
        shown = set()
        for gauge, amounts in ((USAGE, resources), (LIMIT, pool.spec.limits)):
            for name, amount in amounts.items():
                resource = name.lower().replace("-", "_")
                gauge.labels(resource, pool.name).set(amount.milli / 1000)
                shown.add((gauge, resource))
        self._hide_gauges(pool.name, self._shown.get(pool.name, set()) - shown)
        self._shown[pool.name] = shown

    def _hide_gauges(self, pool: str, stale: set[tuple[Gauge, str]] | None = None) -> None:
        """A pool that is gone, and a limit that was lifted, have no numbers any more."""
        for gauge, resource in self._shown.pop(pool, set()) if stale is None else stale:
            gauge.remove(resource, pool)


def _wake_on_created_or_deleted(before: NodePool | None, pool: NodePool | None) -> tuple[str, ...]:
    known = pool or before
    return (known.name,) if known is not None and (before is None or pool is None) else ()
