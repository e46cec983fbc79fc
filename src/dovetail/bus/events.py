"""From the body of a queue message to an event: unwrapped, checked, classified. Pure.

Bodies are untrusted. Whatever is wrong with one comes out as a Refusal that says what becomes of it; nothing
in a body is ever evaluated, followed or used as an address.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from dovetail.aws.eventbridge import (
    NOTHING,
    READINGS,
    EventMessage,
    MalformedMessage,
    MessageKind,
    parse_message,
)

__all__ = [
    "ASG_TERMINATE",
    "CANARY",
    "INVOKED",
    "KINDS",
    "OPTIONAL_KINDS",
    "URGENT_KINDS",
    "ZONAL_SHIFT",
    "BusEvent",
    "BusPlace",
    "EventRules",
    "Lane",
    "MessageFate",
    "MessageRefusal",
    "ReceivedMessage",
    "TrustedSenders",
    "read_event",
    "unwrap_body",
]

NOTICE = 120.0
CANARY, CANARY_SOURCE = "canary", "dovetail.bus.canary"
ASG_TERMINATE, ZONAL_SHIFT = "asg_terminate", "zonal_shift"
OPTIONAL_KINDS = frozenset((ASG_TERMINATE, ZONAL_SHIFT))
KINDS = frozenset(str(kind) for kind in MessageKind if kind is not MessageKind.NO_OP) | OPTIONAL_KINDS
VALUES = {kind: str(kind) for kind in MessageKind}  # an enum's value is slow to read
URGENT_KINDS = frozenset(
    ("spot_interrupted", "capacity_reservation_interrupted", ASG_TERMINATE, ZONAL_SHIFT, CANARY)
)
# `{"event": <aws.events.event.json>}`: the wrapper an input transformer is usually told to make.
WRAPPER = re.compile(r'\s*\{\s*"event"\s*:\s*').match
INSTANCE = re.compile(r"i-[0-9a-zA-Z]{1,40}").fullmatch

# The sender of an event that came by a call of the function, which IAM has let in.
INVOKED = "lambda:invoke"
SERVICE = "AIDA"


class Lane(StrEnum):
    """Warnings and the rest never share a queue, a function or a worker."""

    URGENT = "urgent"
    BULK = "bulk"


class BusPlace(NamedTuple):
    """Where instances live: their ids mean something in one account and region."""

    account: str
    region: str


class MessageFate(StrEnum):
    """What becomes of a message that is not routed."""

    PARKED = "parked"  # acknowledged once it is safe in the park queue
    DROPPED = "dropped"  # acknowledged and counted
    KEPT = "kept"  # never acknowledged: the redrive policy moves it to the dead letters


class MessageRefusal(NamedTuple):
    """Why a message is not routed, and what becomes of it."""

    fate: MessageFate
    reason: str


@dataclass(slots=True)
class ReceivedMessage:
    """One message of a source queue. Times are seconds; `at` is the local monotonic clock."""

    id: str
    body: str
    receipt: str = ""
    sent: float | None = None
    at: float = 0.0
    receives: int = 1
    hops: int = 0
    sender: str = ""
    queue: str = ""


class BusEvent(NamedTuple):
    """What the router needs to know of an event. Times are seconds since 1970."""

    kind: str
    instances: tuple[str, ...]
    place: BusPlace
    urgent: bool
    key: tuple[str, ...]
    time: float | None
    deadline: float | None
    id: str
    # Only where routing reads more of it: a storm of small events should not keep their documents alive.
    message: EventMessage = NOTHING

    @property
    def contents(self) -> Hashable:
        """What two messages share that say the same: a part of a Health event is not the whole of it."""
        return (self.key, frozenset(self.instances)) if self.message.instances else self.key


@dataclass(frozen=True, slots=True)
class TrustedSenders:
    """Senders that are believed: by the id of a role or user, the accounts it speaks for, or all for None.

    SQS notes the sender of each message: `AROA…:<session>` for a role, `AIDA…` for a user or for a service of
    AWS such as EventBridge. EventBridge vouches for the account an event names. A role does not: what it
    writes counts for the accounts it is listed with and for no other.

    `sealed` says that the queues' own policies deny everybody but their rules and the roles they name, so
    that whoever is not listed is one of those.
    """

    listed: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    sealed: bool = False

    def trusts_sender(self, sender: str) -> bool:
        """Whether anything this sender writes is taken."""
        if sender == INVOKED or self._is_listed(sender):
            return True
        return bool(sender) and (self.sealed or (sender.startswith(SERVICE) and ":" not in sender))

    def speaks_for(self, sender: str, account: str) -> bool:
        """Whether a sender that is believed may name this account."""
        if not self._is_listed(sender):
            return True
        accounts = self.listed[sender if sender in self.listed else _find_role_id(sender)]
        return accounts is None or account in accounts

    def _is_listed(self, sender: str) -> bool:
        return sender in self.listed or _find_role_id(sender) in self.listed


def _find_role_id(sender: str) -> str:
    """A role's id, whatever its session is called."""
    return sender.partition(":")[0]


@dataclass(frozen=True, slots=True)
class EventRules:
    """Which events the router answers for."""

    accounts: frozenset[str]
    regions: frozenset[str]
    most_bytes: int = 262_144
    senders: TrustedSenders | None = None
    optional_kinds: frozenset[str] = frozenset()
    urgent_rebalance: bool = False
    canary: bool = False


def read_event(received: ReceivedMessage, rules: EventRules) -> tuple[str, BusEvent | MessageRefusal]:
    """The body to forward, and the event in it or why there is none."""
    body = received.body
    if len(body) > rules.most_bytes or (
        len(body) * 4 > rules.most_bytes and len(body.encode("utf-8", "surrogatepass")) > rules.most_bytes
    ):
        return body, MessageRefusal(MessageFate.PARKED, "oversize")
    if received.hops > 1:
        return body, MessageRefusal(MessageFate.PARKED, "loop")
    senders = rules.senders
    if senders is not None and not senders.trusts_sender(received.sender):
        return body, MessageRefusal(MessageFate.PARKED, "unknown_sender")
    try:
        body = unwrap_body(body)
        message = parse_message(body)
    except MalformedMessage:
        return body, MessageRefusal(MessageFate.KEPT, "malformed")
    event = _classify_message(message, rules)
    if (
        senders is not None
        and isinstance(event, BusEvent)
        and not senders.speaks_for(received.sender, event.place.account)
    ):
        return body, MessageRefusal(MessageFate.PARKED, "forged_account")
    return body, event


def unwrap_body(body: str) -> str:
    """The event inside an SNS notification or an input transformer's wrapper, to the byte; or the body."""
    if '"Notification"' in body:
        outer = _parse_object(body)
        if outer.get("Type") == "Notification" and isinstance(outer.get("Message"), str):
            return str(outer["Message"])
    opening = WRAPPER(body) if '"event"' in body[:32] else None
    if opening is None:
        return body
    try:
        inner, end = json.JSONDecoder().raw_decode(body, opening.end())
    except (ValueError, RecursionError):
        return body
    if isinstance(inner, str):
        return inner
    return body[opening.end() : end] if body[end:].strip() == "}" else body


def _parse_object(body: str) -> Mapping[str, Any]:
    try:
        outer = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return outer if isinstance(outer, dict) else {}


def _classify_message(message: EventMessage, rules: EventRules) -> BusEvent | MessageRefusal:
    kind = message.kind
    if kind is MessageKind.NO_OP:
        return _read_other_event(message, rules)
    if kind is MessageKind.SCHEDULED_CHANGE:
        return _read_health_event(message, rules)
    if message.account not in rules.accounts:
        return MessageRefusal(MessageFate.PARKED, "wrong_account")
    if message.region not in rules.regions:
        return MessageRefusal(MessageFate.PARKED, "wrong_region")
    if not INSTANCE(message.instances[0]):
        return MessageRefusal(MessageFate.KEPT, "malformed")
    time = message.time.timestamp() if message.time is not None else None
    urgent = kind in URGENT_KINDS or (rules.urgent_rebalance and kind is MessageKind.REBALANCE_RECOMMENDATION)
    return BusEvent(
        VALUES[kind],
        message.instances,
        BusPlace(message.account, message.region),
        urgent,
        # With the instance, so that a forged id cannot silence a warning about another one.
        (message.account, message.id, message.instances[0]),
        time,
        _find_deadline(message, time) if urgent else None,
        message.id,
    )


def _find_deadline(message: EventMessage, time: float | None) -> float | None:
    told = message.detail.get("instance-termination-time")
    if isinstance(told, str):
        try:
            return datetime.fromisoformat(told).timestamp()
        except (ValueError, OverflowError):
            pass  # the notice is two minutes all the same
    return time + NOTICE if time is not None else None


def _read_health_event(message: EventMessage, rules: EventRules) -> BusEvent | MessageRefusal:
    """Health tells where it was delivered; what is affected may be elsewhere."""
    detail = message.detail
    account = _text_or_empty(detail.get("affectedaccount")) or message.account
    region = _text_or_empty(detail.get("eventregion")) or message.region
    if account not in rules.accounts:
        return MessageRefusal(MessageFate.PARKED, "wrong_account")
    if region not in rules.regions:
        return MessageRefusal(MessageFate.PARKED, "wrong_region")
    if not message.instances:
        return MessageRefusal(MessageFate.DROPPED, "no_instances")
    if not all(map(INSTANCE, message.instances)):
        return MessageRefusal(MessageFate.KEPT, "malformed")
    communication = _text_or_empty(detail.get("communicationid"))
    # Pages of one communication share its id, so the page is a part of the key; backup copies share both.
    key = (
        (account, communication, _text_or_empty(detail.get("page")))
        if communication
        else (account, message.id)
    )
    time = message.time.timestamp() if message.time is not None else None
    starts = _parse_start(_text_or_empty(detail.get("starttime")))
    return BusEvent(
        message.kind.value,
        tuple(dict.fromkeys(message.instances)),
        BusPlace(account, region),
        False,
        key,
        time,
        starts,
        message.id,
        message,
    )


def _parse_start(text: str) -> float | None:
    if not text:
        return None
    from email.utils import parsedate_to_datetime  # slow to import, and Health events are rare

    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def _read_other_event(message: EventMessage, rules: EventRules) -> BusEvent | MessageRefusal:
    """Events that Karpenter's parser does not read: ours, the optional ones, and everything else."""
    source = message.source
    if (source, message.detail_type) in READINGS and message.document.get("version", "0") == "0":
        return MessageRefusal(MessageFate.DROPPED, "not_wanted")
    optional = OPTIONAL.get((source, message.detail_type)) or OPTIONAL.get((source, "*"))
    if source == CANARY_SOURCE and rules.canary:
        optional = CANARY
    elif source and not source.startswith("aws."):
        return MessageRefusal(MessageFate.PARKED, "forged_source")
    if optional is None or (optional not in rules.optional_kinds and optional != CANARY):
        return MessageRefusal(MessageFate.PARKED, "unknown_kind")
    if message.account not in rules.accounts:
        return MessageRefusal(MessageFate.PARKED, "wrong_account")
    if message.region not in rules.regions:
        return MessageRefusal(MessageFate.PARKED, "wrong_region")
    return _read_optional_event(optional, message)


OPTIONAL = {
    ("aws.autoscaling", "EC2 Instance-terminate Lifecycle Action"): ASG_TERMINATE,
    ("aws.arc-zonal-shift", "*"): ZONAL_SHIFT,
}


def _read_optional_event(kind: str, message: EventMessage) -> BusEvent | MessageRefusal:
    instances: tuple[str, ...] = ()
    if kind == ASG_TERMINATE:
        detail = message.document.get("detail")
        named = detail.get("EC2InstanceId") if isinstance(detail, dict) else None
        if not isinstance(named, str) or not INSTANCE(named):
            return MessageRefusal(MessageFate.KEPT, "malformed")
        instances = (named,)
    time = message.time.timestamp() if message.time is not None else None
    place, key = BusPlace(message.account, message.region), (message.account, message.id, *instances)
    return BusEvent(kind, instances, place, True, key, time, None, message.id, message)


def _text_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""
