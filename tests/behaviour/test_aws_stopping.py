"""A machine that someone stops is as good as gone: its claim is deleted and its pods get another."""

from __future__ import annotations

from support.aws import CLUSTER
from support.aws_world import AwsWorld
from support.stage import virtual


@virtual
async def test_a_machine_that_is_stopped_is_replaced() -> None:
    world = AwsWorld(0, f"--interruption-queue={CLUSTER}")
    world.aws.add_interruption_queue(CLUSTER)
    async with world.running():
        world.default()
        world.pods(1, cpu="1")
        await world.until(lambda: world.placed() == 1 and world.ready() == 1, within=240)
        (claim,) = world.claims
        machine = world.aws.list_running()[0]
        detail = {"instance-id": machine.id, "state": "stopping"}
        world.aws.buses.emit_event("aws.ec2", "EC2 Instance State-change Notification", detail, [machine.id])
        await world.until(lambda: "InstanceStopping" in world.events(), within=120)
        await world.until(
            lambda: world.placed() == 1 and [each for each in world.claims if each != claim], within=600
        )
        await world.until(
            lambda: claim["metadata"]["uid"] not in {each["metadata"]["uid"] for each in world.claims},
            within=600,
        )

        assert {"InstanceStopping", "TerminatingOnInterruption"} <= set(world.events())
