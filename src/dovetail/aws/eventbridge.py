"""What AWS says about its machines, read from the text of an EventBridge event.

The rules are those of Karpenter's parser, value by value: three strings choose the reading, some contents
make a message no one's business, and names of members match in any case. Nothing is asked, nothing kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn

__all__ = [
    "ENVELOPE",
    "NOTHING",
    "READINGS",
    "EventMessage",
    "MalformedMessage",
    "MessageKind",
    "parse_message",
]


class MessageKind(StrEnum):
    """What a message means for the instances it names; the values are Karpenter's words in metrics."""

    SPOT_INTERRUPTED = "spot_interrupted"
    CAPACITY_RESERVATION_INTERRUPTED = "capacity_reservation_interrupted"
    REBALANCE_RECOMMENDATION = "rebalance_recommendation"
    INSTANCE_STOPPED = "instance_stopped"
    INSTANCE_TERMINATED = "instance_terminated"
    SCHEDULED_CHANGE = "scheduled_change"
    NO_OP = "no_op"


class MalformedMessage(ValueError):
    """A message that cannot be taken at its word; the text says why."""


class EventMessage(NamedTuple):
    """An event, read. `detail` has its members in lower case; `document` is the whole, as it came."""

    kind: MessageKind
    instances: tuple[str, ...] = ()
    time: datetime | None = None
    id: str = ""
    account: str = ""
    region: str = ""
    source: str = ""
    detail_type: str = ""
    detail: Mapping[str, Any] = {}
    document: Mapping[str, Any] = {}


ENVELOPE = frozenset(
    ("version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail")
)
TEXTS = ("version", "id", "detail-type", "source", "account", "region")
ALL_TEXT = {str}
# What most details hold; a name in another case is not among them.
PLAIN = frozenset(("instance-id", "instance-action", "state", "instance-termination-time"))
STOPPED = frozenset(("stopping", "stopped"))
ENDING = STOPPED | {"shutting-down", "terminated"}
# RFC 3339 as Go reads it: fromisoformat alone would take dates, week numbers and spaces as well.
TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
).fullmatch
NOTHING = EventMessage(MessageKind.NO_OP)


def parse_message(body: str) -> EventMessage:
    """What a message says; Malformed when it is none."""
    if not body:
        return NOTHING
    try:
        document = _decode(body)
    except (ValueError, RecursionError) as error:
        raise MalformedMessage("it is not JSON") from error
    if document is None:
        return NOTHING
    if not isinstance(document, dict):
        raise MalformedMessage("it is not an object")
    return _read_document(document)


def _read_document(document: dict[str, Any]) -> EventMessage:
    envelope = document if document.keys() == ENVELOPE else _fold_case(document)
    given = [envelope.get(name) for name in TEXTS]
    if {*map(type, given)} != ALL_TEXT:
        _check_texts(envelope)
    version, id, named, source, account, region = (each or "" for each in given)
    time = _read_time(envelope.get("time"))
    reading = READINGS.get((source, named)) if version == "0" else None
    kind: MessageKind = MessageKind.NO_OP
    instances: tuple[str, ...] = ()
    detail: Mapping[str, Any] = {}
    if reading is not None:
        detail = _read_detail(envelope.get("detail"))
        kind, instances = reading(detail)
    return EventMessage(
        kind,
        instances,
        time,
        id,
        account,
        region,
        source,
        named,
        detail,
        document,
    )


def _read_spot(detail: Mapping[str, Any]) -> tuple[MessageKind, tuple[str, ...]]:
    return MessageKind.SPOT_INTERRUPTED, _read_instance(detail)


def _read_reservation(detail: Mapping[str, Any]) -> tuple[MessageKind, tuple[str, ...]]:
    return MessageKind.CAPACITY_RESERVATION_INTERRUPTED, _read_instance(detail)


def _read_rebalance(detail: Mapping[str, Any]) -> tuple[MessageKind, tuple[str, ...]]:
    return MessageKind.REBALANCE_RECOMMENDATION, _read_instance(detail)


def _read_state_change(detail: Mapping[str, Any]) -> tuple[MessageKind, tuple[str, ...]]:
    state = _read_text(detail, "state")
    if state.lower() not in ENDING:
        return MessageKind.NO_OP, ()
    # Karpenter: states count in any case, but only the plain spelling tells stopped from terminated.
    kind = MessageKind.INSTANCE_STOPPED if state in STOPPED else MessageKind.INSTANCE_TERMINATED
    return kind, _read_instance(detail)


def _read_health(detail: Mapping[str, Any]) -> tuple[MessageKind, tuple[str, ...]]:
    if _read_text(detail, "service") != "EC2" or _read_text(detail, "eventtypecategory") != "scheduledChange":
        return MessageKind.NO_OP, ()
    entities = detail.get("affectedentities") or ()
    if not isinstance(entities, list | tuple):
        raise MalformedMessage("affectedEntities is not a list")
    return MessageKind.SCHEDULED_CHANGE, tuple(map(_read_entity, entities))


READINGS: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], tuple[MessageKind, tuple[str, ...]]]] = {
    ("aws.ec2", "EC2 Spot Instance Interruption Warning"): _read_spot,
    ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"): _read_reservation,
    ("aws.ec2", "EC2 Instance Rebalance Recommendation"): _read_rebalance,
    ("aws.ec2", "EC2 Instance State-change Notification"): _read_state_change,
    ("aws.health", "AWS Health Event"): _read_health,
}


def _read_instance(detail: Mapping[str, Any]) -> tuple[str, ...]:
    name = detail.get("instance-id")
    if not name or not isinstance(name, str):
        raise MalformedMessage("it names no instance")
    return (name,)


def _read_entity(entity: Any) -> str:
    if not isinstance(entity, dict):
        raise MalformedMessage("an affected entity is not an object")
    name = _read_text(_fold_case(entity), "entityvalue")
    if not name:
        raise MalformedMessage("an affected entity has no value")
    return name.rpartition("/")[2]  # an instance's ARN ends with its id


def _read_detail(detail: Any) -> Mapping[str, Any]:
    if detail is None:
        return {}
    if not isinstance(detail, dict):
        raise MalformedMessage("detail is not an object")
    return detail if detail.keys() <= PLAIN else _fold_case(detail)


def _fold_case(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name.casefold(): value for name, value in members.items()}


def _read_text(members: Mapping[str, Any], name: str) -> str:
    value = members.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedMessage(f"{name} is not a text")
    return value


def _check_texts(envelope: Mapping[str, Any]) -> None:
    for name in TEXTS:
        if not isinstance(envelope.get(name), str | None):
            raise MalformedMessage(f"{name} is not a text")


def _read_time(value: Any) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, str) or not TIME(value):
        raise MalformedMessage("its time is not a time")
    try:
        return datetime.fromisoformat(value)
    except ValueError as error:
        raise MalformedMessage("its time is not a time") from error


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
