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
import base64
import binascii
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dovetail.api.schema.causes import Cause
from dovetail.sim.kube.selectors import EVERYTHING, ObjectSelector
from dovetail.sim.kube.status import ApiError, bad_request, expired_version, invalid_kind, version_too_large
from dovetail.sim.kube.store import StoredRecord, StoreEvent
from dovetail.sim.kube.verbs.conversion import convert_record

if TYPE_CHECKING:
    from dovetail.sim.kube.store import Bucket, Key, ObjectStore, StoredRecord
    from dovetail.sim.kube.types import TypeInfo


INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class WatchNotice(NamedTuple):
    """One line of a stream. Bookmarks and errors are records too, of no stored object."""

    type: str
    record: StoredRecord


class ApiWatch:
    """One stream over one type. Iterate it, or `drain` what has arrived so far."""

    def __init__(
        self,
        bucket: Bucket,
        info: TypeInfo,
        namespace: str = "",
        selector: ObjectSelector = EVERYTHING,
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
        self._queue: deque[WatchNotice] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._home: dict[int, Any] | None = None
        self._doom: tuple[int, str] | None = None

    def start(self, initial: Iterable[WatchNotice], after: int) -> None:
        """Queue what comes first and follow every commit after that revision."""
        self._queue.extend(initial)
        self.after = after
        if self._backlog is not None:
            self._backlog += len(self._queue)
        self._home = self._find_listeners()
        self._home[id(self)] = self

    def _find_listeners(self) -> dict[int, Any]:
        """Streams that can only ever see one name or one node are not asked about the rest."""
        for path in ("metadata.name", "spec.nodeName"):
            value = self.selector.find_fixed_value(path)
            if value and (path == "metadata.name" or self.info.resource == "pods"):
                return self._bucket.routed.setdefault((path, value), {})
        return self._bucket.listeners

    def offer(self, event: StoreEvent) -> None:
        """Hear of a commit."""
        if event.rv <= self.after:
            return
        if self.namespace and event.new.key[0] != self.namespace:
            return
        notice = self.translate_event(event)
        if notice is not None:
            self._queue_notice(notice)

    def translate_event(self, event: StoreEvent) -> WatchNotice | None:
        """What the commit means to this stream."""
        if self.selector.everything:
            return WatchNotice(event.type, convert_record(event.new, self.info))
        before = event.old is not None and self.selector(convert_record(event.old, self.info).obj)
        after = event.type != "DELETED" and self.selector(convert_record(event.new, self.info).obj)
        if after:
            return WatchNotice("MODIFIED" if before else "ADDED", convert_record(event.new, self.info))
        return WatchNotice("DELETED", convert_record(event.left, self.info)) if before else None

    def send_bookmark(self, revision: int) -> None:
        """Tell the client how far it has come, if it asked to be told."""
        if self.bookmarks and not self.closed and revision >= self.after:
            self._queue_notice(build_bookmark(self.info, revision))

    def fail(self, error: ApiError) -> None:
        """Send a last ERROR and end."""
        self._queue_notice(WatchNotice("ERROR", StoredRecord(self.info, ("", ""), error.to_status(), 0)))
        self.close()

    def end_after(self, events: int, end: str) -> None:
        """Let the stream die after so many events: `reset` breaks it off, `expired` says 410."""
        queued = self.take_notices()
        self._queue.extend(queued[:events])
        if len(queued) > events:
            self._end_stream(end)
        else:
            self._doom = (events - len(queued), end)

    def _end_stream(self, end: str) -> None:
        if end == "expired":
            self.fail(expired_version("too old resource version: the history was compacted"))
        else:
            self.broken = True
            self.close()

    def _queue_notice(self, notice: WatchNotice) -> None:
        if self._doom is not None and notice.type != "ERROR":
            left, end = self._doom
            if left <= 0:
                self._doom = None
                self._end_stream(end)
                return
            self._doom = (left - 1, end)
        self._queue.append(notice)
        if self._backlog is not None and len(self._queue) > self._backlog:
            # The client does not keep up. It will list again and lose nothing but time.
            self._queue.clear()
            self.close()
        elif self._waiter is not None:
            self._wake_reader()

    def _wake_reader(self) -> None:
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
        self._wake_reader()

    def _forget_route(self) -> None:
        if self._home is not self._bucket.listeners and not self._home:
            for route in [r for r, home in self._bucket.routed.items() if home is self._home]:
                del self._bucket.routed[route]

    def take_notices(self) -> list[WatchNotice]:
        """Everything queued, now."""
        taken = list(self._queue)
        self._queue.clear()
        return taken

    def drain(self) -> list[tuple[str, dict[str, Any]]]:
        """Everything queued, now, as types and objects."""
        return [(notice.type, notice.record.obj) for notice in self.take_notices()]

    async def wait(self) -> bool:
        """Return when something is queued (True) or the stream has ended (False)."""
        while not self._queue:
            if self.closed:
                return False
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return True

    def __aiter__(self) -> ApiWatch:
        return self

    async def __anext__(self) -> tuple[str, dict[str, Any]]:
        if not await self.wait():
            raise StopAsyncIteration
        notice = self._queue.popleft()
        return notice.type, notice.record.obj


def build_bookmark(info: TypeInfo, revision: int, initial_end: bool = False) -> WatchNotice:
    """A BOOKMARK; only its resourceVersion means anything."""
    metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial_end:
        metadata = {"resourceVersion": str(revision), "annotations": {INITIAL_EVENTS_END: "true"}}
    obj = {"kind": info.kind, "apiVersion": info.api_version, "metadata": metadata}
    return WatchNotice("BOOKMARK", StoredRecord(info, ("", ""), obj, revision))


def parse_revision(text: str) -> int:
    """A resourceVersion as a client may send it; empty means zero."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise bad_request(f'invalid resource version "{text}"')
    return int(text)


def open_watch(
    store: ObjectStore,
    watch: ApiWatch,
    resource_version: str,
    initial: Iterable[StoredRecord],
    send_initial_events: bool | None = None,
) -> ApiWatch:
    """Start a stream: with the present state first, or from a revision the client has seen.

    `initial` is the present state matching the stream's selector; it is read only if it is wanted.
    """
    start = parse_revision(resource_version)
    if send_initial_events or (start == 0 and send_initial_events is None):
        first = [WatchNotice("ADDED", record) for record in initial]
        if send_initial_events and watch.bookmarks:
            first.append(build_bookmark(watch.info, store.revision, initial_end=True))
        watch.start(first, store.revision)
    elif start == 0:
        watch.start((), store.revision)
    elif start < watch._bucket.compacted:
        watch.fail(expired_version(f"too old resource version: {start} ({watch._bucket.compacted})"))
    else:
        watch.start((), start)
        for event in watch._bucket.list_events_since(start):
            watch.offer(event)
    return watch


@dataclass(frozen=True, slots=True)
class ListOptions:
    """What a list asks for."""

    namespace: str = ""
    selector: ObjectSelector = EVERYTHING
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    match: str = ""


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Some records of one snapshot, and how to get the next ones."""

    records: list[StoredRecord]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


class _Token(msgspec.Struct, frozen=True):
    rv: int
    ns: str
    name: str


def list_matching(
    bucket: Bucket, info: TypeInfo, namespace: str, selector: ObjectSelector
) -> list[StoredRecord]:
    """Current records that match, in order, as this version shows them."""
    records = (convert_record(record, info) for record in _list_candidates(bucket, namespace, selector))
    if selector.everything:
        return list(records)
    return [record for record in records if selector(record.obj)]


def _list_candidates(bucket: Bucket, namespace: str, selector: ObjectSelector) -> Iterable[StoredRecord]:
    name, node = selector.find_fixed_value("metadata.name"), selector.find_fixed_value("spec.nodeName")
    if name and namespace:
        found = bucket.records.get((namespace, name))
        return [found] if found else []
    if node:
        bound = bucket.by_node.get(node, {})
        return [bound[key] for key in sorted(bound) if not namespace or key[0] == namespace]
    return bucket.in_namespace(namespace)


def list_page(store: ObjectStore, info: TypeInfo, options: ListOptions) -> RecordPage:
    """One page; the first page of a list without a limit is the whole list."""
    _check_list_options(options)
    bucket = store.get_bucket(info.storage)
    if options.continue_token:
        token = _decode_token(options.continue_token)
        revision, after = token.rv, (token.ns, token.name)
    else:
        revision, after = _choose_revision(store, options), None
    if revision == store.revision:
        found = list_matching(bucket, info, options.namespace, options.selector)
    else:
        found = list(_list_as_of(bucket, info, options, revision, store.revision))
    if after is not None:
        found = [record for record in found if record.key > after]
    return _cut_page(found, revision, options)


def _cut_page(found: list[StoredRecord], revision: int, options: ListOptions) -> RecordPage:
    if not options.limit or len(found) <= options.limit:
        return RecordPage(found, revision)
    page = found[: options.limit]
    remaining = len(found) - len(page) if options.selector.everything else None
    return RecordPage(page, revision, _encode_token(revision, page[-1].key), remaining)


def _check_list_options(options: ListOptions) -> None:
    if options.continue_token and options.resource_version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    if not options.match:
        return
    if options.match not in ("Exact", "NotOlderThan"):
        text = f'Unsupported value: "{options.match}": supported values: "Exact", "NotOlderThan"'
        raise _invalid_match("FieldValueNotSupported", text)
    if options.continue_token:
        raise _invalid_match("FieldValueForbidden", "Forbidden: it is forbidden when continue is provided")
    if not options.resource_version:
        raise _invalid_match(
            "FieldValueForbidden", "Forbidden: it is forbidden unless resourceVersion is provided"
        )
    if options.match == "Exact" and parse_revision(options.resource_version) == 0:
        raise _invalid_match("FieldValueForbidden", 'Forbidden: "Exact" is forbidden for resourceVersion "0"')


def _invalid_match(reason: str, text: str) -> ApiError:
    return invalid_kind("ListOptions", "meta.k8s.io", "", [Cause("resourceVersionMatch", reason, text)])


def _choose_revision(store: ObjectStore, options: ListOptions) -> int:
    asked = parse_revision(options.resource_version)
    if asked > store.revision:
        raise version_too_large(asked, store.revision)
    # Before limits had a match rule, a limit with a revision meant exactly that revision.
    exact = options.match == "Exact" or (not options.match and options.limit > 0 and asked > 0)
    return asked if exact else store.revision


def _list_as_of(
    bucket: Bucket, info: TypeInfo, options: ListOptions, revision: int, store_revision: int
) -> Iterator[StoredRecord]:
    if not bucket.compacted <= revision <= store_revision:
        raise expired_version(f"The resourceVersion {revision} for the provided list is too old.")
    records = bucket.as_of(revision)
    for key in sorted(records):
        if not options.namespace or key[0] == options.namespace:
            record = convert_record(records[key], info)
            if options.selector(record.obj):
                yield record


def _encode_token(revision: int, key: Key) -> str:
    raw = msgspec.json.encode(_Token(revision, *key))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode_token(text: str) -> _Token:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(raw, type=_Token)
    except (ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise bad_request("continue key is not valid") from error
