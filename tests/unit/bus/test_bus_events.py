"""Events read from bodies: each shape by its golden file, wrappers off to the byte, forgeries refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.aws.eventbridge import MessageKind, parse_message
from dovetail.bus.events import (
    BusEvent,
    BusPlace,
    EventRules,
    MessageFate,
    MessageRefusal,
    ReceivedMessage,
    read_event,
    unwrap_body,
)

GOLDEN = Path(__file__).parent / "golden"
RULES = EventRules(frozenset({"123456789012"}), frozenset({"us-east-2"}))
OPTIONAL = replace(RULES, optional_kinds=frozenset({"asg_terminate", "zonal_shift"}))
A, B, C = "i-0aaaabbbbccccdddd", "i-0bbbbccccddddeeee", "i-0ccccddddeeeeffff"
NOON = 1770112800.0  # 2026-02-03T10:00:00Z


def golden(name: str) -> str:
    return (GOLDEN / f"{name}.json").read_text(encoding="utf-8")


def event(body: str, rules: EventRules = RULES, **more: object) -> BusEvent | MessageRefusal:
    return read_event(ReceivedMessage("m", body, **more), rules)[1]  # type: ignore[arg-type]


def changed(name: str, **members: object) -> str:
    return json.dumps({**json.loads(golden(name)), **members})


SHAPES = [
    ("spot_interrupted", "spot_interrupted", True, NOON + 120),
    ("spot_hibernate", "spot_interrupted", True, NOON + 120),
    ("capacity_reservation_interrupted", "capacity_reservation_interrupted", True, NOON + 120),
    ("rebalance_recommendation", "rebalance_recommendation", False, None),
    ("state_stopping", "instance_stopped", False, None),
    ("state_stopped", "instance_stopped", False, None),
    ("state_shutting_down", "instance_terminated", False, None),
    ("state_terminated", "instance_terminated", False, None),
]


@pytest.mark.parametrize(("name", "kind", "urgent", "deadline"), SHAPES)
def test_each_shape_is_read(name: str, kind: str, urgent: bool, deadline: float | None) -> None:
    found = event(golden(name))

    assert isinstance(found, BusEvent)
    assert (found.kind, found.instances, found.urgent, found.deadline) == (kind, (A,), urgent, deadline)
    assert found.place == BusPlace("123456789012", "us-east-2")


def test_a_health_event_speaks_of_the_region_and_account_it_affects() -> None:
    found = event(golden("scheduled_change"))  # delivered in us-west-2, about us-east-2

    assert isinstance(found, BusEvent)
    assert found.place == BusPlace("123456789012", "us-east-2")
    assert found.instances == (A, B, C)
    assert found.key == ("123456789012", "1234abc01232a4012345678-1", "1")
    assert found.deadline == 1771686609.0  # 2026-02-21T15:10:09Z


def test_pages_of_one_communication_are_different_events_and_copies_are_not() -> None:
    raw = json.loads(golden("scheduled_change"))
    second = json.dumps({**raw, "id": "other", "detail": {**raw["detail"], "page": "2"}})
    backup = json.dumps({**raw, "id": "copy", "detail": {**raw["detail"], "backupEvent": "true"}})

    first, page, copy = event(golden("scheduled_change")), event(second), event(backup)

    assert isinstance(first, BusEvent)
    assert isinstance(page, BusEvent)
    assert isinstance(copy, BusEvent)
    assert first.key == copy.key != page.key


@pytest.mark.parametrize(("name", "instances"), [("asg_terminate", (A,)), ("zonal_shift", ())])
def test_optional_kinds_are_read_when_asked_for_and_parked_otherwise(
    name: str, instances: tuple[str]
) -> None:
    found = event(golden(name), OPTIONAL)

    assert isinstance(found, BusEvent)
    assert (found.kind, found.instances, found.urgent) == (name, instances, True)
    assert event(golden(name)) == MessageRefusal(MessageFate.PARKED, "unknown_kind")


def test_an_urgent_rebalance_is_a_choice() -> None:
    found = event(golden("rebalance_recommendation"), replace(RULES, urgent_rebalance=True))
    assert isinstance(found, BusEvent)
    assert found.urgent


def test_an_sns_envelope_comes_off_and_the_inner_bytes_stay() -> None:
    body = golden("spot_interrupted")
    outer = json.dumps({"Type": "Notification", "MessageId": "x", "Message": body, "TopicArn": "arn:…"})

    assert unwrap_body(outer) == body
    assert read_event(ReceivedMessage("m", outer), RULES)[0] == body


@pytest.mark.parametrize("wrapped", ['{"event":%s}', '{ "event" : %s }', ' {"event": %s\n}'])
def test_an_input_transformers_wrapper_comes_off_to_the_byte(wrapped: str) -> None:
    body = golden("spot_interrupted").strip()
    assert unwrap_body(wrapped % body) == body


def test_a_wrapped_text_is_its_content() -> None:
    body = golden("spot_interrupted")
    assert unwrap_body(json.dumps({"event": body})) == body


@pytest.mark.parametrize(
    "body", ['{"event":', '{"event": [1,2', '{"Type":"Notification"', "hello", '{"event":1} x']
)
def test_what_only_looks_like_a_wrapper_is_left_alone(body: str) -> None:
    assert unwrap_body(body) == body


@pytest.mark.spec("bus-13")
@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        (changed("spot_interrupted", source="evil.ec2"), MessageRefusal(MessageFate.PARKED, "forged_source")),
        (
            changed("spot_interrupted", source="dovetail.bus.canary"),
            MessageRefusal(MessageFate.PARKED, "forged_source"),
        ),
        (
            changed("spot_interrupted", account="666666666666"),
            MessageRefusal(MessageFate.PARKED, "wrong_account"),
        ),
        (changed("spot_interrupted", region="eu-west-1"), MessageRefusal(MessageFate.PARKED, "wrong_region")),
        (
            changed("spot_interrupted", **{"detail-type": "EC2 Something"}),
            MessageRefusal(MessageFate.PARKED, "unknown_kind"),
        ),
        (changed("spot_interrupted", version="1"), MessageRefusal(MessageFate.PARKED, "unknown_kind")),
        (
            changed("state_stopping", detail={"instance-id": A, "state": "pending"}),
            MessageRefusal(MessageFate.DROPPED, "not_wanted"),
        ),
        (
            changed("spot_interrupted", detail={"instance-id": "x; rm -rf /"}),
            MessageRefusal(MessageFate.KEPT, "malformed"),
        ),
        (changed("spot_interrupted", detail={}), MessageRefusal(MessageFate.KEPT, "malformed")),
        ("{not json", MessageRefusal(MessageFate.KEPT, "malformed")),
        ("[" * 50_000, MessageRefusal(MessageFate.KEPT, "malformed")),
        ("x" * 300_000, MessageRefusal(MessageFate.PARKED, "oversize")),
        ("é" * 200_000, MessageRefusal(MessageFate.PARKED, "oversize")),
    ],
)
def test_what_is_wrong_with_a_body_decides_its_fate(body: str, refusal: MessageRefusal) -> None:
    assert event(body) == refusal


def test_health_of_another_account_or_region_is_not_ours() -> None:
    raw = json.loads(golden("scheduled_change"))
    other = {**raw, "detail": {**raw["detail"], "affectedAccount": "666666666666"}}
    away = {**raw, "detail": {**raw["detail"], "eventRegion": "eu-west-1"}}
    empty = {**raw, "detail": {**raw["detail"], "affectedEntities": []}}

    assert event(json.dumps(other)) == MessageRefusal(MessageFate.PARKED, "wrong_account")
    assert event(json.dumps(away)) == MessageRefusal(MessageFate.PARKED, "wrong_region")
    assert event(json.dumps(empty)) == MessageRefusal(MessageFate.DROPPED, "no_instances")


def test_what_has_gone_round_twice_is_parked() -> None:
    assert isinstance(event(golden("spot_interrupted"), hops=1), BusEvent)
    assert event(golden("spot_interrupted"), hops=2) == MessageRefusal(MessageFate.PARKED, "loop")


@pytest.mark.parametrize("name", [name for name, *_ in SHAPES] + ["scheduled_change"])
def test_every_shape_passes_karpenters_own_rules(name: str) -> None:
    read_there = parse_message(golden(name))
    assert read_there.kind is not MessageKind.NO_OP
    assert read_there.instances
