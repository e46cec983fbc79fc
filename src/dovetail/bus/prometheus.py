"""The daemon's numbers for Prometheus, under the names a function writes as log lines."""

from __future__ import annotations

from typing import Any

from dovetail.bus.ports import METRICS, PREFIX, BusTally
from dovetail.metrics import counter, gauge, histogram

__all__ = ["PrometheusCounts"]

BUCKETS = {
    "batch_size": (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000),
    "fill_ratio": tuple(tenth / 10 for tenth in range(1, 11)),
    "latency_seconds": (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 5, 10, 20, 30, 60, 120, 300),
    "deadline_remaining_seconds": (0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 115, 118, 120),
}


def _declare_metric(name: str) -> Any:
    metric = METRICS[name]
    if metric.kind == "counter":
        return counter(PREFIX + name, metric.about, metric.labels)
    if metric.kind == "gauge":
        return gauge(PREFIX + name, metric.about, metric.labels)
    return histogram(PREFIX + name, metric.about, metric.labels, BUCKETS[name])


DECLARED = {name: _declare_metric(name) for name in METRICS}


class PrometheusCounts(BusTally):
    """Counts into the process's registry."""

    def add(self, name: str, amount: float, *labels: str) -> None:
        self._find_child(name, labels).inc(amount)

    def set(self, name: str, value: float, *labels: str) -> None:
        self._find_child(name, labels).set(value)

    def observe(self, name: str, value: float, *labels: str) -> None:
        self._find_child(name, labels).observe(value)

    def _find_child(self, name: str, labels: tuple[str, ...]) -> Any:
        made = DECLARED[name]
        return made.labels(*self.limit_labels(name, labels)) if labels else made
