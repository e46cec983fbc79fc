"""Tells people what happened: once per window, repeats counted on the event that is already there.

These are events of the core group, as Karpenter's are: the permissions its chart grants are for those.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from random import Random
from typing import ClassVar, TypeVar

import msgspec

from dovetail.api.core import ObjectReference
from dovetail.api.meta import Kind, Object, ObjectMeta, Record
from dovetail.errors import AlreadyExists, DovetailError, Gone
from dovetail.logs import get_logger
from dovetail.metrics import counter
from dovetail.ports import Clock
from dovetail.runtime.kube import KubeClient
from dovetail.throttle import Throttle

__all__ = ["EventRecorder"]

NOTE_LIMIT = 1024
REMEMBERED = 4096
WAITING = 1000
# A repeat within this time is counted on the event before it; a later one is told anew.
SERIES_SECONDS = 600.0
# So many different notes for one reason about one object are told one by one; from then on, as one.
DIFFERENT_NOTES = 10
LAST_WORDS_SECONDS = 5.0
# A large batch nominates thousands of pods at once; people need to see a few of them. Per second, and burst.
RATES: Mapping[str, tuple[float, int]] = {"Nominated": (5, 10)}
# Said of every node over and over: whoever is held back has a turn when it is said again.
TURNS: Mapping[str, tuple[float, int]] = {"Unconsolidatable": (2, 500)}
# Losses are told of no more often than this.
LOST_SECONDS = 60.0
DROPPED = counter(
    "dovetail_events_dropped_total", "Events nobody heard of, since too many were waiting.", ("reason",)
)

Key = tuple[str, ...]
V = TypeVar("V")


class EventSource(Record, frozen=True):
    """Who says it."""

    component: str = ""
    host: str = ""


class CoreV1Event(Object, frozen=True):
    """Something that happened to an object, told to people."""

    KIND: ClassVar[Kind] = Kind("", "v1", "Event", "events")

    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    source: EventSource = EventSource()
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    count: int = 0
    type: str = ""
    reporting_component: str = ""
    reporting_instance: str = ""


class _Told(msgspec.Struct):
    """One event as we last told it; without one, it was held back."""

    at: float
    event: CoreV1Event | None = None
    published: bool = False


class _Notes(msgspec.Struct):
    """The different notes of one reason about one object."""

    since: float
    seen: set[str]


class EventRecorder:
    """Publishes in the background; what it cannot publish it drops, with a word in the log."""

    def __init__(
        self,
        kube: KubeClient,
        clock: Clock,
        rng: Random,
        *,
        component: str = "karpenter",
        instance: str = "",
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._chance = rng
        self._component = component
        self._instance = instance
        self._told: OrderedDict[Key, _Told] = OrderedDict()
        self._notes: OrderedDict[Key, _Notes] = OrderedDict()
        self._waiting: asyncio.Queue[_Told] = asyncio.Queue(WAITING)
        self._rates = {reason: Throttle(clock, *rate) for reason, rate in {**RATES, **TURNS}.items()}
        self._lost: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._last_failure: DovetailError | None = None
        self._lost_told = float("-inf")
        self._log = get_logger()
        self._muted = False

    def mute(self) -> None:
        """Publish nothing from now on: in this cluster nobody reads events."""
        self._muted = True

    def publish_event(
        self,
        obj: Object,
        reason: str,
        note: str,
        *,
        warning: bool = False,
        dedupe: tuple[str, ...] = (),
        window: float = 120.0,
    ) -> None:
        if self._muted:
            return
        key = (reason.lower(), *(dedupe or (obj.uid or obj.full_name, note)))
        now = self._clock.monotonic()
        told = self._told.get(key)
        if told is not None and now - told.at < window:
            return
        if reason in self._rates and not self._rates[reason].try_take():
            if reason not in TURNS:
                _remember_latest(self._told, key, _Told(now))
            return
        told = self._fold_repeat(key, now, self._build_event(obj, reason, note, warning))
        try:
            self._waiting.put_nowait(told)
        except asyncio.QueueFull:
            DROPPED.labels(reason).inc()
            self._lost[reason] += 1

    def _fold_repeat(self, key: Key, now: float, event: CoreV1Event) -> _Told:
        """The event counted on the one it repeats, if there is one."""
        about = event.involved_object
        topic = (event.reason, about.kind, about.namespace, about.name, about.uid)
        if self._has_many_notes(topic, event.message, now):
            _remember_latest(self._told, key, _Told(now))
            combined = f"(combined from similar events): {event.message}"
            key, event = topic, msgspec.structs.replace(event, message=_shorten_note(combined))
        told = self._told.get(key)
        if told is None or told.event is None or now - told.at >= SERIES_SECONDS:
            told = _Told(now, event)
        else:
            more = msgspec.structs.replace(
                told.event,
                count=told.event.count + 1,
                message=event.message,
                last_timestamp=event.last_timestamp,
            )
            told.at, told.event = now, more
        _remember_latest(self._told, key, told)
        return told

    def _has_many_notes(self, topic: Key, note: str, now: float) -> bool:
        notes = self._notes.get(topic)
        if notes is None or now - notes.since >= SERIES_SECONDS:
            notes = _Notes(now, set())
        _remember_latest(self._notes, topic, notes)
        if len(notes.seen) <= DIFFERENT_NOTES:
            notes.seen.add(note)
        return len(notes.seen) > DIFFERENT_NOTES

    def _build_event(self, obj: Object, reason: str, note: str, warning: bool) -> CoreV1Event:
        kind, now = obj.KIND, self._clock.now()
        # Named here rather than by the server, so that a lost answer does not publish twice. Objects
        # without a namespace have their events in `default`.
        suffix = f"{self._chance.getrandbits(64):016x}"
        return CoreV1Event(
            metadata=ObjectMeta(name=f"{obj.name}.{suffix}", namespace=obj.namespace or "default"),
            involved_object=ObjectReference(
                api_version=kind.api_version,
                kind=kind.kind,
                namespace=obj.namespace,
                name=obj.name,
                uid=obj.uid,
            ),
            reason=reason,
            message=_shorten_note(note),
            source=EventSource(component=self._component, host=self._instance),
            first_timestamp=now,
            last_timestamp=now,
            count=1,
            type="Warning" if warning else "Normal",
            reporting_component=self._component,
            reporting_instance=self._instance,
        )

    async def run(self) -> None:
        """Publish until cancelled, and then what still waits: the last words of a process that stops."""
        try:
            while True:
                await self._publish(await self._waiting.get())
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_SECONDS):
                    while not self._waiting.empty():
                        await self._publish(self._waiting.get_nowait())

    def _log_lost(self) -> None:
        """Where one event is lost there are many: a word for all of them, once in a while.

        A warning at most: what was to be told has happened, and only the telling failed.
        """
        now = self._clock.monotonic()
        if not (self._lost or self._failed) or now - self._lost_told < LOST_SECONDS:
            return
        self._lost_told = now
        if self._lost:
            lost, self._lost = self._lost, Counter()
            self._log.warning("dropped events, too many were waiting", count=lost.total(), reasons=dict(lost))
        if self._failed:
            failed, self._failed = self._failed, Counter()
            about = {"count": failed.total(), "reasons": dict(failed), "error": self._last_failure}
            self._log.warning("could not publish events", **about)

    async def _publish(self, told: _Told) -> None:
        event = told.event
        if event is not None:
            try:
                await (self._update_count(event) if told.published else self._create_event(event))
                told.published = True
            except DovetailError as error:
                self._failed[event.reason] += 1
                self._last_failure = error
        self._log_lost()

    async def _create_event(self, event: CoreV1Event) -> None:
        # One that exists is our own, whose answer was lost.
        with suppress(AlreadyExists):
            await self._kube.create(event)

    async def _update_count(self, event: CoreV1Event) -> None:
        blank = CoreV1Event(metadata=event.metadata)
        try:
            await self._kube.patch(
                blank,
                msgspec.structs.replace(
                    blank, count=event.count, message=event.message, last_timestamp=event.last_timestamp
                ),
            )
        except Gone:
            # Servers forget events after an hour.
            await self._create_event(event)


def _shorten_note(note: str) -> str:
    return note if len(note) <= NOTE_LIMIT else note[: NOTE_LIMIT - 3] + "..."


def _remember_latest(memory: OrderedDict[Key, V], key: Key, value: V) -> None:
    """Keep the latest of them only."""
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > REMEMBERED:
        memory.popitem(last=False)
