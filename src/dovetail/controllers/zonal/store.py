"""Where shifts and the messages about them are kept: the port, and the cluster itself.

What was done to an object stands on that object, whatever the store. The store holds what has no object of
its own, and, outside the cluster, copies of pools' ledgers in case somebody strips those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import structs

from dovetail.api.zoneshift import ZoneShift, ZoneShiftStatus
from dovetail.errors import Conflict, Gone
from dovetail.ports import Kube
from dovetail.zonal.pools import Ledger

__all__ = ["ClusterStore", "Store"]


class Store(Protocol):
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
    def ledgers(self) -> Mapping[str, Ledger]:
        """Copies of pools' ledgers by the pool's uid, as they were when everything was listed last."""

    async def remember(self, uid: str, name: str, ledger: Ledger | None) -> None:
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
    def ledgers(self) -> Mapping[str, Ledger]:
        return {}

    async def remember(self, uid: str, name: str, ledger: Ledger | None) -> None:
        """The pool's own annotation is all there is."""
