"""What is asked of EC2 for each kind of capacity, and that EC2's own model would take it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from botocore.session import get_session
from botocore.validate import ParamValidator

from dovetail.api import labels
from dovetail.api.nodeclass import (
    CapacityReservationSelectorTerm,
    NetworkInterface,
    PlacementGroupSelector,
    Subnet,
)
from dovetail.providers.aws.fleet import MOST_CONFIGURATIONS, MOST_OVERRIDES, build_configurations
from dovetail.providers.aws.launch_templates import LaunchTemplate
from dovetail.providers.aws.network import SubnetChoice
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.requirements import Requirements, parse_values
from dovetail.sim.aws.cloud import RecordedCall
from support.aws_world import AwsWorld
from support.ec2 import Ec2, provided
from support.stage import virtual

A = "us-west-2a"
RESERVING = (CapacityReservationSelectorTerm(tags={"team": "x"}),)


def complaints(calls: Iterable[RecordedCall]) -> list[str]:
    """What botocore's models of the services would refuse to send."""
    session, found = get_session(), []
    for call in calls:
        shape = session.get_service_model(call.service).operation_model(call.operation).input_shape
        report = ParamValidator().validate(dict(call.parameters), shape)
        found += [f"{call.operation}: {report.generate_report()}"] if report.has_errors() else []
    return found


def market(ec2: Ec2) -> dict[str, Any]:
    asked = ec2.asked("CreateFleet")[-1]
    kept = ("OnDemandOptions", "SpotOptions", "ReservedCapacityOptions")
    target = asked["TargetCapacitySpecification"]
    return {"target": target["DefaultTargetCapacityType"]} | {key: asked[key] for key in kept if key in asked}


@virtual
async def test_each_kind_of_reservation_is_bought_in_its_own_way() -> None:
    for more, expected in (
        ({}, {"target": "on-demand", "OnDemandOptions": {"AllocationStrategy": "lowest-price"}}),
        (
            {"interruptible": True},
            {
                "target": "reserved-capacity",
                "ReservedCapacityOptions": {"ReservationTypes": ["interruptible-capacity-reservation"]},
            },
        ),
        ({"kind": "capacity-block"}, {"target": "capacity-block"}),
    ):
        ec2 = await provided()
        ends = ec2.clock.now() + timedelta(days=1)
        about: dict[str, Any] = dict(more)
        ec2.aws.reservations.add("m5.large", A, 2, {"team": "x"}, ends=ends, **about)
        await ec2.apply(capacity_reservation_selector_terms=RESERVING)
        _, instance = await ec2.launched((labels.INSTANCE_TYPE, "In", "m5.large"))
        assert instance.labels[labels.CAPACITY_TYPE] == "reserved"
        assert market(ec2) == expected
        assert complaints(ec2.aws.calls) == []


@virtual
async def test_every_request_of_a_launch_is_one_ec2_would_take() -> None:
    ec2 = await provided(prices=True, context="ctx-1", tags={"team": "x"})
    cards = (
        NetworkInterface(network_card_index=0, device_index=0, interface_type="interface"),
        NetworkInterface(network_card_index=0, device_index=1, interface_type="efa-only"),
    )
    await ec2.aws.call("ec2", "CreatePlacementGroup", {"GroupName": "tight", "Strategy": "cluster"})
    await ec2.apply(network_interfaces=cards, placement_group_selector=PlacementGroupSelector(name="tight"))
    claim, _ = await ec2.launched((labels.INSTANCE_TYPE, "In", "p5.48xlarge", "m6idn.32xlarge"))
    await ec2.clock.sleep(60)
    await ec2.cloud.list()
    await ec2.cloud.delete(claim)
    assert complaints(ec2.aws.calls) == []


@virtual
async def test_every_request_of_a_whole_day_is_one_aws_would_take() -> None:
    async with AwsWorld(types=("m5.large", "m5.xlarge")).running() as world:
        world.default()
        world.pods(2, cpu="1")
        await world.until(lambda: world.ready() == len(world.claims) > 0, within=240)
        world.scale(0)
        await world.until(lambda: not world.aws.list_running(), within=900)
        assert complaints(world.aws.calls) == []
        assert len({call.operation for call in world.aws.calls}) > 15


def priced(name: str, prices: Sequence[float]) -> InstanceType:
    """A type that is sold on demand in the zones z0, z1, … at these prices."""
    offerings = tuple(
        Offering(
            requirements=Requirements(
                {
                    labels.ZONE: parse_values("In", (f"z{zone}",)),
                    labels.CAPACITY_TYPE: parse_values("In", ("on-demand",)),
                }
            ),
            price=price,
        )
        for zone, price in enumerate(prices)
    )
    return InstanceType(name=name, offerings=offerings)


def choice_of(zones: int) -> SubnetChoice:
    return SubnetChoice({f"z{zone}": Subnet(id=f"subnet-{zone}", zone=f"z{zone}") for zone in range(zones)})


def names(made: Sequence[Mapping[str, Any]]) -> list[str]:
    return [each["LaunchTemplateSpecification"]["LaunchTemplateName"] for each in made]


@pytest.mark.parametrize("zones", [2, 6])
def test_more_overrides_than_ec2_takes_lose_the_dearest_and_no_type(zones: int) -> None:
    types = tuple(priced(f"m{n}", [n + zone / 10 for zone in range(zones)]) for n in range(60))
    templates = [LaunchTemplate("one", "ami-1", types[::2]), LaunchTemplate("two", "ami-2", types[1::2])]
    made = build_configurations(templates, Requirements(), choice_of(zones))
    overrides = [each for config in made for each in config["Overrides"]]
    prices = sorted(each["Priority"] for each in overrides)
    assert {each["InstanceType"] for each in overrides} == {each.name for each in types}
    least = [min(o.price for o in each.offerings) for each in types]
    others = sorted(o.price for each in types for o in each.offerings if o.price not in least)
    assert len(prices) == min(MOST_OVERRIDES, 60 * zones)
    assert prices == sorted(least + others[: len(prices) - len(least)])
    assert names(made) == ["one", "two"]


def test_more_templates_than_ec2_takes_lose_the_dearest() -> None:
    templates = [LaunchTemplate(f"t{n}", "ami-1", (priced(f"m{n}", [float(n)]),)) for n in range(60)]
    made = build_configurations(templates[::-1], Requirements(), choice_of(1))
    assert sorted(names(made)) == sorted(f"t{n}" for n in range(MOST_CONFIGURATIONS))


def test_configurations_of_one_template_do_not_overwrite_each_other() -> None:
    templates = [LaunchTemplate("one", "ami-1", (priced(name, [1.0]),)) for name in ("m1", "m2")]
    made = build_configurations(templates, Requirements(), choice_of(1))
    assert [each["InstanceType"] for config in made for each in config["Overrides"]] == ["m1", "m2"]
