"""What EC2 sells and for how much, without asking it: bundled prices, and spot prices by a rule of thumb.

Spot is around a third of on-demand in the median and 0.14 to 0.49 of it for most types, and differs by zone.
The estimate has that spread and is always the same for a type and a zone; it is no forecast for either.
"""

from __future__ import annotations

from binascii import crc32
from dataclasses import replace
from functools import cache
from itertools import pairwise

from dovetail.api import labels
from dovetail.api.nodeclass import EC2NodeClass, Subnet
from dovetail.errors import BadInput
from dovetail.providers.aws.catalog import NodeClassTerms, build_instance_type
from dovetail.providers.aws.compatibility import find_incompatibility
from dovetail.providers.aws.instance_type_info import (
    InstanceTypeInfo,
    bundled_facts,
    bundled_prices,
    bundled_regions,
    bundled_tables,
)
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.requirements import NOTHING, Requirements, parse_values

__all__ = ["DEFAULT_REGION", "estimate_spot", "list_offline_types"]

DEFAULT_REGION = "us-east-1"
# How spot relates to on-demand: (share of types below, share of the on-demand price).
SPREAD = ((0.0, 0.09), (0.1, 0.14), (0.5, 0.33), (0.9, 0.49), (1.0, 0.62))
ZONES_DIFFER_BY = 0.1


def list_offline_types(region: str, nodeclass: EC2NodeClass | None = None) -> tuple[InstanceType, ...]:
    """Every type the region sells, as a node class would see it; without subnets, in all its zones."""
    regions = bundled_regions()
    if region not in regions:
        raise BadInput(
            f"there are no facts about the region {region!r}; there are for {', '.join(sorted(regions))}"
        )
    terms = NodeClassTerms.from_node_class(nodeclass, region) if nodeclass else NodeClassTerms(region)
    if not terms.subnets:
        terms = replace(terms, subnets=tuple(Subnet(zone=zone) for zone in regions[region].zones))
    zones, tables = regions[region].zones_by_type(), bundled_tables()
    return tuple(
        build_instance_type(
            facts, terms, zones[facts.name], tables, _build_offerings(facts, terms, zones[facts.name])
        )
        for facts in bundled_facts()
        if facts.name in zones
    )


def _build_offerings(
    facts: InstanceTypeInfo, terms: NodeClassTerms, zones: tuple[str, ...]
) -> tuple[Offering, ...]:
    """Every zone that sells the type; only those where the class has a subnet are open to it."""
    on_demand = bundled_prices().get(facts.name)
    if on_demand is None:
        return ()
    capacity_types = [
        capacity_type
        for capacity_type in (labels.ON_DEMAND, labels.SPOT)
        if capacity_type in facts.usage_classes
    ]
    reachable = {subnet.zone for subnet in terms.subnets} if not find_incompatibility(facts, terms) else ()
    return tuple(
        Offering(
            requirements=_build_requirements(zone, capacity_type),
            price=on_demand
            if capacity_type == labels.ON_DEMAND
            else estimate_spot(facts.name, zone, on_demand),
            available=zone in reachable,
        )
        for zone in zones
        for capacity_type in capacity_types
    )


@cache
def _build_requirements(zone: str, capacity_type: str) -> Requirements:
    return Requirements(
        {
            labels.ZONE: parse_values("In", (zone,)),
            labels.CAPACITY_TYPE: parse_values("In", (capacity_type,)),
            labels.CAPACITY_RESERVATION_ID: NOTHING,
            labels.CAPACITY_RESERVATION_TYPE: NOTHING,
            labels.CAPACITY_RESERVATION_INTERRUPTIBLE: NOTHING,
        }
    )


def estimate_spot(name: str, zone: str, on_demand: float) -> float:
    """Dollars an hour, in steps of a hundredth of a cent as EC2 has them."""
    nearby = 1 + ZONES_DIFFER_BY * (2 * _draw_number(f"{name}/{zone}") - 1)
    return max(0.0001, round(on_demand * _find_share(_draw_number(name)) * nearby, 4))


def _draw_number(text: str) -> float:
    """A number in [0, 1) that is always the same for a text."""
    return crc32(text.encode()) / (1 << 32)


def _find_share(rank: float) -> float:
    for (low, least), (high, most) in pairwise(SPREAD):
        if rank <= high:
            return least + (most - least) * (rank - low) / (high - low)
    return SPREAD[-1][1]
