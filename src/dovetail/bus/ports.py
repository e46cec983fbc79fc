"""What the router needs from outside: AWS, time, chance, and a place for its numbers; in every shell.

The shapes are small enough for a function of 256 MB.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, Protocol

from dovetail.aws import Aws
from dovetail.bus.config import BusConfig

__all__ = [
    "METRICS",
    "BusClock",
    "BusCounts",
    "BusMetric",
    "BusTally",
    "EmfMetrics",
    "RouterContext",
    "WallClock",
]


class BusClock(Protocol):
    """The part of `ports.Clock` that is used here; that module would bring the whole API along."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class WallClock:
    """Time as the machine tells it."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class BusMetric:
    """A metric's kind, its labels and its sentence."""

    __slots__ = ("about", "kind", "labels", "unit")

    def __init__(self, kind: str, labels: tuple[str, ...], about: str, unit: str = "Count") -> None:
        self.kind, self.labels, self.about, self.unit = kind, labels, about, unit


# By name, without the prefix `dovetail_bus_`.
METRICS: Mapping[str, BusMetric] = {
    "received_total": BusMetric("counter", ("lane", "kind"), "Events received."),
    "routed_total": BusMetric("counter", ("cluster", "kind"), "Copies confirmed by a cluster's queue."),
    "dropped_total": BusMetric("counter", ("reason",), "Events, or parts of one, dropped by policy."),
    "parked_total": BusMetric("counter", ("reason",), "Events, or parts of one, put in a park queue."),
    "kept_total": BusMetric(
        "counter", ("reason",), "Receives of messages that are left for the dead letters."
    ),
    "duplicates_total": BusMetric("counter", (), "Events recognised as already delivered."),
    "unresolved_total": BusMetric("counter", ("kind",), "Events whose instances could not be looked up."),
    "broadcast_total": BusMetric("counter", (), "Warnings sent to every cluster of their place."),
    "send_failures_total": BusMetric("counter", ("code",), "Entries that a queue did not take."),
    "source_failures_total": BusMetric("counter", (), "Messages left for another attempt."),
    "lookup_calls_total": BusMetric("counter", ("result",), "DescribeInstances calls."),
    "lookup_ids_total": BusMetric("counter", (), "Instance ids looked up."),
    "cache_hit_ratio": BusMetric("gauge", (), "Part of the questions about instances answered from memory."),
    "cache_entries": BusMetric("gauge", (), "Instances remembered."),
    "ec2_tokens": BusMetric("gauge", (), "DescribeInstances calls that could be made at once."),
    "batch_size": BusMetric("histogram", ("lane",), "Messages worked on together."),
    "fill_ratio": BusMetric("histogram", (), "How full SendMessageBatch calls are, of ten."),
    "latency_seconds": BusMetric(
        "histogram", ("lane", "stage"), "From event to receive, and from receive to sent.", "Seconds"
    ),
    "deadline_remaining_seconds": BusMetric(
        "histogram", ("kind",), "What is left of the notice when a warning is sent.", "Seconds"
    ),
    "oldest_message_age_seconds": BusMetric(
        "gauge", ("queue",), "Age of the oldest message of the last batch.", "Seconds"
    ),
    "circuit_open": BusMetric("gauge", ("cluster",), "1 while nothing is sent to a cluster."),
    "workers_busy": BusMetric("gauge", (), "Batches under way."),
    "canary_seconds": BusMetric("gauge", (), "How long the latest canary took.", "Seconds"),
    "registry_problems_total": BusMetric("counter", ("source",), "Destinations that could not be read."),
}
PREFIX = "dovetail_bus_"
OTHER = "other"


class BusCounts(Protocol):
    """Where numbers go. Label values come in the order METRICS gives."""

    def add(self, name: str, amount: float, *labels: str) -> None:
        """Something happened so many times."""

    def set(self, name: str, value: float, *labels: str) -> None:
        """Something is so much now."""

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Something was so much this time."""


@dataclass(frozen=True, slots=True)
class RouterContext:
    """What a router is made of, already built: its configuration, AWS, time, numbers and chance."""

    config: BusConfig
    aws: Aws
    clock: BusClock
    counts: BusCounts
    rng: Random


class BusTally:
    """Numbers kept in memory, with the number of clusters that have their own bounded."""

    def __init__(self, most_clusters: int = 200) -> None:
        self.totals: dict[tuple[str, ...], float] = {}
        self.values: dict[tuple[str, ...], float] = {}
        self.observed: dict[tuple[str, ...], list[float]] = {}
        self._clusters: set[str] = set()
        self._most = most_clusters

    def add(self, name: str, amount: float, *labels: str) -> None:
        key = (name, *self.limit_labels(name, labels))
        self.totals[key] = self.totals.get(key, 0.0) + amount

    def set(self, name: str, value: float, *labels: str) -> None:
        self.values[name, *self.limit_labels(name, labels)] = value

    def observe(self, name: str, value: float, *labels: str) -> None:
        self.observed.setdefault((name, *self.limit_labels(name, labels)), []).append(value)

    def limit_labels(self, name: str, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Labels with a cluster beyond the bound folded into `other`."""
        if not labels or METRICS[name].labels[0] != "cluster" or labels[0] in self._clusters:
            return labels
        if len(self._clusters) < self._most:
            self._clusters.add(labels[0])
            return labels
        return (OTHER, *labels[1:])


class EmfMetrics(BusTally):
    """CloudWatch's embedded metric format: log lines that become metrics, written when a batch ends."""

    NAMESPACE = "Dovetail/Bus"
    MOST_VALUES = 100  # in one line, as CloudWatch allows

    def __init__(self, write: Callable[[str], object], most_clusters: int = 200) -> None:
        super().__init__(most_clusters)
        self._write = write

    def flush(self, now: float) -> None:
        """Write what was counted since the last time."""
        lines: dict[tuple[str, ...], dict[str, Any]] = {}
        for key, value in [*self.totals.items(), *self.values.items()]:
            lines.setdefault(key[1:], {})[key[0]] = value
        for key, values in self.observed.items():
            lines.setdefault(key[1:], {})[key[0]] = values[: self.MOST_VALUES]
        self.totals, self.values, self.observed = {}, {}, {}
        for labels, numbers in lines.items():
            for names in _group_by_labels(numbers):
                self._write(self._build_line(names, labels, numbers, now))

    def _build_line(
        self, names: list[str], labels: tuple[str, ...], numbers: dict[str, Any], now: float
    ) -> str:
        dimensions = METRICS[names[0]].labels
        metrics = [{"Name": PREFIX + name, "Unit": METRICS[name].unit} for name in names]
        directive = {"Namespace": self.NAMESPACE, "Dimensions": [list(dimensions)], "Metrics": metrics}
        line: dict[str, Any] = {"_aws": {"Timestamp": int(now * 1000), "CloudWatchMetrics": [directive]}}
        line |= dict(zip(dimensions, labels, strict=True))
        return json.dumps(line | {PREFIX + name: numbers[name] for name in names}, separators=(",", ":"))


def _group_by_labels(numbers: Mapping[str, Any]) -> list[list[str]]:
    """Names that share their labels, since a line has one set of them."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in numbers:
        groups.setdefault(METRICS[name].labels, []).append(name)
    return list(groups.values())
