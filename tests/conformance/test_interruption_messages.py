"""Interruption messages mean here what they mean to Karpenter."""

from __future__ import annotations

from datetime import datetime

import pytest

from dovetail.aws.eventbridge import MalformedMessage, MessageKind, parse_message
from support.vectors import cases

CASES = list(cases("aws-interruption"))


@pytest.mark.spec("aws-21.2")
def test_every_message_is_read_as_karpenter_reads_it() -> None:
    wrong = []
    for case in CASES:
        try:
            read = parse_message(case["message"])
            found = (str(read.kind), list(read.instances), False)
        except MalformedMessage:
            found = ("no_op", [], True)
        # Ours differs on purpose: a message that names no instance is malformed, counted and kept.
        nameless = "" in case["instanceIDs"]
        meant = ("no_op", [], True) if nameless else (case["kind"], case["instanceIDs"], "error" in case)
        if found != meant:
            wrong.append((case["note"], meant, found, case["message"]))
    assert len(CASES) == 312
    assert wrong == []


def test_the_time_of_a_message_is_the_event_s_own() -> None:
    timed = [case for case in CASES if "startTime" in case and "" not in case["instanceIDs"]]
    assert len(timed) > 100
    for case in timed:
        assert parse_message(case["message"]).time == datetime.fromisoformat(case["startTime"])


def test_resources_may_be_a_plain_text_as_the_aws_page_prints_it() -> None:
    read = parse_message(
        '{"version":"0","source":"aws.ec2",'
        '"detail-type":"EC2 Capacity Reservation Instance Interruption Warning",'
        '"resources":"arn:aws:ec2:eu-west-1:1:instance/i-1","detail":{"instance-id":"i-1"}}'
    )
    assert (read.kind, read.instances) == (MessageKind.CAPACITY_RESERVATION_INTERRUPTED, ("i-1",))


@pytest.mark.parametrize(
    "body",
    [
        '{"version":NaN}',
        "[" * 100_000,
        '{"time":"2026-W01-1T00:00:00Z"}',
        '{"time":"2026-13-01T00:00:00Z"}',
        "\ufeff{}",
    ],
    ids=["not-a-number", "deep", "week-date", "month-13", "byte-order-mark"],
)
def test_what_go_would_not_read_is_malformed(body: str) -> None:
    with pytest.raises(MalformedMessage):
        parse_message(body)
