"""Follow one kind: everything there is, then every change, through whatever the network does.

    list ──► live ──► live …        a stream that ends is resumed where it stopped
      ▲        │ 410, or no place to resume from
      └────────┘ list again; the sink works out what vanished meanwhile

A kind that is optional need not be installed: while the server does not serve it there are no objects of it,
which is no trouble, and it is asked for again every few minutes.

Where the server offers it, the list comes as a stream (`sendInitialEvents`), which spares it and
us the memory of a whole page; where it does not, pages are read and the watch starts from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Generic, Protocol, TypeVar

import msgspec

from dovetail.api import codec
from dovetail.api.bad_items import reason_of
from dovetail.api.meta import Object
from dovetail.errors import BadInput, DovetailError, Expired, Gone, Invalid, KubeStatus, Retry, Throttled
from dovetail.ports import Clock
from dovetail.runtime.kube import KubeClient, build_failure, build_selectors
from dovetail.runtime.transport import Lines

__all__ = ["Follower", "Sink", "WatchPace"]

R = TypeVar("R")
T = TypeVar("T", bound=Object)
S = TypeVar("S", bound=Object, contravariant=True)
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
Trouble = Callable[[DovetailError], None]
# So often in a row the server says that it does not serve a kind, before objects we know of are dropped.
UNSERVED_ANSWERS = 2


class Sink(Protocol[S]):
    """Where a follower puts what it learns."""

    def begin_list(self) -> None:
        """A new list starts."""

    def add_listed(self, objects: Iterable[S]) -> None:
        """Part of the list."""

    def end_list(self) -> None:
        """The list is complete: whatever was not in it is gone."""

    def apply_change(self, obj: S) -> None:
        """An object appeared or changed."""

    def apply_removal(self, namespace: str, name: str) -> None:
        """An object vanished."""


class WatchPace(msgspec.Struct, frozen=True):
    """How patient a follower is, in seconds. Delays double from first to last, with jitter."""

    first_delay: float = 0.8
    last_delay: float = 30.0
    settled: float = 120.0
    # A healthy server sends a bookmark about once a minute; three silent minutes mean a dead connection.
    silence: float = 180.0
    stream_seconds: tuple[int, int] = (300, 600)
    # A stream that ends sooner than this, with nothing said, is a server in trouble and not a long life.
    too_short: float = 1.0
    # An optional kind that the server does not serve is asked for again after at most this long.
    absent: float = 300.0


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Which objects of a kind are followed, how patiently, and who is told of trouble and of contact."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""
    pace: WatchPace = WatchPace()  # noqa: RUF009 (frozen)
    table: codec.Interner | None = None
    on_trouble: Trouble = lambda error: None
    on_contact: Callable[[], None] = lambda: None
    # The kind need not be installed: one that the server does not serve has no objects.
    optional: bool = False


class Follower(Generic[T]):
    """Keeps one sink up to date with one kind."""

    def __init__(
        self,
        kube: KubeClient,
        kind: type[T],
        sink: Sink[T],
        *,
        clock: Clock,
        rng: Random,
        options: WatchOptions = WatchOptions(),  # noqa: B008 (frozen)
    ) -> None:
        self._kube = kube
        self._kind = kind
        self._sink = sink
        self._clock = clock
        self._chance = rng
        self._namespace = options.namespace
        self._labels, self._fields = options.labels, options.fields
        self._pace = options.pace
        self._reader = _Reader(kind, options.table or codec.Interner(), options.on_trouble)
        self._on_trouble, self._on_contact = options.on_trouble, options.on_contact
        self._streams_lists = True
        self._version = ""
        self._optional = options.optional
        self._listed, self._unserved = False, 0

    async def run(self) -> None:
        """Follow until cancelled."""
        delay = 0.0
        while True:
            started = self._clock.monotonic()
            try:
                await self._follow_once()
                self._unserved = 0
                continue
            except DovetailError as error:
                # A person may grant the permission or install the kind later: whatever it is, keep asking.
                if _loses_place(error):
                    self._version = ""
                unserved = self._optional and isinstance(error, Gone)
                if not unserved and not isinstance(error, Expired):
                    self._on_trouble(error)
                asked = error.after if isinstance(error, Throttled) else None
            self._unserved = self._unserved + 1 if unserved else 0
            if unserved and self._drop_unserved():
                delay = 0.0
                await self._clock.sleep(self._pace.absent * (1 - 0.1 * self._chance.random()))
                continue
            if self._clock.monotonic() - started > self._pace.settled:
                delay = 0.0
            delay = min(max(delay * 2, self._pace.first_delay), self._pace.last_delay)
            await self._clock.sleep(max(asked or 0.0, delay) * (1 + self._chance.random()))

    def _drop_unserved(self) -> bool:
        """Take the kind as not installed, with no objects. Those we know of are dropped only when the server
        has said so twice: one replica of it may be behind the others."""
        if self._listed and self._unserved < UNSERVED_ANSWERS:
            return False
        self._listed = False
        self._sink.begin_list()
        self._sink.end_list()
        self._on_contact()
        return True

    def _end_list(self) -> None:
        self._listed = True
        self._sink.end_list()

    async def _follow_once(self) -> None:
        """One stream, from its start or its last place to its end."""
        if self._version:
            await self._follow_stream({"resourceVersion": self._version})
        elif self._streams_lists:
            await self._stream_list()
        else:
            await self._page_list()
            await self._follow_stream({"resourceVersion": self._version})

    async def _stream_list(self) -> None:
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        try:
            await self._follow_stream(query, listing=True)
        except (Invalid, _NeverEnded):
            # Servers without the feature say so at once; older ones ignore what they do not know
            # and never tell where the list ends.
            self._streams_lists = False

    async def _page_list(self) -> None:
        self._sink.begin_list()
        version = ""
        async for page in self._kube.list_pages(
            self._kind,
            self._namespace,
            labels=self._labels,
            fields=self._fields,
            decode=lambda _, body: self._reader.read_page(body),
        ):
            self._sink.add_listed(page.items)
            version = page.meta.resource_version
        self._end_list()
        self._version = version

    async def _follow_stream(self, query: dict[str, str], *, listing: bool = False) -> None:
        seconds = self._chance.randint(*self._pace.stream_seconds)
        asked = {"allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        asked |= build_selectors(self._labels, self._fields) | query
        started = self._clock.monotonic()
        async with self._kube.watch(self._kind.KIND, self._namespace, asked) as lines:
            if listing:
                self._sink.begin_list()
            else:
                self._on_contact()
            listing, said = await self._read_stream(lines, listing)
        if listing:
            raise Retry(f"watching {self._kind.KIND}: the stream ended inside the list")
        if not said and self._clock.monotonic() - started < self._pace.too_short:
            raise Retry(f"watching {self._kind.KIND}: the stream ended as soon as it began")

    async def _read_stream(self, lines: Lines, listing: bool) -> tuple[bool, bool]:
        """Fold a stream in; returns whether it ended inside the list, and whether it said anything."""
        loop, said = asyncio.get_running_loop(), False
        try:
            async with asyncio.timeout(self._pace.silence) as patience:
                async for batch in lines:
                    patience.reschedule(loop.time() + self._pace.silence)
                    for line in batch:
                        listing = self._take_line(line, listing)
                    said = True
                    if not listing:
                        self._on_contact()
                    # A long list arrives batch upon batch; others get their turn in between.
                    await asyncio.sleep(0)
        except TimeoutError:
            if listing:
                raise _NeverEnded from None
            raise Retry(f"watching {self._kind.KIND}: silent for {self._pace.silence:.0f} s") from None
        return listing, said

    def _take_line(self, line: bytes, listing: bool) -> bool:
        """Fold one line in; returns whether the list is still coming."""
        event = self._reader.read_line(line)
        if event.type == "BOOKMARK":
            return self._take_mark(event.object, listing)
        if event.type == "ERROR":
            code = msgspec.json.decode(event.object, type=_Failure).code
            raise build_failure(f"watching {self._kind.KIND}", code, bytes(event.object))
        obj = self._reader.read_object(event.object)
        if listing:
            self._sink.add_listed((obj,) if isinstance(obj, self._kind) else ())
            return True
        if event.type == "DELETED" or not isinstance(obj, self._kind):
            self._sink.apply_removal(obj.metadata.namespace, obj.metadata.name)
        else:
            self._sink.apply_change(obj)
        self._version = obj.metadata.resource_version
        return False

    def _take_mark(self, document: msgspec.Raw, listing: bool) -> bool:
        mark = self._reader.read_bare(document).metadata
        if listing and mark.annotations.get(INITIAL_EVENTS_END) != "true":
            # A server that knows how to stream a list sends no other mark before the list's end.
            raise _NeverEnded
        self._version = mark.resource_version
        if listing:
            self._end_list()
        return False


def _loses_place(error: DovetailError) -> bool:
    """Whether going on from where we were makes no sense: it is forgotten there, or not yet known."""
    if not isinstance(error, Retry) or isinstance(error, Expired):
        return True
    status = error.__cause__
    return isinstance(status, KubeStatus) and "ResourceVersionTooLarge" in status.causes


class _NeverEnded(Exception):
    """The list was streamed, and its end was not marked."""


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Failure(msgspec.Struct):
    code: int = 500


class _Bare(Object, frozen=True):
    """An object of which only the metadata is of use."""


class _Reader(Generic[T]):
    """Lines and pages to records. One object that cannot be read is reported and set aside, alone."""

    def __init__(self, kind: type[T], table: codec.Interner, on_trouble: Trouble) -> None:
        self._kind = kind
        self._table = table
        self._on_trouble = on_trouble
        self._lines = msgspec.json.Decoder(_Line)

    def read_page(self, body: bytes) -> codec.Listing[T]:
        page = self._or_expired(lambda: codec.decode_list(self._kind, body, self._table))
        for obj in page.items:
            self._report_trouble(obj)
        return page

    def read_line(self, line: bytes) -> _Line:
        return self._or_expired(lambda: self._lines.decode(line))

    def read_object(self, document: msgspec.Raw) -> T | _Bare:
        """The object or, when it makes no sense here, what can be read of it; at the least its metadata."""
        found = codec.decode_or_salvage(self._kind, document, self._table) or self.read_bare(document)
        self._report_trouble(found)
        return found

    def _report_trouble(self, obj: T | _Bare) -> None:
        if not isinstance(obj, self._kind):
            self._on_trouble(Retry(f"following {self._kind.KIND}: an object has no name that can be read"))
        elif why := reason_of(obj):
            self._on_trouble(BadInput(f"following {self._kind.KIND} {obj.full_name}: {why}"))

    def read_bare(self, document: msgspec.Raw) -> _Bare:
        return self._or_expired(lambda: codec.decode(_Bare, document))

    def _or_expired(self, read: Callable[[], R]) -> R:
        try:
            return read()
        except (msgspec.MsgspecError, BadInput) as error:
            # What cannot be read at all hides a change: only a new list can make up for it.
            raise Expired(f"following {self._kind.KIND}: an answer could not be read ({error})") from error
