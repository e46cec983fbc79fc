"""Two stores as one: a table beside the cluster, or the cluster with a table that follows.

With `DynamoDB` the table holds every shift of ARC's and every message; only what an operator writes, a LOCAL
shift, is an object. With `Mirror` objects are the truth. The table follows them; it speaks while the cluster
cannot be reached, and for objects the cluster has lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from dovetail.api.meta import ObjectMeta
from dovetail.api.zoneshift import RESTORE_FINALIZER, ZoneShift
from dovetail.aws import Aws
from dovetail.errors import AlreadyExists, DovetailError, Gone, NotAuthorized, Retry
from dovetail.logs import get_logger
from dovetail.ports import Clock, Kube
from dovetail.zonal.model.pools import PoolLedger
from dovetail.zonal.model.records import SIGNAL
from dovetail.zonal.options import ZonalOptions
from dovetail.zonal.store.cluster_store import ClusterStore, ShiftStore
from dovetail.zonal.store.table_store import Arn, TableStore

__all__ = ["MirrorStore", "TableAndClusterStore", "build_store"]

log = get_logger()
OVER = ("Restored", "Refused")


def build_store(
    options: ZonalOptions, kube: Kube, aws: Aws, arn: Arn, clock: Clock, may_write: Callable[[], bool]
) -> ShiftStore:
    """The store the options ask for."""
    cluster = ClusterStore(kube)
    if options.store == "Cluster":
        return cluster
    table = TableStore(aws, options.table, arn, clock, may_write)
    if options.store == "DynamoDB":
        return TableAndClusterStore(cluster, table)
    return MirrorStore(cluster, table, may_write)


class TableAndClusterStore:
    """A table for what ARC says, and the cluster for what an operator writes there."""

    def __init__(self, cluster: ClusterStore, table: TableStore) -> None:
        self._cluster, self._table = cluster, table

    @property
    def advice(self) -> str:
        return self._table.advice

    @property
    def ledgers(self) -> Mapping[str, PoolLedger]:
        return self._table.ledgers

    async def list(self) -> tuple[ZoneShift, ...]:
        return (*await self._table.list(), *await self._list_local_shifts())

    async def _list_local_shifts(self) -> Sequence[ZoneShift]:
        try:
            return [each for each in await self._cluster.list() if each.spec.kind == "LOCAL"]
        except (Gone, NotAuthorized):
            return ()  # the kind need not be installed: then nobody can wish for anything here

    async def create(self, shift: ZoneShift) -> ZoneShift:
        return await self._choose_store(shift).create(shift)

    async def write(self, before: ZoneShift, after: ZoneShift) -> ZoneShift:
        return await self._choose_store(before).write(before, after)

    async def remove(self, shift: ZoneShift) -> None:
        await self._choose_store(shift).remove(shift)

    def _choose_store(self, shift: ZoneShift) -> ClusterStore | TableStore:
        return self._cluster if shift.spec.kind == "LOCAL" else self._table

    async def save_ledger(self, uid: str, name: str, ledger: PoolLedger | None) -> None:
        await self._table.save_ledger(uid, name, ledger)


class MirrorStore:
    """The cluster, and a table that follows it. Trouble with the table never stops anything."""

    def __init__(
        self, cluster: ClusterStore, table: TableStore, may_write: Callable[[], bool] = lambda: True
    ) -> None:
        self._cluster, self._table, self._may_write = cluster, table, may_write
        # What the table has, by name.
        self._copies: dict[str, ZoneShift] = {}
        self._behind = False

    @property
    def advice(self) -> str:
        return self._cluster.advice

    @property
    def ledgers(self) -> Mapping[str, PoolLedger]:
        return self._table.ledgers

    async def list(self) -> tuple[ZoneShift, ...]:
        await self._read_table()
        try:
            found = await self._cluster.list()
        except Retry:
            if self._behind or not self._copies:
                raise
            return tuple(self._copies.values())
        there = {each.name for each in found}
        lost = [each for name, each in self._copies.items() if name not in there]
        if not self._may_write():
            return (*found, *(each for each in lost if each.status.phase not in OVER))
        for each in found:
            if each.spec.kind != SIGNAL:
                await self._copy_to_table(each)
        back = [await self._restore_lost(each) for each in lost]
        return (*found, *(each for each in back if each is not None))

    async def _read_table(self) -> None:
        try:
            self._copies = {each.name: each for each in await self._table.list()}
            self._behind = False
        except DovetailError as error:
            self._report_trouble(error)

    async def _restore_lost(self, copy: ZoneShift) -> ZoneShift | None:
        """What only the table has: a message, a shift that the cluster lost, or one that is long over."""
        if copy.spec.kind == SIGNAL:
            return copy
        if copy.status.phase in OVER:
            await self._remove_copy(copy)
            return None
        meta = ObjectMeta(name=copy.name, finalizers=(RESTORE_FINALIZER,))
        log.warning("a shift of the table is no longer in the cluster; it is put back", shift=copy.name)
        try:
            return await self._cluster.create(structs.replace(copy, metadata=meta))
        except AlreadyExists:
            return None  # seen in a moment

    async def create(self, shift: ZoneShift) -> ZoneShift:
        try:
            made = await self._cluster.create(shift)
        except (Retry, NotAuthorized):
            if shift.spec.kind != SIGNAL:
                raise
            # A message must be kept somewhere before its sender is told so.
            return await self._table.create(shift)
        if shift.spec.kind != SIGNAL:
            await self._copy_to_table(made)
        return made

    async def write(self, before: ZoneShift, after: ZoneShift) -> ZoneShift:
        try:
            done = await self._cluster.write(before, after)
        except Gone:
            # With its finalizer gone the object is, too; the table hears how it ended.
            await self._copy_to_table(after)
            raise
        await self._copy_to_table(done)
        return done

    async def remove(self, shift: ZoneShift) -> None:
        copy = self._copies.get(shift.name)
        if copy is None or copy.spec.kind != SIGNAL:
            await self._cluster.remove(shift)
        if copy is not None:
            await self._remove_copy(copy)

    async def save_ledger(self, uid: str, name: str, ledger: PoolLedger | None) -> None:
        try:
            await self._table.save_ledger(uid, name, ledger)
        except DovetailError as error:
            self._report_trouble(error)

    async def _copy_to_table(self, shift: ZoneShift) -> None:
        copy = self._copies.get(shift.name)
        if copy is not None and (copy.spec, copy.status) == (shift.spec, shift.status):
            return
        try:
            if copy is None:
                self._copies[shift.name] = await self._table.create(shift)
            else:
                after = structs.replace(shift, metadata=copy.metadata)
                self._copies[shift.name] = await self._table.write(copy, after)
        except DovetailError as error:
            self._report_trouble(error)

    async def _remove_copy(self, copy: ZoneShift) -> None:
        self._copies.pop(copy.name, None)
        try:
            await self._table.remove(copy)
        except DovetailError as error:
            self._report_trouble(error)

    def _report_trouble(self, error: DovetailError) -> None:
        """Told once: until the table is read again it is behind, and then it catches up."""
        if not self._behind:
            log.warning("the table does not follow the cluster for now", error=error)
        self._behind = True
