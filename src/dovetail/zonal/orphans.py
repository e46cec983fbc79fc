"""Pools that were edited and lost the note of it: what can be rebuilt, from what their class can reach.

Without the note nobody knows for certain what stood there, so this is no exact undo. It puts the zones back
and touches nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dovetail.zonal.pools import KEYS, Zones

__all__ = ["mended"]

Entry = Mapping[str, Any]


def mended(
    theirs: Sequence[Entry], zones: Zones, keep_removed: Collection[str] = ()
) -> tuple[Entry, ...] | None:
    """The requirements with these zones allowed again; None when they are, or cannot be reached."""
    found: list[Entry] = []
    for entry in theirs:
        back = [
            zone
            for zone in zones.of(str(entry["key"]))
            if zone in zones.reachable(str(entry["key"])) and zone not in keep_removed
        ]
        changed = _with(entry, back) if entry["key"] in KEYS else entry
        if changed is not None:
            found.append(changed)
    return None if found == list(theirs) else tuple(found)


def _with(entry: Entry, back: Sequence[str]) -> Entry | None:
    """An entry that lets nodes be in these zones; None when nothing is left of it."""
    values = list(entry.get("values") or ())
    if entry["operator"] == "NotIn":
        left = [value for value in values if value not in back]
        return entry if left == values else ({**entry, "values": left} if left else None)
    missing = [zone for zone in back if zone not in values]
    return {**entry, "values": [*values, *missing]} if entry["operator"] == "In" and missing else entry
