"""Events have two faces, `v1` and `events.k8s.io/v1`, over one store. The core face is what is kept."""

from __future__ import annotations

from typing import Any

_NAMES = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)
_TO_NEW = dict(_NAMES)
_TO_CORE = {new: core for core, new in _NAMES}


def to_core(obj: dict[str, Any]) -> dict[str, Any]:
    """An event of either face as `v1` spells it."""
    return {_TO_CORE.get(key, key): value for key, value in obj.items()} | {"apiVersion": "v1"}


def to_events_v1(obj: dict[str, Any]) -> dict[str, Any]:
    """An event of either face as `events.k8s.io/v1` spells it."""
    renamed = {_TO_NEW.get(key, key): value for key, value in obj.items()}
    return renamed | {"apiVersion": "events.k8s.io/v1"}
