"""Follow one kind: everything there is, then every change, through whatever the network does.

    list ──► live ──► live …        a stream that ends is resumed where it stopped
      ▲        │ 410, or no place to resume from
      └────────┘ list again; the sink works out what vanished meanwhile

Where the server offers it, the list comes as a stream (`sendInitialEvents`), which spares it and
us the memory of a whole page; where it does not, pages are read and the watch starts from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from random import Random
from typing import Generic, Protocol, TypeVar

import msgspec

from dovetail.api import codec
from dovetail.api.meta import Object
from dovetail.errors import DovetailError, Expired, Invalid, Refused, Retry
from dovetail.ports import Clock
from dovetail.runtime.kube import KubeClient, failure, path_of
from dovetail.runtime.transport import Request

__all__ = ["Follower", "Sink"]

T = TypeVar("T", bound=Object)
S = TypeVar("S", bound=Object, contravariant=True)
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Sink(Protocol[S]):
    """Where a follower puts what it learns."""

    def begin(self) -> None:
        """A new list starts."""

    def listed(self, objects: Iterable[S]) -> None:
        """Part of the list."""

    def end(self) -> None:
        """The list is complete: whatever was not in it is gone."""

    def changed(self, obj: S) -> None:
        """An object appeared or changed."""

    def removed(self, obj: S) -> None:
        """An object vanished."""


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Mark(msgspec.Struct):
    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str = ""
        annotations: dict[str, str] | None = None

    metadata: Meta


class _Failure(msgspec.Struct):
    code: int = 500


class Pace(msgspec.Struct, frozen=True):
    """How patient a follower is, in seconds. Delays double from first to last, with jitter."""

    first_delay: float = 0.8
    last_delay: float = 30.0
    settled: float = 120.0
    # A healthy server sends a bookmark about once a minute; three silent minutes mean a dead connection.
    silence: float = 180.0
    stream_seconds: tuple[int, int] = (300, 600)


class Follower(Generic[T]):
    """Keeps one sink up to date with one kind."""

    def __init__(
        self,
        kube: KubeClient,
        kind: type[T],
        sink: Sink[T],
        *,
        clock: Clock,
        chance: Random,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        pace: Pace = Pace(),  # noqa: B008 (frozen)
        decode: Callable[[type[T], bytes], T] = codec.decode,
        on_trouble: Callable[[DovetailError], None] = lambda error: None,
    ) -> None:
        self._kube = kube
        self._kind = kind
        self._sink = sink
        self._clock = clock
        self._chance = chance
        self._namespace = namespace
        self._selectors = {k: v for k, v in (("labelSelector", labels), ("fieldSelector", fields)) if v}
        self._labels, self._fields = labels, fields
        self._pace = pace
        self._decode = decode
        self._on_trouble = on_trouble
        self._streams_lists = True
        self._version = ""

    async def run(self) -> None:
        """Follow until cancelled."""
        delay = 0.0
        while True:
            started = self._clock.monotonic()
            try:
                await self._once()
                continue
            except Expired:
                self._version = ""
            except Retry as error:
                self._on_trouble(error)
            except Refused as error:
                # A person may grant the permission or install the CRD later: keep asking, slowly.
                self._on_trouble(error)
                self._version = ""
            if self._clock.monotonic() - started > self._pace.settled:
                delay = 0.0
            delay = min(max(delay * 2, self._pace.first_delay), self._pace.last_delay)
            await self._clock.sleep(delay * (1 + self._chance.random()))

    async def _once(self) -> None:
        """One stream, from its start or its last place to its end."""
        if self._version:
            await self._live(self._resume_query())
        elif self._streams_lists:
            await self._stream_list()
        else:
            await self._page_list()
            await self._live(self._resume_query())

    async def _stream_list(self) -> None:
        query = {
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "resourceVersion": "",
        }
        try:
            await self._live(query, listing=True)
        except Invalid:
            # Servers before 1.32, or with the feature off, say so at once.
            self._streams_lists = False
        except _NeverEnded:
            # Older ones ignore what they do not know and never tell where the list ends.
            self._streams_lists = False

    async def _page_list(self) -> None:
        self._sink.begin()
        version = ""
        async for objects, version in self._kube.pages(  # noqa: B007 (the last one counts)
            self._kind, self._namespace, labels=self._labels, fields=self._fields
        ):
            self._sink.listed(objects)
        self._sink.end()
        self._version = version

    def _resume_query(self) -> dict[str, str]:
        return {"resourceVersion": self._version}

    async def _live(self, query: dict[str, str], *, listing: bool = False) -> None:
        seconds = self._chance.randint(*self._pace.stream_seconds)
        request = Request(
            "GET",
            path_of(self._kind.KIND, self._namespace),
            {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
            | self._selectors
            | query,
        )
        async with self._kube.transport.stream(request) as lines:
            if lines.status != 200:
                raise failure(f"watching {self._kind.KIND}", lines.status, await lines.read())
            if listing:
                self._sink.begin()
            async for line in self._unless_silent(lines.__aiter__(), listing):
                listing = self._take(line, listing)
        if listing:
            raise Retry(f"watching {self._kind.KIND}: the stream ended inside the list")

    async def _unless_silent(self, lines: AsyncIterator[bytes], listing: bool) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self._pace.silence):
                    line = await anext(lines)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if listing and not self._version:
                    raise _NeverEnded from None
                raise Retry(f"watching {self._kind.KIND}: silent for {self._pace.silence:.0f} s") from None
            yield line

    def _take(self, line: bytes, listing: bool) -> bool:
        """Fold one line in; returns whether the list is still coming."""
        try:
            event = msgspec.json.decode(line, type=_Line)
            if event.type == "BOOKMARK":
                return self._take_mark(msgspec.json.decode(event.object, type=_Mark), listing)
            if event.type == "ERROR":
                code = msgspec.json.decode(event.object, type=_Failure).code
                raise failure(f"watching {self._kind.KIND}", code, bytes(event.object))
            obj = self._decode(self._kind, bytes(event.object))
        except msgspec.MsgspecError as error:
            # A line that cannot be read hides a change: only a new list can make up for it.
            raise Expired(f"watching {self._kind.KIND}: a line could not be read ({error})") from error
        if listing:
            self._sink.listed((obj,))
            return True
        self._version = obj.metadata.resource_version
        if event.type == "DELETED":
            self._sink.removed(obj)
        else:
            self._sink.changed(obj)
        return False

    def _take_mark(self, mark: _Mark, listing: bool) -> bool:
        if listing and (mark.metadata.annotations or {}).get(INITIAL_EVENTS_END) != "true":
            return True
        self._version = mark.metadata.resource_version
        if listing:
            self._sink.end()
        return False


class _NeverEnded(Exception):
    """The streamed list went silent before its end was marked."""
