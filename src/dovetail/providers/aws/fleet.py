"""One request to EC2 Fleet, and what its answer means. Pure: nothing is asked here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.aws import Answer
from dovetail.providers.aws.filters import CAPACITY_BLOCK, KNOWN
from dovetail.providers.aws.launcherrors import FleetError
from dovetail.providers.aws.network import Choice
from dovetail.providers.aws.templates import Template
from dovetail.scheduling.catalog import InstanceType, Offering, usable
from dovetail.scheduling.requirements import Requirements, Values

__all__ = [
    "Market",
    "Started",
    "capacity_type_for",
    "configurations",
    "fleet_request",
    "market_of",
    "read_answer",
    "tenancy_for",
    "with_capacity_type",
]

DEFAULT_TENANCY, DEDICATED_TENANCY = "default", "dedicated"
INTERRUPTIBLE_RESERVATION = "interruptible-capacity-reservation"
# What EC2 takes in one fleet.
MOST_OVERRIDES = 300
MOST_CONFIGURATIONS = 50
TAGGED = ("instance", "volume", "fleet")


@dataclass(frozen=True, slots=True)
class Market:
    """How a fleet buys: its target capacity type, and the option that says how to choose."""

    target: str
    options: str = ""
    strategy: str = ""
    prioritized: str = ""

    def chooses(self, by_priority: bool) -> dict[str, Any]:
        if self.target == "reserved-capacity":
            return {"ReservedCapacityOptions": {"ReservationTypes": [INTERRUPTIBLE_RESERVATION]}}
        if not self.options:
            return {}
        return {self.options: {"AllocationStrategy": self.prioritized if by_priority else self.strategy}}


ON_DEMAND = Market("on-demand", "OnDemandOptions", "lowest-price", "prioritized")
SPOT = Market("spot", "SpotOptions", "price-capacity-optimized", "capacity-optimized-prioritized")
INTERRUPTIBLE = Market("reserved-capacity")
BLOCK = Market("capacity-block")


@dataclass(frozen=True, slots=True)
class Started:
    """An instance a fleet started."""

    id: str
    instance_type: str = ""
    zone: str = ""
    subnet: str = ""
    image: str = ""


def capacity_type_for(types: Sequence[InstanceType], requirements: Requirements) -> str:
    """Reserved if it can be had, else spot, else on-demand."""
    for way in (labels.RESERVED, labels.SPOT):
        if way in requirements[labels.CAPACITY_TYPE] and any(
            offering.capacity_type == way for each in types for offering in usable(each, requirements, KNOWN)
        ):
            return way
    return labels.ON_DEMAND


def with_capacity_type(requirements: Requirements, way: str) -> Requirements:
    return requirements.replacing(labels.CAPACITY_TYPE, Values(frozenset((way,))))


def tenancy_for(requirements: Requirements) -> str:
    """Shared hardware wherever that is allowed."""
    return DEFAULT_TENANCY if DEFAULT_TENANCY in requirements[labels.INSTANCE_TENANCY] else DEDICATED_TENANCY


def market_of(way: str, offerings: Sequence[Offering]) -> Market:
    """How to buy these offerings, which are all of one capacity type and, if reserved, of one kind."""
    if way == labels.SPOT:
        return SPOT
    if way == labels.RESERVED and offerings:
        known = offerings[0].requirements
        if known[labels.CAPACITY_RESERVATION_TYPE].only == CAPACITY_BLOCK:
            return BLOCK
        if known[labels.CAPACITY_RESERVATION_INTERRUPTIBLE].only == "true":
            return INTERRUPTIBLE
    return ON_DEMAND


def configurations(
    templates: Sequence[Template], requirements: Requirements, choice: Choice
) -> list[dict[str, Any]]:
    """For each template every type and zone it may start; templates that can start nothing are left out.

    EC2 takes so many templates and overrides and no more: beyond that the dearest go, and of the overrides
    no type's cheapest.
    """
    made = [(template, list(_overrides(template, requirements, choice))) for template in templates]
    found = [each for each in made if each[1]]
    if len(found) > MOST_CONFIGURATIONS:
        found = nsmallest(MOST_CONFIGURATIONS, found, key=lambda each: min(map(_price, each[1])))
    kept = _kept([override for _, overrides in found for override in overrides])
    return [
        {
            "LaunchTemplateSpecification": {"LaunchTemplateName": template.name, "Version": "$Latest"},
            "Overrides": [override for override in overrides if id(override) in kept],
        }
        for template, overrides in found
    ]


def _kept(overrides: Sequence[dict[str, Any]]) -> set[int]:
    """The overrides that fit into one fleet: the cheapest of every type first, then the cheapest of all."""
    ranked = sorted(overrides, key=_price)
    seen: set[str] = set()
    first: list[int] = []
    rest: list[int] = []
    for override in ranked:
        (rest if override["InstanceType"] in seen else first).append(id(override))
        seen.add(override["InstanceType"])
    return set((first + rest)[:MOST_OVERRIDES])


def _price(override: Mapping[str, Any]) -> float:
    price: float = override["Priority"]
    return price


def _overrides(template: Template, requirements: Requirements, choice: Choice) -> Iterator[dict[str, Any]]:
    done: set[tuple[str, str]] = set()
    for each in template.types:
        for offering in usable(each, requirements, KNOWN):
            place = each.name, offering.zone
            other_reservation = template.reservation_id and offering.reservation_id != template.reservation_id
            if place in done or offering.zone not in choice.by_zone or other_reservation:
                continue
            done.add(place)
            yield {
                "InstanceType": each.name,
                "SubnetId": choice.by_zone[offering.zone].id,
                "ImageId": template.image_id,
                # The subnet says it already, but refusals name the zone only if the request did.
                "AvailabilityZone": offering.zone,
                "Priority": offering.price,
            }


def fleet_request(
    node_class: EC2NodeClass,
    claim: NodeClaim,
    configured: Sequence[Mapping[str, Any]],
    market: Market,
    tags: Mapping[str, str],
) -> dict[str, Any]:
    """What is asked for one instance; equal requests are merged into one fleet on their way."""
    listed = [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
    request: dict[str, Any] = {
        "Type": "instant",
        "LaunchTemplateConfigs": list(configured),
        "TargetCapacitySpecification": {
            "DefaultTargetCapacityType": market.target,
            "TotalTargetCapacity": 1,
        },
        "TagSpecifications": [{"ResourceType": kind, "Tags": listed} for kind in TAGGED],
        **market.chooses(labels.PRICE_OVERLAY_APPLIED in claim.annotations),
    }
    relaxed = claim.annotations.get(labels.MIN_VALUES_RELAXED) == labels.TRUE
    if node_class.spec.context and not relaxed:
        request["Context"] = node_class.spec.context
    return request


def read_answer(answer: Answer) -> tuple[Started | None, tuple[FleetError, ...]]:
    """The instance, if there is one, and every refusal on the way to it."""
    started = next(
        (
            _started(group, instance_id)
            for group in answer.get("Instances") or ()
            for instance_id in group.get("InstanceIds") or ()
        ),
        None,
    )
    return started, tuple(_refusal(each) for each in answer.get("Errors") or ())


def _started(group: Mapping[str, Any], instance_id: str) -> Started:
    override = _override(group)
    return Started(
        id=instance_id,
        instance_type=group.get("InstanceType") or override.get("InstanceType", ""),
        zone=override.get("AvailabilityZone", ""),
        subnet=override.get("SubnetId", ""),
        image=override.get("ImageId", ""),
    )


def _refusal(error: Mapping[str, Any]) -> FleetError:
    override = _override(error)
    return FleetError(
        code=error.get("ErrorCode", ""),
        message=error.get("ErrorMessage", ""),
        instance_type=override.get("InstanceType", ""),
        zone=override.get("AvailabilityZone", ""),
        subnet=override.get("SubnetId", ""),
    )


def _override(part: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (part.get("LaunchTemplateAndOverrides") or {}).get("Overrides") or {}
    return found
