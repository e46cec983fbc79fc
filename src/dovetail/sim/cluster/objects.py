"""Reading Kubernetes objects as plain documents: who owns what, what is ready, what has ended."""

from __future__ import annotations

from datetime import datetime
from typing import Any

Json = dict[str, Any]

__all__ = [
    "controller_of",
    "format_micro_time",
    "has_changed",
    "has_pod_ended",
    "is_deleting",
    "is_pod_ready",
    "key_of",
    "labels_of",
    "needs_reconcile",
    "owner_reference",
    "parse_time",
]

RECONCILED_FIELDS = ("generation", "deletionTimestamp", "labels", "annotations", "ownerReferences")


def key_of(obj: Json) -> tuple[str, str]:
    """Namespace and name."""
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


def labels_of(obj: Json) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def controller_of(obj: Json) -> Json | None:
    """The owner that manages an object, if any."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            found: Json = owner
            return found
    return None


def owner_reference(owner: Json, *, block: bool = True) -> Json:
    """How an object names the owner that manages it."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": block,
    }


def is_deleting(obj: Json) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def has_pod_ended(pod: Json) -> bool:
    """The pod has run to its end, well or badly."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_pod_ready(pod: Json) -> bool:
    """The pod's Ready condition says True."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            return bool(condition.get("status") == "True")
    return False


def needs_reconcile(before: Json | None, after: Json) -> bool:
    """Whether an object came, or changed in more than its status."""
    if before is None:
        return True
    old, new = before["metadata"], after["metadata"]
    return any(old.get(field) != new.get(field) for field in RECONCILED_FIELDS)


def has_changed(before: Json | None, after: Json | None, *path: str) -> bool:
    """Whether a commit changed the value at a path."""
    return bool(_read_path(before, path) != _read_path(after, path))


def _read_path(obj: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(step)
    return obj


def format_micro_time(time: datetime) -> str:
    """A time as leases and events carry it."""
    return time.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def parse_time(text: str) -> datetime:
    """A time as metadata carries it."""
    return datetime.fromisoformat(text)
