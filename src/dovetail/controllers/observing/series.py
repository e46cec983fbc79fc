"""Gauges whose labels depend on the provider, declared when it is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail import metrics

if TYPE_CHECKING:
    from prometheus_client import Gauge

__all__ = ["GaugeSeries", "label_name"]

_declared: dict[str, tuple[tuple[str, ...], Gauge]] = {}


def label_name(key: str) -> str:
    """A label key as metrics spell it: what follows the slash, `-` and `.` as `_`."""
    return key.rpartition("/")[2].lower().replace("-", "_").replace(".", "_")


class GaugeSeries:
    """One gauge, filled anew each time someone looks. What is told twice is added, or the larger kept.

    Several may fill one gauge, each with objects of its own: what one shows, the others leave alone.
    """

    def __init__(
        self,
        name: str,
        about: str,
        labels: Sequence[str],
        *,
        largest: bool = False,
        brief: metrics.InBrief = "all",
    ) -> None:
        names = tuple(labels)
        known = _declared.get(name)
        if known is None or known[0] != names:
            if known is not None:
                metrics.REGISTRY.unregister(known[1])
            known = _declared[name] = (names, metrics.gauge(name, about, names, brief=brief))
        known[1].clear()
        self._names = names
        self._gauge = known[1]
        self._largest = largest
        self._values: dict[tuple[str, ...], float] = {}
        self._shown: frozenset[tuple[str, ...]] = frozenset()

    def add(self, labels: Mapping[str, str], value: float) -> None:
        key = tuple(labels.get(name, "") for name in self._names)
        before = self._values.get(key)
        if before is None:
            self._values[key] = value
        else:
            self._values[key] = max(before, value) if self._largest else before + value

    def show_values(self) -> None:
        """Replace what was shown before."""
        for key in self._shown - self._values.keys():
            self._gauge.remove(*key)
        for key, value in self._values.items():
            self._gauge.labels(*key).set(value)
        self._shown, self._values = frozenset(self._values), {}
