"""Tells people what happened (events.k8s.io/v1): once per window, repeats folded into a series."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from random import Random

import msgspec

from dovetail.api.core import Event, EventSeries, ObjectReference
from dovetail.api.meta import Object, ObjectMeta
from dovetail.errors import DovetailError, Gone
from dovetail.ports import Clock
from dovetail.runtime import logs
from dovetail.runtime.kube import KubeClient

__all__ = ["EventRecorder"]

NOTE_LIMIT = 1024
REMEMBERED = 4096
WAITING = 1000
# A repeat within this time continues the series of the event before it; a later one starts anew.
SERIES_SECONDS = 360.0


class _Told(msgspec.Struct):
    at: float
    event: Event | None = None
    count: int = 1


class EventRecorder:
    """Publishes in the background; what it cannot publish it drops, with a word in the log."""

    def __init__(
        self,
        kube: KubeClient,
        clock: Clock,
        chance: Random,
        *,
        component: str = "karpenter",
        instance: str = "",
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._chance = chance
        self._component = component
        self._instance = instance or component
        self._told: OrderedDict[tuple[str, ...], _Told] = OrderedDict()
        self._waiting: asyncio.Queue[tuple[str, ...]] = asyncio.Queue(WAITING)
        self._log = logs.get("controller")

    def event(
        self,
        obj: Object,
        reason: str,
        note: str,
        *,
        warning: bool = False,
        dedupe: tuple[str, ...] = (),
        window: float = 120.0,
    ) -> None:
        key = (reason.lower(), *(dedupe or (obj.uid or obj.full_name, note)))
        now = self._clock.monotonic()
        told = self._told.get(key)
        if told is not None and now - told.at < window:
            return
        if told is not None and told.event is not None and now - told.at < SERIES_SECONDS:
            told.at, told.count = now, told.count + 1
        else:
            told = self._told[key] = _Told(now, self._made(obj, reason, note, warning))
        self._told.move_to_end(key)
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        try:
            self._waiting.put_nowait(key)
        except asyncio.QueueFull:
            self._log.error("dropped an event, too many are waiting", reason=reason)

    def _made(self, obj: Object, reason: str, note: str, warning: bool) -> Event:
        kind = obj.KIND
        # Generated here rather than by the server so that a lost answer does not publish twice.
        suffix = f"{self._chance.getrandbits(64):016x}"
        return Event(
            metadata=ObjectMeta(name=f"{obj.name}.{suffix}", namespace=obj.namespace or "default"),
            event_time=self._clock.now(),
            reporting_controller=self._component,
            reporting_instance=self._instance,
            action=reason,
            reason=reason,
            regarding=ObjectReference(
                api_version=kind.api_version,
                kind=kind.kind,
                namespace=obj.namespace,
                name=obj.name,
                uid=obj.uid,
            ),
            note=note if len(note) <= NOTE_LIMIT else note[: NOTE_LIMIT - 3] + "...",
            type="Warning" if warning else "Normal",
        )

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            await self._publish(await self._waiting.get())

    async def flush(self) -> None:
        """Publish what waits now: the last words of a process that stops."""
        while not self._waiting.empty():
            await self._publish(self._waiting.get_nowait())

    async def _publish(self, key: tuple[str, ...]) -> None:
        told = self._told.get(key)
        if told is None or told.event is None:
            return
        try:
            if told.count > 1:
                told.event = await self._extend(told.event, told.count)
            else:
                told.event = await self._kube.create(told.event)
        except DovetailError as error:
            self._log.debug("could not publish an event", reason=told.event.reason, error=str(error))

    async def _extend(self, event: Event, count: int) -> Event:
        series = EventSeries(count=count, last_observed_time=self._clock.now())
        try:
            return await self._kube.patch(event, msgspec.structs.replace(event, series=series))
        except Gone:
            meta = ObjectMeta(name=event.name, namespace=event.namespace)
            return await self._kube.create(msgspec.structs.replace(event, metadata=meta, series=series))
