"""A controller on the simulated AWS from its first pod to its last node, with the permissions it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from dovetail.zonal.controller.arc import ArcPoller
from support.aws import CLUSTER
from support.aws_world import CLASSES, POOLS, AwsWorld
from support.deployed_stack import Watched

__all__ = ["DENIED", "SPARE_IAM", "a_whole_life", "lived_with"]

Json = dict[str, Any]
DENIED = ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException")
SPARE_IAM = {
    # Profiles are tagged as they are made; the permission is for taking over one that was made without.
    ("AllowScopedInstanceProfileTagActions", "iam:TagInstanceProfile"),
}


async def a_whole_life(world: AwsWorld) -> None:
    """Pods of every way to pay, a reservation, a placement group, a warning, and the end."""
    held = world.aws.reservations.add("m5.large", "us-west-2a", 1, {"team": "web"})
    world.aws.placement_groups.add("near", "cluster")
    async with world.running():
        world.default(
            node_class={
                "capacityReservationSelectorTerms": [{"id": held.id}],
                "placementGroupSelector": {"name": "near"},
            },
            requirements=[
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}
            ],
        )
        world.pods(3, cpu="1", memory="1Gi")
        await world.until(lambda: world.placed() == 3, within=240)
        await world.until(lambda: world.claims and world.ready() == len(world.claims), within=120)
        world.aws.reclaim(world.aws.list_running()[0].id)
        await asyncio.sleep(300)
        await world.until(lambda: world.placed() >= 3, within=240)
        world.scale(0)
        for each in world.listed("capacitybuffers.autoscaling.x-k8s.io"):
            world.api.delete("capacitybuffers.autoscaling.x-k8s.io", each["metadata"]["name"], "default")
        await world.until(lambda: not world.claims and not world.nodes, within=900)
        world.api.delete(POOLS, "default")
        world.api.delete(CLASSES, "default")
        await world.until(lambda: not world.listed(CLASSES), within=900)


async def lived_with(documents: Sequence[Json]) -> tuple[set[str], set[tuple[str, str]]]:
    """What was denied to a controller with these policies, and what they grant that it never needed."""
    world = AwsWorld(0, f"--interruption-queue={CLUSTER}")
    world.aws.add_interruption_queue(CLUSTER)
    watched = Watched(documents)
    world.aws.principal = watched  # type: ignore[assignment]  # judges as a Principal does
    await a_whole_life(world)
    # Zonal shifts are followed by a service of their own.
    assert await ArcPoller(world.aws, CLUSTER, world.clock, Random(1)).poll_if_due(active=False)
    return {call.action for call in world.aws.calls if call.code in DENIED}, watched.unused
