"""The one place metrics are made, and the home of prometheus_client.

Names are declared beside the code that counts, through `counter`, `gauge`, `histogram` and `summary`
below, and all end up in one registry.

Every one has to be stored by somebody, so there are two ways to look. In full, everything is shown. In
brief, a metric shows what its declaration says: all of it, what is not zero, its sum, or nothing; and
histograms show a few of their bounds, each of which the full ones have too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

__all__ = [
    "BUCKETS",
    "CONDITION_BUCKETS",
    "PROMETHEUS_BUCKETS",
    "REGISTRY",
    "SIZE_BUCKETS",
    "BriefRegistry",
    "InBrief",
    "counter",
    "gauge",
    "histogram",
    "in_brief",
    "summary",
]

REGISTRY = CollectorRegistry(auto_describe=False)

BUCKETS: Sequence[float] = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1),
    *(1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
    *(120, 150, 300, 450, 600),
)
PROMETHEUS_BUCKETS: Sequence[float] = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
CONDITION_BUCKETS: Sequence[float] = tuple(0.5 * 2**k for k in range(15))
SIZE_BUCKETS: Sequence[float] = (
    *(1, 2, 4, 5, 10, 15, 20, 25, 30),
    *range(40, 101, 10),
    *range(125, 301, 25),
    *range(350, 601, 50),
    *(700, 800, 900, 1000),
)
QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)
# What a summary remembers: enough for stable quantiles, small enough to keep for ever.
REMEMBERED = 512
# In brief, a histogram's next bound is this many times the last one.
STRIDE = 4.0

InBrief = Literal["all", "nonzero", "summed", "nothing"]
_in_brief: dict[str, InBrief] = {}
_bounds_in_brief: dict[str, frozenset[float]] = {}


def counter(name: str, about: str, labels: Sequence[str] = (), *, brief: InBrief = "all") -> Counter:
    """Something that only grows. The name is given as it is shown, `_total` included."""
    family = name.removesuffix("_total")
    _in_brief[family] = brief
    return Counter(family, about, labels, registry=REGISTRY)


def gauge(name: str, about: str, labels: Sequence[str] = (), *, brief: InBrief = "all") -> Gauge:
    """Something that goes up and down."""
    _in_brief[name] = brief
    return Gauge(name, about, labels, registry=REGISTRY)


def histogram(
    name: str,
    about: str,
    labels: Sequence[str] = (),
    buckets: Sequence[float] = BUCKETS,
    *,
    brief: Sequence[float] | Literal["nothing"] | None = None,
) -> Histogram:
    """How amounts are spread. `brief` are the bounds that are shown in brief, if not every fourfold."""
    _in_brief[name] = "nothing" if brief == "nothing" else "all"
    bounds = thin_buckets(buckets) if brief is None or brief == "nothing" else brief
    _bounds_in_brief[name] = frozenset(bounds)
    return Histogram(name, about, labels, registry=REGISTRY, buckets=buckets)


def thin_buckets(buckets: Sequence[float]) -> Sequence[float]:
    """The first bound, each that is far enough from the one before, and the last."""
    kept = [buckets[0]]
    for bound in buckets:
        if bound >= STRIDE * kept[-1]:
            kept.append(bound)
    return (*kept, buckets[-1])


def in_brief(family: str) -> str:
    """What is shown of a family in brief, in a word or two for people."""
    shown = _in_brief.get(family, "all")
    if shown == "all" and family in _bounds_in_brief:
        return f"{len(_bounds_in_brief[family]) + 1} bounds"
    return {"all": "yes", "nonzero": "unless 0", "summed": "its sum", "nothing": "no"}[shown]


class BriefRegistry:
    """The registry as it is shown in brief."""

    def collect(self) -> Iterator[Metric]:
        for family in REGISTRY.collect():
            shown = _in_brief.get(family.name, "all")
            if shown == "nonzero":
                family.samples = [sample for sample in family.samples if sample.value]
            if shown == "summed":
                family.samples = _sum_samples(family)
            if family.name in _bounds_in_brief:
                bounds = _bounds_in_brief[family.name]
                family.samples = [sample for sample in family.samples if _is_shown_bucket(sample, bounds)]
            if shown != "nothing":
                yield family


class PartRegistry:
    """Those families of the registry whose names begin in one of some ways."""

    def __init__(self, *prefixes: str) -> None:
        self._prefixes = prefixes

    def collect(self) -> Iterator[Metric]:
        return (family for family in REGISTRY.collect() if family.name.startswith(self._prefixes))


def _sum_samples(family: Metric) -> list[Sample]:
    """One sample for a whole counter, whatever its labels are."""
    total = f"{family.name}_total"
    return [Sample(total, {}, sum(each.value for each in family.samples if each.name == total))]


def _is_shown_bucket(sample: Sample, bounds: frozenset[float]) -> bool:
    bound = sample.labels.get("le", "+Inf")
    return bound == "+Inf" or float(bound) in bounds


class Summary:
    """Quantiles of the latest observations, per set of label values."""

    def __init__(self, name: str, about: str, labels: Sequence[str]) -> None:
        self._name = name
        self._about = about
        self._labels = tuple(labels)
        self._seen: dict[tuple[str, ...], tuple[list[float], deque[float]]] = {}
        REGISTRY.register(self)

    def observe(self, amount: float, *values: str) -> None:
        totals, latest = self._seen.setdefault(values, ([0.0, 0.0], deque(maxlen=REMEMBERED)))
        totals[0] += 1
        totals[1] += amount
        latest.append(amount)

    def collect(self) -> Iterable[Metric]:
        family = SummaryMetricFamily(self._name, self._about, labels=self._labels)
        for values, (totals, latest) in self._seen.items():
            family.samples += self._build_samples(
                dict(zip(self._labels, values, strict=True)), totals, sorted(latest)
            )
        return [family]

    def _build_samples(
        self, labels: dict[str, str], totals: list[float], ordered: list[float]
    ) -> Iterator[Sample]:
        for quantile in QUANTILES:
            value = ordered[min(int(quantile * len(ordered)), len(ordered) - 1)]
            yield Sample(self._name, labels | {"quantile": f"{quantile:g}"}, value)
        yield Sample(f"{self._name}_count", labels, totals[0])
        yield Sample(f"{self._name}_sum", labels, totals[1])


def summary(name: str, about: str, labels: Sequence[str] = ()) -> Summary:
    """Quantiles of something, as upstream's dashboards read them."""
    return Summary(name, about, labels)
