"""What a request may ask for beside its body."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dovetail.sim.kube.status import bad_request

PROPAGATION = ("", "Background", "Foreground", "Orphan")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of create, update and patch. `warnings` collects what the client should hear."""

    dry_run: bool = False
    manager: str = ""
    user: str = "system:admin"
    validation: str = "Ignore"
    force: bool = False
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of delete and evict."""

    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


def delete_options(body: dict[str, Any]) -> DeleteOptions:
    """A DeleteOptions document as options."""
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds")
    if not isinstance(preconditions, dict) or not isinstance(grace, int | None):
        raise bad_request(
            "DeleteOptions cannot be decoded: preconditions or gracePeriodSeconds has a wrong type"
        )
    propagation = body.get("propagationPolicy") or ""
    if not propagation and body.get("orphanDependents") is not None:
        propagation = "Orphan" if body["orphanDependents"] else "Background"
    return DeleteOptions(
        grace=grace,
        propagation=propagation,
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
        dry_run=bool(body.get("dryRun")),
    )
