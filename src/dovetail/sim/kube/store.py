"""Every object, one revision counter, and what happened lately.

The store is touched only on one event loop and never across an await, so writes need no locks and
revision order is commit order across all kinds. Stored objects are never edited: a write puts a
new `Record` in the old one's place, and readers may keep whatever they were handed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from dovetail.sim.kube.types import TypeInfo

Key = tuple[str, str]
"""Namespace (empty for cluster scope) and name."""

View = Callable[[dict[str, Any]], dict[str, Any]]
HISTORY = 20_000

encode = msgspec.json.Encoder().encode


class StoredRecord:
    """One state of one object. Its JSON is made once, when first needed, and shared by all readers."""

    __slots__ = ("_body", "_views", "info", "key", "obj", "rv")

    def __init__(self, info: TypeInfo, key: Key, obj: dict[str, Any], rv: int) -> None:
        self.info = info
        self.key = key
        self.obj = obj
        self.rv = rv
        self._body: bytes | None = None
        self._views: dict[int, StoredRecord] | None = None

    @property
    def body(self) -> bytes:
        """The object as JSON, kind and apiVersion first."""
        if self._body is None:
            self._body = encode(self.obj)
        return self._body

    def convert_to(self, info: TypeInfo, view: View) -> StoredRecord:
        """This state through another served version, converted once."""
        if self._views is None:
            self._views = {}
        record = self._views.get(id(info))
        if record is None or record.info is not info:
            record = self._views[id(info)] = StoredRecord(info, self.key, view(self.obj), self.rv)
        return record


class StoreEvent:
    """One commit: `old` is None for a creation; for a deletion `new` is the final state."""

    __slots__ = ("_left", "new", "old", "rv", "type")

    def __init__(self, rv: int, type_: str, old: StoredRecord | None, new: StoredRecord) -> None:
        self.rv = rv
        self.type = type_
        self.old = old
        self.new = new
        self._left: StoredRecord | None = None

    @property
    def left(self) -> StoredRecord:
        """What a watcher is told when an object stops matching: the old content, the new revision."""
        if self.type == "DELETED" or self.old is None:
            return self.new
        if self._left is None:
            self._left = at_revision(self.old, self.rv)
        return self._left


class StoreListener(Protocol):
    """Someone told of every commit to a bucket, in order, in the same turn."""

    def offer(self, event: StoreEvent) -> None:
        """Take note; must not write to the store."""

    def close(self) -> None:
        """Hear that there will be no more commits."""


def at_revision(record: StoredRecord, rv: int) -> StoredRecord:
    """The same content under another resourceVersion."""
    metadata = {**record.obj["metadata"], "resourceVersion": str(rv)}
    return StoredRecord(record.info, record.key, {**record.obj, "metadata": metadata}, rv)


class Bucket:
    """All objects of one storage key, ordered by namespace and name, with their recent history."""

    def __init__(self, history: int, compacted: int) -> None:
        self.records: dict[Key, StoredRecord] = {}
        self.keys: list[Key] = []
        self.history: deque[StoreEvent] = deque(maxlen=history)
        self.compacted = compacted
        self.listeners: dict[int, StoreListener] = {}
        self.routed: dict[tuple[str, str], dict[int, StoreListener]] = {}
        self.by_node: dict[str, dict[Key, StoredRecord]] = {}

    def put(self, event: StoreEvent) -> None:
        """Store an event's new state and remember the event."""
        record = event.new
        if event.old is None:
            insort(self.keys, record.key)
        self.records[record.key] = record
        self._index_by_node(event.old, record)
        self._remember_event(event)

    def drop(self, event: StoreEvent) -> None:
        """Remove an event's object and remember the event."""
        key = event.new.key
        del self.records[key]
        del self.keys[bisect_left(self.keys, key)]
        self._index_by_node(event.old, None)
        self._remember_event(event)

    def _index_by_node(self, old: StoredRecord | None, new: StoredRecord | None) -> None:
        record = new or old
        if record is None or record.info.storage != "pods":
            return
        before, after = find_node_name(old), find_node_name(new)
        if before and before != after and old is not None:
            self.by_node[before].pop(old.key, None)
            if not self.by_node[before]:
                del self.by_node[before]
        if after and new is not None:
            self.by_node.setdefault(after, {})[new.key] = new

    def _remember_event(self, event: StoreEvent) -> None:
        if len(self.history) == self.history.maxlen:
            self.compacted = self.history[0].rv
        self.history.append(event)

    def compact(self, rv: int) -> None:
        """Forget what happened up to and including a revision."""
        while self.history and self.history[0].rv <= rv:
            self.history.popleft()
        self.compacted = max(self.compacted, rv)

    def list_events_since(self, rv: int) -> list[StoreEvent]:
        """Events after a revision; ask `compacted` first whether all of them are still known."""
        found: list[StoreEvent] = []
        for event in reversed(self.history):
            if event.rv <= rv:
                break
            found.append(event)
        found.reverse()
        return found

    def in_namespace(self, namespace: str) -> Iterator[StoredRecord]:
        """Records of a namespace (all for an empty one), in key order."""
        if not namespace:
            yield from map(self.records.__getitem__, self.keys)
            return
        low = bisect_left(self.keys, (namespace, ""))
        high = bisect_left(self.keys, (namespace + "\0", ""))
        for key in self.keys[low:high]:
            yield self.records[key]

    def as_of(self, rv: int) -> dict[Key, StoredRecord]:
        """The records as they stood at a revision not older than `compacted`."""
        records = dict(self.records)
        for event in reversed(self.history):
            if event.rv <= rv:
                break
            if event.old is None:
                records.pop(event.new.key, None)
            else:
                records[event.old.key] = event.old
        return records


def find_node_name(record: StoredRecord | None) -> str:
    """The node a pod is bound to; empty for everything else."""
    if record is None or record.info.plural != "pods" or record.info.group:
        return ""
    name: str = record.obj.get("spec", {}).get("nodeName") or ""
    return name


class _Subscriber(NamedTuple):
    """Someone who hears of commits, and of which."""

    act: Callable[[StoreEvent], None]
    storages: frozenset[str]
    removals: bool

    def is_interested(self, storage: str, removal: bool) -> bool:
        return not self.storages or storage in self.storages or (removal and self.removals)


class ObjectStore:
    """All buckets under one revision counter."""

    def __init__(self, history: int = HISTORY) -> None:
        self.revision = 1
        self._history = history
        self._loaded_at = 0
        self._buckets: dict[str, Bucket] = {}
        self._subscribers: list[_Subscriber] = []
        # Who is told of a commit: by the kind, and whether it is a removal.
        self._audience: dict[tuple[str, bool], tuple[Callable[[StoreEvent], None], ...]] = {}

    def get_bucket(self, storage: str) -> Bucket:
        """The bucket of a storage key, made on first use."""
        bucket = self._buckets.get(storage)
        if bucket is None:
            bucket = self._buckets[storage] = Bucket(self._history, self._loaded_at)
        return bucket

    def get_buckets(self) -> dict[str, Bucket]:
        """Every bucket there is, by storage key."""
        return self._buckets

    def get(self, storage: str, key: Key) -> StoredRecord | None:
        """One object's current state."""
        bucket = self._buckets.get(storage)
        return bucket.records.get(key) if bucket else None

    def on_commit(self, told: Callable[[StoreEvent], None], *storages: str, removals: bool = False) -> None:
        """Tell someone of every commit, after the watchers: of these kinds, or of all when none is named.

        With `removals`, removals of every other kind are told as well.
        """
        self._subscribers.append(_Subscriber(told, frozenset(storages), removals))
        self._audience.clear()

    def put(self, info: TypeInfo, key: Key, obj: dict[str, Any]) -> StoredRecord:
        """Create or replace an object; its resourceVersion becomes this commit's revision."""
        bucket = self.get_bucket(info.storage)
        old = bucket.records.get(key)
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        record = StoredRecord(info, key, obj, self.revision)
        event = StoreEvent(self.revision, "MODIFIED" if old else "ADDED", old, record)
        bucket.put(event)
        self._notify_listeners(bucket, event)
        return record

    def drop(self, info: TypeInfo, key: Key, final: dict[str, Any] | None = None) -> StoredRecord:
        """Remove an object; watchers see its final state under the revision of the removal."""
        bucket = self.get_bucket(info.storage)
        old = bucket.records[key]
        self.revision += 1
        last = old if final is None else StoredRecord(old.info, key, final, old.rv)
        event = StoreEvent(self.revision, "DELETED", old, at_revision(last, self.revision))
        bucket.drop(event)
        self._notify_listeners(bucket, event)
        return event.new

    def _notify_listeners(self, bucket: Bucket, event: StoreEvent) -> None:
        if bucket.listeners:
            for listener in tuple(bucket.listeners.values()):
                listener.offer(event)
        if bucket.routed:
            self._notify_routed(bucket, event)
        about = (event.new.info.storage, event.type == "DELETED")
        audience = self._audience.get(about)
        if audience is None:
            audience = self._audience[about] = tuple(
                each.act for each in self._subscribers if each.is_interested(*about)
            )
        for told in audience:
            told(event)

    def _notify_routed(self, bucket: Bucket, event: StoreEvent) -> None:
        # A dict keeps its order and a set does not: watchers must wake in the same order in every run.
        nodes = (("spec.nodeName", find_node_name(record)) for record in (event.old, event.new))
        for route in dict.fromkeys((("metadata.name", event.new.key[1]), *nodes)):
            for listener in tuple(bucket.routed.get(route, {}).values()):
                listener.offer(event)

    def compact(self, rv: int | None = None) -> None:
        """Forget history up to a revision (by default all of it), as etcd does from time to time."""
        for bucket in self._buckets.values():
            bucket.compact(self.revision if rv is None else rv)

    def dump(self) -> bytes:
        """Everything stored, as one JSON document that `load` reads back."""
        objects = {
            name: [bucket.records[k].obj for k in bucket.keys] for name, bucket in self._buckets.items()
        }
        return encode({"revision": self.revision, "objects": objects})

    def load(self, snapshot: dict[str, Any], info_of: Callable[[str, dict[str, Any]], TypeInfo]) -> None:
        """Replace everything. History from before the snapshot is gone, so old watches expire."""
        self.revision = self._loaded_at = int(snapshot["revision"])
        self._buckets.clear()
        for storage, objects in snapshot["objects"].items():
            bucket = self.get_bucket(storage)
            for obj in objects:
                metadata = obj["metadata"]
                key = (metadata.get("namespace", ""), metadata["name"])
                record = StoredRecord(info_of(storage, obj), key, obj, int(metadata["resourceVersion"]))
                bucket.records[key] = record
                bucket.keys.append(key)
                bucket._index_by_node(None, record)
            bucket.keys.sort()
