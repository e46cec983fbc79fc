"""EventBridge buses: rules, and how an event reaches the queues they name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dovetail.sim.aws.asking import Json, Subject
from dovetail.sim.aws.patterns import matches
from dovetail.sim.aws.queues import Queues

__all__ = ["Bus", "Buses", "Rule"]

# Seconds from an event to its delivery, from and to.
DELIVERY = (0.1, 0.8)
PLACEHOLDER = re.compile(r"<([A-Za-z0-9_.-]+)>")


@dataclass(slots=True)
class Rule:
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
class Bus:
    """A bus and its rules."""

    name: str
    arn: str
    created: datetime
    rules: dict[str, Rule] = field(default_factory=dict)


class Buses(Subject):
    """The event buses of an account in a region; `undelivered` counts what no target took, by its ARN."""

    def begin(self) -> None:
        self.delay = DELIVERY
        self.undelivered: dict[str, int] = {}
        self.by_name: dict[str, Bus] = {}
        self.add("default")

    def add(self, name: str) -> Bus:
        arn = f"arn:aws:events:{self.region}:{self.account}:event-bus/{name}"
        made = self.by_name[name] = Bus(name, arn, self.clock.now())
        return made

    def find(self, name: str) -> Bus | None:
        """By name or ARN."""
        return self.by_name.get(name.rpartition("event-bus/")[2] or name)

    def emit(
        self, source: str, kind: str, detail: Mapping[str, Any], resources: list[str], **more: Any
    ) -> Json:
        """An event of an AWS service, on the default bus."""
        event = {
            "version": "0",
            "id": self.ground.uuid(),
            "detail-type": kind,
            "source": source,
            "account": self.account,
            "time": f"{self.clock.now():%Y-%m-%dT%H:%M:%SZ}",
            "region": self.region,
            "resources": resources,
            "detail": dict(detail),
            **more,
        }
        self.put("default", event)
        return event

    def put(self, bus: str, event: Json) -> None:
        """Every matching rule sends it on, a moment later."""
        if bus == "default":
            self.ground.tell("event", event)
        found = self.find(bus)
        if found is None:
            return
        for rule in found.rules.values():
            if rule.enabled and rule.pattern is not None and matches(rule.pattern, event):
                for target in rule.targets.values():
                    self._send(target, event, rule)

    def _send(self, target: Mapping[str, Any], event: Json, rule: Rule) -> None:
        self.ground.later(self.rng.uniform(*self.delay), lambda: self._deliver(dict(target), event, rule))

    def _deliver(self, target: Mapping[str, Any], event: Json, rule: Rule) -> None:
        arn = target["Arn"]
        kind, account, region = arn.split(":")[2], arn.split(":")[4], arn.split(":")[3]
        if kind == "events":
            other = self.ground.subject(Buses, account, region)
            if other.find(arn.rpartition("event-bus/")[2]) is not None:
                other.put(arn.rpartition("event-bus/")[2], event)
                return
        elif kind == "sqs":
            queue = self.ground.subject(Queues, account, region).by_arn(arn)
            if queue is not None:
                queue.send(_input(target, event, rule))
                return
        else:
            self.ground.tell(f"target:{kind}", (arn, json.loads(_input(target, event, rule))))
            return
        self._dead(target, event, rule)

    def _dead(self, target: Mapping[str, Any], event: Json, rule: Rule) -> None:
        """Nobody took it: the target's own dead-letter queue gets it, or it is lost."""
        self.undelivered[target["Arn"]] = self.undelivered.get(target["Arn"], 0) + 1
        letters = (target.get("DeadLetterConfig") or {}).get("Arn", "")
        queue = self.ground.subject(Queues, self.account, self.region).by_arn(letters)
        if queue is not None:
            told = {"RULE_ARN": rule.arn, "TARGET_ARN": target["Arn"], "ERROR_CODE": "NO_RESOURCE"}
            said = {name: {"DataType": "String", "StringValue": value} for name, value in told.items()}
            queue.send(json.dumps(event), said)


def _input(target: Mapping[str, Any], event: Json, rule: Rule) -> str:
    """What a target is sent: the event, a part of it, or a text made of its parts."""
    if "Input" in target:
        return str(target["Input"])
    if path := target.get("InputPath"):
        return json.dumps(_at(path, event))
    if transformer := target.get("InputTransformer"):
        known = {name: _at(path, event) for name, path in (transformer.get("InputPathsMap") or {}).items()}
        known |= {
            "aws.events.rule-arn": rule.arn,
            "aws.events.rule-name": rule.name,
            "aws.events.event.ingestion-time": event.get("time", ""),
            "aws.events.event.json": json.dumps(event),
            "aws.events.event": json.dumps({key: value for key, value in event.items() if key != "detail"}),
        }
        return PLACEHOLDER.sub(lambda found: _written(known.get(found[1])), transformer["InputTemplate"])
    return json.dumps(event, separators=(",", ":"))


def _at(path: str, event: Any) -> Any:
    value = event
    for part in path.removeprefix("$").strip(".").split("."):
        if part:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _written(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)
