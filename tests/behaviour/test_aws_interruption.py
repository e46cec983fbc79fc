"""What AWS says about its machines is heard, told and acted upon; nothing is lost on the way."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timedelta
from typing import Any

import pytest

from dovetail.api import labels
from dovetail.aws.eventbridge import EventMessage, parse_message
from dovetail.errors import DovetailError, Retry
from dovetail.providers.aws.controllers import interruption
from dovetail.sim.faults import FaultRule, FaultStorm
from support.ec2_instances import MachineScene, disrupted, event, spot_warning, state_change
from support.nodeclasses import CLAIMS
from support.stage import sample, virtual

READER = "interruption"
RECEIVED, DELETED = (
    "karpenter_interruption_received_messages_total",
    "karpenter_interruption_deleted_messages_total",
)
MALFORMED = "dovetail_interruption_malformed_messages_total"
FAILED = "dovetail_interruption_failed_messages_total"


def health(scene: MachineScene, *ids: str, service: str = "EC2", category: str = "scheduledChange") -> Any:
    entities = [{"entityValue": each, "status": "PENDING"} for each in ids]
    detail = {"service": service, "eventTypeCategory": category, "affectedEntities": entities}
    return event("aws.health", "AWS Health Event", scene.clock, detail)


@pytest.mark.spec("aws-221")
@virtual
async def test_a_spot_warning_ends_the_claim_and_the_offering_is_avoided() -> None:
    async with MachineScene().still() as scene:
        machine = await scene.machine(known={labels.CAPACITY_TYPE: "on-demand"})
        before = disrupted(reason="spot_interrupted", capacity_type="on-demand")
        deleted, waited = (
            sample(DELETED),
            sample("karpenter_interruption_message_queue_duration_seconds_count"),
        )
        scene.tell(spot_warning(machine.id, scene.clock))
        await scene.look(READER)
        assert scene.deleting(machine)
        assert scene.waiting == 0
        assert sample(DELETED) == deleted + 1
        assert sample("karpenter_interruption_message_queue_duration_seconds_count") == waited + 1
        assert disrupted(reason="spot_interrupted", capacity_type="on-demand") == before + 1
        # Spot is avoided there whatever the claim's own capacity type is.
        avoided = scene.provider.unavailable.is_unavailable
        assert avoided("spot", "m5.large", "us-west-2a")
        assert not avoided("on-demand", "m5.large", "us-west-2a")
        assert not avoided("spot", "m5.large", "us-west-2b")
        both = {"Warning NodeClaim", "Warning Node"}
        assert scene.told(machine) == {"SpotInterrupted": both, "TerminatingOnInterruption": both}
        await scene.pass_(181)
        assert not avoided("spot", "m5.large", "us-west-2a")


@pytest.mark.spec("aws-222")
@virtual
async def test_an_interrupted_reservation_has_nothing_left() -> None:
    async with MachineScene().still() as scene:
        made = scene.aws.reservations.add("m5.large", "us-west-2a", 10, interruptible=True)
        await scene.provider.reservations.list_by_id([made.id])
        assert scene.provider.reservations.count_available(made.id) == 10
        machine = await scene.machine(
            known={labels.CAPACITY_TYPE: "reserved", labels.CAPACITY_RESERVATION_ID: made.id}
        )
        scene.aws.add_interruption_queue(scene.queue.name)
        scene.aws.notices.interrupt_reservation(scene.aws.get_instance(machine.id))
        scene.queue = scene.aws.queues.by_name[scene.queue.name]
        await scene.look(READER)
        assert scene.deleting(machine)
        assert scene.provider.reservations.count_available(made.id) == 0
        assert "CapacityReservationInstanceInterrupted" in scene.told(machine)
        deadline = datetime.fromisoformat(scene.deadline(machine) or "")
        assert timedelta(seconds=100) < deadline - scene.clock.now() <= timedelta(seconds=110)
        assert scene.waiting == 0


@pytest.mark.spec("aws-223")
@virtual
async def test_a_scheduled_change_ends_every_claim_it_names_and_other_health_news_none() -> None:
    async with MachineScene().still() as scene:
        first, second, third = [await scene.machine() for _ in range(3)]
        scene.tell(
            health(scene, third.id, service="RDS"),
            health(scene, third.id, category="accountNotification"),
        )
        no_op = sample(RECEIVED, message_type="no_op")
        await scene.look(READER)
        assert sample(RECEIVED, message_type="no_op") == no_op + 2
        assert scene.waiting == 0
        scene.tell(health(scene, first.id, second.id))
        await scene.look(READER)
        assert (scene.deleting(first), scene.deleting(second), scene.deleting(third)) == (True, True, False)
        assert scene.told(first)["InstanceUnhealthy"] == {"Warning NodeClaim", "Warning Node"}
        assert scene.told(third) == {}
        assert scene.deadline(first) is None
        assert scene.waiting == 0


@pytest.mark.spec("aws-224")
@virtual
async def test_states_on_the_way_out_end_claims_and_others_do_not() -> None:
    reasons = {
        "stopping": "instance_stopped",
        "stopped": "instance_stopped",
        "shutting-down": "instance_terminated",
        "terminated": "instance_terminated",
        "pending": "",
        "creating": "",
    }
    async with MachineScene().still() as scene:
        counted = {each: disrupted(reason=each, capacity_type="spot") for each in reasons.values() if each}
        for state, reason in reasons.items():
            machine = await scene.machine()
            scene.tell(state_change(machine.id, state, scene.clock))
            await scene.look(READER)
            assert scene.deleting(machine) is bool(reason), state
            assert scene.waiting == 0
            told = {"instance_stopped": "InstanceStopping", "instance_terminated": "InstanceTerminating"}
            assert (told[reason] in scene.told(machine)) if reason else not scene.told(machine)
        for reason, before in counted.items():
            assert disrupted(reason=reason, capacity_type="spot") == before + 2


@pytest.mark.spec("aws-225")
@virtual
async def test_a_rebalance_recommendation_is_only_told() -> None:
    async with MachineScene().still() as scene:
        machine = await scene.machine()
        detail = {"instance-id": machine.id}
        scene.tell(event("aws.ec2", "EC2 Instance Rebalance Recommendation", scene.clock, detail))
        await scene.look(READER)
        assert scene.told(machine) == {"SpotRebalanceRecommendation": {"Normal NodeClaim", "Normal Node"}}
        assert not scene.deleting(machine)
        assert scene.waiting == 0
        assert not scene.provider.unavailable.is_unavailable("spot", "m5.large", "us-west-2a")


MALFORMED_BODIES = (
    "not json",
    '["a list"]',
    '{"version": 7}',
    '{"version": "0", "time": "yesterday"}',
    '{"version": "0", "source": "aws.ec2", "detail-type": "EC2 Instance Rebalance Recommendation"}',
)


@pytest.mark.spec("aws-225")
def test_what_is_nobodys_business_is_deleted_and_what_nobody_can_read_goes_to_the_dead_letters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @virtual
    async def story() -> None:
        async with MachineScene().still() as scene:
            letters = scene.aws.queues.add("dead-letters")
            redrive = {"deadLetterTargetArn": letters.arn, "maxReceiveCount": "3"}
            scene.queue.attributes["RedrivePolicy"] = json.dumps(redrive)
            scene.tell("", "null", "{}", event("aws.s3", "Object Created", scene.clock, {}))
            scene.tell(*MALFORMED_BODIES)
            counted, no_op = sample(MALFORMED), sample(RECEIVED, message_type="no_op")
            for _ in range(5):
                await scene.look(READER)
                await scene.pass_(21)
            assert sample(RECEIVED, message_type="no_op") == no_op + 4
            assert sample(MALFORMED) == counted + len(MALFORMED_BODIES)
            assert scene.waiting == 0
            assert sorted(each.body for each in letters.messages.values()) == sorted(MALFORMED_BODIES)

    with caplog.at_level(logging.ERROR):
        story()
    told = [each.getMessage() for each in caplog.records if "dead-letter" in each.getMessage()]
    assert len(told) == len(MALFORMED_BODIES)  # once each, though each came three times
    assert any("it names no instance" in each for each in told)


@virtual
async def test_a_message_that_cannot_be_acted_upon_comes_again_and_holds_up_no_other() -> None:
    async with MachineScene().still() as scene:
        stuck, free = await scene.machine(), await scene.machine()
        refusing = FaultRule(trouble="server-error", verbs=("delete",), names=(stuck.claim,))
        scene.world.server.faults = FaultStorm(scene.clock, rules=[refusing])
        scene.tell(spot_warning(stuck.id, scene.clock), spot_warning(free.id, scene.clock))
        failed = sample(FAILED)
        await scene.look(READER)
        assert scene.deleting(free)
        assert not scene.deleting(stuck)
        assert scene.waiting == 1
        assert sample(FAILED) == failed + 1
        await scene.pass_(21)
        # With nothing else to do, the next try waits: a message wears out by being read.
        with pytest.raises(Retry):
            await scene.look(READER)
        scene.world.server.faults = FaultStorm(scene.clock)
        await scene.pass_(21)
        await scene.look(READER)
        assert scene.deleting(stuck)
        assert scene.waiting == 0


@virtual
async def test_a_deletion_that_fails_is_made_up_for_by_the_next_receipt() -> None:
    async with MachineScene().still() as scene:
        machine = await scene.machine()
        counted = disrupted(reason="spot_interrupted", capacity_type="spot")
        scene.tell(spot_warning(machine.id, scene.clock))
        scene.aws.refuse("ServiceUnavailable", "DeleteMessageBatch", 1)
        with pytest.raises(Retry):
            await scene.look(READER)
        assert scene.deleting(machine)
        assert scene.waiting == 1
        await scene.pass_(21)
        await scene.look(READER)
        assert scene.waiting == 0
        assert disrupted(reason="spot_interrupted", capacity_type="spot") == counted + 1


@virtual
async def test_news_of_a_machine_whose_launch_is_being_written_down_is_kept_for_a_while() -> None:
    async with MachineScene().still() as scene:
        machine = await scene.machine()
        scene.api.patch(CLAIMS, machine.claim, {"status": {"providerID": ""}}, subresource="status")
        scene.tell(spot_warning(machine.id, scene.clock), spot_warning("i-0123456789abcdef0", scene.clock))
        await scene.look(READER)
        assert scene.waiting == 2
        assert not scene.deleting(machine)
        status = {"status": {"providerID": machine.provider_id}}
        scene.api.patch(CLAIMS, machine.claim, status, subresource="status")
        await scene.pass_(21)
        await scene.look(READER)
        assert scene.deleting(machine)
        assert scene.waiting == 0


def test_a_queue_that_tells_of_strangers_only_is_said_to_be_misrouted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @virtual
    async def story() -> None:
        async with MachineScene().still() as scene:
            machine = await scene.machine()
            for _ in range(12):
                scene.tell(spot_warning("i-0123456789abcdef0", scene.clock))
                await scene.look(READER)
                await scene.pass_(60)
            assert sample("dovetail_interruption_queue_misrouted") == 1
            assert scene.waiting == 0
            scene.tell(spot_warning(machine.id, scene.clock))
            await scene.look(READER)
            assert sample("dovetail_interruption_queue_misrouted") == 0

    with caplog.at_level(logging.WARNING):
        story()
    assert sum("MisroutedQueue" in each.getMessage() for each in caplog.records) == 1


@virtual
async def test_an_empty_queue_is_waited_at_and_one_that_does_not_wait_is_not_asked_without_end() -> None:
    async with MachineScene().still() as scene:
        before = scene.clock.monotonic()
        result = await scene.look(READER)
        assert scene.clock.monotonic() - before >= 20
        assert result.after == timedelta(milliseconds=1)
        scene.tell("{}")
        await scene.look(READER)
        hasty = scene.aws.call

        async def call(service: str, operation: str, parameters: Any, /, *, retried: bool = True) -> Any:
            asked = {**parameters, "WaitTimeSeconds": 0} if operation == "ReceiveMessage" else parameters
            return await hasty(service, operation, asked, retried=retried)

        scene.aws.call = call  # type: ignore[method-assign]
        assert (await scene.look(READER)).after == timedelta(seconds=1)


@virtual
async def test_without_a_queue_nobody_reads_one() -> None:
    names = {each.name for each in MachineScene(queue=False).dovetail.controllers}
    assert "interruption" not in names
    assert "interruption.instancestatus" in names
    assert "interruption" in {each.name for each in MachineScene().dovetail.controllers}


@virtual
async def test_two_minutes_are_enough_to_drain_in_and_no_more() -> None:
    async with MachineScene().still() as scene:
        machine = await scene.machine()
        now = scene.clock.now()
        scene.tell(spot_warning(machine.id, scene.clock))
        await scene.pass_(7)
        await scene.look(READER)
        deadline = scene.deadline(machine)
        assert deadline is not None
        assert abs(datetime.fromisoformat(deadline) - (now + timedelta(seconds=110))) <= timedelta(seconds=1)
        # News of the same instance, late: an earlier end stays, a later one is brought forward.
        other = await scene.machine()
        far = {labels.TERMINATION_TIMESTAMP: "2100-01-01T00:00:00Z"}
        scene.api.patch(CLAIMS, other.claim, {"metadata": {"annotations": far}})
        scene.tell(spot_warning(other.id, scene.clock), spot_warning(machine.id, scene.clock))
        await scene.look(READER)
        assert scene.deadline(machine) == deadline
        brought = scene.deadline(other)
        assert brought is not None
        assert datetime.fromisoformat(brought) <= scene.clock.now() + timedelta(seconds=110)


@pytest.mark.spec("aws-226")
@virtual
async def test_a_hundred_messages_are_deleted_by_tens() -> None:
    async with MachineScene().still() as scene:
        machines = [await scene.machine() for _ in range(3)]
        foreign = [f"i-{number:017x}" for number in range(97)]
        scene.tell(*(spot_warning(each, scene.clock) for each in (*(m.id for m in machines), *foreign)))
        deleted = sample(DELETED)
        await scene.look(READER)
        assert sample(DELETED) == deleted + 100
        assert scene.waiting == 0
        assert all(scene.deleting(each) for each in machines)
        assert len(scene.asked("DeleteMessageBatch")) == len(scene.asked("ReceiveMessage")) == 10
        assert len(scene.asked("GetQueueUrl")) == 1
        asked = scene.asked("ReceiveMessage")[0]
        assert (asked["MaxNumberOfMessages"], asked["VisibilityTimeout"], asked["WaitTimeSeconds"]) == (
            10,
            20,
            20,
        )


@pytest.mark.spec("aws-226")
@virtual
async def test_a_claim_that_is_gone_or_going_is_no_error_and_counts_once() -> None:
    async with MachineScene().still() as scene:
        gone, going = await scene.machine(), await scene.machine()
        counted = disrupted(reason="instance_terminated", capacity_type="spot")
        scene.tell(state_change(gone.id, "terminated", scene.clock))
        # Deleted between the last word of the watch and our request.
        scene.api.patch(CLAIMS, gone.claim, {"metadata": {"finalizers": []}})
        scene.api.delete(CLAIMS, gone.claim)
        reader = scene.controller(READER)
        await reader.reconcile("")
        assert scene.waiting == 0
        for _ in range(2):
            scene.tell(
                state_change(going.id, "shutting-down", scene.clock),
                state_change(going.id, "terminated", scene.clock),
            )
            await reader.reconcile("")
        assert scene.deleting(going)
        assert scene.waiting == 0
        assert disrupted(reason="instance_terminated", capacity_type="spot") == counted + 1


@pytest.mark.spec("aws-226")
@pytest.mark.parametrize("code", ["AWS.SimpleQueueService.NonExistentQueue", "AccessDenied"])
def test_a_queue_that_cannot_be_read_is_an_error_until_it_can(code: str) -> None:
    @virtual
    async def story() -> None:
        async with MachineScene().still() as scene:
            scene.aws.refuse(code, "GetQueueUrl", 1)
            scene.aws.refuse(code, "ReceiveMessage", 1)
            for _ in range(2):
                with pytest.raises(DovetailError, match=code):
                    await scene.look(READER)
            machine = await scene.machine()
            scene.tell(spot_warning(machine.id, scene.clock))
            await scene.look(READER)
            assert scene.deleting(machine)

    story()


@pytest.mark.parametrize(
    "time", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]
)
@virtual
async def test_a_warning_of_an_absurd_time_is_set_aside_and_the_others_are_heard(
    time: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with MachineScene().still() as scene:
        first, second = [await scene.machine() for _ in range(2)]
        absurd = {**spot_warning(first.id, scene.clock), "time": time}
        malformed = sample(MALFORMED)
        scene.tell(absurd, spot_warning(second.id, scene.clock))
        await scene.look(READER)
        assert (scene.deleting(first), scene.deleting(second)) == (False, True)
        assert scene.waiting == 1, "it is left for the dead-letter queue"
        await scene.pass_(30)
        await scene.look(READER)
        assert sample(MALFORMED) == malformed + 1, "named once"


@virtual
async def test_a_warning_that_meets_a_bug_while_it_is_read_is_set_aside_and_the_others_are_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with MachineScene().still() as scene:
        first, second = [await scene.machine() for _ in range(2)]

        def fail_on_first(body: str) -> EventMessage:
            if first.id in body:
                raise TypeError("a bug nobody knows of yet")
            return parse_message(body)

        monkeypatch.setattr(interruption, "parse_message", fail_on_first)
        scene.tell(spot_warning(first.id, scene.clock), spot_warning(second.id, scene.clock))
        await scene.look(READER)
        assert (scene.deleting(first), scene.deleting(second)) == (False, True)
        assert scene.waiting == 1, "it is left for the dead-letter queue"


@virtual
async def test_a_letter_sqs_itself_gets_wrong_is_left_out_and_the_others_are_heard() -> None:
    async with MachineScene().still() as scene:
        first, second = [await scene.machine() for _ in range(2)]
        scene.tell(spot_warning(first.id, scene.clock), spot_warning(second.id, scene.clock))
        ask = scene.provider.aws.call

        async def wrong(service: str, operation: str, parameters: Any, /, *, retried: bool = True) -> Any:
            answer = dict(await ask(service, operation, parameters, retried=retried))
            if operation == "ReceiveMessage" and answer.get("Messages"):
                one, *others = answer["Messages"]
                late = {**others[0], "Attributes": {"SentTimestamp": "9" * 5000}}
                answer["Messages"] = [{key: one[key] for key in one if key != "ReceiptHandle"}, late]
            return answer

        scene.provider.aws.call = wrong  # type: ignore[method-assign]
        await scene.look(READER)
        assert (scene.deleting(first), scene.deleting(second)) == (False, True)
