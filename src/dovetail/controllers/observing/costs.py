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
from dovetail.state.cluster import Cluster

__all__ = ["NodePoolPricing"]

EVERY = 3600.0
ERRORS = metrics.counter(
    "karpenter_nodepools_cost_tracker_errors_total",
    "Price lists of pools that could not be read.",
    ("nodepool",),
)
Offer = tuple[str, str, str]


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
        self._prices: dict[str, dict[Offer, float]] = {}
        self._cost = GaugeSeries(
            "karpenter_nodepools_cost_total", "What a pool's machines cost an hour.", ("nodepool",)
        )

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(NodePool, _wake_on_created_or_deleted),)

    async def reconcile(self, key: str) -> Result:
        prices: dict[str, dict[Offer, float]] = {}
        for pool in self._pools:
            if self._ownership.owns_pool(pool):
                prices[pool.name] = await self._list_prices(pool)
        self._prices = prices
        return requeue_after(EVERY)

    async def _list_prices(self, pool: NodePool) -> dict[Offer, float]:
        try:
            types = await self._cloud.list_instance_types(pool)
        except DovetailError:
            # What was known before is better than nothing.
            ERRORS.labels(pool.name).inc()
            return self._prices.get(pool.name, {})
        return {
            (each.name, offering.zone, offering.capacity_type): offering.price
            for each in types
            for offering in each.offerings
        }

    def find_price(self, claim: NodeClaim) -> float | None:
        """What the node of a NodeClaim costs an hour, as far as the price lists say."""
        about = claim.labels
        offer = tuple(about.get(k, "") for k in (labels.INSTANCE_TYPE, labels.ZONE, labels.CAPACITY_TYPE))
        return self._prices.get(about.get(labels.NODEPOOL, ""), {}).get((offer[0], offer[1], offer[2]))

    def report(self) -> None:
        for name in self._prices:
            self._cost.add({"nodepool": name}, 0.0)
        for tracked in self._cluster:
            if tracked.claim is None or tracked.deleting:
                continue
            price = self.find_price(tracked.claim)
            if price is not None:
                self._cost.add({"nodepool": tracked.claim.labels.get(labels.NODEPOOL, "")}, price)
        self._cost.show_values()


def _wake_on_created_or_deleted(before: NodePool | None, pool: NodePool | None) -> Iterable[str]:
    return (SINGLETON,) if before is None or pool is None else ()
