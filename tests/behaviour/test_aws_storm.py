"""Ten thousand messages at once: every one that matters is acted upon once, and none is lost on the way."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.sim.aws import SimulatedAws
from support.ec2_instances import MachineScene, disrupted
from support.interruption_messages import claims, messages
from support.stage import sample, virtual

READER = "interruption"
MANY, OURS, MALFORMED = 10_000, 150, 40
KINDS = ("spot_interrupted", "instance_stopped")


def ended(scene: MachineScene) -> float:
    return sum(disrupted(reason=kind, capacity_type="spot") for kind in KINDS)


async def drained(scene: MachineScene, left: int) -> int:
    """Passes until only so many are left, as the manager would make them."""
    passes = 0
    while scene.waiting > left:
        await scene.controller(READER).reconcile("")
        passes += 1
        assert passes < 1000
    await scene.heard()
    return passes


@virtual
async def test_none_of_ten_thousand_messages_is_lost() -> None:
    async with MachineScene().still() as scene:
        ours = claims(scene, OURS)
        await scene.heard()
        before, received = (
            ended(scene),
            sample("karpenter_interruption_received_messages_total", message_type="no_op"),
        )
        scene.tell(*messages(scene, ours, MANY, malformed=MALFORMED))
        passes = await drained(scene, MALFORMED)
        assert all(scene.deleting(each) for each in ours)
        assert ended(scene) - before == OURS  # each once, though many were told of twice
        assert sample("karpenter_interruption_received_messages_total", message_type="no_op") > received
        assert scene.waiting == MALFORMED  # kept for the dead letters
        assert passes <= MANY / 100 + 5


@pytest.mark.parametrize("seed", range(3))
def test_killed_in_the_middle_nothing_is_lost(seed: int) -> None:
    @virtual
    async def story() -> None:
        async with MachineScene(seed=seed).still() as scene:
            ours = claims(scene, 60)
            await scene.heard()
            before = ended(scene)
            scene.tell(*messages(scene, ours, 2_000, malformed=10, seed=seed))
            scene.aws.faults.latency = (0.001, 0.02)
            # Wherever it is: reading, acting, deleting.
            for tenths in (1, 3, 7, 2, 5):
                reading = asyncio.create_task(_on_and_on(scene))
                await asyncio.sleep(tenths / 100)
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                await scene.restart()
                await scene.pass_(2)  # nothing is read before the caches are full
            await scene.pass_(21)  # what was in someone's hands comes back
            scene.aws.faults.latency = (0.0, 0.0)
            await drained(scene, 10)
            assert all(scene.deleting(each) for each in ours)
            assert ended(scene) - before == len(ours)
            assert scene.waiting == 10

    story()


async def _on_and_on(scene: MachineScene) -> None:
    while True:
        await scene.controller(READER).reconcile("")


async def one_by_one(aws: SimulatedAws, url: str) -> None:
    """As plainly as it can be done: take one, delete one."""
    while True:
        answer = await aws.call("sqs", "ReceiveMessage", {"QueueUrl": url, "MaxNumberOfMessages": 1})
        if not answer.get("Messages"):
            return
        (message,) = answer["Messages"]
        await aws.call("sqs", "DeleteMessage", {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]})


@virtual
async def test_a_full_queue_is_emptied_many_times_faster_than_one_by_one() -> None:
    async with MachineScene().still() as scene:
        bodies = messages(scene, [], 1_000, malformed=0)
        scene.aws.faults.latency = (0.02, 0.02)
        scene.tell(*bodies)
        began = scene.clock.monotonic()
        await drained(scene, 0)
        together = scene.clock.monotonic() - began
        scene.tell(*bodies)
        began = scene.clock.monotonic()
        await one_by_one(scene.aws, scene.queue.url)
        assert scene.clock.monotonic() - began > 5 * together
