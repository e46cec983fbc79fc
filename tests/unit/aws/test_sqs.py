"""The one reader of queues: what it asks, and what it says of receipts that SQS did not settle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dovetail.aws import Answer, Aws, AwsAbsent, AwsError, AwsInvalid, AwsTrouble, aws_error
from dovetail.aws.sqs import BATCH, SqsQueue, split_batches
from support.stage import virtual


class Scripted:
    """Answers in order; an error is raised."""

    region = "us-west-2"

    def __init__(self, *answers: Answer | AwsError) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        self.asked.append((operation, parameters))
        answer = self._answers.pop(0)
        if isinstance(answer, AwsError):
            raise answer
        return answer

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> Aws:
        return self


URL = {"QueueUrl": "https://sqs/1/q"}
ABSENT = aws_error("sqs:ReceiveMessage", "QueueDoesNotExist", "no such queue")
TROUBLE = aws_error("sqs:DeleteMessageBatch", "ServiceUnavailable", "later")


@virtual
async def test_a_queue_by_name_is_looked_for_once_and_again_when_it_is_gone() -> None:
    aws = Scripted(URL, {}, ABSENT, {"QueueUrl": "https://sqs/1/moved"}, {"Messages": [{"Body": "x"}]})
    queue = SqsQueue(aws, name="q", receives={"VisibilityTimeout": 20})

    assert await queue.receive() == ()
    with pytest.raises(AwsAbsent):
        await queue.receive()
    assert await queue.receive(0) == [{"Body": "x"}]

    assert [operation for operation, _ in aws.asked] == [
        "GetQueueUrl",
        "ReceiveMessage",
        "ReceiveMessage",
        "GetQueueUrl",
        "ReceiveMessage",
    ]
    assert aws.asked[1][1] == {
        **URL,
        "MaxNumberOfMessages": 10,
        "VisibilityTimeout": 20,
        "WaitTimeSeconds": 20,
    }
    assert aws.asked[-1][1]["QueueUrl"] == "https://sqs/1/moved"


@virtual
async def test_a_queue_by_its_url_is_not_looked_for() -> None:
    aws = Scripted(ABSENT, {})
    queue = SqsQueue(aws, url=URL["QueueUrl"])
    with pytest.raises(AwsAbsent):
        await queue.receive()
    await queue.receive()
    assert [operation for operation, _ in aws.asked] == ["ReceiveMessage"] * 2


@virtual
async def test_receipts_are_deleted_in_tens_and_what_is_left_is_told() -> None:
    settled = {"Successful": [{"Id": str(each)} for each in range(BATCH)]}
    partly = {"Successful": [{"Id": "0"}], "Failed": [{"Id": "1", "Code": "InternalError"}]}
    aws = Scripted(settled, TROUBLE, partly)
    answers = await SqsQueue(aws, url=URL["QueueUrl"]).delete([f"r{each}" for each in range(22)])

    assert [len(parameters["Entries"]) for _, parameters in aws.asked] == [10, 10, 2]
    assert [each.done for each in answers] == [10, 0, 1]
    assert [each.codes for each in answers] == [(), (), ("InternalError",)]
    assert answers[1].error is TROUBLE
    answers[0].raise_refusal()
    with pytest.raises(AwsTrouble):
        answers[1].raise_refusal()
    with pytest.raises(AwsTrouble, match="InternalError"):
        answers[2].raise_refusal()


@virtual
async def test_hiding_says_for_how_long_and_an_entry_that_is_refused_can_be_raised() -> None:
    aws = Scripted({"Failed": [{"Id": "0", "Code": "ReceiptHandleIsInvalid"}]})
    (answer,) = await SqsQueue(aws, url=URL["QueueUrl"]).hide(["r"], 60)
    assert aws.asked[0][1]["Entries"] == [{"Id": "0", "ReceiptHandle": "r", "VisibilityTimeout": 60}]
    with pytest.raises(AwsInvalid):
        answer.raise_refusal()


def test_tens_keep_their_order() -> None:
    assert split_batches(range(21)) == [range(10), range(10, 20), range(20, 21)]
    assert split_batches(()) == []
