"""ZoneShifts, messages and pools' ledgers as items of a DynamoDB table, and back.

    pk  CLUSTER#<arn>
    sk  SHIFT#<zone id>#<shift> | SEEN#<key> | POOL#<uid> | LOCK

A document is kept as the JSON that the cluster would have; beside it stands what people look for in a table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import structs

from dovetail.api import codec
from dovetail.api.zoneshift import ZoneShift
from dovetail.controllers.zonal.records import SIGNAL, key_of
from dovetail.zonal.ledgers import written
from dovetail.zonal.pools import Delta, Ledger

__all__ = [
    *("POOL", "SEEN", "SHIFT", "expired", "key", "pool_item"),
    *("shift_from", "shift_item", "sort_of"),
]

Item = dict[str, Any]
SHIFT, SEEN, POOL = "SHIFT#", "SEEN#", "POOL#"
# A message that comes again within this time is known.
KEPT = timedelta(days=7)


def key(arn: str, sort: str) -> Item:
    return {"pk": {"S": f"CLUSTER#{arn}"}, "sk": {"S": sort}}


def sort_of(shift: ZoneShift) -> str:
    """The same for as long as the object lives, whatever becomes of its shift."""
    if shift.spec.kind == SIGNAL:
        return f"{SEEN}{shift.spec.shift_id}"
    return f"{SHIFT}{key_of(shift).replace('/', '#', 1)}"


def shift_item(arn: str, shift: ZoneShift, version: int, now: datetime) -> Item:
    """The item for a shift, or for a message, which the table itself forgets after a week."""
    # Versions are the table's own affair, and stand beside the document.
    bare = structs.replace(shift, metadata=structs.replace(shift.metadata, resource_version="", uid=""))
    item = key(arn, sort_of(shift)) | {
        "version": {"N": str(version)},
        "zoneId": {"S": shift.spec.zone_id},
        "document": {"S": codec.encode(bare).decode()},
    }
    if shift.spec.kind == SIGNAL:
        return item | {"ttl": {"N": str(int((now + KEPT).timestamp()))}}
    return item | {"zoneName": {"S": shift.status.zone_name}, "phase": {"S": shift.status.phase or "Pending"}}


def shift_from(item: Mapping[str, Any]) -> ZoneShift:
    found = codec.decode(ZoneShift, item["document"]["S"].encode())
    meta = structs.replace(found.metadata, resource_version=item["version"]["N"], uid=item["sk"]["S"])
    return structs.replace(found, metadata=meta)


def pool_item(arn: str, uid: str, name: str, ledger: Ledger, version: int) -> Item:
    """What was done to a pool: its requirements before and after, and the zones it lost."""
    return key(arn, f"{POOL}{uid}") | {
        "version": {"N": str(version)},
        "name": {"S": name},
        "removed": {"S": json.dumps(sorted({zone for each in ledger.deltas for zone in _lost(each)}))},
        "base": {"S": json.dumps(list(ledger.base))},
        "ours": {"S": json.dumps(list(ledger.ours))},
        "ledger": {"S": written(ledger)},
    }


def _lost(delta: Delta) -> set[str]:
    """The zones that an entry allowed before and does not any more."""
    before, after = {*(delta.before or {}).get("values", ())}, {*delta.after.get("values", ())}
    if delta.after["operator"] == "NotIn":
        return after - before
    return before - after if delta.before is not None else {*delta.away}


def expired(item: Mapping[str, Any], now: datetime) -> bool:
    """Past its time. The table takes such items away when it comes to it, which may be days later."""
    return "ttl" in item and float(item["ttl"]["N"]) <= now.timestamp()
