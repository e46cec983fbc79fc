"""Ledgers as they stand on objects: of this version, of the one before, and of a later one, which is let be.

Version 1 of a pool's ledger held the lists before and after and nothing about single entries; of a node's, no
uid. Both can still be undone, so that an upgrade in the middle of a shift leaves nothing behind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from dovetail.errors import BadInput
from dovetail.zonal.guard import Guard
from dovetail.zonal.nodes import OURS, NodeLedger
from dovetail.zonal.owners import CONTROLLER
from dovetail.zonal.pools import VERSION, Delta, Ledger

__all__ = ["guard_from", "node_ledger_from", "note_owner", "pool_ledger_from", "written"]

MEND = "restore it, or remove the annotation"
T = TypeVar("T", Ledger, NodeLedger, Guard)


def written(ledger: Ledger | NodeLedger | Guard) -> str:
    """The text that stands on the object; the same ledger always gives the same text."""
    # A default is left out of records, but a reader of any version must find this one.
    return msgspec.json.encode(msgspec.to_builtins(ledger) | {"v": ledger.v}, order="sorted").decode()


def pool_ledger_from(text: str | None, uid: str) -> Ledger | None:
    """What stands on a pool; BadInput when it cannot be used."""
    document = _document(text)
    if document is None:
        return None
    if document.get("v", 1) == 1 and "deltas" not in document:
        return _first_version(document, uid)
    found = _converted(document, Ledger)
    for delta in found.deltas:
        _entries([delta.after, *([delta.before] if delta.before is not None else [])])
    _entries([*found.base, *found.ours])
    return found


@lru_cache(maxsize=16_384)
def node_ledger_from(text: str | None) -> NodeLedger | None:
    document = _document(text)
    if document is None:
        return None
    found = _converted(document, NodeLedger)
    unknown = sorted(map(repr, set(found.set) - set(OURS)))
    if unknown:
        raise BadInput(f"reading a ledger: it speaks of {unknown[0][:50]}, which is no field of ours; {MEND}")
    return found


def guard_from(text: str | None) -> Guard | None:
    document = _document(text)
    return None if document is None else _converted(document, Guard)


@lru_cache(maxsize=16_384)
def note_owner(text: str) -> str:
    """Who wrote a note, of a pool or of a node; empty where it cannot be read."""
    try:
        document = _document(text)
    except BadInput:
        return ""
    owner = (document or {}).get("owner", CONTROLLER)
    return owner if isinstance(owner, str) else ""


def _document(text: str | None) -> Mapping[str, Any] | None:
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


def _converted(document: Mapping[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise BadInput(f"reading a ledger: {error}; {MEND}") from error


def _listed(value: Any) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise BadInput(f"reading a ledger: it has no list where one should be; {MEND}")
    return value or []


def _entries(value: Any) -> tuple[Mapping[str, Any], ...]:
    found = _listed(value)
    if not all(isinstance(each, dict) and {"key", "operator"} <= each.keys() for each in found):
        raise BadInput(f"reading a ledger: it lists what is no requirement; {MEND}")
    return tuple(found)


def _first_version(document: Mapping[str, Any], uid: str) -> Ledger:
    base, ours = _entries(document.get("base")), _entries(document.get("ours"))
    changed = [Delta(after, before) for before, after in zip(base, ours, strict=False) if before != after]
    made = [Delta(after) for after in ours[len(base) :]]
    shifts = tuple(map(str, _listed(document.get("shifts"))))
    return Ledger(uid=uid, base=base, ours=ours, deltas=(*changed, *made), shifts=shifts, v=1)
