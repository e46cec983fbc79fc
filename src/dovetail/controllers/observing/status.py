"""operatorpkg.<kind>.status: every turn of a condition is counted, and people are told of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dovetail import metrics
from dovetail.api.conditions import Conditioned, find_condition
from dovetail.api.meta import Condition, Object
from dovetail.controllers.base import DONE, Backoff, Cache, Result, Trigger
from dovetail.controllers.observing.series import GaugeSeries
from dovetail.ports import Clock, Recorder

__all__ = ["StatusMetrics"]


# Upstream's older form of the same numbers, one family for all kinds; it is on its way out there.
_OLD = ("group", "kind")
OLD_TRANSITIONS = metrics.counter(
    "operator_status_condition_transitions_total",
    "Conditions that turned, of all kinds.",
    (*_OLD, "type", "status", "reason"),
    brief="nothing",
)
OLD_LASTED = metrics.histogram(
    "operator_status_condition_transition_seconds",
    "How long a condition stayed before it turned, of all kinds.",
    (*_OLD, "type", "status"),
    metrics.PROMETHEUS_BUCKETS,
    brief="nothing",
)
OLD_ENDED = metrics.histogram(
    "operator_termination_duration_seconds",
    "From deletion to the end, of all kinds.",
    _OLD,
    metrics.PROMETHEUS_BUCKETS,
    brief="nothing",
)


class _Family:
    """The metrics of one kind, under its name."""

    def __init__(self, kind: str, extras: tuple[str, ...], buckets: Sequence[float]) -> None:
        self.transitions = metrics.counter(
            f"operator_{kind}_status_condition_transitions_total",
            "Conditions that turned.",
            ("type", "status", "reason", *extras),
        )
        self.lasted = metrics.histogram(
            f"operator_{kind}_status_condition_transition_seconds",
            "How long a condition stayed before it turned.",
            ("type", "status", *extras),
            buckets,
        )
        self.ended = metrics.histogram(
            f"operator_{kind}_termination_duration_seconds", "From deletion to the end.", extras, buckets
        )


_families: dict[str, tuple[tuple[str, ...], _Family]] = {}


def _get_family(kind: str, extras: tuple[str, ...], buckets: Sequence[float]) -> _Family:
    """A kind's metrics, declared once however many lots of controllers a process has; another provider's
    labels replace them."""
    known = _families.get(kind)
    if known is None or known[0] != extras:
        if known is not None:
            for collector in vars(known[1]).values():
                metrics.REGISTRY.unregister(collector)
        known = _families[kind] = (extras, _Family(kind, extras, buckets))
    return known[1]


class _Gauges:
    """The conditions of objects as they stand, and for how long objects have been ending."""

    def __init__(self, prefix: str, extras: tuple[str, ...], brief: metrics.InBrief = "all") -> None:
        about = ("namespace", "name", "type", "status", "reason", *extras)
        self.count = GaugeSeries(
            f"{prefix}status_condition_count", "Conditions, by status.", about, brief=brief
        )
        self.age = GaugeSeries(
            f"{prefix}status_condition_current_status_seconds",
            "For how long conditions have been as they are.",
            about,
            largest=True,
            brief=brief,
        )
        self.ending = GaugeSeries(
            f"{prefix}termination_current_time_seconds",
            "For how long objects have been ending.",
            ("namespace", "name", *extras),
            largest=True,
            brief=brief,
        )

    def add(self, obj: Any, about: Mapping[str, str], now: datetime) -> None:
        for condition in obj.status.conditions:
            what = {"type": condition.type, "status": condition.status, "reason": condition.reason, **about}
            self.count.add(what, 1.0)
            if condition.last_transition_time is not None:
                self.age.add(what, (now - condition.last_transition_time).total_seconds())
        if obj.metadata.deletion_timestamp is not None:
            self.ending.add(about, (now - obj.metadata.deletion_timestamp).total_seconds())

    def show_all(self) -> None:
        for series in (self.count, self.age, self.ending):
            series.show_values()


@dataclass(frozen=True, slots=True)
class StatusDetail:
    """How much metrics tell of a kind's conditions."""

    # Labels of the objects that metrics carry too.
    extras: Sequence[str] = ()
    buckets: Sequence[float] = metrics.CONDITION_BUCKETS
    # Upstream's older names as well.
    old: bool = True
    # Every object gets series of its own.
    each: bool = False


class StatusMetrics:
    """Follows the conditions of one kind."""

    singleton = False
    concurrency = 1
    backoff = Backoff()

    def __init__(
        self,
        kind: type[Object],
        objects: Cache[Object],
        clock: Clock,
        recorder: Recorder,
        detail: StatusDetail = StatusDetail(),  # noqa: B008 (frozen)
    ) -> None:
        self._kind = kind
        self._objects = objects
        self._clock = clock
        self._recorder = recorder
        self._each = detail.each
        self._keys = {key.replace("/", "_").replace(".", "_").replace("-", "_"): key for key in detail.extras}
        name, names = kind.KIND.kind.lower(), tuple(self._keys)
        self.name = f"operatorpkg.{name}.status"
        self._family = _get_family(name, names, detail.buckets)
        self._gauges = _Gauges(f"operator_{name}_", names)
        self._about_kind = {"group": kind.KIND.group, "kind": kind.KIND.kind}
        self._old = detail.old
        self._old_gauges = _Gauges("operator_", _OLD, "nothing") if detail.old and detail.each else None

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(self._kind, self._observe_change),)

    async def reconcile(self, key: str) -> Result:
        return DONE

    def _observe_change(self, before: Any | None, after: Any | None) -> Iterable[str]:
        """Counted as it is heard: nothing is left to do later."""
        if before is not None and after is not None:
            for condition in after.status.conditions:
                self._observe_transition(before, after, condition)
        if before is not None:
            self._observe_finalized(before, after)
        return ()

    def _observe_transition(self, before: Conditioned, after: Any, condition: Condition) -> None:
        old = find_condition(before, condition.type)
        if old is not None and old.status == condition.status:
            return
        extras = self._read_extra_labels(after).values()
        what = (condition.type, condition.status)
        self._family.transitions.labels(*what, condition.reason, *extras).inc()
        if self._old:
            OLD_TRANSITIONS.labels(*self._about_kind.values(), *what, condition.reason).inc()
        if old is None:
            return
        if old.last_transition_time is not None and condition.last_transition_time is not None:
            lasted = max((condition.last_transition_time - old.last_transition_time).total_seconds(), 0.0)
            self._family.lasted.labels(*what, *extras).observe(lasted)
            if self._old:
                OLD_LASTED.labels(*self._about_kind.values(), *what).observe(lasted)
        more = f", Message: {condition.message}" if condition.message else ""
        note = (
            f"Status condition transitioned, Type: {condition.type}, "
            f"Status: {old.status} -> {condition.status}, Reason: {condition.reason}{more}"
        )
        self._recorder.publish_event(after, condition.type, note, dedupe=(after.uid, note))

    def _observe_finalized(self, before: Object, after: Object | None) -> None:
        left = set(after.metadata.finalizers) if after is not None else set()
        deleted = before.metadata.deletion_timestamp
        if after is None and deleted is not None:
            seconds = max((self._clock.now() - deleted).total_seconds(), 0.0)
            extras = self._read_extra_labels(before).values()
            ended = self._family.ended
            (ended.labels(*extras) if extras else ended).observe(seconds)
            if self._old:
                OLD_ENDED.labels(*self._about_kind.values()).observe(seconds)
        if deleted is not None:
            for finalizer in before.metadata.finalizers:
                if finalizer not in left:
                    note = f"Finalized {finalizer}"
                    self._recorder.publish_event(before, "Finalized", note, dedupe=(before.uid, note))

    def _read_extra_labels(self, obj: Object) -> dict[str, str]:
        return {name: obj.labels.get(key, "") for name, key in self._keys.items()}

    def report(self) -> None:
        now = self._clock.now()
        for obj in self._objects:
            named = {"namespace": obj.namespace, "name": obj.name} if self._each else {}
            self._gauges.add(obj, self._read_extra_labels(obj) | named, now)
            if self._old_gauges is not None:
                self._old_gauges.add(obj, self._about_kind | named, now)
        self._gauges.show_all()
        if self._old_gauges is not None:
            self._old_gauges.show_all()
