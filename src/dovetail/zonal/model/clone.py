"""A pool that stands in for one of EKS Auto Mode's own, which nobody may edit.

The stand-in is preferred by weight and stays out of the impaired zones. Afterwards it launches nothing more,
and goes once it owns no node: deleting it sooner would take its nodes along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from dovetail.zonal.model.shifts import CONTROLLER, Owner, build_owner_note

__all__ = [
    *("CLONE_OF", "PREFIX", "RETIRED", "SHIFTS"),
    *(
        "has_only_managed_pools",
        "build_clone_name",
        "build_clone",
        "mark_outlived",
        "is_overdue",
        "retire_spec",
    ),
]

Document = Mapping[str, Any]
PREFIX = "dovetail-zs-"
CLONE_OF = "zonalshift.dovetail.sh/clone-of"
SHIFTS = "zonalshift.dovetail.sh/shifts"
# When the stand-in was last needed; and on its nodes, that they have outlived it.
RETIRED = "zonalshift.dovetail.sh/retired"
OUTLIVED = "zonalshift.dovetail.sh/outlived"
ZONE = "topology.kubernetes.io/zone"
PREFERRED, LEAST = 100, 1


def has_only_managed_pools(pools: Sequence[str], managed: Sequence[str]) -> bool:
    """Whether there is nothing but pools of Auto Mode's own: nothing we could edit."""
    others = [name for name in pools if not name.startswith(PREFIX)]
    return bool(managed) and bool(others) and all(name in managed for name in others)


def build_clone_name(source: str) -> str:
    return PREFIX + source


def build_clone(
    source: Document, zones: Sequence[str], shifts: Sequence[str], owner: Owner = CONTROLLER
) -> dict[str, Any]:
    """The stand-in for a pool, in these zones alone."""
    spec = dict(source["spec"])
    template = dict(spec["template"])
    inner = dict(template["spec"])
    inner["requirements"] = [
        *inner.get("requirements", ()),
        {"key": ZONE, "operator": "In", "values": list(zones)},
    ]
    name = source["metadata"]["name"]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {
            "name": build_clone_name(name),
            "labels": {CLONE_OF: name},
            "annotations": {SHIFTS: ",".join(shifts), **build_owner_note(owner)},
        },
        "spec": {**spec, "template": {**template, "spec": inner}, "weight": PREFERRED},
    }


def retire_spec(spec: Document) -> dict[str, Any]:
    """The stand-in when it is no longer needed: it keeps what it has and launches nothing."""
    return {**spec, "limits": {**(spec.get("limits") or {}), "cpu": "0"}, "weight": LEAST}


def is_overdue(since: str, now: datetime, retention: timedelta) -> bool:
    """Whether nodes of a stand-in that retired then have been kept long enough."""
    try:
        return now - datetime.fromisoformat(since) >= retention
    except ValueError:
        return False  # not a time of ours: nothing is forced by it


def mark_outlived(spec: Document, since: str) -> dict[str, Any]:
    """The retired stand-in whose nodes count as drifted from now on, so that they go within its budgets."""
    template = dict(spec["template"])
    meta = dict(template.get("metadata") or {})
    marked = {**meta, "annotations": {**(meta.get("annotations") or {}), OUTLIVED: since}}
    return {**spec, "template": {**template, "metadata": marked}}
