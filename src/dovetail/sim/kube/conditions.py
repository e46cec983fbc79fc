"""Status conditions: one per type, with the time it last turned."""

from __future__ import annotations

from typing import Any


def condition_of(obj: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """An object's condition of a type."""
    conditions: list[dict[str, Any]] = (obj.get("status") or {}).get("conditions") or []
    for each in conditions:
        if each.get("type") == kind:
            return each
    return None


def is_true(obj: dict[str, Any], kind: str) -> bool:
    """Whether an object's condition of a type says True."""
    found = condition_of(obj, kind)
    return found is not None and found.get("status") == "True"


def with_condition(status: dict[str, Any], condition: dict[str, Any], now: str) -> dict[str, Any]:
    """A status with one condition set; its transition time moves only when it turns."""
    conditions = list(status.get("conditions") or ())
    place = next((i for i, each in enumerate(conditions) if each.get("type") == condition["type"]), None)
    if place is None:
        return {**status, "conditions": [*conditions, {**condition, "lastTransitionTime": now}]}
    before = conditions[place]
    turned = before.get("status") != condition["status"]
    since = now if turned else before.get("lastTransitionTime", now)
    conditions[place] = {**condition, "lastTransitionTime": since}
    return {**status, "conditions": conditions}
