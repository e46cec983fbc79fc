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

__all__ = ["ENVELOPE", "NOTHING", "READINGS", "Kind", "Malformed", "Message", "parse"]


class Kind(StrEnum):
    """What a message means for the instances it names; the values are Karpenter's words in metrics."""

    SPOT_INTERRUPTED = "spot_interrupted"
    CAPACITY_RESERVATION_INTERRUPTED = "capacity_reservation_interrupted"
    REBALANCE_RECOMMENDATION = "rebalance_recommendation"
    INSTANCE_STOPPED = "instance_stopped"
    INSTANCE_TERMINATED = "instance_terminated"
    SCHEDULED_CHANGE = "scheduled_change"
    NO_OP = "no_op"


class Malformed(ValueError):
    """A message that cannot be taken at its word; the text says why."""


class Message(NamedTuple):
    """An event, read. `detail` has its members in lower case; `document` is the whole, as it came."""

    kind: Kind
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
NOTHING = Message(Kind.NO_OP)


def parse(body: str) -> Message:
    """What a message says; Malformed when it is none."""
    if not body:
        return NOTHING
    try:
        document = _decode(body)
    except (ValueError, RecursionError) as error:
        raise Malformed("it is not JSON") from error
    if document is None:
        return NOTHING
    if not isinstance(document, dict):
        raise Malformed("it is not an object")
    return _read(document)


def _read(document: dict[str, Any]) -> Message:
    envelope = document if document.keys() == ENVELOPE else _folded(document)
    given = [envelope.get(name) for name in TEXTS]
    if {*map(type, given)} != ALL_TEXT:
        _check_texts(envelope)
    version, id, named, source, account, region = (each or "" for each in given)
    time = _time(envelope.get("time"))
    reading = READINGS.get((source, named)) if version == "0" else None
    kind: Kind = Kind.NO_OP
    instances: tuple[str, ...] = ()
    detail: Mapping[str, Any] = {}
    if reading is not None:
        detail = _detail(envelope.get("detail"))
        kind, instances = reading(detail)
    return Message(
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


def _spot(detail: Mapping[str, Any]) -> tuple[Kind, tuple[str, ...]]:
    return Kind.SPOT_INTERRUPTED, _instance(detail)


def _reservation(detail: Mapping[str, Any]) -> tuple[Kind, tuple[str, ...]]:
    return Kind.CAPACITY_RESERVATION_INTERRUPTED, _instance(detail)


def _rebalance(detail: Mapping[str, Any]) -> tuple[Kind, tuple[str, ...]]:
    return Kind.REBALANCE_RECOMMENDATION, _instance(detail)


def _state_change(detail: Mapping[str, Any]) -> tuple[Kind, tuple[str, ...]]:
    state = _text(detail, "state")
    if state.lower() not in ENDING:
        return Kind.NO_OP, ()
    # Karpenter: states count in any case, but only the plain spelling tells stopped from terminated.
    kind = Kind.INSTANCE_STOPPED if state in STOPPED else Kind.INSTANCE_TERMINATED
    return kind, _instance(detail)


def _health(detail: Mapping[str, Any]) -> tuple[Kind, tuple[str, ...]]:
    if _text(detail, "service") != "EC2" or _text(detail, "eventtypecategory") != "scheduledChange":
        return Kind.NO_OP, ()
    entities = detail.get("affectedentities") or ()
    if not isinstance(entities, list | tuple):
        raise Malformed("affectedEntities is not a list")
    return Kind.SCHEDULED_CHANGE, tuple(map(_entity, entities))


READINGS: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], tuple[Kind, tuple[str, ...]]]] = {
    ("aws.ec2", "EC2 Spot Instance Interruption Warning"): _spot,
    ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"): _reservation,
    ("aws.ec2", "EC2 Instance Rebalance Recommendation"): _rebalance,
    ("aws.ec2", "EC2 Instance State-change Notification"): _state_change,
    ("aws.health", "AWS Health Event"): _health,
}


def _instance(detail: Mapping[str, Any]) -> tuple[str, ...]:
    name = detail.get("instance-id")
    if not name or not isinstance(name, str):
        raise Malformed("it names no instance")
    return (name,)


def _entity(entity: Any) -> str:
    if not isinstance(entity, dict):
        raise Malformed("an affected entity is not an object")
    name = _text(_folded(entity), "entityvalue")
    if not name:
        raise Malformed("an affected entity has no value")
    return name.rpartition("/")[2]  # an instance's ARN ends with its id


def _detail(detail: Any) -> Mapping[str, Any]:
    if detail is None:
        return {}
    if not isinstance(detail, dict):
        raise Malformed("detail is not an object")
    return detail if detail.keys() <= PLAIN else _folded(detail)


def _folded(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name.casefold(): value for name, value in members.items()}


def _text(members: Mapping[str, Any], name: str) -> str:
    value = members.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Malformed(f"{name} is not a text")
    return value


def _check_texts(envelope: Mapping[str, Any]) -> None:
    for name in TEXTS:
        if not isinstance(envelope.get(name), str | None):
            raise Malformed(f"{name} is not a text")


def _time(value: Any) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, str) or not TIME(value):
        raise Malformed("its time is not a time")
    try:
        return datetime.fromisoformat(value)
    except ValueError as error:
        raise Malformed("its time is not a time") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse).decode
