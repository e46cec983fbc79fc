"""A simulated cloud that sells what a recording says was sold, at its price at each moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from random import Random
from typing import Literal

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.crds import find_provider_api
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.controllers.provider_port import ProviderContext
from dovetail.history.spot_choices import SpotChoices
from dovetail.history.supply import BootTimes, SpotPlace
from dovetail.ports import Instance
from dovetail.providers.pool_prices import PoolPrices
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.sim.cluster.kubelet import READY_AFTER
from dovetail.sim.volatile_cloud import CatalogueCloud

__all__ = ["Assumption", "PurchasePlace", "RecordedCloud"]

# What can be had: what the recording could buy (observed), what it bought within a day (pessimistic), or all
# that was ever for sale (optimistic).
Assumption = Literal["observed", "pessimistic", "optimistic"]
# An instance type, a zone and a capacity type.
PurchasePlace = tuple[str, str, str]
DAY = timedelta(hours=24)
Types = tuple[InstanceType, ...]


class RecordedCloud(CatalogueCloud):
    """Sells to each NodePool what it was offered in the recording; nodes boot as long as they did there."""

    def __init__(
        self,
        given: ProviderContext,
        provider: str,
        assume: Assumption,
        boots: BootTimes,
        choices: SpotChoices | None = None,
    ) -> None:
        super().__init__(given, provider, find_provider_api(provider), ())
        self._prices = PoolPrices()  # what a person adds is in recorded prices
        self.assume = assume
        self.choices = choices or SpotChoices()
        self._boots = boots
        self._offers: dict[str, Types] = {}
        self._anywhere: Types = ()
        self._closed: frozenset[str] = frozenset()
        self._launched: dict[PurchasePlace, datetime] = {}
        self._seen: tuple[object, ...] = ()
        self._now: Callable[[], datetime] = given.clock.now

    def take_offers(self, snapshot: Snapshot, closed: Mapping[str, str]) -> bool:
        """From now on sell what this look says; whether that is anything else than before."""
        self._note_launches(snapshot)
        seen = (
            *snapshot.catalogs,
            tuple((pool.name, pool.catalog) for pool in snapshot.pools),
            tuple(closed),
        )
        same = len(seen) == len(self._seen) and all(
            a is b or a == b for a, b in zip(seen, self._seen, strict=True)
        )
        if same and self.assume != "pessimistic":
            return False
        # By id or by name: offerings have the zone's name.
        self._seen, self._closed = seen, frozenset((*closed, *closed.values()))
        sold = tuple(tuple(map(self._adjust_type, types)) for types in snapshot.catalogs)
        self._offers = {pool.name: sold[pool.catalog] if pool.catalog >= 0 else () for pool in snapshot.pools}
        self._anywhere = max(sold, key=len, default=())
        return True

    def _note_launches(self, snapshot: Snapshot) -> None:
        now = self._now()
        for state in snapshot.nodes:
            if state.claim is not None:
                known = state.claim.labels
                place = (
                    known.get(labels.INSTANCE_TYPE, ""),
                    known.get(labels.ZONE, ""),
                    known.get(labels.CAPACITY_TYPE, ""),
                )
                self._launched[place] = now

    def _adjust_type(self, each: InstanceType) -> InstanceType:
        changed = tuple(self._adjust_recorded(each.name, offering) for offering in each.offerings)
        if all(a is b for a, b in zip(changed, each.offerings, strict=True)):
            return each
        return replace(each, offerings=changed)

    def _adjust_recorded(self, name: str, offering: Offering) -> Offering:
        available = offering.available
        if self.assume == "optimistic":
            available = offering.price > 0 or available
        elif self.assume == "pessimistic" and not offering.reserved:
            known = self._launched.get((name, offering.zone, offering.capacity_type))
            available = available and known is not None and self._now() - known <= DAY
        if offering.zone in self._closed:
            available = False
        return offering if available is offering.available else replace(offering, available=available)

    def _find_offers(self, pool: str) -> Types:
        return self._offers.get(pool, self._anywhere)

    async def list_instance_types(self, nodepool: NodePool) -> Types:
        return self._find_offers(nodepool.name)

    def _list_current_types(self) -> Types:
        return self._types

    def _choose_cheapest(self, claim: NodeClaim) -> tuple[InstanceType, Offering]:
        """The cheapest; of spot capacity what the cloud of the recording takes for that."""
        offers = self._find_offers(claim.labels.get(labels.NODEPOOL, ""))
        weighed = tuple(map(self._weigh_type, offers)) if self.choices.factors else offers
        kept, self._types = self._types, weighed
        try:
            return super()._choose_cheapest(claim)
        finally:
            self._types = kept

    def _weigh_type(self, each: InstanceType) -> InstanceType:
        known = [self._find_factor(each.name, offering) for offering in each.offerings]
        if all(factor == 1.0 for factor in known):
            return each
        weighed = zip(each.offerings, known, strict=True)
        return replace(each, offerings=tuple(replace(o, price=o.price * factor) for o, factor in weighed))

    def _find_factor(self, name: str, offering: Offering) -> float:
        spot = offering.capacity_type == labels.SPOT
        return self.choices.factors.get(SpotPlace(name, offering.zone), 1.0) if spot else 1.0

    def _find_delay(self, claim: NodeClaim) -> float:
        super()._find_delay(claim)  # whether the class is there and ready
        return self._draw_boot(claim)[0]

    def _draw_boot(self, claim: NodeClaim) -> tuple[float, float]:
        """The same NodeClaim boots as long each time it is asked for."""
        chosen = Random(f"boot {claim.uid}")
        pool = claim.labels.get(labels.NODEPOOL, "")
        zone = next(
            (
                each.values[0]
                for each in claim.spec.requirements
                if each.key == labels.ZONE and len(each.values) == 1
            ),
            "",
        )
        return self._boots.choose(pool, zone, chosen.randrange)

    def _build_node(self, claim: NodeClaim) -> tuple[Node, Instance]:
        node, instance = super()._build_node(claim)
        ready = {**node.metadata.annotations, READY_AFTER: f"{self._draw_boot(claim)[1]:.3f}s"}
        return replace(node, metadata=replace(node.metadata, annotations=ready)), instance
