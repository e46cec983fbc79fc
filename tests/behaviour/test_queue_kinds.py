"""Every kind of message in the queue: told as it should be, acted upon or not, and gone at the end."""

from __future__ import annotations

import pytest

from support.ec2_instances import MachineScene, Owned, event, spot_warning, state_change
from support.stage import sample, virtual

READER = "interruption"
RECEIVED = "karpenter_interruption_received_messages_total"
EC2 = "aws.ec2"
Json = dict[str, object]


def body(kind: str, scene: MachineScene, instance: str) -> Json:
    clock = scene.clock
    about = {"instance-id": instance, "instance-action": "terminate"}
    entities = [{"entityValue": instance}]
    health = {"service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": entities}
    reservation = "EC2 Capacity Reservation Instance Interruption Warning"
    made: dict[str, Json] = {
        "spot_interrupted": spot_warning(instance, clock),
        "rebalance_recommendation": event(EC2, "EC2 Instance Rebalance Recommendation", clock, about),
        "scheduled_change": event("aws.health", "AWS Health Event", clock, health),
        "instance_stopped": state_change(instance, "stopping", clock),
        "instance_terminated": state_change(instance, "terminated", clock),
        "capacity_reservation_interrupted": event(EC2, reservation, clock, about),
        "no_op": event(EC2, "EBS Volume Notification", clock, about),
    }
    return made[kind]


KINDS = [
    ("spot_interrupted", "SpotInterrupted", True),
    ("rebalance_recommendation", "SpotRebalanceRecommendation", False),
    ("scheduled_change", "InstanceUnhealthy", True),
    ("instance_stopped", "InstanceStopping", True),
    ("instance_terminated", "InstanceTerminating", True),
    ("capacity_reservation_interrupted", "CapacityReservationInstanceInterrupted", True),
    ("no_op", "", False),
]


@pytest.mark.spec("operations-18.7")
@pytest.mark.parametrize(("kind", "reason", "ends"), KINDS)
@virtual
async def test_a_message_does_what_its_kind_says_and_no_more(kind: str, reason: str, ends: bool) -> None:
    async with MachineScene().still() as scene:
        mine, other = await scene.machine(), await scene.machine()
        before = sample(RECEIVED, message_type=kind)
        # A foreign instance, and the same message twice.
        scene.tell(body(kind, scene, "i-0f0f0f0f0f0f0f0f0"))
        scene.tell(*[body(kind, scene, mine.id)] * 2)
        await scene.look(READER)

        assert sample(RECEIVED, message_type=kind) == before + 3
        assert scene.waiting == 0
        assert scene.deleting(mine) is ends
        assert not scene.deleting(other)
        told = set(scene.told(mine))
        assert told == ({reason} if reason else set()) | ({"TerminatingOnInterruption"} if ends else set())
        assert not scene.told(other)


@pytest.mark.spec("operations-18.7")
@pytest.mark.parametrize("text", ["", "{", "[]", '"text"', '{"version":"0"}', "null"])
@virtual
async def test_a_body_that_means_nothing_does_nothing(text: str) -> None:
    async with MachineScene().still() as scene:
        mine: Owned = await scene.machine()
        scene.tell(text, body("no_op", scene, mine.id))
        await scene.look(READER)

        assert not scene.deleting(mine)
        assert not scene.told(mine)
