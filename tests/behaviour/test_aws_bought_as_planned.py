"""EC2 is asked for what was planned: a pod waits, a claim names types, and one of the cheapest comes."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import labels
from support.aws_world import AwsWorld
from support.stage import virtual

C5 = tuple(f"c5.{size}" for size in ("large", "xlarge", "2xlarge", "4xlarge", "9xlarge", "18xlarge"))
ON_DEMAND = {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}


def custom(world: AwsWorld) -> dict[str, Any]:
    """An image of one's own, whose user data says nothing of the kubelet."""
    image = world.aws.images.add("golden")
    return {"amiFamily": "Custom", "amiSelectorTerms": [{"id": image.id}], "userData": "#!/bin/sh\njoin\n"}


def by_core(world: AwsWorld) -> dict[str, Any]:
    """As many pods as cores allow, which the kubelet works out by itself."""
    return {"kubelet": {"maxPods": 110, "podsPerCore": 8}}


def types_of(claim: dict[str, Any]) -> set[str]:
    (named,) = (each for each in claim["spec"]["requirements"] if each["key"] == labels.INSTANCE_TYPE)
    return set(named["values"])


@pytest.mark.parametrize("described", [custom, by_core])
@virtual
async def test_types_that_share_a_template_all_reach_the_fleet_and_the_cheapest_comes(described: Any) -> None:
    async with AwsWorld(types=C5).running() as world:
        world.default(node_class=described(world), requirements=[ON_DEMAND])
        world.pods(1, cpu="1", memory="1Gi")
        await world.until(world.aws.list_running, within=120)
        (claim,), (machine,) = world.claims, world.aws.list_running()
        planned = types_of(claim)
        (fleet,) = (
            call.parameters
            for call in world.aws.calls
            if call.operation == "CreateFleet" and "DryRun" not in call.parameters
        )
        asked = [each["InstanceType"] for one in fleet["LaunchTemplateConfigs"] for each in one["Overrides"]]
        assert set(asked) == planned == set(C5)
        prices = {name: world.aws.prices.on_demand_price(name) or 0.0 for name in planned}
        assert prices[machine.type] == min(prices.values()) == prices["c5.large"] > 0
