"""Watch streams: where one starts, what it is told, and when it ends.

A stream is told every commit in revision order. What it makes of a commit depends on its selector,
asked of the state before and the state after:

    before   after
    no       yes     ADDED
    yes      yes     MODIFIED
    yes      no      DELETED, with the content it last matched and the new revision
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.sim.kube.selectors import EVERYTHING, Selector
from dovetail.sim.kube.status import ApiError, bad_request, expired
from dovetail.sim.kube.store import Event, Record
from dovetail.sim.kube.views import through

if TYPE_CHECKING:
    from dovetail.sim.kube.store import Bucket, Store
    from dovetail.sim.kube.types import TypeInfo

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Notice(NamedTuple):
    """One line of a stream. Bookmarks and errors are records too, of no stored object."""

    type: str
    record: Record


class Watch:
    """One stream over one type. Iterate it, or `drain` what has arrived so far."""

    def __init__(
        self,
        bucket: Bucket,
        info: TypeInfo,
        namespace: str = "",
        selector: Selector = EVERYTHING,
        *,
        bookmarks: bool = False,
        backlog: int | None = None,
    ) -> None:
        self.info = info
        self.namespace = namespace
        self.selector = selector
        self.bookmarks = bookmarks
        self.closed = False
        self.broken = False
        self.after = 0
        self._bucket = bucket
        self._backlog = backlog
        self._queue: deque[Notice] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._home: dict[int, Any] | None = None
        self._doom: tuple[int, str] | None = None

    def start(self, initial: Iterable[Notice], after: int) -> None:
        """Queue what comes first and follow every commit after that revision."""
        self._queue.extend(initial)
        self.after = after
        if self._backlog is not None:
            self._backlog += len(self._queue)
        self._home = self._listeners()
        self._home[id(self)] = self

    def _listeners(self) -> dict[int, Any]:
        """Streams that can only ever see one name or one node are not asked about the rest."""
        for path in ("metadata.name", "spec.nodeName"):
            value = self.selector.fixed(path)
            if value and (path == "metadata.name" or self.info.resource == "pods"):
                return self._bucket.routed.setdefault((path, value), {})
        return self._bucket.listeners

    def offer(self, event: Event) -> None:
        """Hear of a commit."""
        if event.rv <= self.after:
            return
        if self.namespace and event.new.key[0] != self.namespace:
            return
        notice = self.translate(event)
        if notice is not None:
            self._push(notice)

    def translate(self, event: Event) -> Notice | None:
        """What the commit means to this stream."""
        if self.selector.everything:
            return Notice(event.type, through(event.new, self.info))
        before = event.old is not None and self.selector(through(event.old, self.info).obj)
        after = event.type != "DELETED" and self.selector(through(event.new, self.info).obj)
        if after:
            return Notice("MODIFIED" if before else "ADDED", through(event.new, self.info))
        return Notice("DELETED", through(event.left, self.info)) if before else None

    def bookmark(self, revision: int) -> None:
        """Tell the client how far it has come, if it asked to be told."""
        if self.bookmarks and not self.closed and revision >= self.after:
            self._push(bookmark(self.info, revision))

    def fail(self, error: ApiError) -> None:
        """Send a last ERROR and end."""
        self._push(Notice("ERROR", Record(self.info, ("", ""), error.status(), 0)))
        self.close()

    def doom(self, events: int, end: str) -> None:
        """Let the stream die after so many events: `reset` breaks it off, `expired` says 410."""
        queued = self.take()
        self._queue.extend(queued[:events])
        if len(queued) > events:
            self._die(end)
        else:
            self._doom = (events - len(queued), end)

    def _die(self, end: str) -> None:
        if end == "expired":
            self.fail(expired("too old resource version: the history was compacted"))
        else:
            self.broken = True
            self.close()

    def _push(self, notice: Notice) -> None:
        if self._doom is not None and notice.type != "ERROR":
            left, end = self._doom
            if left <= 0:
                self._doom = None
                self._die(end)
                return
            self._doom = (left - 1, end)
        self._queue.append(notice)
        if self._backlog is not None and len(self._queue) > self._backlog:
            # The client does not keep up. It will list again and lose nothing but time.
            self._queue.clear()
            self.close()
        elif self._waiter is not None:
            self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def close(self) -> None:
        """Stop listening. What is already queued can still be read."""
        self.closed = True
        if self._home is not None:
            self._home.pop(id(self), None)
            self._forget_route()
            self._home = None
        self._wake()

    def _forget_route(self) -> None:
        if self._home is not self._bucket.listeners and not self._home:
            for route in [r for r, home in self._bucket.routed.items() if home is self._home]:
                del self._bucket.routed[route]

    def take(self) -> list[Notice]:
        """Everything queued, now."""
        taken = list(self._queue)
        self._queue.clear()
        return taken

    def drain(self) -> list[tuple[str, dict[str, Any]]]:
        """Everything queued, now, as types and objects."""
        return [(notice.type, notice.record.obj) for notice in self.take()]

    async def wait(self) -> bool:
        """Return when something is queued (True) or the stream has ended (False)."""
        while not self._queue:
            if self.closed:
                return False
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return True

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> tuple[str, dict[str, Any]]:
        if not await self.wait():
            raise StopAsyncIteration
        notice = self._queue.popleft()
        return notice.type, notice.record.obj


def bookmark(info: TypeInfo, revision: int, initial_end: bool = False) -> Notice:
    """A BOOKMARK; only its resourceVersion means anything."""
    metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial_end:
        metadata = {"resourceVersion": str(revision), "annotations": {INITIAL_EVENTS_END: "true"}}
    obj = {"kind": info.kind, "apiVersion": info.api_version, "metadata": metadata}
    return Notice("BOOKMARK", Record(info, ("", ""), obj, revision))


def parse_revision(text: str) -> int:
    """A resourceVersion as a client may send it; empty means zero."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise bad_request(f'invalid resource version "{text}"')
    return int(text)


def open_watch(
    store: Store,
    watch: Watch,
    resource_version: str,
    initial: Iterable[Record],
    send_initial_events: bool | None = None,
) -> Watch:
    """Start a stream: with the present state first, or from a revision the client has seen.

    `initial` is the present state matching the stream's selector; it is read only if it is wanted.
    """
    start = parse_revision(resource_version)
    if send_initial_events or (start == 0 and send_initial_events is None):
        first = [Notice("ADDED", record) for record in initial]
        if send_initial_events and watch.bookmarks:
            first.append(bookmark(watch.info, store.revision, initial_end=True))
        watch.start(first, store.revision)
    elif start == 0:
        watch.start((), store.revision)
    elif start < watch._bucket.compacted:
        watch.fail(expired(f"too old resource version: {start} ({watch._bucket.compacted})"))
    else:
        watch.start((), start)
        for event in watch._bucket.since(start):
            watch.offer(event)
    return watch
