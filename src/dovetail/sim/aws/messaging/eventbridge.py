"""EventBridge buses: rules, and how an event reaches the queues they name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address, ip_network
from typing import Any

from dovetail.sim.aws.messaging.queues import SimQueues
from dovetail.sim.aws.service import Json, ServiceState

__all__ = ["BadPattern", "EventBus", "EventBuses", "EventRule", "check_pattern", "matches_pattern"]

ABSENT = object()
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


class BadPattern(ValueError):
    """The pattern is not one EventBridge takes."""


def check_pattern(pattern: object) -> None:
    """Raise BadPattern unless every leaf is a list of values or matchers."""
    if not isinstance(pattern, Mapping) or not pattern:
        raise BadPattern(
            "Event pattern is not valid. Reason: it must be a JSON object with at least one field"
        )
    for key, wanted in pattern.items():
        if key == "$or":
            if not isinstance(wanted, Sequence) or len(wanted) < 2:
                raise BadPattern(
                    "Event pattern is not valid. Reason: $or needs an array of at least 2 patterns"
                )
            for each in wanted:
                check_pattern(each)
        elif isinstance(wanted, Mapping):
            check_pattern(wanted)
        elif isinstance(wanted, list):
            _check_leaf(key, wanted)
        else:
            raise BadPattern(f'Event pattern is not valid. Reason: "{key}" must be an object or an array')


def _check_leaf(key: str, wanted: list[object]) -> None:
    if not wanted:
        raise BadPattern("Event pattern is not valid. Reason: Empty arrays are not allowed")
    for each in wanted:
        if isinstance(each, Mapping) and (len(each) != 1 or next(iter(each)) not in MATCHERS):
            raise BadPattern(f"Event pattern is not valid. Reason: Unrecognized match type in {key}")
        if isinstance(each, list):
            raise BadPattern(f"Event pattern is not valid. Reason: an array inside the array of {key}")


def matches_pattern(pattern: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Every field of the pattern is met; of the values of a field, one."""
    return all(
        any(matches_pattern(each, event) for each in wanted)
        if key == "$or"
        else _matches_field(wanted, event.get(key, ABSENT) if isinstance(event, Mapping) else ABSENT)
        for key, wanted in pattern.items()
    )


def _matches_field(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, Mapping):
        if isinstance(value, list):
            return any(isinstance(each, Mapping) and matches_pattern(wanted, each) for each in value)
        return matches_pattern(wanted, value if isinstance(value, Mapping) else {})
    values = value if isinstance(value, list) else [value]
    if value == []:
        values = [ABSENT]
    return any(_matches_value(each, one) for each in wanted for one in values)


def _matches_value(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, Mapping):
        ((name, argument),) = wanted.items()
        return MATCHERS[name](argument, value)
    if value is ABSENT or isinstance(value, Mapping):
        return False
    return (type(wanted) is type(value) and wanted == value) or _same_number(wanted, value)


def _same_number(one: Any, other: Any) -> bool:
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (one, other))
    return numbers and float(one) == float(other)


def _build_text_matcher(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def meets(wanted: Any, value: Any) -> bool:
        if isinstance(wanted, Mapping):
            wanted, folded = wanted.get("equals-ignore-case", ""), True
            return isinstance(value, str) and folded and test(wanted.casefold(), value.casefold())
        return isinstance(value, str) and test(wanted, value)

    return meets


def _anything_but(wanted: Any, value: Any) -> bool:
    if value is ABSENT:
        return False
    if isinstance(wanted, Mapping):
        ((name, argument),) = wanted.items()
        listed = argument if isinstance(argument, list) else [argument]
        return not any(MATCHERS[name](each, value) for each in listed)
    return value not in (wanted if isinstance(wanted, list) else [wanted])


def _matches_number(wanted: list[Any], value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    pairs = zip(wanted[::2], wanted[1::2], strict=True)
    return all(COMPARISONS[sign](float(value), float(bound)) for sign, bound in pairs)


def _matches_presence(wanted: Any, value: Any) -> bool:
    return (value is not ABSENT and not isinstance(value, Mapping)) is bool(wanted)


def _matches_cidr(wanted: str, value: Any) -> bool:
    try:
        return isinstance(value, str) and ip_address(value) in ip_network(wanted)
    except ValueError:
        return False


def _matches_wildcard(wanted: str, value: Any) -> bool:
    pattern = ".*".join(re.escape(part) for part in wanted.split("*"))
    return isinstance(value, str) and re.fullmatch(pattern, value, re.DOTALL) is not None


MATCHERS: dict[str, Callable[[Any, Any], bool]] = {
    "prefix": _build_text_matcher(lambda wanted, value: value.startswith(wanted)),
    "suffix": _build_text_matcher(lambda wanted, value: value.endswith(wanted)),
    "equals-ignore-case": _build_text_matcher(lambda wanted, value: value.casefold() == wanted.casefold()),
    "wildcard": _matches_wildcard,
    "anything-but": _anything_but,
    "numeric": _matches_number,
    "exists": _matches_presence,
    "cidr": _matches_cidr,
}


# Seconds from an event to its delivery, from and to.
DELIVERY = (0.1, 0.8)
PLACEHOLDER = re.compile(r"<([A-Za-z0-9_.-]+)>")


@dataclass(slots=True)
class EventRule:
    """Which events go where."""

    name: str
    arn: str
    pattern: Mapping[str, Any] | None = None
    enabled: bool = True
    description: str = ""
    schedule: str = ""
    role: str = ""
    targets: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class EventBus:
    """A bus and its rules."""

    name: str
    arn: str
    created: datetime
    rules: dict[str, EventRule] = field(default_factory=dict)


class EventBuses(ServiceState):
    """The event buses of an account in a region; `undelivered` counts what no target took, by its ARN."""

    def init_state(self) -> None:
        self.delay = DELIVERY
        self.undelivered: dict[str, int] = {}
        self.by_name: dict[str, EventBus] = {}
        self.add("default")

    def add(self, name: str) -> EventBus:
        arn = f"arn:aws:events:{self.region}:{self.account}:event-bus/{name}"
        made = self.by_name[name] = EventBus(name, arn, self.clock.now())
        return made

    def find(self, name: str) -> EventBus | None:
        """By name or ARN."""
        return self.by_name.get(name.rpartition("event-bus/")[2] or name)

    def emit_event(
        self, source: str, kind: str, detail: Mapping[str, Any], resources: list[str], **more: Any
    ) -> Json:
        """An event of an AWS service, on the default bus."""
        event = {
            "version": "0",
            "id": self.world.random_uuid(),
            "detail-type": kind,
            "source": source,
            "account": self.account,
            "time": f"{self.clock.now():%Y-%m-%dT%H:%M:%SZ}",
            "region": self.region,
            "resources": resources,
            "detail": dict(detail),
            **more,
        }
        self.put_event("default", event)
        return event

    def put_event(self, bus: str, event: Json) -> None:
        """Every matching rule sends it on, a moment later."""
        if bus == "default":
            self.world.notify_listeners("event", event)
        found = self.find(bus)
        if found is None:
            return
        for rule in found.rules.values():
            if rule.enabled and rule.pattern is not None and matches_pattern(rule.pattern, event):
                for target in rule.targets.values():
                    self._schedule_delivery(target, event, rule)

    def _schedule_delivery(self, target: Mapping[str, Any], event: Json, rule: EventRule) -> None:
        self.world.call_later(
            self.rng.uniform(*self.delay), lambda: self._deliver_event(dict(target), event, rule)
        )

    def _deliver_event(self, target: Mapping[str, Any], event: Json, rule: EventRule) -> None:
        arn = target["Arn"]
        kind, account, region = arn.split(":")[2], arn.split(":")[4], arn.split(":")[3]
        if kind == "events":
            other = self.world.get_state(EventBuses, account, region)
            if other.find(arn.rpartition("event-bus/")[2]) is not None:
                other.put_event(arn.rpartition("event-bus/")[2], event)
                return
        elif kind == "sqs":
            queue = self.world.get_state(SimQueues, account, region).find_by_arn(arn)
            if queue is not None:
                queue.send(_build_input(target, event, rule))
                return
        else:
            self.world.notify_listeners(
                f"target:{kind}", (arn, json.loads(_build_input(target, event, rule)))
            )
            return
        self._send_to_dead_letters(target, event, rule)

    def _send_to_dead_letters(self, target: Mapping[str, Any], event: Json, rule: EventRule) -> None:
        """Nobody took it: the target's own dead-letter queue gets it, or it is lost."""
        self.undelivered[target["Arn"]] = self.undelivered.get(target["Arn"], 0) + 1
        letters = (target.get("DeadLetterConfig") or {}).get("Arn", "")
        queue = self.world.get_state(SimQueues, self.account, self.region).find_by_arn(letters)
        if queue is not None:
            told = {"RULE_ARN": rule.arn, "TARGET_ARN": target["Arn"], "ERROR_CODE": "NO_RESOURCE"}
            said = {name: {"DataType": "String", "StringValue": value} for name, value in told.items()}
            queue.send(json.dumps(event), said)


def _build_input(target: Mapping[str, Any], event: Json, rule: EventRule) -> str:
    """What a target is sent: the event, a part of it, or a text made of its parts."""
    if "Input" in target:
        return str(target["Input"])
    if path := target.get("InputPath"):
        return json.dumps(_read_path(path, event))
    if transformer := target.get("InputTransformer"):
        known = {
            name: _read_path(path, event) for name, path in (transformer.get("InputPathsMap") or {}).items()
        }
        known |= {
            "aws.events.rule-arn": rule.arn,
            "aws.events.rule-name": rule.name,
            "aws.events.event.ingestion-time": event.get("time", ""),
            "aws.events.event.json": json.dumps(event),
            "aws.events.event": json.dumps({key: value for key, value in event.items() if key != "detail"}),
        }
        return PLACEHOLDER.sub(lambda found: _format_value(known.get(found[1])), transformer["InputTemplate"])
    return json.dumps(event, separators=(",", ":"))


def _read_path(path: str, event: Any) -> Any:
    value = event
    for part in path.removeprefix("$").strip(".").split("."):
        if part:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)
