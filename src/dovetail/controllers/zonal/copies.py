"""Copies of pools' ledgers outside of the pools: made before a write, put back where stripped."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.api import labels
from dovetail.controllers.zonal.documents import GUARD, Documents, PoolDocument, operations
from dovetail.controllers.zonal.edit import PoolChange
from dovetail.controllers.zonal.store import Store
from dovetail.errors import Conflict, Gone
from dovetail.zonal.ledgers import written

__all__ = ["Copies"]


class Copies:
    """Keeps the store's copies in step with pools.

    A copy stands for as long as the edit is meant to: it is made before the edit and dropped before the undo.
    A ledger that is missing while its copy is there was thus stripped by somebody else, or never written.
    """

    def __init__(self, kube: Documents, store: Store) -> None:
        self._kube, self._store = kube, store

    async def completed(
        self, pools: Sequence[PoolDocument], *, editing: bool = False
    ) -> tuple[PoolDocument, ...]:
        """The pools, each with the ledger it should carry; copies of pools that are gone go, too.

        A pool that stands as it did before may be `editing` next, for which its copy is there already.
        """
        copies, found = dict(self._store.ledgers), list[PoolDocument]()
        for pool in pools:
            copy = copies.pop(pool.uid, None)
            if copy is None or labels.ZONE_LEDGER in pool.annotations or pool.deleting:
                found.append(pool)
            elif tuple(pool.requirements) == copy.base:
                # Put back as it was by somebody, or never edited: nothing is left to be undone.
                if not editing:
                    await self._store.remember(pool.uid, pool.name, None)
                found.append(pool)
            else:
                found.append(await self._put_back(pool, written(copy)))
        for uid in copies:
            await self._store.remember(uid, "", None)
        return tuple(found)

    async def _put_back(self, pool: PoolDocument, ledger: str) -> PoolDocument:
        guard = pool.annotations.get(GUARD, "")
        changes = operations(pool, pool.requirements, pool.budgets, ledger, guard)
        try:
            return await self._kube.json_patch(pool, changes)
        except (Conflict, Gone):
            return pool  # looked at again in a moment

    async def before(self, change: PoolChange) -> None:
        """A pool is about to be written."""
        await self._store.remember(change.pool.uid, change.pool.name, change.edit.ledger)
