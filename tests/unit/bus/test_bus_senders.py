"""Who is believed: EventBridge, the writer of an account for that account, and who is listed; nobody else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dovetail.bus.config import read_config
from dovetail.bus.events import INVOKED, BusEvent, MessageFate, MessageRefusal, ReceivedMessage, read_event
from dovetail.bus.generate import GeneratedFleet, generate_fis_experiment, generate_health_pages
from dovetail.bus.queues import denies_others

HUB, SPOKE, OTHER = "123456789012", "210987654321", "333333333333"
EVENTBRIDGE, WRITER, STRANGER = "AIDAEVENTBRIDGE00001", "AROASPOKEWRITER00001", "AROAANYBODY000000001"
OPERATOR = "AROAOPERATOR00000001"
FLEET = GeneratedFleet.generate_fleet(1, 1)


def config(**more: Any) -> Any:
    accounts = [
        {"id": HUB},
        {"id": SPOKE, "roleArn": f"arn:aws:iam::{SPOKE}:role/R", "externalId": "x", "senderId": WRITER},
    ]
    return read_config({"region": FLEET.region, "accounts": accounts, **more}, {})


def warning(account: str) -> str:
    told = generate_fis_experiment(FLEET, FLEET.instances)
    (body,) = [json.loads(each.body) for each in told if each.kind == "spot_interrupted"]
    return json.dumps(body | {"account": account})


def verdict(body: str, sender: str, **more: Any) -> BusEvent | MessageRefusal:
    return read_event(ReceivedMessage("m", body, sender=sender), config(**more).rules)[1]


@pytest.mark.parametrize(
    ("sender", "account", "reason"),
    [
        (EVENTBRIDGE, HUB, ""),
        (EVENTBRIDGE, SPOKE, ""),
        (f"{WRITER}:session", SPOKE, ""),
        (f"{WRITER}:session", HUB, "forged_account"),
        (f"{STRANGER}:session", HUB, "unknown_sender"),
        (f"{STRANGER}:session", SPOKE, "unknown_sender"),
        (f"{STRANGER}:{WRITER}", SPOKE, "unknown_sender"),
        (f"AIDA:{STRANGER}", HUB, "unknown_sender"),
        (HUB, HUB, "unknown_sender"),
        ("192.0.2.1", HUB, "unknown_sender"),
        ("", HUB, "unknown_sender"),
        (INVOKED, HUB, ""),
    ],
)
def test_a_forged_warning_is_parked_by_default(sender: str, account: str, reason: str) -> None:
    found = verdict(warning(account), sender)

    assert found == MessageRefusal(MessageFate.PARKED, reason) if reason else isinstance(found, BusEvent)


def test_a_health_event_cannot_be_forged_for_another_account_either() -> None:
    (page,) = generate_health_pages(FLEET, pages=1, backup=False)

    assert verdict(page.body, f"{WRITER}:s") == MessageRefusal(MessageFate.PARKED, "forged_account")
    assert isinstance(verdict(page.body, EVENTBRIDGE), BusEvent)


def test_more_senders_can_be_listed_with_an_account_or_without() -> None:
    for senders, account, believed in (
        ([OPERATOR], HUB, True),
        ([f"{OPERATOR}={SPOKE}"], SPOKE, True),
        ([f"{OPERATOR}={SPOKE}"], HUB, False),
        ([f"{OPERATOR}={SPOKE}", f"{OPERATOR}={HUB}"], HUB, True),
    ):
        found = verdict(warning(account), f"{OPERATOR}:me", senders=senders)
        assert isinstance(found, BusEvent) is believed


def test_verification_can_be_switched_off() -> None:
    assert isinstance(verdict(warning(HUB), f"{STRANGER}:s", verifySender=False), BusEvent)


WRITERS = {"aws:PrincipalArn": "arn:aws:iam::210987654321:role/bus-writer"}
SERVICE = {"aws:PrincipalIsAWSService": "false"}
DENY: Any = {"Effect": "Deny", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"}
ONLY = DENY | {"Condition": {"Bool": SERVICE, "ArnNotLike": WRITERS}}
ALLOW: Any = {
    "Effect": "Allow",
    "Principal": {"Service": "events.amazonaws.com"},
    "Action": "sqs:SendMessage",
}
RULE = {"ArnLike": {"aws:SourceArn": "arn:aws:events:us-east-2:123456789012:rule/bus-*"}}


@pytest.mark.parametrize(
    ("statements", "sealed"),
    [
        ([ONLY], True),
        ([ONLY, ALLOW | {"Condition": RULE}], True),
        ([ONLY, ALLOW], False),  # a rule of any account
        ([ALLOW | {"Condition": RULE}], False),
        ([DENY | {"Condition": {"ArnLike": WRITERS}}], False),
        ([DENY | {"Condition": {"ArnNotLike": WRITERS, "IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}], False),
        ([DENY | {"Condition": {"Bool": {"aws:SecureTransport": "false"}}}], False),
        ([ONLY | {"Effect": "Allow"}], False),
        ([ONLY | {"Principal": {"AWS": "arn:aws:iam::1:root"}}], False),
        ([ONLY | {"Action": "sqs:DeleteMessage"}], False),
        (["nonsense"], False),
    ],
)
def test_a_policy_is_tight_when_it_lets_only_named_rules_and_roles_write(
    statements: Any, sealed: bool
) -> None:
    assert denies_others(json.dumps({"Statement": statements})) is sealed


@pytest.mark.parametrize("policy", [None, "", "{", "[]", "[" * 5_000, '{"Statement": 1}'])
def test_a_policy_that_cannot_be_read_is_not_tight(policy: Any) -> None:
    assert not denies_others(policy)
