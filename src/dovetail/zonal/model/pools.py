"""Taking zones out of a NodePool's requirements, and putting them back so that no trace is left.

An edit is always made from what the user wants: undo what we did before, then do it again for the zones that
are impaired now. One rule thus covers a second zone, a user's edit in between, and a restart in the middle.

Requirements are plain documents here, as they stand in the object, because the undo is exact to the byte.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from dovetail.zonal.model.shifts import CONTROLLER

__all__ = [
    *(
        "FROZEN",
        "KEYS",
        "RequirementDelta",
        "PoolEdit",
        "PoolLedger",
        "OnlyZone",
        "Strategy",
        "ImpairedZones",
    ),
    *("admits_zone", "is_confined", "edit_requirements", "undo_requirements"),
]

Entry = Mapping[str, Any]
Entries = tuple[Entry, ...]
Strategy = Literal["AppendNotIn", "RemoveFromIn"]
OnlyZone = Literal["Freeze", "Leave", "Fallback"]

ZONE, ZONE_ID = "topology.kubernetes.io/zone", "topology.k8s.aws/zone-id"
KEYS = (ZONE, ZONE_ID)
MOST_ENTRIES = 100
FROZEN = "its only zone is impaired: it launches nothing until the shift ends"
VERSION = 2


class ImpairedZones(Struct, frozen=True):
    """Zones by name, and the same by id, in that order; `eligible` are those the pool's class can reach."""

    names: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    eligible: tuple[str, ...] = ()
    eligible_ids: tuple[str, ...] = ()

    def list_by_key(self, key: str) -> tuple[str, ...]:
        return self.names if key == ZONE else self.ids

    def list_reachable(self, key: str) -> tuple[str, ...]:
        return self.eligible if key == ZONE else self.eligible_ids


class RequirementDelta(Struct, frozen=True, omit_defaults=True):
    """What we did to one entry. `before` is absent where we made the entry ourselves."""

    after: Entry
    before: Entry | None = None
    # The zones an entry of our making leaves out.
    away: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return str(self.after["key"])


class PoolLedger(Struct, frozen=True, omit_defaults=True):
    """What we did to a pool, kept on the pool itself and written together with the change."""

    uid: str
    base: Entries
    ours: Entries
    deltas: tuple[RequirementDelta, ...]
    shifts: tuple[str, ...] = ()
    # Who edited it: nobody else undoes it.
    owner: str = CONTROLLER
    v: int = VERSION


class PoolEdit(Struct, frozen=True):
    """The requirements as they should stand, the ledger beside them, and what is worth telling."""

    entries: Entries
    ledger: PoolLedger | None
    notes: tuple[str, ...] = ()


def edit_requirements(
    theirs: Sequence[Entry],
    ledger: PoolLedger | None,
    zones: ImpairedZones,
    shifts: Sequence[str],
    *,
    uid: str,
    strategy: Strategy = "AppendNotIn",
    only_zone: OnlyZone = "Freeze",
    fallback: Sequence[str] = (),
    keep_removed: Collection[str] = (),
    owner: str = CONTROLLER,
) -> PoolEdit:
    """What a pool should look like while `zones` are impaired; with none of them, as the user wants it."""
    if ledger is not None and ledger.uid != uid:
        ledger = None  # a namesake: what was done to the one before is gone with it
    base, notes = undo_requirements(theirs, ledger, zones, keep_removed)
    if not zones.names:
        return PoolEdit(base, None, notes)
    deltas, more = _build_deltas(base, zones, strategy, only_zone, tuple(fallback))
    if not deltas:
        return PoolEdit(base, None, (*notes, *more))
    ours = _apply_deltas(base, deltas)
    if len(ours) > MOST_ENTRIES and strategy == "AppendNotIn":
        return edit_requirements(
            base,
            None,
            zones,
            shifts,
            uid=uid,
            strategy="RemoveFromIn",
            only_zone="Leave",
            fallback=fallback,
            owner=owner,
        )
    made = PoolLedger(uid=uid, base=base, ours=ours, deltas=deltas, shifts=tuple(shifts), owner=owner)
    return PoolEdit(ours, made, (*notes, *more))


# What the user wants: the three-way merge


def undo_requirements(
    theirs: Sequence[Entry],
    ledger: PoolLedger | None,
    zones: ImpairedZones,
    keep_removed: Collection[str] = (),
) -> tuple[Entries, tuple[str, ...]]:
    """The requirements without our doing: exactly what was, plus whatever the user changed meanwhile."""
    now = tuple(theirs)
    if ledger is None:
        return now, ()
    kept = {*keep_removed}
    if now == ledger.ours and not kept and not _has_unreachable(ledger, zones):
        return ledger.base, ()
    if now == ledger.base:
        return now, ()
    notes: list[str] = []
    left = list(now)
    for delta in ledger.deltas:
        _revert_delta(left, delta, zones, kept, notes)
    return tuple(left), tuple(notes)


def _has_unreachable(ledger: PoolLedger, zones: ImpairedZones) -> bool:
    """A zone we took out can no longer be reached by the class: it is not put back."""
    return any(
        value not in zones.list_reachable(delta.key)
        for delta in ledger.deltas
        for value in _list_removed(delta)
        if zones.list_reachable(delta.key)
    )


def _list_removed(delta: RequirementDelta) -> tuple[str, ...]:
    """The values our edit took away from an In list."""
    if delta.after["operator"] != "In" or delta.before is None:
        return ()
    return tuple(value for value in delta.before["values"] if value not in delta.after["values"])


def _revert_delta(
    left: list[Entry], delta: RequirementDelta, zones: ImpairedZones, kept: set[str], notes: list[str]
) -> None:
    place = _find_entry(left, delta)
    if place is None:
        return  # the user took the whole entry away, and it stays away
    theirs = left[place]
    if delta.before is None:
        _revert_made(left, place, delta, notes)
    elif delta.after["operator"] == "NotIn":
        less = _without_added(theirs, delta)
        if less["values"]:
            left[place] = less
        else:
            del left[place]  # the user took out the rest, and an empty list is no requirement
    else:
        left[place] = _with_removed(theirs, delta, zones, kept, notes)


def _find_entry(left: Sequence[Entry], delta: RequirementDelta) -> int | None:
    """Our entry as it stands now: as we left it, or else the first of its key and operator."""
    for place, entry in enumerate(left):
        if entry == delta.after:
            return place
    alike = [
        place
        for place, entry in enumerate(left)
        if (entry["key"], entry["operator"]) == (delta.key, delta.after["operator"])
    ]
    if delta.before is None and delta.after["operator"] == "NotIn":
        # An entry that shares no value with ours is the user's own.
        alike = [p for p in alike if set(left[p].get("values") or ()) & set(delta.after["values"])]
    return alike[0] if alike else None


def _revert_made(left: list[Entry], place: int, delta: RequirementDelta, notes: list[str]) -> None:
    theirs = left[place]
    if theirs == delta.after:
        del left[place]
        return
    if delta.after["operator"] == "NotIn":
        rest = [value for value in theirs.get("values") or () if value not in delta.after["values"]]
        if rest:
            left[place] = {**theirs, "values": rest}
            notes.append(f"the zones {', '.join(rest)} stay excluded: they were added by someone else")
        else:
            del left[place]
        return
    back = [zone for zone in delta.away if zone not in theirs.get("values", ())]
    left[place] = {**theirs, "values": [*theirs.get("values", ()), *back]}
    notes.append(f"the requirement on {delta.key} stays: its values were changed by someone else")


def _without_added(theirs: Entry, delta: RequirementDelta) -> Entry:
    assert delta.before is not None
    if theirs == delta.after:
        return delta.before
    added = set(delta.after["values"]) - set(delta.before["values"])
    return {**theirs, "values": [value for value in theirs.get("values") or () if value not in added]}


def _with_removed(
    theirs: Entry, delta: RequirementDelta, zones: ImpairedZones, kept: set[str], notes: list[str]
) -> Entry:
    """Their values and those we removed, as far as the class can still reach them."""
    assert delta.before is not None
    reachable = zones.list_reachable(delta.key)
    back = []
    for value in _list_removed(delta):
        if value in kept:
            notes.append(f"the zone {value} is not put back: the pool asks to keep it out")
        elif reachable and value not in reachable:
            notes.append(f"the zone {value} is not put back: no subnet of its node class is there any more")
        else:
            back.append(value)
    if theirs == delta.after and len(back) == len(_list_removed(delta)):
        return delta.before
    if theirs == delta.after:
        values = [v for v in delta.before["values"] if v in delta.after["values"] or v in back]
    else:
        values = [*theirs["values"], *(value for value in back if value not in theirs["values"])]
    return _restore_min_values({**theirs, "values": values}, delta)


def _restore_min_values(entry: dict[str, Any], delta: RequirementDelta) -> Entry:
    before, after = delta.before or {}, delta.after
    ours = before.get("minValues") != after.get("minValues")
    if ours and entry.get("minValues") == after.get("minValues"):
        return {**entry, "minValues": min(before["minValues"], len(entry["values"]))}
    return entry


# What is done to it


def _build_deltas(
    base: Entries, zones: ImpairedZones, strategy: Strategy, only_zone: OnlyZone, fallback: tuple[str, ...]
) -> tuple[tuple[RequirementDelta, ...], tuple[str, ...]]:
    about = [entry for entry in base if entry["key"] in KEYS]
    if any(entry["operator"] == "DoesNotExist" for entry in about):
        return (), ("nodes of this pool have no zone: nothing to take away",)
    if not _can_reach(about, zones):
        return (), ()
    if strategy == "AppendNotIn":
        if is_confined(about, zones):
            return _handle_only_zone(_find_impaired_list(about, zones), zones, only_zone, fallback)
        return (RequirementDelta({"key": ZONE, "operator": "NotIn", "values": list(zones.names)}),), ()
    return _build_removals(about, zones, only_zone, fallback)


def is_confined(about: Sequence[Entry], zones: ImpairedZones) -> bool:
    """Whether no zone that the class can reach is left to the pool but impaired ones."""
    same = len(zones.eligible_ids) == len(zones.eligible)
    ids = zones.eligible_ids if same else ("",) * len(zones.eligible)
    others = [pair for pair in zip(zones.eligible, ids, strict=True) if pair[0] not in zones.names]
    return bool(zones.eligible) and not any(admits_zone(about, name, zone_id) for name, zone_id in others)


def _find_impaired_list(about: Sequence[Entry], zones: ImpairedZones) -> Entry | None:
    """The list that names impaired zones alone."""
    lists = (entry for entry in about if entry["operator"] == "In")
    return next((each for each in lists if set(each["values"]) <= set(zones.list_by_key(each["key"]))), None)


def _can_reach(about: Sequence[Entry], zones: ImpairedZones) -> bool:
    """Whether the pool, as it stands, could have a node in one of the impaired zones."""
    pairs = zip(zones.names, zones.ids or ("",) * len(zones.names), strict=True)
    return any(admits_zone(about, name, zone_id) for name, zone_id in pairs)


def admits_zone(about: Sequence[Entry], name: str, zone_id: str) -> bool:
    """Whether these requirements let a node be in the zone."""
    for entry in about:
        value = name if entry["key"] == ZONE else zone_id
        listed = entry.get("values") or ()
        if entry["operator"] == "In" and value and value not in listed:
            return False
        if entry["operator"] == "NotIn" and value in listed:
            return False
    return True


def _build_removals(
    about: Sequence[Entry], zones: ImpairedZones, only_zone: OnlyZone, fallback: tuple[str, ...]
) -> tuple[tuple[RequirementDelta, ...], tuple[str, ...]]:
    found: list[RequirementDelta] = []
    for entry in about:
        values, impaired = list(entry.get("values") or ()), zones.list_by_key(entry["key"])
        if entry["operator"] == "In" and any(value in impaired for value in values):
            rest = [value for value in values if value not in impaired]
            if not rest:
                return _handle_only_zone(entry, zones, only_zone, fallback)
            found.append(RequirementDelta(_limit_values(entry, rest), entry))
        elif entry["operator"] == "NotIn":
            added = [value for value in impaired if value not in values]
            if added:
                found.append(RequirementDelta({**entry, "values": [*values, *added]}, entry))
    if found:
        return tuple(found), ()
    rest = [zone for zone in zones.eligible if zone not in zones.names]
    if not rest:
        return _handle_only_zone(None, zones, only_zone, fallback)
    return (RequirementDelta({"key": ZONE, "operator": "In", "values": rest}, away=zones.names),), ()


def _limit_values(entry: Entry, values: list[str]) -> Entry:
    least = entry.get("minValues")
    fewer = {"minValues": len(values)} if least is not None and least > len(values) else {}
    return {**entry, "values": values, **fewer}


def _handle_only_zone(
    entry: Entry | None, zones: ImpairedZones, policy: OnlyZone, fallback: tuple[str, ...]
) -> tuple[tuple[RequirementDelta, ...], tuple[str, ...]]:
    if policy == "Fallback" and fallback and entry is not None:
        told = f"its only zone is impaired: {', '.join(fallback)} stand in for it"
        return (RequirementDelta(_limit_values(entry, list(fallback)), entry),), (told,)
    if policy == "Leave":
        return (), ("its only zone is impaired: it is left as it is",)
    return (RequirementDelta({"key": ZONE, "operator": "NotIn", "values": list(zones.names)}),), (FROZEN,)


def _apply_deltas(base: Entries, deltas: Sequence[RequirementDelta]) -> Entries:
    left: list[Entry] = list(base)
    for delta in deltas:
        if delta.before is None:
            left.append(delta.after)
        else:
            left[next(i for i, entry in enumerate(left) if entry is delta.before)] = delta.after
    return tuple(left)
