"""cloudprovider.metrics: what instance types are made of, where they can be had, and for how much."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import Backoff, Cache, PeriodicController, Result, requeue_after
from dovetail.controllers.observing.series import GaugeSeries
from dovetail.controllers.ownership import Ownership
from dovetail.errors import DovetailError
from dovetail.logs import build_reference, get_logger
from dovetail.ports import Cloud
from dovetail.providers.aws.instance_types import InstanceTypeProvider
from dovetail.scheduling.model.instance_types import InstanceType

__all__ = ["OfferingMetrics"]

EVERY: Final = 60.0
MIB: Final = 2**20
SLICE: Final = 50
OFFERING: Final = ("instance_type", "capacity_type", "zone")
SERIES: Final = (
    ("karpenter_cloudprovider_instance_type_cpu_cores", "Processors of an instance type.", OFFERING[:1]),
    ("karpenter_cloudprovider_instance_type_memory_bytes", "Memory of an instance type.", OFFERING[:1]),
    (
        "karpenter_cloudprovider_instance_type_offering_available",
        "1 if the offering can be bought by some pool. In brief, those of types in use.",
        OFFERING,
    ),
    (
        "karpenter_cloudprovider_instance_type_offering_price_estimate",
        "What the instance of an offering costs an hour. In brief, those of types in use.",
        OFFERING,
    ),
)
# Known from the start, also where nobody counts them.
for _each in SERIES:
    GaugeSeries(*_each)

log = get_logger()
Offer = tuple[str, str, str]


class OfferingMetrics(PeriodicController):
    """Every minute. `each` tells of every type EC2 sells; otherwise of those that claims have."""

    name = "cloudprovider.metrics"
    backoff = Backoff(first=1.0, last=EVERY)

    def __init__(
        self,
        pools: Cache[NodePool],
        claims: Cache[NodeClaim],
        ownership: Ownership,
        cloud: Cloud,
        types: InstanceTypeProvider,
        *,
        each: bool,
        reserved: bool,
    ) -> None:
        self._pools = pools
        self._claims = claims
        self._ownership = ownership
        self._cloud = cloud
        self._types = types
        self._each = each
        self._reserved = reserved
        self._cpu, self._memory, self._available, self._price = (GaugeSeries(*each) for each in SERIES)

    async def reconcile(self, key: str) -> Result:
        wanted = (
            None if self._each else {claim.labels.get(labels.INSTANCE_TYPE, "") for claim in self._claims}
        )
        offers: dict[Offer, tuple[bool, float]] = {}
        for pool in self._pools:
            if self._ownership.owns_pool(pool):
                await self._collect_offers(pool, wanted, offers)
        if self._each and self._reserved:
            # A dashboard that adds reserved to the others must find a number for each of them.
            for name, _, zone in tuple(offers):
                offers.setdefault((name, labels.RESERVED, zone), (False, 0.0))
        self._show_series(wanted, offers)
        return requeue_after(EVERY)

    async def _collect_offers(
        self, pool: NodePool, wanted: set[str] | None, offers: dict[Offer, tuple[bool, float]]
    ) -> None:
        try:
            types = await self._cloud.list_instance_types(pool)
        except DovetailError as error:
            log.debug("offerings are not shown", NodePool=build_reference(pool.name), error=error)
            return
        for count, each in enumerate(types, start=1):
            if wanted is None or each.name in wanted:
                for offer, available, price in _list_offers(each):
                    offers[offer] = (available or offers.get(offer, (False, 0.0))[0], price)
            if count % SLICE == 0:
                await asyncio.sleep(0)

    def _show_series(self, wanted: set[str] | None, offers: dict[Offer, tuple[bool, float]]) -> None:
        for name, facts in self._types.all_facts.items():
            if wanted is None or name in wanted:
                self._cpu.add({"instance_type": name}, facts.vcpus)
                self._memory.add({"instance_type": name}, facts.memory_mib * MIB)
        for offer, (available, price) in offers.items():
            about = dict(zip(OFFERING, offer, strict=True))
            self._available.add(about, float(available))
            self._price.add(about, price)
        for series in (self._cpu, self._memory, self._available, self._price):
            series.show_values()


def _list_offers(each: InstanceType) -> Iterator[tuple[Offer, bool, float]]:
    """By type, capacity type and zone: several reservations or partitions of one are one offer."""
    told: dict[Offer, tuple[bool, float]] = {}
    for offering in each.offerings:
        offer = (each.name, offering.capacity_type, offering.zone)
        told[offer] = (offering.available or told.get(offer, (False, 0.0))[0], offering.instance_price)
    return ((offer, available, price) for offer, (available, price) in told.items())
