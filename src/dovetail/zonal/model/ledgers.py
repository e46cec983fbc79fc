"""Ledgers as they stand on objects: of this version, of the one before, and of a later one, which is let be.

Version 1 of a pool's ledger held the lists before and after and nothing about single entries; of a node's, no
uid. Both can still be undone, so that an upgrade in the middle of a shift leaves nothing behind.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from dovetail.api import codec, labels
from dovetail.api.nodepool import NodePool, Requirement
from dovetail.errors import BadInput
from dovetail.zonal.model.drift_guard import BudgetGuard
from dovetail.zonal.model.nodes import OURS, NodeLedger
from dovetail.zonal.model.pools import (
    KEYS,
    VERSION,
    ImpairedZones,
    PoolLedger,
    RequirementDelta,
    undo_requirements,
)
from dovetail.zonal.model.shifts import CONTROLLER

__all__ = [
    "parse_guard",
    "parse_node_ledger",
    "parse_pool_ledger",
    "read_note_owner",
    "remove_shift_edits",
    "render_ledger",
    "restore_zones",
]

MEND = "restore it, or remove the annotation"
T = TypeVar("T", PoolLedger, NodeLedger, BudgetGuard)


def render_ledger(ledger: PoolLedger | NodeLedger | BudgetGuard) -> str:
    """The text that stands on the object; the same ledger always gives the same text."""
    # A default is left out of records, but a reader of any version must find this one.
    return msgspec.json.encode(msgspec.to_builtins(ledger) | {"v": ledger.v}, order="sorted").decode()


def parse_pool_ledger(text: str | None, uid: str) -> PoolLedger | None:
    """What stands on a pool; BadInput when it cannot be used."""
    document = _parse_document(text)
    if document is None:
        return None
    if document.get("v", 1) == 1 and "deltas" not in document:
        return _read_first_version(document, uid)
    found = _convert_document(document, PoolLedger)
    for delta in found.deltas:
        _read_entries([delta.after, *([delta.before] if delta.before is not None else [])])
    _read_entries([*found.base, *found.ours])
    return found


@lru_cache(maxsize=16_384)
def parse_node_ledger(text: str | None) -> NodeLedger | None:
    document = _parse_document(text)
    if document is None:
        return None
    found = _convert_document(document, NodeLedger)
    unknown = sorted(map(repr, set(found.set) - set(OURS)))
    if unknown:
        raise BadInput(f"reading a ledger: it speaks of {unknown[0][:50]}, which is no field of ours; {MEND}")
    return found


def parse_guard(text: str | None) -> BudgetGuard | None:
    document = _parse_document(text)
    return None if document is None else _convert_document(document, BudgetGuard)


@lru_cache(maxsize=16_384)
def read_note_owner(text: str) -> str:
    """Who wrote a note, of a pool or of a node; empty where it cannot be read."""
    try:
        document = _parse_document(text)
    except BadInput:
        return ""
    owner = (document or {}).get("owner", CONTROLLER)
    return owner if isinstance(owner, str) else ""


def _parse_document(text: str | None) -> Mapping[str, Any] | None:
    if not text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"reading a ledger: it is not JSON; {MEND}") from error
    if not isinstance(found, dict):
        raise BadInput(f"reading a ledger: it is not an object; {MEND}")
    version = found.get("v", 1)
    if not isinstance(version, int) or version > VERSION:
        raise BadInput(
            f"reading a ledger: version {version} was written by a later Dovetail; upgrade this one"
        )
    return found


def _convert_document(document: Mapping[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise BadInput(f"reading a ledger: {error}; {MEND}") from error


def _read_list(value: Any) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise BadInput(f"reading a ledger: it has no list where one should be; {MEND}")
    return value or []


def _read_entries(value: Any) -> tuple[Mapping[str, Any], ...]:
    found = _read_list(value)
    if not all(isinstance(each, dict) and {"key", "operator"} <= each.keys() for each in found):
        raise BadInput(f"reading a ledger: it lists what is no requirement; {MEND}")
    return tuple(found)


def _read_first_version(document: Mapping[str, Any], uid: str) -> PoolLedger:
    base, ours = _read_entries(document.get("base")), _read_entries(document.get("ours"))
    changed = [
        RequirementDelta(after, before) for before, after in zip(base, ours, strict=False) if before != after
    ]
    made = [RequirementDelta(after) for after in ours[len(base) :]]
    shifts = tuple(map(str, _read_list(document.get("shifts"))))
    return PoolLedger(uid=uid, base=base, ours=ours, deltas=(*changed, *made), shifts=shifts, v=1)


Entries = tuple[Requirement, ...]


def remove_shift_edits(pool: NodePool) -> NodePool:
    """The pool without our edits; the pool itself where there are none, or none that can be told apart."""
    text = pool.annotations.get(labels.ZONE_LEDGER)
    entries = pool.spec.template.spec.requirements
    if text is None or entries is None:
        return pool
    inner = replace(pool.spec.template.spec, requirements=_remove_edits(entries, text, pool.uid))
    return replace(pool, spec=replace(pool.spec, template=replace(pool.spec.template, spec=inner)))


# Asked for each claim of a pool, and the answer changes only with the pool.
@lru_cache(maxsize=256)
def _remove_edits(entries: Entries, text: str, uid: str) -> Entries:
    try:
        ledger = parse_pool_ledger(text, uid)
    except BadInput:
        return entries
    if ledger is None or ledger.uid != uid:
        return entries
    left, _ = undo_requirements([codec.to_dict(each) for each in entries], ledger, ImpairedZones())
    return tuple(codec.convert(Requirement, each) for each in left)


Entry = Mapping[str, Any]


def restore_zones(
    theirs: Sequence[Entry], zones: ImpairedZones, keep_removed: Collection[str] = ()
) -> tuple[Entry, ...] | None:
    """The requirements with these zones allowed again; None when they are, or cannot be reached."""
    found: list[Entry] = []
    for entry in theirs:
        back = [
            zone
            for zone in zones.list_by_key(str(entry["key"]))
            if zone in zones.list_reachable(str(entry["key"])) and zone not in keep_removed
        ]
        changed = _allow_zones(entry, back) if entry["key"] in KEYS else entry
        if changed is not None:
            found.append(changed)
    return None if found == list(theirs) else tuple(found)


def _allow_zones(entry: Entry, back: Sequence[str]) -> Entry | None:
    """An entry that lets nodes be in these zones; None when nothing is left of it."""
    values = list(entry.get("values") or ())
    if entry["operator"] == "NotIn":
        left = [value for value in values if value not in back]
        return entry if left == values else ({**entry, "values": left} if left else None)
    missing = [zone for zone in back if zone not in values]
    return {**entry, "values": [*values, *missing]} if entry["operator"] == "In" and missing else entry
