"""Sending: ten to a call, failures tried again on their own, a bad queue no one else's trouble."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

from dovetail.aws import Answer, Aws, aws_error
from dovetail.bus.destinations import BusCluster, Destination
from dovetail.bus.ports import BusTally
from dovetail.bus.send import BusCopy, CopySender, MessageAttributes, SendOutcome, split_chunks
from dovetail.sim.clock import VirtualClock, run_virtual

URL = "https://sqs.us-east-2.amazonaws.com/123456789012/one"
TO = Destination(BusCluster("123456789012", "us-east-2", "one"), URL)


class Scripted:
    """A queue that answers as a test says."""

    region = "us-east-2"

    def __init__(self, answer: Callable[[int, list[dict[str, Any]]], Mapping[str, Any]]) -> None:
        self._answer = answer
        self.calls: list[list[dict[str, Any]]] = []

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        self.calls.append(parameters["Entries"])
        return self._answer(len(self.calls), parameters["Entries"])

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> Aws:
        return self


def everything(_: int, entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {"Successful": [{"Id": each["Id"]} for each in entries]}


def sent(queue: Scripted, copies: list[BusCopy[int]]) -> tuple[dict[int, SendOutcome], float, BusTally]:
    async def story() -> tuple[dict[int, SendOutcome], float, BusTally]:
        clock, counts, fates = VirtualClock(), BusTally(), {}
        sender: CopySender[int] = CopySender(queue, clock=clock, counts=counts, rng=Random(1))

        def settled(copy: BusCopy[int], outcome: SendOutcome) -> None:
            assert copy.tag not in fates
            fates[copy.tag] = outcome

        await sender.send_copies(copies, settled)
        return fates, clock.monotonic(), counts

    return run_virtual(story())


def copies(count: int, body: str = "{}") -> list[BusCopy[int]]:
    return [BusCopy(URL, body, number, attributes(f"i-{number}", 120.0), TO) for number in range(count)]


def attributes(instance: str, deadline: float | None = None) -> MessageAttributes:
    return MessageAttributes("spot_interrupted", instance, deadline, cluster=TO.cluster.name)


def test_ten_go_in_a_call_with_what_consumers_may_want_to_know() -> None:
    queue = Scripted(everything)

    fates, _, _ = sent(queue, copies(23))

    assert [len(each) for each in queue.calls] == [10, 10, 3]
    assert Counter(fates.values()) == {SendOutcome.SENT: 23}
    told = queue.calls[0][0]["MessageAttributes"]
    assert {name: value["StringValue"] for name, value in told.items()} == {
        "dt.kind": "spot_interrupted",
        "dt.instance": "i-0",
        "dt.deadline": "120",
        "dt.cluster": "one",
        "dt.hops": "1",
    }


def test_no_call_is_larger_than_sqs_takes() -> None:
    large = copies(9, "é" * 120_000)
    sizes = [sum(len(copy.body.encode()) for copy in each) for each in split_chunks(large)]

    assert sum(map(len, split_chunks(large))) == 9
    assert max(sizes) <= 1_048_576
    assert len(sizes) == 3


def test_only_the_entries_that_failed_are_sent_again() -> None:
    def answer(call: int, entries: list[dict[str, Any]]) -> dict[str, Any]:
        if call > 1:
            return everything(call, entries)
        failed = {"Code": "InternalError", "SenderFault": False}
        return {
            "Successful": [{"Id": "0"}, {"Id": "2"}],
            "Failed": [{"Id": "1", **failed}, {"Id": "3", **failed}],
        }

    queue = Scripted(answer)
    fates, seconds, counts = sent(queue, copies(4))

    assert [len(each) for each in queue.calls] == [4, 2]
    assert set(fates.values()) == {SendOutcome.SENT}
    assert 0.1 <= seconds <= 0.125
    assert counts.totals["send_failures_total", "InternalError"] == 2


def test_an_entry_the_answer_forgets_was_not_confirmed_and_goes_again() -> None:
    queue = Scripted(
        lambda call, entries: {"Successful": [{"Id": "0"}]} if call == 1 else everything(call, entries)
    )
    fates, _, _ = sent(queue, copies(2))
    assert [len(each) for each in queue.calls] == [2, 1]
    assert fates == {0: SendOutcome.SENT, 1: SendOutcome.SENT}


def test_after_three_more_attempts_the_source_message_must_come_again() -> None:
    def throttled(call: int, entries: list[dict[str, Any]]) -> dict[str, Any]:
        raise aws_error("sqs:SendMessageBatch", "RequestThrottled", "slow down", 400)

    queue = Scripted(throttled)
    fates, seconds, _ = sent(queue, copies(3))

    assert len(queue.calls) == 4
    assert set(fates.values()) == {SendOutcome.FAILED}
    assert 1.3 <= seconds <= 1.7


def test_a_body_that_cannot_be_taken_is_refused_alone() -> None:
    def particular(call: int, entries: list[dict[str, Any]]) -> dict[str, Any]:
        if any(entry["MessageBody"] == "bad" for entry in entries):
            raise aws_error("sqs:SendMessageBatch", "InvalidMessageContents", "no", 400)
        return {"Successful": [{"Id": entry["Id"]} for entry in entries]}

    queue = Scripted(particular)
    three = copies(3)
    three[1].body = "bad"
    fates, _, _ = sent(queue, three)

    assert [fates[number] for number in range(3)] == [SendOutcome.SENT, SendOutcome.REFUSED, SendOutcome.SENT]


@pytest.mark.parametrize("code", ["AccessDenied", "AWS.SimpleQueueService.NonExistentQueue"])
def test_a_queue_that_will_never_take_it_is_not_tried_again(code: str) -> None:
    def refuses(call: int, entries: list[dict[str, Any]]) -> dict[str, Any]:
        raise aws_error("sqs:SendMessageBatch", code, "no", 403)

    queue = Scripted(refuses)
    fates, _, _ = sent(queue, copies(3))

    assert len(queue.calls) == 1
    assert set(fates.values()) == {SendOutcome.REFUSED}


def test_a_row_of_failures_opens_the_circuit_and_one_attempt_closes_it() -> None:
    up = False

    def answer(call: int, entries: list[dict[str, Any]]) -> dict[str, Any]:
        if up:
            return everything(call, entries)
        raise aws_error("sqs:SendMessageBatch", "ServiceUnavailable", "no", 503)

    async def story() -> tuple[list[int], list[float], list[SendOutcome]]:
        nonlocal up
        clock, counts, fates = VirtualClock(), BusTally(), []
        queue = Scripted(answer)
        sender: CopySender[int] = CopySender(queue, clock=clock, counts=counts, rng=Random(1))
        calls, opened = [], []
        for _ in range(4):
            await sender.send_copies(copies(1), lambda _, how: fates.append(how))
            calls.append(len(queue.calls))
            opened.append(counts.values.get(("circuit_open", "one"), 0))
        up = True
        await clock.sleep(5.0)
        await sender.send_copies(copies(1), lambda _, how: fates.append(how))
        calls.append(len(queue.calls))
        opened.append(counts.values["circuit_open", "one"])
        return calls, opened, fates

    calls, opened, fates = run_virtual(story())

    assert calls == [4, 5, 5, 5, 6]
    assert opened == [0, 1, 1, 1, 0]
    assert fates == [SendOutcome.FAILED] * 4 + [SendOutcome.SENT]


def test_fair_queues_are_told_the_instance() -> None:
    from dataclasses import replace

    queue = Scripted(everything)
    fair = BusCopy(URL, "{}", 0, attributes("i-7"), replace(TO, fair_queue=True))
    sent(queue, [fair])
    assert queue.calls[0][0]["MessageGroupId"] == "i-7"
