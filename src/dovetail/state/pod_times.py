"""When a pending pod was first seen, first decided for, and first given a place: for the latency metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dovetail.api.pod import Pod

__all__ = ["PodTimes", "PodTimestamps"]


@dataclass(slots=True)
class PodTimestamps:
    """Seconds of a monotonic clock; None for what has not happened."""

    seen: float
    decided: float | None = None
    placed: float | None = None
    # As `placed`, in a pool whose nodes are known to come up.
    placed_healthy: float | None = None


class PodTimes:
    """One record per pod that ever waited, by namespace and name, until it is deleted."""

    def __init__(self) -> None:
        self._times: dict[str, PodTimestamps] = {}

    def record_seen(self, pod: Pod, now: float) -> None:
        self._times.setdefault(pod.full_name, PodTimestamps(now))

    def record_decision(self, pod: str, now: float, *, placed: bool, healthy: bool = False) -> float | None:
        """A pass has decided for the pod. Gives back how long it waited for its first decision, once."""
        times = self._times.get(pod)
        if times is None:
            return None
        first = times.decided is None
        times.decided = now if first else times.decided
        if not placed:
            times.placed = times.placed_healthy = None
        else:
            times.placed = now if times.placed is None else times.placed
            if healthy and times.placed_healthy is None:
                times.placed_healthy = now
        return now - times.seen if first else None

    def find_times(self, pod: str) -> PodTimestamps | None:
        return self._times.get(pod)

    def forget_pod(self, pod: str) -> None:
        self._times.pop(pod, None)

    def __iter__(self) -> Iterator[tuple[str, PodTimestamps]]:
        return iter(tuple(self._times.items()))
