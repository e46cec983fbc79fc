"""operatorpkg.<kind>.status: every turn of a condition is counted, and people are told of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from dovetail import metrics
from dovetail.api.conditions import Conditioned, find
from dovetail.api.meta import Condition, Object
from dovetail.controllers.base import DONE, Backoff, Cache, Result, Trigger
from dovetail.controllers.observing.series import Series
from dovetail.ports import Clock, Recorder

if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram

__all__ = ["StatusMetrics"]


@cache
def _transitions(kind: str, extras: tuple[str, ...]) -> Counter:
    return metrics.counter(
        f"operator_{kind}_status_condition_transitions_total",
        "Conditions that turned.",
        ("type", "status", "reason", *extras),
    )


@cache
def _lasted(kind: str, extras: tuple[str, ...]) -> Histogram:
    return metrics.histogram(
        f"operator_{kind}_status_condition_transition_seconds",
        "How long a condition stayed before it turned.",
        ("type", "status", *extras),
        metrics.CONDITION_BUCKETS,
    )


@cache
def _ended(kind: str, extras: tuple[str, ...]) -> Histogram:
    return metrics.histogram(
        f"operator_{kind}_termination_duration_seconds",
        "From deletion to the end.",
        extras,
        metrics.CONDITION_BUCKETS,
    )


class StatusMetrics:
    """Follows the conditions of one kind. `extras` are labels of the objects that metrics carry too."""

    concurrency = 1
    backoff = Backoff()

    def __init__(
        self,
        kind: type[Object],
        objects: Cache[Object],
        clock: Clock,
        recorder: Recorder,
        extras: Sequence[str] = (),
        *,
        each: bool = False,
    ) -> None:
        self._kind = kind
        self._objects = objects
        self._clock = clock
        self._recorder = recorder
        self._each = each
        self._keys = {key.replace("/", "_").replace(".", "_").replace("-", "_"): key for key in extras}
        name, names = kind.KIND.kind.lower(), tuple(self._keys)
        self.name = f"operatorpkg.{name}.status"
        self._transitions = _transitions(name, names)
        self._lasted = _lasted(name, names)
        self._ended = _ended(name, names)
        shared = ("namespace", "name", "type", "status", "reason", *names)
        self._count = Series(f"operator_{name}_status_condition_count", "Conditions, by status.", shared)
        self._age = Series(
            f"operator_{name}_status_condition_current_status_seconds",
            "For how long conditions have been as they are.",
            shared,
            largest=True,
        )
        self._ending = Series(
            f"operator_{name}_termination_current_time_seconds",
            "For how long objects have been ending.",
            ("namespace", "name", *names),
            largest=True,
        )

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(self._kind, self._changed),)

    async def reconcile(self, key: str) -> Result:
        return DONE

    def _changed(self, before: Any | None, after: Any | None) -> Iterable[str]:
        """Counted as it is heard: nothing is left to do later."""
        if before is not None and after is not None:
            for condition in after.status.conditions:
                self._turned(before, after, condition)
        if before is not None:
            self._finalized(before, after)
        return ()

    def _turned(self, before: Conditioned, after: Any, condition: Condition) -> None:
        old = find(before, condition.type)
        if old is not None and old.status == condition.status:
            return
        extras = self._extras(after).values()
        self._transitions.labels(condition.type, condition.status, condition.reason, *extras).inc()
        if old is None:
            return
        if old.last_transition_time is not None and condition.last_transition_time is not None:
            lasted = (condition.last_transition_time - old.last_transition_time).total_seconds()
            self._lasted.labels(condition.type, condition.status, *extras).observe(max(lasted, 0.0))
        more = f", Message: {condition.message}" if condition.message else ""
        note = (
            f"Status condition transitioned, Type: {condition.type}, "
            f"Status: {old.status} -> {condition.status}, Reason: {condition.reason}{more}"
        )
        self._recorder.event(after, condition.type, note, dedupe=(after.uid, note))

    def _finalized(self, before: Object, after: Object | None) -> None:
        left = set(after.metadata.finalizers) if after is not None else set()
        deleted = before.metadata.deletion_timestamp
        if after is None and deleted is not None:
            seconds = max((self._clock.now() - deleted).total_seconds(), 0.0)
            extras = self._extras(before).values()
            (self._ended.labels(*extras) if extras else self._ended).observe(seconds)
        if deleted is not None:
            for finalizer in before.metadata.finalizers:
                if finalizer not in left:
                    note = f"Finalized {finalizer}"
                    self._recorder.event(before, "Finalized", note, dedupe=(before.uid, note))

    def _extras(self, obj: Object) -> dict[str, str]:
        return {name: obj.labels.get(key, "") for name, key in self._keys.items()}

    def report(self) -> None:
        now = self._clock.now()
        for obj in self._objects:
            named = {"namespace": obj.namespace, "name": obj.name} if self._each else {}
            about = self._extras(obj) | named
            status: Any = obj
            for condition in status.status.conditions:
                what = {"type": condition.type, "status": condition.status, "reason": condition.reason}
                self._count.add(about | what, 1.0)
                if condition.last_transition_time is not None:
                    age = (now - condition.last_transition_time).total_seconds()
                    self._age.add(about | what, age)
            if obj.metadata.deletion_timestamp is not None:
                self._ending.add(about, (now - obj.metadata.deletion_timestamp).total_seconds())
        for series in (self._count, self._age, self._ending):
            series.show()
