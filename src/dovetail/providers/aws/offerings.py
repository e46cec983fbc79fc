"""Every way to buy an instance type: a zone and a capacity type, perhaps a reservation or a partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from dovetail.api import labels
from dovetail.api.nodeclass import CapacityReservation, EC2NodeClassStatus, Subnet
from dovetail.providers.aws.facts import Facts
from dovetail.providers.aws.placement import PlacementGroup
from dovetail.providers.aws.pricing import Prices
from dovetail.providers.aws.unavailable import Unavailable
from dovetail.scheduling.catalog import Offering
from dovetail.scheduling.requirements import NOTHING, Requirements, Values

__all__ = ["Buying", "Offerings", "never"]

# Reserved capacity is paid for already: so cheap that it always comes first, dear enough to keep its order.
RESERVED_PART = 10_000_000
EXPIRING = "expiring"


def never(zone_id: str) -> bool:
    """No zone is shifted away."""
    return False


@dataclass(frozen=True, slots=True)
class Buying:
    """What a node class brings to a purchase, the same for every instance type."""

    zones: tuple[str, ...]  # all of the region that sell anything
    subnets: Mapping[str, tuple[Subnet, ...]] = field(default_factory=dict)  # the class's, by zone
    reservations: tuple[CapacityReservation, ...] = ()
    group: PlacementGroup | None = None

    @staticmethod
    def of(zones: tuple[str, ...], status: EC2NodeClassStatus, group: PlacementGroup | None) -> Buying:
        """As a class has been resolved."""
        subnets: dict[str, tuple[Subnet, ...]] = {}
        for subnet in status.subnets:
            subnets[subnet.zone] = (*subnets.get(subnet.zone, ()), subnet)
        return Buying(zones, subnets, status.capacity_reservations, group)

    @property
    def zone_ids(self) -> dict[str, str]:
        return {zone: subnets[0].zone_id for zone, subnets in self.subnets.items()}


@dataclass(frozen=True, slots=True)
class Offerings:
    """Makes the offerings of one type, as prices, refusals, shifts and reservations stand now."""

    prices: Prices
    unavailable: Unavailable
    reserved_left: Callable[[str], int] = lambda reservation: 0
    shifted: Callable[[str], bool] = never
    reserved_capacity: bool = True
    # Prices people gave for types that have none, by type.
    given_prices: Callable[[], Mapping[str, float]] = dict

    def of(
        self, facts: Facts, sold_in: tuple[str, ...], buying: Buying, compatible: bool
    ) -> tuple[Offering, ...]:
        """All of them, available or not; `sold_in` are the zones that sell the type."""
        zone_ids = buying.zone_ids
        open_zones = {
            zone for zone in sold_in if compatible and zone in zone_ids and not self.shifted(zone_ids[zone])
        }
        partitions = buying.group.partition_names if buying.group else ()
        made: list[Offering] = []
        for zone in buying.zones:
            zone_id = zone_ids.get(zone, "")
            subnets = tuple(subnet.id for subnet in buying.subnets.get(zone, ()))
            for way in (labels.ON_DEMAND, labels.SPOT):
                if way in facts.usage_classes:
                    price = self.price(way, facts.name, zone)
                    sellable = price is not None and zone in open_zones
                    made += (
                        Offering(
                            requirements=_requirements(way, zone, zone_id, partition),
                            price=price or 0.0,
                            available=sellable
                            and not self._refused(way, facts.name, zone, subnets, buying, partition),
                        )
                        for partition in partitions or ("",)
                    )
        return (*made, *self._reserved(facts, open_zones, zone_ids, buying, partitions or ("",)))

    def price(self, way: str, instance_type: str, zone: str) -> float | None:
        """By the hour; None while nobody knows one."""
        if way == labels.SPOT:
            known = self.prices.spot(instance_type, zone)
        else:
            known = self.prices.on_demand(instance_type)
        return self.given_prices().get(instance_type) if known is None else known

    def _refused(
        self, way: str, name: str, zone: str, subnets: tuple[str, ...], buying: Buying, partition: str
    ) -> bool:
        group = buying.group.id if buying.group else ""
        return self.unavailable.is_unavailable(way, name, zone, subnets, group, partition)

    def _reserved(
        self,
        facts: Facts,
        open_zones: set[str],
        zone_ids: Mapping[str, str],
        buying: Buying,
        partitions: tuple[str, ...],
    ) -> list[Offering]:
        if not self.reserved_capacity:
            return []
        price = (self.price(labels.ON_DEMAND, facts.name, "") or 0.0) / RESERVED_PART
        made = []
        for each in buying.reservations:
            if each.instance_type != facts.name:
                continue
            zone, left = each.availability_zone, self.reserved_left(each.id)
            made += [
                Offering(
                    requirements=_of_reservation(each, zone_ids.get(zone, ""), partition),
                    price=price,
                    available=left != 0 and zone in open_zones and each.state != EXPIRING,
                    reservation_id=each.id,
                    reservation_capacity=left,
                )
                for partition in partitions
            ]
        return made


@lru_cache(maxsize=4096)
def _requirements(way: str, zone: str, zone_id: str, partition: str) -> Requirements:
    return Requirements(
        {
            **_place(way, zone, zone_id, partition),
            labels.CAPACITY_RESERVATION_ID: NOTHING,
            labels.CAPACITY_RESERVATION_TYPE: NOTHING,
            labels.CAPACITY_RESERVATION_INTERRUPTIBLE: NOTHING,
        }
    )


def _of_reservation(each: CapacityReservation, zone_id: str, partition: str) -> Requirements:
    return Requirements(
        {
            **_place(labels.RESERVED, each.availability_zone, zone_id, partition),
            labels.CAPACITY_RESERVATION_ID: _only(each.id),
            labels.CAPACITY_RESERVATION_TYPE: _only(each.reservation_type),
            labels.CAPACITY_RESERVATION_INTERRUPTIBLE: _only("true" if each.interruptible else "false"),
        }
    )


def _place(way: str, zone: str, zone_id: str, partition: str) -> dict[str, Values]:
    found = {labels.CAPACITY_TYPE: _only(way), labels.ZONE: _only(zone)}
    if zone_id:
        found[labels.ZONE_ID] = _only(zone_id)
    if partition:
        found[labels.PLACEMENT_GROUP_PARTITION] = _only(partition)
    return found


@lru_cache(maxsize=4096)
def _only(value: str) -> Values:
    return Values(frozenset((value,)))
