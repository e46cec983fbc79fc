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
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from dovetail.api.meta import Object
from dovetail.errors import BadInput
from dovetail.settings.durations import parse_duration as parse_duration

__all__ = [
    "ReplicaCurve",
    "Scenario",
    "ScenarioEvent",
    "ScenarioObjective",
    "ScenarioPool",
    "ScenarioShift",
    "ScenarioWorkload",
]

DAY = 86_400.0
# More would not be played in a lifetime, nor held in memory.
MOST_PODS, MOST_NODES = 250_000, 20_000
Pods = Annotated[int, msgspec.Meta(ge=0, le=MOST_PODS)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    pass


class ReplicaCurve(_Strict, frozen=True):
    """How many replicas a workload wants over time."""

    curve: Literal["constant", "diurnal", "bursty", "trace"] = "constant"
    value: Pods = 1
    low: Pods = 1
    high: Pods = 10
    peak: str = "14h"
    base: Pods = 0
    burst: Pods = 10
    every: str = "1h"
    lasts: str = "10m"
    file: str = ""
    column: str = "replicas"

    def build_curve(self, folder: Path) -> Callable[[float], int]:
        """The curve as a function of seconds since the start."""
        if self.curve == "diurnal":
            peak = parse_duration(self.peak).total_seconds()
            middle, swing = (self.high + self.low) / 2, (self.high - self.low) / 2
            return lambda t: round(middle + swing * math.cos(2 * math.pi * (t - peak) / DAY))
        if self.curve == "bursty":
            every, lasts = (parse_duration(text).total_seconds() for text in (self.every, self.lasts))
            return lambda t: self.burst if t % every < lasts else self.base
        if self.curve == "trace":
            return _read_trace(folder / self.file, self.column)
        return lambda t: self.value


def _read_trace(path: Path, column: str) -> Callable[[float], int]:
    """A recorded curve: `seconds` and a column of numbers, as CSV or Parquet."""
    rows = _read_parquet(path, column) if path.suffix == ".parquet" else _read_csv(path, column)
    if not rows:
        raise BadInput(f"reading the trace {path}: it has no rows")

    seconds, values = zip(*rows, strict=True)

    def at(t: float) -> int:
        # Before the first row its value holds already.
        found: int = values[max(bisect_right(seconds, t) - 1, 0)]
        return found

    return at


def _read_csv(path: Path, column: str) -> list[tuple[float, int]]:
    try:
        table = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))
        return _sort_rows((row["seconds"], row[column]) for row in table)
    except (OSError, LookupError, ValueError, TypeError, csv.Error) as error:
        raise _describe_bad_trace(path, column, error) from error


def _sort_rows(rows: Iterable[tuple[Any, Any]]) -> list[tuple[float, int]]:
    """Rows by time, with numbers that stand for some moment and some pods."""
    found = sorted((float(second), float(value)) for second, value in rows)
    odd = next((value for row in found for value in row if not abs(value) < MOST_PODS * DAY), None)
    if odd is not None:
        raise ValueError(f"{odd:g} is out of range")
    return [(second, min(round(value), MOST_PODS)) for second, value in found]


def _describe_bad_trace(path: Path, column: str, error: Exception) -> BadInput:
    why = error.strerror if isinstance(error, OSError) else error
    return BadInput(f"reading the trace {path}: it needs the columns seconds and {column} ({why})")


def _read_parquet(path: Path, column: str) -> list[tuple[float, int]]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise BadInput(f"reading the trace {path}: Parquet needs pyarrow; install it, or give CSV") from error
    try:
        table = parquet.read_table(path, columns=["seconds", column]).to_pydict()
        return _sort_rows(zip(table["seconds"], table[column], strict=True))
    except (OSError, LookupError, ValueError, TypeError) as error:
        raise _describe_bad_trace(path, column, error) from error


class ScenarioPool(_Strict, frozen=True):
    """A NodePool, in short: whatever is not said here can be said in `spec`."""

    name: str = "default"
    requirements: list[dict[str, Any]] = []
    consolidate_after: str = "30s"
    policy: str = "WhenEmptyOrUnderutilized"
    budgets: list[dict[str, Any]] = msgspec.field(default_factory=lambda: [{"nodes": "10%"}])
    expire_after: str = "Never"
    # How many nodes it has when the story begins.
    nodes: Annotated[int, msgspec.Meta(ge=0, le=MOST_NODES)] = 0
    spec: dict[str, Any] = {}


class ScenarioWorkload(_Strict, frozen=True):
    """A Deployment that grows and shrinks along a curve."""

    name: str
    cpu: str | int | float = "500m"
    memory: str | int | float = "512Mi"
    replicas: ReplicaCurve = ReplicaCurve()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    spec: dict[str, Any] = {}
    max_unavailable: int | str | None = None


class ScenarioShift(_Strict, frozen=True):
    """A zone that an operator shifts away from, for so long."""

    zone: str
    lasts: str = msgspec.field(default="1h", name="for")


class SpotReclaim(_Strict, frozen=True):
    """So many of the spot instances are taken back."""

    share: Share = 1.0


class ZoneLoss(_Strict, frozen=True):
    """The kubelets of a zone fall silent, and nothing is sold there for so long; for good if not told."""

    zone: str
    lasts: str = ""


class NodeFailure(_Strict, frozen=True):
    """The kubelets of so many nodes fall silent."""

    count: Annotated[int, msgspec.Meta(ge=0)] = 1


class ScenarioRollout(_Strict, frozen=True):
    """The pods of a workload, or of all of them, are replaced."""

    workload: str | None = None


class PriceChange(_Strict, frozen=True):
    """Instances of a capacity type cost so many times as much."""

    factor: Annotated[float, msgspec.Meta(ge=0, le=1000)] = 1.0
    capacity_type: Literal["spot", "on-demand"] = "spot"


class PoolDrift(_Strict, frozen=True):
    """The template of a pool, or of all of them, changes."""

    pool: str | None = None


class ScenarioEvent(_Strict, frozen=True):
    """Something that happens: one of the fields besides `at` says what."""

    at: str
    reclaim: SpotReclaim | None = None
    zone_loss: ZoneLoss | None = None
    zonal_shift: ScenarioShift | None = None
    failure: NodeFailure | None = None
    rollout: ScenarioRollout | None = None
    price: PriceChange | None = None
    drift: PoolDrift | None = None
    apply: list[dict[str, Any]] | None = None


class ScenarioObjective(_Strict, frozen=True):
    """A promise the run is held to; without a workload it is about all of them."""

    workload: str = ""
    pending_within: str = ""
    available: Share | None = None
    evictions_per_hour: Annotated[float, msgspec.Meta(ge=0)] | None = None
    # The share of pods, or of time, for which the promise must hold.
    share: Share = 1.0


class Scenario(_Strict, frozen=True):
    """The whole story, before it happens."""

    api_version: Literal["dovetail.sh/v1alpha1"]
    kind: Literal["Scenario"]
    name: str = "unnamed"
    seed: int = 0
    duration: str = "1h"
    start: Annotated[datetime, msgspec.Meta(tz=True)] = datetime(2026, 1, 5, tzinfo=UTC)
    step: str = "1m"
    settings: dict[str, str] = {}
    # Whose instance types and labels nodes have; the nodes themselves are always simulated.
    provider: str = "kwok"
    instance_types: str = ""
    pools: list[ScenarioPool] = msgspec.field(default_factory=lambda: [ScenarioPool()])
    workloads: list[ScenarioWorkload] = []
    manifests: list[dict[str, Any]] = []
    events: list[ScenarioEvent] = []
    objectives: list[ScenarioObjective] = []
    # How often to ask what the cheapest thinkable fleet would cost; empty for never.
    floor_every: str = ""
    folder: str = "."

    @property
    def shifts(self) -> bool:
        """Whether a zone is shifted away in it."""
        return any(event.zonal_shift is not None for event in self.events)

    def brings(self, kind: type[Object]) -> bool:
        """Whether an object of this kind is in it."""
        applied = (each for event in self.events for each in event.apply or ())
        return any(each.get("kind") == kind.KIND.kind for each in (*self.manifests, *applied))

    @property
    def length(self) -> timedelta:
        return parse_duration(self.duration)
