"""Where shifts and the messages about them are kept: the port, and the cluster itself.

What was done to an object stands on that object, whatever the store. The store holds what has no object of
its own, and, outside the cluster, copies of pools' ledgers in case somebody strips those.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol

from msgspec import structs

from dovetail.api.zoneshift import ZoneShift, ZoneShiftStatus
from dovetail.errors import AlreadyExists, Conflict, Gone
from dovetail.ports import Kube
from dovetail.zonal.model.pools import PoolLedger

__all__ = ["ClusterStore", "ShiftStore", "ShiftWriter"]


class ShiftStore(Protocol):
    """Keeps ZoneShifts. A write that somebody else was faster with is a Conflict: look again."""

    @property
    def advice(self) -> str:
        """What a person does when nothing can be read here."""

    async def list(self) -> tuple[ZoneShift, ...]:
        """Every shift and every message that is still to be heard."""

    async def create(self, shift: ZoneShift) -> ZoneShift:
        """Keep a new one; AlreadyExists when it is there."""

    async def write(self, before: ZoneShift, after: ZoneShift) -> ZoneShift:
        """Keep it as it is now."""

    async def remove(self, shift: ZoneShift) -> None:
        """Forget it."""

    @property
    def ledgers(self) -> Mapping[str, PoolLedger]:
        """Copies of pools' ledgers by the pool's uid, as they were when everything was listed last."""

    async def save_ledger(self, uid: str, name: str, ledger: PoolLedger | None) -> None:
        """Before a pool is written: what will have been done to it; None when that is undone."""


class ClusterStore:
    """ZoneShift objects in the cluster."""

    advice = "install deploy/crds/zonal and allow zoneshifts.dovetail.sh"

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def list(self) -> tuple[ZoneShift, ...]:
        return await self._kube.list(ZoneShift)

    async def create(self, shift: ZoneShift) -> ZoneShift:
        made = await self._kube.create(structs.replace(shift, status=ZoneShiftStatus()))
        if shift.status == ZoneShiftStatus():
            return made
        return await self._kube.patch(made, structs.replace(made, status=shift.status), status=True)

    async def write(self, before: ZoneShift, after: ZoneShift) -> ZoneShift:
        if (after.metadata, after.spec) != (before.metadata, before.spec):
            before = await self._kube.patch(before, structs.replace(after, status=before.status))
        if after.status == before.status:
            return before
        return await self._kube.patch(before, structs.replace(before, status=after.status), status=True)

    async def remove(self, shift: ZoneShift) -> None:
        try:
            if shift.metadata.finalizers:
                bare = structs.replace(shift.metadata, finalizers=())
                await self._kube.patch(shift, structs.replace(shift, metadata=bare))
            await self._kube.delete(shift)
        except (Gone, Conflict):
            return

    @property
    def ledgers(self) -> Mapping[str, PoolLedger]:
        return {}

    async def save_ledger(self, uid: str, name: str, ledger: PoolLedger | None) -> None:
        """The pool's own annotation is all there is."""


# A shift that is only seen once more is not written down at every poll.
CONFIRM_EVERY = timedelta(seconds=30)


class ShiftWriter:
    """Writes what matters. Whoever else was faster is seen at the next look."""

    def __init__(self, store: ShiftStore) -> None:
        self._store = store
        # Each as it is now, under the version it was last written as.
        self._known: dict[str, ZoneShift] = {}

    def find_latest(self, obj: ZoneShift) -> ZoneShift:
        """The object with what was seen of its shift since it was written."""
        known = self._known.get(obj.name)
        same = known is not None and known.metadata.resource_version == obj.metadata.resource_version
        return known if same and known is not None else obj

    async def save_shift(self, before: ZoneShift | None, obj: ZoneShift) -> None:
        """Keep the object as it is now. `before` is it as the store has it, None when it has none."""
        try:
            if before is None:
                self._known[obj.name] = await self._store.create(obj)
                return
            told = obj.status if _is_worth_writing(before.status, obj.status) else before.status
            done = await self._store.write(before, structs.replace(obj, status=told))
            self._known[obj.name] = structs.replace(done, status=obj.status)
        except (AlreadyExists, Conflict, Gone):
            return  # looked at again in a moment

    async def save_status(self, name: str, status: ZoneShiftStatus) -> None:
        """Keep a status of an object that was saved in this look."""
        known = self._known[name]
        try:
            self._known[name] = await self._store.write(known, structs.replace(known, status=status))
        except (Conflict, Gone):
            return

    def find_known(self, name: str) -> ZoneShift | None:
        return self._known.get(name)

    async def remove_shift(self, obj: ZoneShift) -> None:
        self._known.pop(obj.name, None)
        await self._store.remove(obj)


def _is_worth_writing(before: ZoneShiftStatus, now: ZoneShiftStatus) -> bool:
    if structs.replace(before, last_confirmed_at=None) != structs.replace(now, last_confirmed_at=None):
        return True
    was, seen = before.last_confirmed_at, now.last_confirmed_at
    return (was is None) != (seen is None) or (
        was is not None and seen is not None and seen - was >= CONFIRM_EVERY
    )
