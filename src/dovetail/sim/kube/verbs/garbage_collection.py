"""Dependents follow their owners: in the background, before them, or not at all.

The collector hears every commit and works right after the write that caused it, in the same turn,
so that a cascade is deterministic. Only one thing waits: an object created with owners that do not
exist is given a little time, because its owner may be on the way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dovetail.sim.kube.core import DeleteOptions
from dovetail.sim.kube.verbs.deletes import FOREGROUND, ORPHAN

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.store import Key, StoredRecord, StoreEvent
    from dovetail.sim.kube.verbs.deletes import Deleter
    from dovetail.sim.kube.verbs.writes import ObjectWriter

_PATIENCE = 2.0
Place = tuple[str, "Key"]


class OwnerGarbageCollector:
    """Indexes owners and dependents by uid, and acts when an owner goes."""

    def __init__(self, core: Core, deleter: Deleter, writer: ObjectWriter) -> None:
        self.core = core
        self.deleter = deleter
        self.writer = writer
        self.enabled = True
        self._live: dict[str, Place] = {}
        self._dependents: dict[str, dict[Place, None]] = {}
        self._doubtful: deque[tuple[float, Place]] = deque()
        core.store.on_commit(self.handle_commit)

    def index_record(self, record: StoredRecord) -> None:
        """Learn of an object that was there before (after loading a snapshot)."""
        place = (record.info.storage, record.key)
        self._live[record.obj["metadata"]["uid"]] = place
        for uid in list_owner_uids(record.obj):
            self._dependents.setdefault(uid, {})[place] = None

    def handle_commit(self, event: StoreEvent) -> None:
        """Keep the index and note what to do afterwards."""
        metadata = event.new.obj["metadata"]
        place = (event.new.info.storage, event.new.key)
        if event.old is None:
            self._live[metadata["uid"]] = place
        owners = self._reindex_owners(event, place)
        if event.type == "DELETED":
            self._handle_removal(event, metadata["uid"])
        elif event.old is None:
            if owners and not all(uid in self._live for uid in owners):
                self._doubtful.append((self.core.clock.monotonic() + _PATIENCE, place))
        elif metadata.get("deletionTimestamp") and metadata.get("finalizers"):
            self.core.run_afterwards(lambda: self.finalize_owner(place))

    def _reindex_owners(self, event: StoreEvent, place: Place) -> list[str]:
        if event.type == "MODIFIED" and event.old is not None:
            old, new = event.old.obj["metadata"], event.new.obj["metadata"]
            if old.get("ownerReferences") is new.get("ownerReferences"):
                return []  # most writes hand the very same list on
        before = list_owner_uids(event.old.obj) if event.old else []
        after = list_owner_uids(event.new.obj) if event.type != "DELETED" else []
        if before == after:
            return after
        for uid in before:
            found = self._dependents.get(uid)
            if uid not in after and found is not None:
                found.pop(place, None)
                if not found:
                    del self._dependents[uid]
        for uid in after:
            self._dependents.setdefault(uid, {})[place] = None
        return after

    def _handle_removal(self, event: StoreEvent, uid: str) -> None:
        self._live.pop(uid, None)
        for place in self._dependents.get(uid, ()):
            self.core.run_afterwards(lambda place=place: self.collect_orphan(place))  # type: ignore[misc]
        for owner in list_owner_uids(event.new.obj):
            found = self._live.get(owner)
            if found is not None:
                self.core.run_afterwards(lambda found=found: self.finalize_owner(found))  # type: ignore[misc]

    def check_doubtful(self) -> None:
        """Look again at objects whose owners were unknown when they were created."""
        now = self.core.clock.monotonic()
        while self._doubtful and self._doubtful[0][0] <= now:
            self.collect_orphan(self._doubtful.popleft()[1])

    def collect_orphan(self, place: Place) -> None:
        """Delete an object whose owners are all gone; otherwise strike the dead ones off."""
        record = self.core.store.get(*place)
        if not self.enabled or record is None:
            return
        owners = record.obj["metadata"].get("ownerReferences") or []
        alive = [owner for owner in owners if self._is_alive(owner, record.key[0])]
        if len(alive) == len(owners):
            return
        if alive:
            self._rewrite_metadata(record, "ownerReferences", alive)
        elif not record.obj["metadata"].get("deletionTimestamp"):
            self.deleter.delete(record.info, record.key, DeleteOptions(propagation="Background"))

    def _is_alive(self, owner: dict[str, Any], namespace: str) -> bool:
        found = self._live.get(owner.get("uid", ""))
        return found is not None and found[1][0] in ("", namespace)

    def finalize_owner(self, place: Place) -> None:
        """Do what a deletion policy asked for, then let the owner go."""
        record = self.core.store.get(*place)
        if not self.enabled or record is None or not record.obj["metadata"].get("deletionTimestamp"):
            return
        finalizers = record.obj["metadata"].get("finalizers") or []
        if ORPHAN in finalizers:
            self._orphan_dependents(record)
        elif FOREGROUND in finalizers:
            self._delete_dependents(record)

    def _orphan_dependents(self, owner: StoredRecord) -> None:
        uid = owner.obj["metadata"]["uid"]
        for record in self._list_dependents(uid):
            kept = [each for each in record.obj["metadata"]["ownerReferences"] if each.get("uid") != uid]
            self._rewrite_metadata(record, "ownerReferences", kept)
        self._drop_finalizer(owner, ORPHAN)

    def _delete_dependents(self, owner: StoredRecord) -> None:
        uid = owner.obj["metadata"]["uid"]
        for record in self._list_dependents(uid):
            if not record.obj["metadata"].get("deletionTimestamp"):
                has_own = record.obj["metadata"]["uid"] in self._dependents
                policy = "Foreground" if has_own else "Background"
                self.deleter.delete(record.info, record.key, DeleteOptions(propagation=policy))
        if not any(_blocks_deletion(record.obj, uid) for record in self._list_dependents(uid)):
            self._drop_finalizer(owner, FOREGROUND)

    def _list_dependents(self, uid: str) -> list[StoredRecord]:
        found = (self.core.store.get(*place) for place in tuple(self._dependents.get(uid, ())))
        return [record for record in found if record is not None]

    def _drop_finalizer(self, record: StoredRecord, finalizer: str) -> None:
        current = self.core.store.get(record.info.storage, record.key)
        if current is not None:
            finalizers = current.obj["metadata"].get("finalizers") or []
            self._rewrite_metadata(current, "finalizers", [each for each in finalizers if each != finalizer])

    def _rewrite_metadata(self, record: StoredRecord, name: str, value: list[Any]) -> None:
        metadata = {**record.obj["metadata"], name: value}
        if not value:
            del metadata[name]
        self.writer.commit_or_remove(record.info, record.key, {**record.obj, "metadata": metadata})


def list_owner_uids(obj: dict[str, Any]) -> list[str]:
    """The uids an object names as its owners."""
    owners: Iterable[dict[str, Any]] = obj["metadata"].get("ownerReferences") or ()
    return [owner["uid"] for owner in owners if owner.get("uid")]


def _blocks_deletion(obj: dict[str, Any], uid: str) -> bool:
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid and owner.get("blockOwnerDeletion") for owner in owners)
