"""Sinks in AWS: what a topic and a bus are sent, and what is said when they take nothing."""

from __future__ import annotations

import json

import pytest

from dovetail.errors import Refused, Retry
from dovetail.history.filters import DueBatch
from dovetail.history.messages import render_batch
from dovetail.history.notify import NotifySink
from dovetail.history.record import RecordKind
from dovetail.providers.aws.notifications import EventBridgeSender, SnsSender
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.iam.permissions import Principal
from dovetail.sim.aws.messaging.sns import SimTopics
from dovetail.sim.clock import VirtualClock
from support.decision_records import Stamping
from support.stage import virtual

ACCOUNT = "111122223333"
RECORD = Stamping()(RecordKind.INTERRUPTED, "node/a", message="spot")
ONE, MANY = DueBatch((RECORD,)), DueBatch((RECORD, RECORD), digest=True)


def sink(to: str, form: str = "cloudevents") -> NotifySink:
    return NotifySink(name="s", to=to, format=form)


async def send(sender: SnsSender | EventBridgeSender, target: NotifySink, batch: DueBatch) -> None:
    await sender.send_message(render_batch(batch, target, "prod", ""), batch)


@virtual
async def test_a_topic_gets_the_message_and_attributes_to_filter_by() -> None:
    aws = SimulatedAws(VirtualClock(), 0, "us-west-2")
    there = aws.scope_to(region="eu-west-1")
    arn = (await there.call("sns", "CreateTopic", {"Name": "nodes"}))["TopicArn"]
    target = sink(f"sns:{arn}", "text")
    sender = SnsSender(target, aws, "prod")
    for batch in (ONE, MANY):
        await send(sender, target, batch)
    first, second = aws.world.get_state(SimTopics, aws.account, "eu-west-1").messages[arn]
    assert first["Message"] == "prod: 12:00:00 node a is being interrupted: spot\n"
    assert {name: each["StringValue"] for name, each in first["MessageAttributes"].items()} == {
        "kind": "Interrupted",
        "severity": "warning",
        "cluster": "prod",
    }
    assert second["MessageAttributes"]["kind"]["StringValue"] == "Digest"
    assert second["Message"].startswith("prod: 2 decisions")


@virtual
async def test_a_topic_in_order_gets_a_group_and_each_message_once() -> None:
    aws = SimulatedAws(VirtualClock())
    arn = (await aws.call("sns", "CreateTopic", {"Name": "nodes.fifo"}))["TopicArn"]
    target = sink(f"sns:{arn}")
    await send(SnsSender(target, aws, "prod"), target, ONE)
    (message,) = aws.world.get_state(SimTopics, aws.account, aws.region).messages[arn]
    assert message["MessageGroupId"] == "dovetail"
    assert message["MessageDeduplicationId"].startswith(RECORD.id)


@virtual
async def test_a_bus_gets_the_cloud_event_as_detail() -> None:
    aws = SimulatedAws(VirtualClock())
    made = await aws.call("events", "CreateEventBus", {"Name": "ours"})
    target = sink(f"eventbridge:{made['EventBusArn']}")
    await send(EventBridgeSender(target, aws), target, ONE)
    (entry,) = aws.calls[-1].parameters["Entries"]
    assert (entry["EventBusName"], entry["Source"]) == (made["EventBusArn"], "sh.dovetail")
    assert entry["DetailType"] == "sh.dovetail.decision.Interrupted.v1"
    detail = json.loads(entry["Detail"])
    assert (detail["specversion"], detail["id"], detail["data"]["message"]) == ("1.0", RECORD.id, "spot")


@pytest.mark.spec("NO-9")
@virtual
async def test_a_missing_topic_or_grant_is_tried_again_and_no_arn_is_told() -> None:
    principal = Principal("arn:aws:sts::111122223333:assumed-role/r/s", ())
    for aws in (SimulatedAws(VirtualClock()), SimulatedAws(VirtualClock(), principal=principal)):
        for target, kind in (
            (sink(f"sns:arn:aws:sns:us-west-2:{ACCOUNT}:SECRET"), SnsSender),
            (sink(f"eventbridge:arn:aws:events:us-west-2:{ACCOUNT}:event-bus/SECRET"), EventBridgeSender),
        ):
            sender = SnsSender(target, aws, "prod") if kind is SnsSender else EventBridgeSender(target, aws)
            if kind is EventBridgeSender and aws.principal is None:
                continue  # as in AWS, events for a bus that is not there are taken
            with pytest.raises(Retry) as raised:
                await send(sender, target, ONE)
            assert "SECRET" not in str(raised.value)
            assert ACCOUNT not in str(raised.value)
            assert raised.value.__suppress_context__


@virtual
async def test_a_message_that_a_topic_calls_invalid_is_not_sent_again() -> None:
    aws = SimulatedAws(VirtualClock())
    arn = (await aws.call("sns", "CreateTopic", {"Name": "nodes"}))["TopicArn"]
    target = sink(f"sns:{arn}")
    long = render_batch(ONE, target, "prod", "")._replace(body=b"x" * 300_000)
    with pytest.raises(Refused):
        await SnsSender(target, aws, "prod").send_message(long, ONE)
