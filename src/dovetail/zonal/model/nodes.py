"""Marks on the nodes of an impaired zone, and their undo: only what we set, and only while it is ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dovetail.zonal.model.shifts import CONTROLLER

__all__ = ["MarkedNode", "NodeLedger", "NodeMarks", "protect_node", "release_node", "sweep_node"]

YES = "true"
VERSION = 2
LABEL, ANNOTATION, CORDON = "label", "ann", "cordon"


class NodeLedger(Struct, frozen=True, omit_defaults=True):
    """Which shifts protect a node, and the fields we changed with what they were (None: absent)."""

    shifts: tuple[str, ...]
    set: Mapping[str, Any]
    uid: str = ""
    # Fields a person took back during the shift; they are not set again.
    freed: tuple[str, ...] = ()
    # Who marked it: nobody else takes the mark off.
    owner: str = CONTROLLER
    v: int = VERSION


class NodeMarks(Struct, frozen=True):
    """The fields of a node we may touch, as they stand."""

    uid: str
    label: str | None = None
    annotation: str | None = None
    cordoned: bool = False

    def read_field(self, field: str) -> Any:
        return {LABEL: self.label, ANNOTATION: self.annotation, CORDON: self.cordoned}[field]


class MarkedNode(Struct, frozen=True):
    """A node as it should stand, the ledger beside it (None: none), and fields left to someone else."""

    standing: NodeMarks
    ledger: NodeLedger | None
    external: tuple[str, ...] = ()


OURS: Mapping[str, Any] = {LABEL: YES, ANNOTATION: YES, CORDON: True}


def protect_node(
    now: NodeMarks,
    ledger: NodeLedger | None,
    shift: str,
    *,
    enforce: bool = False,
    owner: str = CONTROLLER,
) -> MarkedNode:
    """The node under this shift's protection. What somebody took back is left to them unless enforced."""
    known = _match_ledger(now, ledger)
    changed = dict(known.set) if known else {}
    freed = list(known.freed) if known else []
    fields: dict[str, Any] = {}
    for field, wanted in OURS.items():
        if field in freed and not enforce:
            continue
        if field in changed:
            if now.read_field(field) == wanted or enforce:
                fields[field] = wanted
            else:
                freed.append(field)
                del changed[field]
        elif _is_unset(now.read_field(field)):
            changed[field] = now.read_field(field)
            fields[field] = wanted
    shifts = (
        (*known.shifts, shift)
        if known and shift not in known.shifts
        else (known.shifts if known else (shift,))
    )
    made = NodeLedger(shifts=shifts, set=changed, uid=now.uid, freed=tuple(freed), owner=owner)
    return MarkedNode(_set_fields(now, fields), made, tuple(freed))


def release_node(now: NodeMarks, ledger: NodeLedger | None, ended: Sequence[str]) -> MarkedNode:
    """The node after these shifts have ended: as it was, once none is left."""
    known = _match_ledger(now, ledger)
    if known is None:
        return MarkedNode(now, None)
    left = tuple(shift for shift in known.shifts if shift not in ended)
    if left:
        return MarkedNode(now, replace(known, shifts=left, v=VERSION), known.freed)
    fields, external = {}, list(known.freed)
    for field, before in known.set.items():
        if now.read_field(field) == OURS[field]:
            fields[field] = before
        else:
            external.append(field)
    return MarkedNode(_set_fields(now, fields), None, tuple(external))


def sweep_node(now: NodeMarks) -> MarkedNode | None:
    """A node that carries the label and no ledger, freed of label and cordon; None for any other node.

    Such nodes were marked by a tool that kept no record. A person may have marked them just as well, so this
    is done only where it is asked for.
    """
    if now.label != YES:
        return None
    return MarkedNode(NodeMarks(uid=now.uid, annotation=now.annotation), None)


def _match_ledger(now: NodeMarks, ledger: NodeLedger | None) -> NodeLedger | None:
    """A node that came back under the same name is another node."""
    return ledger if ledger is not None and ledger.uid in ("", now.uid) else None


def _is_unset(value: Any) -> bool:
    """Nobody has said anything here: an own duration or an own cordon is left alone."""
    return value is None or value is False


def _set_fields(now: NodeMarks, fields: Mapping[str, Any]) -> NodeMarks:
    return NodeMarks(
        uid=now.uid,
        label=fields.get(LABEL, now.label),
        annotation=fields.get(ANNOTATION, now.annotation),
        cordoned=fields.get(CORDON, now.cordoned),
    )
