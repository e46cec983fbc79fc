"""state.pricing: what the machines of each pool cost an hour, by the provider's price list."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail import metrics
from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import SINGLETON, Backoff, Cache, Result, Trigger, requeue_after
from dovetail.controllers.observing.series import GaugeSeries
from dovetail.controllers.ownership import Ownership
from dovetail.errors import DovetailError
from dovetail.ports import Cloud
from dovetail.scheduling.bill import PriceList
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.state.cluster import Cluster

__all__ = ["NodePoolPricing"]

EVERY = 3600.0
ERRORS = metrics.counter(
    "karpenter_nodepools_cost_tracker_errors_total",
    "Price lists of pools that could not be read.",
    ("nodepool",),
)


class NodePoolPricing:
    """Reads the price lists once an hour; adds up what is running when someone looks."""

    name = "state.pricing"
    concurrency = 1
    backoff = Backoff(first=1.0, last=300.0)
    singleton = True

    def __init__(self, pools: Cache[NodePool], cluster: Cluster, ownership: Ownership, cloud: Cloud) -> None:
        self._pools = pools
        self._cluster = cluster
        self._ownership = ownership
        self._cloud = cloud
        self._types: dict[str, tuple[InstanceType, ...]] = {}
        self._prices = PriceList.from_offers({})
        self._cost = GaugeSeries(
            "karpenter_nodepools_cost_total", "What a pool's machines cost an hour.", ("nodepool",)
        )
        self._extras = GaugeSeries(
            "dovetail_nodepools_extras_cost",
            "That part of a pool's cost an hour which is not its instances': volumes, public IPv4 addresses "
            "and what people add. Only of pools that have such.",
            ("nodepool",),
        )

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(NodePool, _wake_on_created_or_deleted),)

    async def reconcile(self, key: str) -> Result:
        types: dict[str, tuple[InstanceType, ...]] = {}
        for pool in self._pools:
            if self._ownership.owns_pool(pool):
                types[pool.name] = await self._list_types(pool)
        self._types, self._prices = types, PriceList.from_offers(types)
        return requeue_after(EVERY)

    async def _list_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        try:
            return await self._cloud.list_instance_types(pool)
        except DovetailError:
            # What was known before is better than nothing.
            ERRORS.labels(pool.name).inc()
            return self._types.get(pool.name, ())

    def find_price(self, claim: NodeClaim) -> float | None:
        """What the node of a NodeClaim costs an hour, as far as the price lists say."""
        return self._prices.find_price(claim.labels.get(labels.NODEPOOL, ""), claim.labels)

    def report(self) -> None:
        for name in self._types:
            self._cost.add({"nodepool": name}, 0.0)
        for tracked in self._cluster:
            if tracked.claim is None or tracked.deleting:
                continue
            pool = tracked.claim.labels.get(labels.NODEPOOL, "")
            bought = self._prices.find_offering(pool, tracked.claim.labels)
            if bought is None:
                continue
            self._cost.add({"nodepool": pool}, bought.price)
            if bought.parts is not None:
                self._extras.add({"nodepool": pool}, bought.parts.extras)
        self._cost.show_values()
        self._extras.show_values()


def _wake_on_created_or_deleted(before: NodePool | None, pool: NodePool | None) -> Iterable[str]:
    return (SINGLETON,) if before is None or pool is None else ()
