"""Shifts, messages and copies of pools' ledgers in a DynamoDB table; every write is conditional.

A message is put if it is absent, so that the same one told twice is one item; a shift is written over exactly
the version that was read. Whoever loses looks again.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import structs

from dovetail.api import codec
from dovetail.api.zoneshift import ZoneShift
from dovetail.aws import Answer, Aws, AwsError
from dovetail.errors import AlreadyExists, BadInput, Conflict, DovetailError, Refused
from dovetail.logs import get_logger
from dovetail.ports import Clock
from dovetail.zonal.model.ledgers import parse_pool_ledger, render_ledger
from dovetail.zonal.model.pools import PoolLedger, RequirementDelta
from dovetail.zonal.model.records import SIGNAL, build_shift_key

__all__ = [
    "Arn",
    "TableListener",
    "TableLock",
    "TableStore",
    *("POOL", "SEEN", "SHIFT", "is_expired", "build_key", "build_pool_item"),
    *("decode_shift", "build_shift_item", "build_sort_key"),
]

StoredItem = dict[str, Any]
SHIFT, SEEN, POOL = "SHIFT#", "SEEN#", "POOL#"
# A message that comes again within this time is known.
KEPT = timedelta(days=7)


def build_key(arn: str, sort: str) -> StoredItem:
    return {"pk": {"S": f"CLUSTER#{arn}"}, "sk": {"S": sort}}


def build_sort_key(shift: ZoneShift) -> str:
    """The same for as long as the object lives, whatever becomes of its shift."""
    if shift.spec.kind == SIGNAL:
        return f"{SEEN}{shift.spec.shift_id}"
    return f"{SHIFT}{build_shift_key(shift).replace('/', '#', 1)}"


def build_shift_item(arn: str, shift: ZoneShift, version: int, now: datetime) -> StoredItem:
    """The item for a shift, or for a message, which the table itself forgets after a week."""
    # Versions are the table's own affair, and stand beside the document.
    bare = structs.replace(shift, metadata=structs.replace(shift.metadata, resource_version="", uid=""))
    item = build_key(arn, build_sort_key(shift)) | {
        "version": {"N": str(version)},
        "zoneId": {"S": shift.spec.zone_id},
        "document": {"S": codec.encode(bare).decode()},
    }
    if shift.spec.kind == SIGNAL:
        return item | {"ttl": {"N": str(int((now + KEPT).timestamp()))}}
    return item | {"zoneName": {"S": shift.status.zone_name}, "phase": {"S": shift.status.phase or "Pending"}}


def decode_shift(item: Mapping[str, Any]) -> ZoneShift:
    found = codec.decode(ZoneShift, item["document"]["S"].encode())
    meta = structs.replace(found.metadata, resource_version=item["version"]["N"], uid=item["sk"]["S"])
    return structs.replace(found, metadata=meta)


def build_pool_item(arn: str, uid: str, name: str, ledger: PoolLedger, version: int) -> StoredItem:
    """What was done to a pool: its requirements before and after, and the zones it lost."""
    return build_key(arn, f"{POOL}{uid}") | {
        "version": {"N": str(version)},
        "name": {"S": name},
        "removed": {
            "S": json.dumps(sorted({zone for each in ledger.deltas for zone in _list_lost_zones(each)}))
        },
        "base": {"S": json.dumps(list(ledger.base))},
        "ours": {"S": json.dumps(list(ledger.ours))},
        "ledger": {"S": render_ledger(ledger)},
    }


def _list_lost_zones(delta: RequirementDelta) -> set[str]:
    """The zones that an entry allowed before and does not any more."""
    before, after = {*(delta.before or {}).get("values", ())}, {*delta.after.get("values", ())}
    if delta.after["operator"] == "NotIn":
        return after - before
    return before - after if delta.before is not None else {*delta.away}


def is_expired(item: Mapping[str, Any], now: datetime) -> bool:
    """Past its time. The table takes such items away when it comes to it, which may be days later."""
    return "ttl" in item and float(item["ttl"]["N"]) <= now.timestamp()


log = get_logger()
Item = Mapping[str, Any]
Arn = Callable[[], Awaitable[str]]
NEW = {"ConditionExpression": "attribute_not_exists(pk)"}
# Seconds between two looks for messages of others.
LISTEN = 3.0
FAILED = "ConditionalCheckFailedException"


class TableItems:
    """One cluster's part of a table."""

    def __init__(self, aws: Aws, table: str, arn: Arn) -> None:
        self._aws, self._table, self.arn = aws, table, arn

    async def call_table(self, operation: str, parameters: Mapping[str, Any]) -> Answer:
        return await self._aws.call("dynamodb", operation, {"TableName": self._table, **parameters})

    async def write_if(self, operation: str, parameters: Mapping[str, Any]) -> bool:
        """Whether the write was made; False when its condition does not hold."""
        try:
            await self.call_table(operation, parameters)
        except AwsError as error:
            if error.code == FAILED:
                return False
            raise
        return True

    async def query_all(self, kind: str = "") -> list[Item]:
        """Every item, or those of a kind."""
        values = {":pk": build_key(await self.arn(), "")["pk"]} | ({":kind": {"S": kind}} if kind else {})
        which = "pk = :pk AND begins_with(sk, :kind)" if kind else "pk = :pk"
        asked = {"KeyConditionExpression": which, "ExpressionAttributeValues": values}
        found, more = list[Item](), dict[str, Any]()
        while True:
            answer = await self.call_table("Query", {**asked, **more, "ConsistentRead": True})
            found += answer.get("Items") or ()
            if not (last := answer.get("LastEvaluatedKey")):
                return found
            more = {"ExclusiveStartKey": last}


class TableStore:
    """ZoneShifts in a table. Everybody may keep a message; the rest is for whoever `may_write`."""

    def __init__(
        self, aws: Aws, table: str, arn: Arn, clock: Clock, may_write: Callable[[], bool] = lambda: True
    ) -> None:
        self._items, self._clock, self._may_write = TableItems(aws, table, arn), clock, may_write
        self.advice = f"create the DynamoDB table {table} (keys pk and sk) and allow its five actions"
        self.ledgers: Mapping[str, PoolLedger] = {}
        # Items that could not be read, by their keys: each is told of once.
        self._odd: set[str] = set()
        # Versions of pools' ledgers, as they were last read or written.
        self._pools: dict[str, int] = {}

    async def list(self) -> tuple[ZoneShift, ...]:
        found, now = await self._items.query_all(), self._clock.now()
        self._read_pool_ledgers([item for item in found if item["sk"]["S"].startswith(POOL)])
        wanted = [
            item
            for item in found
            if item["sk"]["S"].startswith((SHIFT, SEEN)) and "heard" not in item and not is_expired(item, now)
        ]
        return tuple(shift for item in wanted if (shift := self._decode_item(item)) is not None)

    def _decode_item(self, item: Item) -> ZoneShift | None:
        """What an item holds; None for one that a later version wrote, or nobody, which is let be."""
        try:
            return decode_shift(item)
        except (BadInput, KeyError) as error:
            if item["sk"]["S"] not in self._odd:
                log.warning(
                    "an item of the table makes no sense and is let be", item=item["sk"]["S"], error=error
                )
            self._odd.add(item["sk"]["S"])
            return None

    async def list_messages(self) -> frozenset[str]:
        """Keys of all messages that are known, heard or not."""
        return frozenset(item["sk"]["S"] for item in await self._items.query_all(SEEN))

    def _read_pool_ledgers(self, pools: Sequence[Item]) -> None:
        known: dict[str, PoolLedger] = {}
        self._pools.clear()
        for item in pools:
            uid = item["sk"]["S"].removeprefix(POOL)
            self._pools[uid] = int(item["version"]["N"])
            try:
                ledger = parse_pool_ledger(item["ledger"]["S"], uid)
            except BadInput:
                continue  # of a later version, which is let be; the pool's own says so on the pool
            if ledger is not None:
                known[uid] = ledger
        self.ledgers = known

    def _check_may_write(self, shift: str) -> None:
        if not self._may_write():
            raise Refused(f"keeping the shift {shift} in the table: this process no longer leads")

    async def create(self, shift: ZoneShift) -> ZoneShift:
        if shift.spec.kind != SIGNAL:
            self._check_may_write(shift.name)
        now = self._clock.now()
        made = shift
        if shift.metadata.creation_timestamp is None:
            meta = structs.replace(shift.metadata, creation_timestamp=now.replace(microsecond=0))
            made = structs.replace(shift, metadata=meta)
        item = build_shift_item(await self._items.arn(), made, 1, now)
        absent: dict[str, Any] = dict(NEW)
        if shift.spec.kind == SIGNAL:
            # One that is past its time and still there is as good as gone.
            absent = {
                "ConditionExpression": "attribute_not_exists(pk) OR #ttl < :now",
                "ExpressionAttributeNames": {"#ttl": "ttl"},
                "ExpressionAttributeValues": {":now": {"N": str(int(now.timestamp()))}},
            }
        if not await self._items.write_if("PutItem", {"Item": item, **absent}):
            raise AlreadyExists(f"keeping the shift {shift.name}: it is kept already")
        return decode_shift(item)

    async def write(self, before: ZoneShift, after: ZoneShift) -> ZoneShift:
        if after == before:
            return before
        self._check_may_write(after.name)
        version = int(before.metadata.resource_version)
        item = build_shift_item(await self._items.arn(), after, version + 1, self._clock.now())
        if not await self._items.write_if("PutItem", {"Item": item, **_build_version_condition(version)}):
            raise Conflict(f"keeping the shift {after.name}: somebody else wrote it meanwhile")
        return decode_shift(item)

    async def remove(self, shift: ZoneShift) -> None:
        self._check_may_write(shift.name)
        key = {"Key": build_key(await self._items.arn(), build_sort_key(shift))}
        if shift.spec.kind == SIGNAL:
            # Known for a week, so that it is not news when it comes again; the table forgets it by itself.
            heard = {
                "UpdateExpression": "SET heard = :now",
                "ConditionExpression": "attribute_exists(pk)",
                "ExpressionAttributeValues": {":now": {"N": str(int(self._clock.now().timestamp()))}},
            }
            await self._items.write_if("UpdateItem", {**key, **heard})
            return
        await self._items.write_if(
            "DeleteItem", {**key, **_build_version_condition(int(shift.metadata.resource_version))}
        )

    async def save_ledger(self, uid: str, name: str, ledger: PoolLedger | None) -> None:
        """Fails with Conflict when somebody else wrote it: then the pool is not written, either."""
        self._check_may_write(f"of NodePool/{name}")
        arn, known = await self._items.arn(), self._pools.pop(uid, 0)
        others = {name: each for name, each in self.ledgers.items() if name != uid}
        if known and ledger == self.ledgers.get(uid):
            self._pools[uid] = known
            return
        if ledger is None:
            key = {"Key": build_key(arn, f"{POOL}{uid}")}
            done = not known or await self._items.write_if(
                "DeleteItem", {**key, **_build_version_condition(known)}
            )
        else:
            item = build_pool_item(arn, uid, name, ledger, known + 1)
            done = await self._items.write_if(
                "PutItem", {"Item": item, **(_build_version_condition(known) if known else NEW)}
            )
        if not done:
            raise Conflict(f"keeping the ledger of NodePool/{name}: somebody else wrote it meanwhile")
        self.ledgers = others
        if ledger is not None:
            self._pools[uid], self.ledgers = known + 1, {**others, uid: ledger}


def _build_version_condition(version: int) -> dict[str, Any]:
    return {
        "ConditionExpression": "#version = :before",
        "ExpressionAttributeNames": {"#version": "version"},
        "ExpressionAttributeValues": {":before": {"N": str(version)}},
    }


class TableListener:
    """Hears of messages that other replicas put into the table; nobody else would tell."""

    def __init__(self, table: TableStore, clock: Clock, woken: Callable[[], None]) -> None:
        self._table, self._clock, self._woken = table, clock, woken
        self._known: frozenset[str] = frozenset()

    async def run(self) -> None:
        while True:
            await self._clock.sleep(LISTEN)
            try:
                found = await self._table.list_messages()
            except DovetailError:
                continue  # the controller tells that the table cannot be read
            if not found <= self._known:
                self._woken()
            self._known = found


class TableLock:
    """Who may act, where there is no lease in the cluster: an owner, and until when."""

    def __init__(self, aws: Aws, table: str, arn: Arn, clock: Clock, owner: str) -> None:
        self._items, self._clock, self._owner = TableItems(aws, table, arn), clock, owner

    async def take_lock(self, lasts: timedelta) -> bool:
        """Take or renew it; False while somebody else has it."""
        now = self._clock.now()
        item = build_key(await self._items.arn(), "LOCK") | {
            "owner": {"S": self._owner},
            "until": {"N": str((now + lasts).timestamp())},
        }
        free = {
            "ConditionExpression": "attribute_not_exists(pk) OR #owner = :me OR #until < :now",
            "ExpressionAttributeNames": {"#owner": "owner", "#until": "until"},
            "ExpressionAttributeValues": {
                ":me": {"S": self._owner},
                ":now": {"N": str(now.timestamp())},
            },
        }
        return await self._items.write_if("PutItem", {"Item": item, **free})

    async def find_owner(self) -> str:
        """Who has it, or had it last; empty when nobody does."""
        key = build_key(await self._items.arn(), "LOCK")
        found = (await self._items.call_table("GetItem", {"Key": key, "ConsistentRead": True})).get(
            "Item"
        ) or {}
        return str(found.get("owner", {}).get("S", ""))

    async def release_lock(self) -> None:
        """Give it back; one that somebody else took over is left to them."""
        mine = {
            "ConditionExpression": "#owner = :me",
            "ExpressionAttributeNames": {"#owner": "owner"},
            "ExpressionAttributeValues": {":me": {"S": self._owner}},
        }
        key = build_key(await self._items.arn(), "LOCK")
        await self._items.write_if("DeleteItem", {"Key": key, **mine})
