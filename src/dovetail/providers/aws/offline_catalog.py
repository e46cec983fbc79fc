"""What EC2 sells and for how much, without asking it: bundled prices, and spot prices by a bounded model.

Real spot prices are around a third of on-demand in the median, differ by type, zone and day, and some are
far below. Which ones nobody knows without asking, and a plan that sits on a guessed outlier is worth nothing:
so the share of the on-demand price follows from generation and category alone, and lies between 0.32 and
0.48 for every type and zone. It is an estimate, marked as one, and no forecast.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from math import inf

from dovetail.api import labels
from dovetail.api.nodeclass import EC2NodeClass, Subnet
from dovetail.errors import BadInput
from dovetail.providers.aws.catalog import NodeClassTerms, build_instance_type
from dovetail.providers.aws.compatibility import find_incompatibility
from dovetail.providers.aws.instance_type_info import (
    BUNDLED_REGION,
    InstanceTypeInfo,
    bundled_facts,
    bundled_prices,
    bundled_regions,
    bundled_tables,
)
from dovetail.providers.aws.node_extras import NO_EXTRAS, ClassExtras, find_class_extras
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.requirements import NOTHING, Requirements, parse_values

__all__ = ["check_region_prices", "estimate_spot", "find_spot_share", "list_offline_types"]

# How spot relates to on-demand, by the newest generation that a share is for: newer ones are in more demand.
SHARES = ((4, 0.32), (5, 0.34), (6, 0.36), (7, 0.38), (inf, 0.40))
# Types with GPUs and the like are scarcer.
ACCELERATED = frozenset(("dl", "f", "g", "gr", "inf", "p", "trn", "vt"))
ACCELERATED_MORE = 0.08
_NAME = re.compile(r"([a-z]+)(?:-[0-9]+tb)?([0-9]+)")


def list_offline_types(
    region: str,
    nodeclass: EC2NodeClass | None = None,
    *,
    assumed_region: str = "",
    extras: bool = False,
) -> tuple[InstanceType, ...]:
    """Every type the region sells, as a node class would see it; without subnets, in all its zones.

    Where a region's prices are not known, those of `assumed_region` stand in, marked as estimates; where none
    is given, nothing is guessed. With `extras`, prices are those of whole nodes.
    """
    regions = bundled_regions()
    if region not in regions:
        raise BadInput(
            f"there are no facts about the region {region!r}; there are for {', '.join(sorted(regions))}"
        )
    check_region_prices(region, assumed_region)
    terms = NodeClassTerms.from_node_class(nodeclass, region) if nodeclass else NodeClassTerms(region)
    if not terms.subnets:
        terms = replace(terms, subnets=tuple(Subnet(zone=zone) for zone in regions[region].zones))
    zones, tables = regions[region].zones_by_type(), bundled_tables()
    beside = find_class_extras(nodeclass, region, regions[region].zones) if extras else NO_EXTRAS
    return tuple(
        build_instance_type(
            facts, terms, zones[facts.name], tables, _build_offerings(facts, terms, zones[facts.name], beside)
        )
        for facts in bundled_facts()
        if facts.name in zones
    )


def check_region_prices(region: str, assumed_region: str) -> None:
    """BadInput where prices would have to be guessed, and nobody asked for that."""
    if assumed_region and assumed_region != BUNDLED_REGION:
        raise BadInput(
            f"there are no prices of {assumed_region} here to assume; write {BUNDLED_REGION}, or give a "
            "catalogue file with prices"
        )
    if region != BUNDLED_REGION and not assumed_region:
        raise BadInput(
            f"there are no prices of {region} here, only of {BUNDLED_REGION}; plan with --live to ask AWS, "
            f"give a catalogue file, or take those by --assume-region-prices {BUNDLED_REGION}"
        )


def _build_offerings(
    facts: InstanceTypeInfo, terms: NodeClassTerms, zones: tuple[str, ...], extras: ClassExtras
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
    assumed = terms.region != BUNDLED_REGION
    return tuple(
        extras.price_offering(
            Offering(
                requirements=_build_requirements(zone, capacity_type),
                price=on_demand
                if capacity_type == labels.ON_DEMAND
                else estimate_spot(facts.name, on_demand),
                available=zone in reachable,
                price_estimated=assumed or capacity_type == labels.SPOT,
            )
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


def estimate_spot(name: str, on_demand: float) -> float:
    """Dollars an hour, in steps of a hundredth of a cent as EC2 has them; the same in every zone."""
    return max(0.0001, round(on_demand * find_spot_share(name), 4))


def find_spot_share(name: str) -> float:
    """The share of the on-demand price that spot is taken to cost, by the type's generation and category."""
    named = _NAME.match(name)
    category, generation = (named[1], int(named[2])) if named else ("", 0)
    share = next(share for newest, share in SHARES if generation <= newest)
    return share + (ACCELERATED_MORE if category in ACCELERATED else 0.0)
