"""Dependents follow their owners: in the background, before them, or not at all.

The collector hears every commit and works right after the write that caused it, in the same turn,
so that a cascade is deterministic. Only one thing waits: an object created with owners that do not
exist is given a little time, because its owner may be on the way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dovetail.sim.kube.deletes import FOREGROUND, ORPHAN
from dovetail.sim.kube.options import DeleteOptions

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.deletes import Deleter
    from dovetail.sim.kube.store import Event, Key, Record
    from dovetail.sim.kube.writes import Writer

_PATIENCE = 2.0
Place = tuple[str, "Key"]


class Collector:
    """Indexes owners and dependents by uid, and acts when an owner goes."""

    def __init__(self, core: Core, deleter: Deleter, writer: Writer) -> None:
        self.core = core
        self.deleter = deleter
        self.writer = writer
        self.enabled = True
        self._live: dict[str, Place] = {}
        self._dependents: dict[str, dict[Place, None]] = {}
        self._doubtful: deque[tuple[float, Place]] = deque()
        core.store.on_commit(self.heard)

    def index(self, record: Record) -> None:
        """Learn of an object that was there before (after loading a snapshot)."""
        place = (record.info.storage, record.key)
        self._live[record.obj["metadata"]["uid"]] = place
        for uid in owner_uids(record.obj):
            self._dependents.setdefault(uid, {})[place] = None

    def heard(self, event: Event) -> None:
        """Keep the index and note what to do afterwards."""
        metadata = event.new.obj["metadata"]
        place = (event.new.info.storage, event.new.key)
        if event.old is None:
            self._live[metadata["uid"]] = place
        owners = self._reindex(event, place)
        if event.type == "DELETED":
            self._gone(event, metadata["uid"])
        elif event.old is None:
            if owners and not all(uid in self._live for uid in owners):
                self._doubtful.append((self.core.clock.monotonic() + _PATIENCE, place))
        elif metadata.get("deletionTimestamp") and metadata.get("finalizers"):
            self.core.afterwards(lambda: self.finalize(place))

    def _reindex(self, event: Event, place: Place) -> list[str]:
        if event.type == "MODIFIED" and event.old is not None:
            old, new = event.old.obj["metadata"], event.new.obj["metadata"]
            if old.get("ownerReferences") is new.get("ownerReferences"):
                return []  # most writes hand the very same list on
        before = owner_uids(event.old.obj) if event.old else []
        after = owner_uids(event.new.obj) if event.type != "DELETED" else []
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

    def _gone(self, event: Event, uid: str) -> None:
        self._live.pop(uid, None)
        for place in self._dependents.get(uid, ()):
            self.core.afterwards(lambda place=place: self.orphaned(place))  # type: ignore[misc]
        for owner in owner_uids(event.new.obj):
            found = self._live.get(owner)
            if found is not None:
                self.core.afterwards(lambda found=found: self.finalize(found))  # type: ignore[misc]

    def tick(self) -> None:
        """Look again at objects whose owners were unknown when they were created."""
        now = self.core.clock.monotonic()
        while self._doubtful and self._doubtful[0][0] <= now:
            self.orphaned(self._doubtful.popleft()[1])

    def orphaned(self, place: Place) -> None:
        """Delete an object whose owners are all gone; otherwise strike the dead ones off."""
        record = self.core.store.get(*place)
        if not self.enabled or record is None:
            return
        owners = record.obj["metadata"].get("ownerReferences") or []
        alive = [owner for owner in owners if self._lives(owner, record.key[0])]
        if len(alive) == len(owners):
            return
        if alive:
            self._rewrite(record, "ownerReferences", alive)
        elif not record.obj["metadata"].get("deletionTimestamp"):
            self.deleter.delete(record.info, record.key, DeleteOptions(propagation="Background"))

    def _lives(self, owner: dict[str, Any], namespace: str) -> bool:
        found = self._live.get(owner.get("uid", ""))
        return found is not None and found[1][0] in ("", namespace)

    def finalize(self, place: Place) -> None:
        """Do what a deletion policy asked for, then let the owner go."""
        record = self.core.store.get(*place)
        if not self.enabled or record is None or not record.obj["metadata"].get("deletionTimestamp"):
            return
        finalizers = record.obj["metadata"].get("finalizers") or []
        if ORPHAN in finalizers:
            self._abandon(record)
        elif FOREGROUND in finalizers:
            self._foreground(record)

    def _abandon(self, owner: Record) -> None:
        uid = owner.obj["metadata"]["uid"]
        for record in self._records(uid):
            kept = [each for each in record.obj["metadata"]["ownerReferences"] if each.get("uid") != uid]
            self._rewrite(record, "ownerReferences", kept)
        self._drop_finalizer(owner, ORPHAN)

    def _foreground(self, owner: Record) -> None:
        uid = owner.obj["metadata"]["uid"]
        for record in self._records(uid):
            if not record.obj["metadata"].get("deletionTimestamp"):
                has_own = record.obj["metadata"]["uid"] in self._dependents
                policy = "Foreground" if has_own else "Background"
                self.deleter.delete(record.info, record.key, DeleteOptions(propagation=policy))
        if not any(_blocks(record.obj, uid) for record in self._records(uid)):
            self._drop_finalizer(owner, FOREGROUND)

    def _records(self, uid: str) -> list[Record]:
        found = (self.core.store.get(*place) for place in tuple(self._dependents.get(uid, ())))
        return [record for record in found if record is not None]

    def _drop_finalizer(self, record: Record, finalizer: str) -> None:
        current = self.core.store.get(record.info.storage, record.key)
        if current is not None:
            finalizers = current.obj["metadata"].get("finalizers") or []
            self._rewrite(current, "finalizers", [each for each in finalizers if each != finalizer])

    def _rewrite(self, record: Record, name: str, value: list[Any]) -> None:
        metadata = {**record.obj["metadata"], name: value}
        if not value:
            del metadata[name]
        self.writer.settle(record.info, record.key, {**record.obj, "metadata": metadata})


def owner_uids(obj: dict[str, Any]) -> list[str]:
    """The uids an object names as its owners."""
    owners: Iterable[dict[str, Any]] = obj["metadata"].get("ownerReferences") or ()
    return [owner["uid"] for owner in owners if owner.get("uid")]


def _blocks(obj: dict[str, Any], uid: str) -> bool:
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid and owner.get("blockOwnerDeletion") for owner in owners)
