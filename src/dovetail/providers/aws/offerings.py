"""Every way to buy an instance type: a zone and a capacity type, perhaps a reservation or a partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from dovetail.api import labels
from dovetail.api.nodeclass import CapacityReservation, EC2NodeClassStatus, Subnet
from dovetail.providers.aws.instance_type_info import InstanceTypeInfo
from dovetail.providers.aws.node_extras import NO_EXTRAS, ClassExtras
from dovetail.providers.aws.placement_groups import PlacementGroup
from dovetail.providers.aws.pricing import PricingProvider
from dovetail.providers.aws.unavailable_offerings import UnavailableOfferings
from dovetail.scheduling.model.instance_types import Offering
from dovetail.scheduling.model.requirements import NOTHING, Requirements, Values

__all__ = [
    "OfferingProvider",
    "PurchaseTerms",
    "is_never_excluded",
]

# Reserved capacity is paid for already: so cheap that it always comes first, dear enough to keep its order.
RESERVED_PART = 10_000_000
EXPIRING = "expiring"


def is_never_excluded(zone_id: str) -> bool:
    """No zone is shifted away."""
    return False


@dataclass(frozen=True, slots=True)
class PurchaseTerms:
    """What a node class brings to a purchase, the same for every instance type."""

    zones: tuple[str, ...]  # all of the region that sell anything
    subnets: Mapping[str, tuple[Subnet, ...]] = field(default_factory=dict)  # the class's, by zone
    reservations: tuple[CapacityReservation, ...] = ()
    group: PlacementGroup | None = None

    @staticmethod
    def from_status(
        zones: tuple[str, ...], status: EC2NodeClassStatus, group: PlacementGroup | None
    ) -> PurchaseTerms:
        """As a class has been resolved."""
        subnets: dict[str, tuple[Subnet, ...]] = {}
        for subnet in status.subnets:
            subnets[subnet.zone] = (*subnets.get(subnet.zone, ()), subnet)
        return PurchaseTerms(zones, subnets, status.capacity_reservations, group)

    @property
    def zone_ids(self) -> dict[str, str]:
        return {zone: subnets[0].zone_id for zone, subnets in self.subnets.items()}


@dataclass(frozen=True, slots=True)
class OfferingProvider:
    """Makes the offerings of one type, as prices, refusals, shifts and reservations stand now."""

    prices: PricingProvider
    unavailable: UnavailableOfferings
    reserved_left: Callable[[str], int] = lambda reservation: 0
    is_excluded_zone: Callable[[str], bool] = is_never_excluded
    reserved_capacity: bool = True
    # Prices people gave for types that have none, by type.
    given_prices: Callable[[], Mapping[str, float]] = dict

    def build_offerings(
        self,
        facts: InstanceTypeInfo,
        sold_in: tuple[str, ...],
        buying: PurchaseTerms,
        compatible: bool,
        extras: ClassExtras = NO_EXTRAS,
    ) -> tuple[Offering, ...]:
        """All of them, available or not; `sold_in` are the zones that sell the type.

        `extras` are what a node costs beside its instance, however that is paid for.
        """
        zone_ids = buying.zone_ids
        open_zones = {
            zone
            for zone in sold_in
            if compatible and zone in zone_ids and not self.is_excluded_zone(zone_ids[zone])
        }
        partitions = buying.group.partition_names if buying.group else ()
        made: list[Offering] = []
        for zone in buying.zones:
            zone_id = zone_ids.get(zone, "")
            subnets = tuple(subnet.id for subnet in buying.subnets.get(zone, ()))
            for capacity_type in (labels.ON_DEMAND, labels.SPOT):
                if capacity_type in facts.usage_classes:
                    price = self.find_price(capacity_type, facts.name, zone)
                    guessed = price is not None and self.prices.is_estimate(capacity_type, facts.name)
                    sellable = price is not None and zone in open_zones
                    made += (
                        Offering(
                            requirements=_build_requirements(capacity_type, zone, zone_id, partition),
                            price=price or 0.0,
                            available=sellable
                            and not self._is_unavailable(
                                capacity_type, facts.name, zone, subnets, buying, partition
                            ),
                            price_estimated=guessed,
                            price_unknown=price is None,
                        )
                        for partition in partitions or ("",)
                    )
        made += self._build_reserved(facts, open_zones, zone_ids, buying, partitions or ("",))
        return tuple(made) if extras is NO_EXTRAS else tuple(map(extras.price_offering, made))

    def find_price(self, capacity_type: str, instance_type: str, zone: str) -> float | None:
        """By the hour; None while nobody knows one."""
        if capacity_type == labels.SPOT:
            known = self.prices.find_spot_price(instance_type, zone)
        else:
            known = self.prices.find_on_demand_price(instance_type)
        return self.given_prices().get(instance_type) if known is None else known

    def _is_unavailable(
        self,
        capacity_type: str,
        name: str,
        zone: str,
        subnets: tuple[str, ...],
        buying: PurchaseTerms,
        partition: str,
    ) -> bool:
        group = buying.group.id if buying.group else ""
        return self.unavailable.is_unavailable(capacity_type, name, zone, subnets, group, partition)

    def _build_reserved(
        self,
        facts: InstanceTypeInfo,
        open_zones: set[str],
        zone_ids: Mapping[str, str],
        buying: PurchaseTerms,
        partitions: tuple[str, ...],
    ) -> list[Offering]:
        if not self.reserved_capacity:
            return []
        price = self.find_price(labels.ON_DEMAND, facts.name, "")
        made = []
        for each in buying.reservations:
            if each.instance_type != facts.name:
                continue
            zone, left = each.availability_zone, self.reserved_left(each.id)
            made += [
                Offering(
                    requirements=_build_reserved_requirements(each, zone_ids.get(zone, ""), partition),
                    price=(price or 0.0) / RESERVED_PART,
                    available=left != 0 and zone in open_zones and each.state != EXPIRING,
                    reservation_id=each.id,
                    reservation_capacity=left,
                    price_unknown=price is None,
                )
                for partition in partitions
            ]
        return made


@lru_cache(maxsize=4096)
def _build_requirements(capacity_type: str, zone: str, zone_id: str, partition: str) -> Requirements:
    return Requirements(
        {
            **_build_place(capacity_type, zone, zone_id, partition),
            labels.CAPACITY_RESERVATION_ID: NOTHING,
            labels.CAPACITY_RESERVATION_TYPE: NOTHING,
            labels.CAPACITY_RESERVATION_INTERRUPTIBLE: NOTHING,
        }
    )


def _build_reserved_requirements(each: CapacityReservation, zone_id: str, partition: str) -> Requirements:
    return Requirements(
        {
            **_build_place(labels.RESERVED, each.availability_zone, zone_id, partition),
            labels.CAPACITY_RESERVATION_ID: _only_value(each.id),
            labels.CAPACITY_RESERVATION_TYPE: _only_value(each.reservation_type),
            labels.CAPACITY_RESERVATION_INTERRUPTIBLE: _only_value("true" if each.interruptible else "false"),
        }
    )


def _build_place(capacity_type: str, zone: str, zone_id: str, partition: str) -> dict[str, Values]:
    found = {labels.CAPACITY_TYPE: _only_value(capacity_type), labels.ZONE: _only_value(zone)}
    if zone_id:
        found[labels.ZONE_ID] = _only_value(zone_id)
    if partition:
        found[labels.PLACEMENT_GROUP_PARTITION] = _only_value(partition)
    return found


@lru_cache(maxsize=4096)
def _only_value(value: str) -> Values:
    return Values(frozenset((value,)))
