"""The controller does with exactly the actions its policies grant: every request is put before IAM."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.aws import AwsDenied
from support.aws import CLUSTER, fleet, template
from support.aws_policies import controller, granted
from support.awsworld import CLASSES, POOLS, AwsWorld
from support.stage import virtual

# Granted and perhaps not asked for: profiles are tagged as they are made, and the zonal shift is read by
# the zonal controllers alone.
SPARE = {"iam:TagInstanceProfile", "arc-zonal-shift:GetManagedResource"}
DENIED = ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException")


@pytest.mark.spec("operations-12.2")
@virtual
async def test_a_whole_life_needs_every_action_that_is_granted_and_no_other() -> None:
    world = AwsWorld(0, f"--interruption-queue={CLUSTER}", "--enable-zonal-shift")
    world.aws.interruption_queue(CLUSTER)
    principal = world.aws.principal = controller()
    held = world.aws.reservations.add("m5.large", "us-west-2a", 1, {"team": "web"})
    world.aws.placement_groups.add("near", "cluster")
    async with world.running():
        terms = [{"id": held.id}]
        world.default(
            node_class={
                "capacityReservationSelectorTerms": terms,
                "placementGroupSelector": {"name": "near"},
            },
            requirements=[
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}
            ],
        )
        world.pods(3, cpu="1", memory="1Gi")
        await world.until(lambda: world.placed() == 3, within=240)
        await world.until(lambda: world.claims and world.ready() == len(world.claims), within=120)
        world.aws.reclaim(world.aws.running()[0].id)
        await asyncio.sleep(300)
        await world.until(lambda: world.placed() >= 3, within=240)
        world.scale(0)
        await world.until(lambda: not world.claims and not world.nodes, within=900)
        world.api.delete(POOLS, "default")
        world.api.delete(CLASSES, "default")
        await world.until(lambda: not world.listed(CLASSES), within=900)
    denied = [call for call in world.aws.calls if call.code in DENIED]
    assert not denied
    allowed = granted(principal)
    assert world.aws.actions <= allowed
    assert allowed - world.aws.actions <= SPARE


@virtual
async def test_what_is_not_granted_is_refused_by_name() -> None:
    world = AwsWorld()
    await template(world.aws)
    world.aws.principal = controller()
    with pytest.raises(
        AwsDenied, match="ec2:CreateFleet on resource: arn:aws:ec2:us-west-2:111122223333:fleet"
    ):
        await fleet(world.aws)
    with pytest.raises(AwsDenied, match="ssm:GetParameter"):
        await world.aws.call("ssm", "GetParameter", {"Name": "/mine"})
    with pytest.raises(AwsDenied):
        await world.aws.at(region="eu-west-1").call("ec2", "DescribeSubnets", {})
