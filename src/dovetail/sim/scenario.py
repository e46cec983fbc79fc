"""A scenario: pools, workloads and what happens to them, written down in YAML.

    apiVersion: dovetail.sh/v1alpha1
    kind: Scenario
    name: a web fleet by day and night
    duration: 24h
    pools: [{name: default, requirements: [...]}]
    workloads: [{name: web, cpu: 500m, memory: 1Gi, replicas: {curve: diurnal, low: 4, high: 40}}]
    events: [{at: 6h, reclaim: {share: 0.3}}]

Everything has a default but the name of a workload. What is misspelt is refused, with its place.
"""

from __future__ import annotations

import csv
import io
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from dovetail.api import manifests
from dovetail.errors import BadInput
from dovetail.settings.durations import parse as parse_duration

__all__ = ["Curve", "Happening", "Objective", "Pool", "Scenario", "Workload", "ZonalShift", "read_scenario"]

DAY = 86_400.0


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    pass


class Curve(_Strict, frozen=True):
    """How many replicas a workload wants over time."""

    curve: Literal["constant", "diurnal", "bursty", "trace"] = "constant"
    value: int = 1
    low: int = 1
    high: int = 10
    peak: str = "14h"
    base: int = 0
    burst: int = 10
    every: str = "1h"
    lasts: str = "10m"
    file: str = ""
    column: str = "replicas"

    def at(self, folder: Path) -> Callable[[float], int]:
        """The curve as a function of seconds since the start."""
        if self.curve == "diurnal":
            peak = parse_duration(self.peak).total_seconds()
            middle, swing = (self.high + self.low) / 2, (self.high - self.low) / 2
            return lambda t: round(middle + swing * math.cos(2 * math.pi * (t - peak) / DAY))
        if self.curve == "bursty":
            every, lasts = (parse_duration(text).total_seconds() for text in (self.every, self.lasts))
            return lambda t: self.burst if t % every < lasts else self.base
        if self.curve == "trace":
            return _trace(folder / self.file, self.column)
        return lambda t: self.value


def _trace(path: Path, column: str) -> Callable[[float], int]:
    """A recorded curve: `seconds` and a column of numbers, as CSV or Parquet."""
    rows = _parquet_rows(path, column) if path.suffix == ".parquet" else _csv_rows(path, column)
    if not rows:
        raise BadInput(f"reading the trace {path}: it has no rows")

    seconds, values = zip(*rows, strict=True)

    def at(t: float) -> int:
        # Before the first row its value holds already.
        found: int = values[max(bisect_right(seconds, t) - 1, 0)]
        return found

    return at


def _csv_rows(path: Path, column: str) -> list[tuple[float, int]]:
    try:
        table = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))
        return sorted((float(row["seconds"]), int(float(row[column]))) for row in table)
    except (OSError, KeyError, ValueError) as error:
        raise BadInput(
            f"reading the trace {path}: it needs the columns seconds and {column} ({error})"
        ) from error


def _parquet_rows(path: Path, column: str) -> list[tuple[float, int]]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise BadInput(f"reading the trace {path}: Parquet needs pyarrow; install it, or give CSV") from error
    try:
        table = parquet.read_table(path, columns=["seconds", column]).to_pydict()
    except (OSError, KeyError, ValueError) as error:
        raise BadInput(
            f"reading the trace {path}: it needs the columns seconds and {column} ({error})"
        ) from error
    return sorted((float(s), int(v)) for s, v in zip(table["seconds"], table[column], strict=True))


class Pool(_Strict, frozen=True):
    """A NodePool, in short: whatever is not said here can be said in `spec`."""

    name: str = "default"
    requirements: list[dict[str, Any]] = []
    consolidate_after: str = "30s"
    policy: str = "WhenEmptyOrUnderutilized"
    budgets: list[dict[str, Any]] = msgspec.field(default_factory=lambda: [{"nodes": "10%"}])
    expire_after: str = "Never"
    # How many nodes it has when the story begins.
    nodes: int = 0
    spec: dict[str, Any] = {}


class Workload(_Strict, frozen=True):
    """A Deployment that grows and shrinks along a curve."""

    name: str
    cpu: str = "500m"
    memory: str = "512Mi"
    replicas: Curve = Curve()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    spec: dict[str, Any] = {}
    max_unavailable: int | str | None = None


class ZonalShift(_Strict, frozen=True):
    """A zone that an operator steps out of, for so long."""

    zone: str
    lasts: str = msgspec.field(default="1h", name="for")


class Happening(_Strict, frozen=True):
    """Something that happens: one of the fields besides `at` says what."""

    at: str
    reclaim: dict[str, Any] | None = None
    zone_loss: dict[str, Any] | None = None
    zonal_shift: ZonalShift | None = None
    failure: dict[str, Any] | None = None
    rollout: dict[str, Any] | None = None
    price: dict[str, Any] | None = None
    drift: dict[str, Any] | None = None
    apply: list[dict[str, Any]] | None = None


class Objective(_Strict, frozen=True):
    """A promise the run is held to; without a workload it is about all of them."""

    workload: str = ""
    pending_within: str = ""
    available: float | None = None
    evictions_per_hour: float | None = None
    # The share of pods, or of time, for which the promise must hold.
    share: float = 1.0


class Scenario(_Strict, frozen=True):
    """The whole story, before it happens."""

    api_version: Literal["dovetail.sh/v1alpha1"]
    kind: Literal["Scenario"]
    name: str = "unnamed"
    seed: int = 0
    duration: str = "1h"
    start: datetime = datetime(2026, 1, 5, tzinfo=UTC)
    step: str = "1m"
    settings: dict[str, str] = {}
    instance_types: str = ""
    pools: list[Pool] = msgspec.field(default_factory=lambda: [Pool()])
    workloads: list[Workload] = []
    manifests: list[dict[str, Any]] = []
    events: list[Happening] = []
    objectives: list[Objective] = []
    # How often to ask what the cheapest thinkable fleet would cost; empty for never.
    floor_every: str = ""
    folder: str = "."

    @property
    def shifts(self) -> bool:
        """Whether a zone is stepped out of in it."""
        return any(event.zonal_shift is not None for event in self.events)

    @property
    def length(self) -> timedelta:
        return parse_duration(self.duration)


def read_scenario(path: Path) -> Scenario:
    """The scenario in a file; BadInput says what is wrong with it and where."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadInput(f"reading the scenario {path}: {error.strerror}") from error
    found = manifests.read(text, str(path))
    wrong = [c for c in found.complaints if c.severity is manifests.Severity.ERROR]
    if wrong:
        raise BadInput(str(wrong[0]))
    if len(found.documents) != 1:
        raise BadInput(f"reading the scenario {path}: it must be one YAML document")
    return as_scenario(found.documents[0].value, path)


def as_scenario(value: Mapping[str, Any], path: Path, origin: str = "") -> Scenario:
    """A scenario from its parsed document. `origin` says where it came from, if not just from its file."""
    try:
        scenario = msgspec.convert(dict(value) | {"folder": str(path.parent)}, Scenario, strict=False)
        for duration in _durations(scenario):
            parse_duration(duration)
    except (msgspec.ValidationError, ValueError) as error:
        raise BadInput(f"{origin or f'reading the scenario {path}'}: {error}") from error
    return scenario


def _durations(scenario: Scenario) -> tuple[str, ...]:
    promised = (each.pending_within for each in scenario.objectives)
    optional = (text for text in (scenario.floor_every, *promised) if text)
    shifts = (event.zonal_shift.lasts for event in scenario.events if event.zonal_shift is not None)
    return scenario.duration, scenario.step, *(event.at for event in scenario.events), *shifts, *optional
