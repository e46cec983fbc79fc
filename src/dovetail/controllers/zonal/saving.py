"""ZoneShifts on their way to the store: what is worth a write, and what was seen since the last one."""

from __future__ import annotations

from datetime import timedelta

from msgspec import structs

from dovetail.api.zoneshift import ZoneShift, ZoneShiftStatus
from dovetail.controllers.zonal.store import Store
from dovetail.errors import AlreadyExists, Conflict, Gone

__all__ = ["Saving"]

# A shift that is only seen once more is not written down at every poll.
CONFIRM_EVERY = timedelta(seconds=30)


class Saving:
    """Writes what matters. Whoever else was faster is seen at the next look."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Each as it is now, under the version it was last written as.
        self._known: dict[str, ZoneShift] = {}

    def latest(self, obj: ZoneShift) -> ZoneShift:
        """The object with what was seen of its shift since it was written."""
        known = self._known.get(obj.name)
        same = known is not None and known.metadata.resource_version == obj.metadata.resource_version
        return known if same and known is not None else obj

    async def save(self, before: ZoneShift | None, obj: ZoneShift) -> None:
        """Keep the object as it is now. `before` is it as the store has it, None when it has none."""
        try:
            if before is None:
                self._known[obj.name] = await self._store.create(obj)
                return
            told = obj.status if _worth_writing(before.status, obj.status) else before.status
            done = await self._store.write(before, structs.replace(obj, status=told))
            self._known[obj.name] = structs.replace(done, status=obj.status)
        except (AlreadyExists, Conflict, Gone):
            return  # looked at again in a moment

    async def tell(self, name: str, status: ZoneShiftStatus) -> None:
        """Keep a status of an object that was saved in this look."""
        known = self._known[name]
        try:
            self._known[name] = await self._store.write(known, structs.replace(known, status=status))
        except (Conflict, Gone):
            return

    def known(self, name: str) -> ZoneShift | None:
        return self._known.get(name)

    async def forget(self, obj: ZoneShift) -> None:
        self._known.pop(obj.name, None)
        await self._store.remove(obj)


def _worth_writing(before: ZoneShiftStatus, now: ZoneShiftStatus) -> bool:
    if structs.replace(before, last_confirmed_at=None) != structs.replace(now, last_confirmed_at=None):
        return True
    was, seen = before.last_confirmed_at, now.last_confirmed_at
    return (was is None) != (seen is None) or (
        was is not None and seen is not None and seen - was >= CONFIRM_EVERY
    )
