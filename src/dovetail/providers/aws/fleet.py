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
from dovetail.providers.aws.launch_errors import FleetError
from dovetail.providers.aws.launch_templates import LaunchTemplate
from dovetail.providers.aws.network import SubnetChoice
from dovetail.providers.aws.type_filters import CAPACITY_BLOCK, KNOWN
from dovetail.scheduling.model.instance_types import InstanceType, Offering, list_usable_offerings
from dovetail.scheduling.model.requirements import Requirements, Values

__all__ = [
    "FleetTarget",
    "LaunchedInstance",
    "build_configurations",
    "choose_capacity_type",
    "choose_target",
    "choose_tenancy",
    "fleet_request",
    "read_answer",
    "with_capacity_type",
]

DEFAULT_TENANCY, DEDICATED_TENANCY = "default", "dedicated"
INTERRUPTIBLE_RESERVATION = "interruptible-capacity-reservation"
# What EC2 takes in one fleet.
MOST_OVERRIDES = 300
MOST_CONFIGURATIONS = 50
TAGGED = ("instance", "volume", "fleet")


@dataclass(frozen=True, slots=True)
class FleetTarget:
    """How a fleet buys: its target capacity type, and the option that says how to choose."""

    target: str
    options: str = ""
    strategy: str = ""
    prioritized: str = ""

    def build_options(self, by_priority: bool) -> dict[str, Any]:
        if self.target == "reserved-capacity":
            return {"ReservedCapacityOptions": {"ReservationTypes": [INTERRUPTIBLE_RESERVATION]}}
        if not self.options:
            return {}
        return {self.options: {"AllocationStrategy": self.prioritized if by_priority else self.strategy}}


ON_DEMAND = FleetTarget("on-demand", "OnDemandOptions", "lowest-price", "prioritized")
SPOT = FleetTarget("spot", "SpotOptions", "price-capacity-optimized", "capacity-optimized-prioritized")
INTERRUPTIBLE = FleetTarget("reserved-capacity")
BLOCK = FleetTarget("capacity-block")


@dataclass(frozen=True, slots=True)
class LaunchedInstance:
    """An instance a fleet started."""

    id: str
    instance_type: str = ""
    zone: str = ""
    subnet: str = ""
    image: str = ""


def choose_capacity_type(types: Sequence[InstanceType], requirements: Requirements) -> str:
    """Reserved if it can be had, else spot, else on-demand."""
    for capacity_type in (labels.RESERVED, labels.SPOT):
        if capacity_type in requirements[labels.CAPACITY_TYPE] and any(
            offering.capacity_type == capacity_type
            for each in types
            for offering in list_usable_offerings(each, requirements, KNOWN)
        ):
            return capacity_type
    return labels.ON_DEMAND


def with_capacity_type(requirements: Requirements, capacity_type: str) -> Requirements:
    return requirements.replace_key(labels.CAPACITY_TYPE, Values(frozenset((capacity_type,))))


def choose_tenancy(requirements: Requirements) -> str:
    """Shared hardware wherever that is allowed."""
    return DEFAULT_TENANCY if DEFAULT_TENANCY in requirements[labels.INSTANCE_TENANCY] else DEDICATED_TENANCY


def choose_target(capacity_type: str, offerings: Sequence[Offering]) -> FleetTarget:
    """How to buy these offerings, which are all of one capacity type and, if reserved, of one kind."""
    if capacity_type == labels.SPOT:
        return SPOT
    if capacity_type == labels.RESERVED and offerings:
        known = offerings[0].requirements
        if known[labels.CAPACITY_RESERVATION_TYPE].only == CAPACITY_BLOCK:
            return BLOCK
        if known[labels.CAPACITY_RESERVATION_INTERRUPTIBLE].only == "true":
            return INTERRUPTIBLE
    return ON_DEMAND


def build_configurations(
    templates: Sequence[LaunchTemplate], requirements: Requirements, choice: SubnetChoice
) -> list[dict[str, Any]]:
    """For each template every type and zone it may start; templates that can start nothing are left out.

    EC2 takes so many templates and overrides and no more: beyond that the dearest go, and of the overrides
    no type's cheapest.
    """
    made = [(template, list(_list_overrides(template, requirements, choice))) for template in templates]
    found = [each for each in made if each[1]]
    if len(found) > MOST_CONFIGURATIONS:
        found = nsmallest(MOST_CONFIGURATIONS, found, key=lambda each: min(map(_read_price, each[1])))
    kept = _choose_overrides([override for _, overrides in found for override in overrides])
    return [
        {
            "LaunchTemplateSpecification": {"LaunchTemplateName": template.name, "Version": "$Latest"},
            "Overrides": [override for override in overrides if id(override) in kept],
        }
        for template, overrides in found
    ]


def _choose_overrides(overrides: Sequence[dict[str, Any]]) -> set[int]:
    """The overrides that fit into one fleet: the cheapest of every type first, then the cheapest of all."""
    ranked = sorted(overrides, key=_read_price)
    seen: set[str] = set()
    first: list[int] = []
    rest: list[int] = []
    for override in ranked:
        (rest if override["InstanceType"] in seen else first).append(id(override))
        seen.add(override["InstanceType"])
    return set((first + rest)[:MOST_OVERRIDES])


def _read_price(override: Mapping[str, Any]) -> float:
    price: float = override["Priority"]
    return price


def _list_overrides(
    template: LaunchTemplate, requirements: Requirements, choice: SubnetChoice
) -> Iterator[dict[str, Any]]:
    done: set[tuple[str, str]] = set()
    for each in template.types:
        for offering in list_usable_offerings(each, requirements, KNOWN):
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
    target: FleetTarget,
    tags: Mapping[str, str],
) -> dict[str, Any]:
    """What is asked for one instance; equal requests are merged into one fleet on their way."""
    listed = [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
    request: dict[str, Any] = {
        "Type": "instant",
        "LaunchTemplateConfigs": list(configured),
        "TargetCapacitySpecification": {
            "DefaultTargetCapacityType": target.target,
            "TotalTargetCapacity": 1,
        },
        "TagSpecifications": [{"ResourceType": kind, "Tags": listed} for kind in TAGGED],
        **target.build_options(labels.PRICE_OVERLAY_APPLIED in claim.annotations),
    }
    relaxed = claim.annotations.get(labels.MIN_VALUES_RELAXED) == labels.TRUE
    if node_class.spec.context and not relaxed:
        request["Context"] = node_class.spec.context
    return request


def read_answer(answer: Answer) -> tuple[LaunchedInstance | None, tuple[FleetError, ...]]:
    """The instance, if there is one, and every refusal on the way to it."""
    started = next(
        (
            _read_instance(group, instance_id)
            for group in answer.get("Instances") or ()
            for instance_id in group.get("InstanceIds") or ()
        ),
        None,
    )
    return started, tuple(_read_error(each) for each in answer.get("Errors") or ())


def _read_instance(group: Mapping[str, Any], instance_id: str) -> LaunchedInstance:
    override = _find_override(group)
    return LaunchedInstance(
        id=instance_id,
        instance_type=group.get("InstanceType") or override.get("InstanceType", ""),
        zone=override.get("AvailabilityZone", ""),
        subnet=override.get("SubnetId", ""),
        image=override.get("ImageId", ""),
    )


def _read_error(error: Mapping[str, Any]) -> FleetError:
    override = _find_override(error)
    return FleetError(
        code=error.get("ErrorCode", ""),
        message=error.get("ErrorMessage", ""),
        instance_type=override.get("InstanceType", ""),
        zone=override.get("AvailabilityZone", ""),
        subnet=override.get("SubnetId", ""),
    )


def _find_override(part: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (part.get("LaunchTemplateAndOverrides") or {}).get("Overrides") or {}
    return found
