"""SQS and EventBridge: the same in memory and through boto3 over HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dovetail.aws import AwsAbsent, AwsInvalid
from support.aws import fleet, launched, template
from support.aws_clients import DOORS, Door, opened

Json = dict[str, Any]
SPOT = "EC2 Spot Instance Interruption Warning"


@pytest.fixture(params=DOORS)
async def door(request: pytest.FixtureRequest) -> AsyncIterator[Door]:
    async with opened(request.param) as found:
        yield found


async def made(door: Door, name: str = "work", **attributes: str) -> str:
    answer = await door.aws.call("sqs", "CreateQueue", {"QueueName": name, "Attributes": attributes})
    return str(answer["QueueUrl"])


async def received(door: Door, url: str, **more: Any) -> list[Json]:
    asked = {"QueueUrl": url, "MaxNumberOfMessages": 10, "AttributeNames": ["All"], **more}
    return list((await door.aws.call("sqs", "ReceiveMessage", asked)).get("Messages", []))


async def send(door: Door, url: str, *bodies: str) -> Json:
    entries = [{"Id": str(at), "MessageBody": body} for at, body in enumerate(bodies)]
    return dict(await door.aws.call("sqs", "SendMessageBatch", {"QueueUrl": url, "Entries": entries}))


async def test_a_message_hides_while_it_is_worked_on_and_comes_back(door: Door) -> None:
    url = await made(door)
    await send(door, url, "one")
    (first,) = await received(door, url, VisibilityTimeout=20)
    assert first["Body"] == "one"
    assert first["Attributes"]["ApproximateReceiveCount"] == "1"
    assert not await received(door, url)
    door.wait(21)
    (second,) = await received(door, url)
    assert second["MessageId"] == first["MessageId"]
    assert second["ReceiptHandle"] != first["ReceiptHandle"]
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    assert int(second["Attributes"]["SentTimestamp"]) == int(first["Attributes"]["SentTimestamp"])


async def test_only_the_last_receipt_deletes(door: Door) -> None:
    url = await made(door, VisibilityTimeout="5")
    await send(door, url, "one")
    (first,) = await received(door, url)
    door.wait(6)
    (second,) = await received(door, url)
    await door.aws.call("sqs", "DeleteMessage", {"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"]})
    door.wait(6)
    (third,) = await received(door, url)
    assert third["MessageId"] == second["MessageId"]
    for _ in range(2):  # twice is as good as once
        await door.aws.call(
            "sqs", "DeleteMessage", {"QueueUrl": url, "ReceiptHandle": third["ReceiptHandle"]}
        )
    door.wait(6)
    assert not await received(door, url)
    with pytest.raises(AwsInvalid) as refused:
        await door.aws.call("sqs", "DeleteMessage", {"QueueUrl": url, "ReceiptHandle": "nonsense"})
    assert refused.value.code == "ReceiptHandleIsInvalid"


async def test_visibility_can_be_extended_and_given_up(door: Door) -> None:
    url = await made(door, VisibilityTimeout="5")
    await send(door, url, "one")
    (got,) = await received(door, url)
    handle = {"QueueUrl": url, "ReceiptHandle": got["ReceiptHandle"]}
    await door.aws.call("sqs", "ChangeMessageVisibility", {**handle, "VisibilityTimeout": 60})
    door.wait(30)
    assert not await received(door, url)
    await door.aws.call("sqs", "ChangeMessageVisibility", {**handle, "VisibilityTimeout": 0})
    assert await received(door, url)
    with pytest.raises(AwsInvalid) as refused:
        await door.aws.call("sqs", "ChangeMessageVisibility", {**handle, "VisibilityTimeout": 60})
    assert refused.value.code == "AWS.SimpleQueueService.MessageNotInflight"


async def test_messages_received_too_often_end_in_the_dead_letter_queue_and_can_go_back(door: Door) -> None:
    dead = await made(door, "dead")
    arn = f"arn:aws:sqs:us-west-2:{door.world.account}:dead"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "2"})
    url = await made(door, VisibilityTimeout="1", RedrivePolicy=policy)
    await send(door, url, "poison")
    for _ in range(2):
        assert len(await received(door, url)) == 1
        door.wait(2)
    assert not await received(door, url)
    (letter,) = await received(door, dead, VisibilityTimeout=0)
    assert letter["Body"] == "poison"
    assert letter["Attributes"]["DeadLetterQueueSourceArn"].endswith(":work")
    await door.aws.call("sqs", "StartMessageMoveTask", {"SourceArn": arn})
    assert [each["Body"] for each in await received(door, url)] == ["poison"]


async def test_entries_of_a_batch_succeed_and_fail_one_by_one(door: Door) -> None:
    url = await made(door, MaximumMessageSize="1024")
    answer = await send(door, url, "small", "x" * 2000)
    assert [each["Id"] for each in answer["Successful"]] == ["0"]
    assert [(each["Id"], each["SenderFault"]) for each in answer["Failed"]] == [("1", True)]
    (got,) = await received(door, url)
    entries = [{"Id": "a", "ReceiptHandle": got["ReceiptHandle"]}, {"Id": "b", "ReceiptHandle": "nonsense"}]
    answer = dict(await door.aws.call("sqs", "DeleteMessageBatch", {"QueueUrl": url, "Entries": entries}))
    assert [each["Id"] for each in answer["Successful"]] == ["a"]
    assert [each["Code"] for each in answer["Failed"]] == ["ReceiptHandleIsInvalid"]


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], "EmptyBatchRequest"),
        ([{"Id": str(at), "MessageBody": "x"} for at in range(11)], "TooManyEntriesInBatchRequest"),
        ([{"Id": "a", "MessageBody": "x"}] * 2, "BatchEntryIdsNotDistinct"),
        ([{"Id": "a b", "MessageBody": "x"}], "InvalidBatchEntryId"),
        ([{"Id": str(at), "MessageBody": "x" * 600_000} for at in range(2)], "BatchRequestTooLong"),
    ],
)
async def test_a_batch_that_is_wrong_as_a_whole_is_refused(
    door: Door, entries: list[Json], code: str
) -> None:
    url = await made(door)
    with pytest.raises(AwsInvalid) as refused:
        await door.aws.call("sqs", "SendMessageBatch", {"QueueUrl": url, "Entries": entries})
    assert refused.value.code == f"AWS.SimpleQueueService.{code}"


async def test_attributes_travel_with_a_message(door: Door) -> None:
    url = await made(door)
    attributes = {
        "dt.kind": {"DataType": "String", "StringValue": "spot_interrupted"},
        "dt.hops": {"DataType": "Number", "StringValue": "1"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00\x01"},
    }
    await door.aws.call(
        "sqs", "SendMessage", {"QueueUrl": url, "MessageBody": "x", "MessageAttributes": attributes}
    )
    (got,) = await received(door, url, MessageAttributeNames=["All"], VisibilityTimeout=0)
    assert got["MessageAttributes"] == attributes
    (some,) = await received(door, url, MessageAttributeNames=["dt.*"])
    assert set(some["MessageAttributes"]) == {"dt.kind", "dt.hops"}


async def test_the_group_of_a_fair_queue_travels_with_a_message(door: Door) -> None:
    url = await made(door)
    await door.aws.call("sqs", "SendMessage", {"QueueUrl": url, "MessageBody": "x", "MessageGroupId": "i-1"})
    (got,) = await received(door, url)
    assert got["Attributes"]["MessageGroupId"] == "i-1"


async def test_a_long_poll_ends_with_the_first_message(door: Door) -> None:
    url = await made(door)
    waiting = asyncio.create_task(received(door, url, WaitTimeSeconds=20))
    await asyncio.sleep(0.2)
    started = time.monotonic()
    await send(door, url, "late")
    assert [each["Body"] for each in await waiting] == ["late"]
    assert time.monotonic() - started < 5


async def test_a_queue_tells_what_is_in_it_and_forgets_what_is_old(door: Door) -> None:
    url = await made(door, MessageRetentionPeriod="300")
    await send(door, url, "a", "b", "c")
    await received(door, url, MaxNumberOfMessages=1)
    asked = {"QueueUrl": url, "AttributeNames": ["All"]}
    told = (await door.aws.call("sqs", "GetQueueAttributes", asked))["Attributes"]
    assert (told["ApproximateNumberOfMessages"], told["ApproximateNumberOfMessagesNotVisible"]) == ("2", "1")
    assert told["QueueArn"].endswith(":work")
    door.wait(301)
    assert not await received(door, url)


async def test_a_queue_that_is_not_there_is_absent(door: Door) -> None:
    with pytest.raises(AwsAbsent):
        await door.aws.call("sqs", "GetQueueUrl", {"QueueName": "nowhere"})
    url = await made(door)
    await door.aws.call("sqs", "DeleteQueue", {"QueueUrl": url})
    with pytest.raises(AwsAbsent):
        await received(door, url)


async def test_a_reclaimed_instance_is_warned_of_and_ends_two_minutes_later(door: Door) -> None:
    await template(door.aws)
    door.world.add_interruption_queue("cluster")
    url = str((await door.aws.call("sqs", "GetQueueUrl", {"QueueName": "cluster"}))["QueueUrl"])
    (one,) = launched(await fleet(door.aws, way="spot"))
    door.wait(20)
    await _drained(door, url)
    door.world.reclaim(one)
    door.wait(2)
    (warning,) = await _drained(door, url)
    assert warning["detail-type"] == SPOT
    assert warning["detail"] == {"instance-id": one, "instance-action": "terminate"}
    assert warning["resources"][0].endswith(f":instance/{one}")
    door.wait(115)
    assert door.world.get_instance(one).state == "running"
    door.wait(60)
    states = [each["detail"]["state"] for each in await _drained(door, url)]
    assert states == ["shutting-down", "terminated"]


async def _drained(door: Door, url: str) -> list[Json]:
    found = []
    while got := await received(door, url, MessageAttributeNames=["All"]):
        found += [json.loads(each["Body"]) for each in got]
        entries = [{"Id": str(at), "ReceiptHandle": each["ReceiptHandle"]} for at, each in enumerate(got)]
        await door.aws.call("sqs", "DeleteMessageBatch", {"QueueUrl": url, "Entries": entries})
    return found


async def test_a_scheduled_change_is_a_health_event_with_every_instance(door: Door) -> None:
    await template(door.aws)
    door.world.add_interruption_queue("cluster")
    url = str((await door.aws.call("sqs", "GetQueueUrl", {"QueueName": "cluster"}))["QueueUrl"])
    ids = launched(await fleet(door.aws, count=2))
    door.wait(20)
    await _drained(door, url)
    door.world.retire(*ids, code="system-reboot")
    door.wait(2)
    (event,) = await _drained(door, url)
    detail = event["detail"]
    assert (event["source"], detail["service"], detail["eventTypeCategory"]) == (
        "aws.health",
        "EC2",
        "scheduledChange",
    )
    assert [each["entityValue"] for each in detail["affectedEntities"]] == ids


async def test_rules_send_what_matches_to_their_targets_and_shape_it(door: Door) -> None:
    url, events = await made(door), "events"
    arn = f"arn:aws:sqs:us-west-2:{door.world.account}:work"
    pattern = {"source": ["shop"], "detail": {"total": [{"numeric": [">", 100]}]}}
    await door.aws.call(events, "PutRule", {"Name": "big", "EventPattern": json.dumps(pattern)})
    shaped = {"InputPathsMap": {"who": "$.detail.who"}, "InputTemplate": '{"buyer": "<who>"}'}
    target = {"Id": "queue", "Arn": arn, "InputTransformer": shaped}
    await door.aws.call(events, "PutTargets", {"Rule": "big", "Targets": [target]})
    entries = [
        {"Source": "shop", "DetailType": "sale", "Detail": json.dumps({"total": total, "who": who})}
        for total, who in ((50, "ann"), (150, "bob"))
    ]
    answer = await door.aws.call(events, "PutEvents", {"Entries": entries})
    assert answer["FailedEntryCount"] == 0
    door.wait(2)
    assert [json.loads(each["Body"]) for each in await received(door, url)] == [{"buyer": "bob"}]


async def test_rules_and_queues_carry_tags(door: Door) -> None:
    url, tags = await made(door), [{"Key": "team", "Value": "shop"}]
    asked = {"Name": "all", "EventPattern": '{"source": ["shop"]}', "Tags": tags}
    arn = {"ResourceARN": (await door.aws.call("events", "PutRule", asked))["RuleArn"]}
    assert (await door.aws.call("events", "ListTagsForResource", arn))["Tags"] == tags
    await door.aws.call("events", "TagResource", {**arn, "Tags": [{"Key": "tier", "Value": "1"}]})
    await door.aws.call("events", "UntagResource", {**arn, "TagKeys": ["team"]})
    left = (await door.aws.call("events", "ListTagsForResource", arn))["Tags"]
    assert left == [{"Key": "tier", "Value": "1"}]
    await door.aws.call("sqs", "TagQueue", {"QueueUrl": url, "Tags": {"a": "b", "c": "d"}})
    await door.aws.call("sqs", "UntagQueue", {"QueueUrl": url, "TagKeys": ["a"]})
    assert (await door.aws.call("sqs", "ListQueueTags", {"QueueUrl": url}))["Tags"] == {"c": "d"}


async def test_a_rule_has_five_targets_at_most(door: Door) -> None:
    await door.aws.call("events", "PutRule", {"Name": "all", "EventPattern": '{"source": ["aws.ec2"]}'})
    targets = [{"Id": str(at), "Arn": f"arn:aws:sqs:us-west-2:1:q{at}"} for at in range(6)]
    await door.aws.call("events", "PutTargets", {"Rule": "all", "Targets": targets[:5]})
    with pytest.raises(AwsInvalid) as refused:
        await door.aws.call("events", "PutTargets", {"Rule": "all", "Targets": targets[5:]})
    assert refused.value.code == "LimitExceededException"


async def test_an_event_nobody_takes_goes_to_the_targets_dead_letters(door: Door) -> None:
    dead = await made(door, "dead")
    await door.aws.call("events", "PutRule", {"Name": "all", "EventPattern": '{"source": ["shop"]}'})
    account = door.world.account
    target = {
        "Id": "gone",
        "Arn": f"arn:aws:sqs:us-west-2:{account}:gone",
        "DeadLetterConfig": {"Arn": f"arn:aws:sqs:us-west-2:{account}:dead"},
    }
    await door.aws.call("events", "PutTargets", {"Rule": "all", "Targets": [target]})
    entry = {"Source": "shop", "DetailType": "sale", "Detail": "{}"}
    await door.aws.call("events", "PutEvents", {"Entries": [entry]})
    door.wait(2)
    (letter,) = await received(door, dead, MessageAttributeNames=["All"])
    assert letter["MessageAttributes"]["ERROR_CODE"]["StringValue"] == "NO_RESOURCE"
