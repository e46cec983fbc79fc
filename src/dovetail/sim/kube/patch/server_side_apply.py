"""Server-side apply: who owns which field, what an applier may change, and what vanishes when it lets go.

Pure: objects in, objects out. Ownership lives in `metadata.managedFields` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from dovetail.api.schema.causes import Cause
from dovetail.api.schema.nodes import ANYTHING, SchemaNode
from dovetail.api.schema.object_schema import Schema
from dovetail.sim.kube.patch.field_sets import (
    Path,
    decode_paths,
    encode_paths,
    find_changes,
    format_path,
    list_leaves,
    list_paths,
    merge_applied,
    remove_paths,
)

FIELD_SETS = 4096
# Fields that belong to the server, whoever wrote them.
_NOBODYS: frozenset[Path] = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",)}
    | {
        ("f:metadata", f"f:{name}")
        for name in (
            *("name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName"),
            *("generation", "managedFields", "resourceVersion"),
        )
    }
)


class ApplyConflict(Exception):
    """Other managers own what the apply would change; one cause per field."""

    def __init__(self, causes: Sequence[Cause]) -> None:
        managers = len({cause.message for cause in causes})
        noun = "conflict" if len(causes) == 1 else "conflicts"
        super().__init__(f"Apply failed with {len(causes)} {noun} from {managers} manager(s)")
        self.causes = list(causes)


@dataclass(frozen=True, slots=True)
class FieldOwner:
    """One entry of managedFields."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    fields: frozenset[Path]
    time: str = ""

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What makes two entries one: an applier keeps its entry when its version changes, an updater not."""
        version = "" if self.operation == "Apply" else self.api_version
        return (self.manager, self.operation, version, self.subresource)

    def __str__(self) -> str:
        name = f'"{self.manager}"'
        if self.subresource:
            name += f' with subresource "{self.subresource}"'
        if self.operation == "Update":
            name += f" using {self.api_version}" + (f" at {self.time}" if self.time else "")
        return name


def apply_fields(
    live: Mapping[str, Any] | None,
    applied: Mapping[str, Any],
    *,
    manager: str,
    force: bool,
    schema: Schema | None,
    api_version: str,
    subresource: str = "",
    now: datetime | str,
    ignore: Collection[str] = (),
) -> dict[str, Any]:
    """The live object (None when there is none) after `manager` applied its intent.

    `ignore` names top-level fields that this endpoint does not write, such as `status` on the main one.
    Raises ApplyConflict unless forced.
    """
    node = ANYTHING if schema is None else schema.described
    current = dict(live or {})
    intent = _read_intent(applied, ignore)
    wanted = frozenset(_drop_server_fields(list_leaves(node, intent)))
    me = FieldOwner(manager, "Apply", api_version, subresource, wanted, _format_time(now))
    owners = decode_owners(_list_entries(current)) or _unknown_owner(node, current, me)
    mine = next((owner for owner in owners if owner.identity == me.identity), None)
    others = [owner for owner in owners if owner.identity != me.identity]
    after = merge_applied(node, _without_managed_fields(current), intent)
    if mine is not None:
        after = _drop_unowned(node, after, mine.fields - wanted, [*others, me])
    changed, removed = _find_changes(node, _without_managed_fields(current), after)
    conflicts = [(owner, path) for owner in others for path in sorted(owner.fields & changed)]
    if conflicts and not force:
        raise ApplyConflict([_describe_conflict(owner, path) for owner, path in conflicts])
    others = [replace(owner, fields=owner.fields - changed - removed) for owner in others]
    if mine is not None and replace(me, time=mine.time) == mine and not changed and not removed:
        me = mine  # nothing happened, so nothing happened now
    return _with_owners(after, [me, *others])


def track_fields(
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any],
    *,
    manager: str,
    schema: Schema | None,
    api_version: str,
    subresource: str = "",
    now: datetime | str,
    ignore: Collection[str] = (),
) -> list[dict[str, Any]]:
    """managedFields after an ordinary write turned `before` (None on create) into `after`."""
    given = (after.get("metadata") or {}).get("managedFields")
    if given in ([], [{}]):
        return []  # the way to forget all ownership
    node = ANYTHING if schema is None else schema.described
    known = _list_entries(before or {})
    try:
        owners = decode_owners(known if given is None or given == known else given)
    except ValueError:
        owners = decode_owners(known)
    old, new = (
        _without_top(_without_managed_fields(before or {}), ignore),
        _without_top(_without_managed_fields(after), ignore),
    )
    changed, removed = _find_changes(node, old, new)
    me = FieldOwner(manager, "Update", api_version, subresource, frozenset(), _format_time(now))
    mine = next((owner for owner in owners if owner.identity == me.identity), None)
    rest = [replace(o, fields=o.fields - changed - removed) for o in owners if o is not mine]
    if mine is not None:
        time = me.time if changed else mine.time
        me = replace(me, fields=mine.fields - removed, time=time)
    return encode_owners([replace(me, fields=me.fields | changed), *rest])


def decode_owners(entries: Any) -> list[FieldOwner]:
    """The owners managedFields lists; raises ValueError for entries nobody could have written."""
    if not isinstance(entries, list):
        raise ValueError("managedFields is not a list")
    return [_decode_owner(entry) for entry in entries]


def _decode_owner(entry: Any) -> FieldOwner:
    if not isinstance(entry, dict) or entry.get("operation") not in ("Apply", "Update"):
        raise ValueError("an entry of managedFields has no operation")
    if entry.get("fieldsType") not in (None, "", "FieldsV1"):
        raise ValueError("an entry of managedFields is not of type FieldsV1")
    return FieldOwner(
        manager=str(entry.get("manager") or ""),
        operation=entry["operation"],
        api_version=str(entry.get("apiVersion") or ""),
        subresource=str(entry.get("subresource") or ""),
        fields=_decode_fields(entry.get("fieldsV1") or {}),
        time=str(entry.get("time") or ""),
    )


# Objects of a kind mostly have the same fields: each set is written once, and all share what was written.
_encoded = lru_cache(maxsize=FIELD_SETS)(encode_paths)
_read: dict[int, tuple[Any, frozenset[Path]]] = {}


def _decode_fields(written: Any) -> frozenset[Path]:
    """The fields as a set; those of a stored state, which stays as it is, are read once."""
    known = _read.get(id(written))
    if known is not None:
        return known[1]
    fields = frozenset(decode_paths(written))
    if _encoded(fields) is written:
        if len(_read) >= FIELD_SETS:
            _read.clear()
        # What was read is held on to, so that its identity stays its own.
        _read[id(written)] = written, fields
    return fields


def encode_owners(owners: Iterable[FieldOwner]) -> list[dict[str, Any]]:
    """managedFields for these owners, those who own nothing left out."""
    kept = [owner for owner in owners if owner.fields]
    kept.sort(key=lambda o: (o.operation, o.time, o.manager, o.api_version, o.subresource))
    return [_encode_owner(owner) for owner in kept]


def _encode_owner(owner: FieldOwner) -> dict[str, Any]:
    entry = {
        "manager": owner.manager,
        "operation": owner.operation,
        "apiVersion": owner.api_version,
        "time": owner.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": _encoded(owner.fields),
        "subresource": owner.subresource,
    }
    return {key: value for key, value in entry.items() if value != ""}


def _unknown_owner(node: SchemaNode, live: Mapping[str, Any], me: FieldOwner) -> list[FieldOwner]:
    """Whoever wrote an object whose writers were not noted, so that an apply cannot overrun them unawares."""
    fields = frozenset(_drop_server_fields(list_paths(node, live)))
    return [FieldOwner("before-first-apply", "Update", me.api_version, "", fields, me.time)] if fields else []


def _drop_unowned(
    node: SchemaNode, value: Any, dropped: frozenset[Path], holders: Sequence[FieldOwner]
) -> Any:
    """The value without the fields an applier no longer mentions and nobody else holds."""
    held = {place for owner in holders for path in owner.fields for place in _list_kept_paths(path)}
    gone = dropped - held
    return remove_paths(node, value, gone, held) if gone else value


def _list_kept_paths(path: Path) -> Iterator[Path]:
    """What must stay for a path to stay: itself and the fields it is in, but no list element.

    An element lives by being owned itself; owners of a mere part of it lose that part.
    """
    yield path
    for end in range(1, len(path)):
        if path[end - 1].startswith("f:"):
            yield path[:end]


def _find_changes(node: SchemaNode, old: Any, new: Any) -> tuple[frozenset[Path], frozenset[Path]]:
    """Paths added or changed, and paths removed; fields of the server's own do not count."""
    changed, removed = find_changes(node, old, new)
    return frozenset(changed - _NOBODYS), frozenset(removed - _NOBODYS)


def _drop_server_fields(found: Mapping[Path, Any]) -> dict[Path, Any]:
    return {path: value for path, value in found.items() if path not in _NOBODYS and path}


def _describe_conflict(owner: FieldOwner, path: Path) -> Cause:
    return Cause(format_path(path), "FieldManagerConflict", f"conflict with {owner}")


def _read_intent(applied: Mapping[str, Any], ignore: Collection[str]) -> dict[str, Any]:
    """What the applier says, without nulls (which say nothing) and without what is not its to say."""
    kept: dict[str, Any] = _without_nulls(_without_top(applied, ignore))
    return kept


def _without_top(obj: Mapping[str, Any], ignore: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in obj.items() if key not in ignore}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _without_managed_fields(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The object without its ownership records."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return dict(obj)
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**obj, "metadata": kept}


def _list_entries(obj: Mapping[str, Any]) -> Any:
    return (obj.get("metadata") or {}).get("managedFields") or []


def _with_owners(obj: dict[str, Any], owners: Iterable[FieldOwner]) -> dict[str, Any]:
    metadata = dict(obj.get("metadata") or {})
    metadata["managedFields"] = encode_owners(owners)
    return {**obj, "metadata": metadata}


def _format_time(now: datetime | str) -> str:
    if isinstance(now, str):
        return now
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
