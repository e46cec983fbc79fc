"""Pools as documents: an undo that is exact to the byte is made of what stands there, not of what we read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from dovetail.api import labels
from dovetail.api.meta import Kind, Object, ObjectMeta
from dovetail.api.nodepool import NodePool
from dovetail.ports import Kube

__all__ = ["GUARD", "Documents", "PoolDocument", "operations"]

T = TypeVar("T", bound=Object)
Json = dict[str, Any]
GUARD = "zonalshift.dovetail.sh/guard"


class DocumentMeta(ObjectMeta, frozen=True):
    """Who wrote what, too."""

    managed_fields: tuple[Mapping[str, Any], ...] = ()


class PoolDocument(Object, frozen=True):
    """A NodePool, its spec as it is written."""

    KIND: ClassVar[Kind] = NodePool.KIND

    metadata: DocumentMeta = DocumentMeta()
    spec: Mapping[str, Any] = {}

    @property
    def requirements(self) -> Sequence[Mapping[str, Any]]:
        return self.spec["template"]["spec"].get("requirements") or ()

    @property
    def budgets(self) -> Sequence[Mapping[str, Any]] | None:
        found: Sequence[Mapping[str, Any]] | None = (self.spec.get("disruption") or {}).get("budgets")
        return found

    @property
    def class_name(self) -> tuple[str, str]:
        """Kind and name of its node class."""
        reference = self.spec["template"]["spec"].get("nodeClassRef") or {}
        return str(reference.get("kind", "")), str(reference.get("name", ""))

    @property
    def last_writer(self) -> str:
        """Who last wrote to its spec, as far as the server knows."""
        writers = [each for each in self.metadata.managed_fields if "f:spec" in (each.get("fieldsV1") or {})]
        return str(max(writers, key=lambda each: str(each.get("time", "")))["manager"]) if writers else ""


class Documents(Kube, Protocol):
    """A Kubernetes that also takes JSON patches."""

    async def json_patch(self, obj: T, operations: Sequence[Json], *, subresource: str = "") -> T:
        """RFC 6902, applied as a whole or not at all."""


def operations(
    pool: PoolDocument,
    requirements: Sequence[Mapping[str, Any]],
    budgets: Sequence[Mapping[str, Any]] | None,
    ledger: str,
    guard: str,
) -> list[Json]:
    """From a pool as it stands to one with these; the change and what we note of it are one write."""
    # Setting the version makes the server answer Conflict if anyone wrote meanwhile.
    found: list[Json] = [
        {"op": "add", "path": "/metadata/resourceVersion", "value": pool.metadata.resource_version}
    ]
    if list(pool.requirements) != list(requirements):
        found.append({"op": "add", "path": "/spec/template/spec/requirements", "value": list(requirements)})
    if pool.budgets != budgets and not (
        pool.budgets is not None and list(pool.budgets) == list(budgets or ())
    ):
        found += _budgets(pool, budgets)
    found += _annotations(pool.annotations, {labels.ZONE_LEDGER: ledger, GUARD: guard})
    return found if len(found) > 1 else []


def _budgets(pool: PoolDocument, budgets: Sequence[Mapping[str, Any]] | None) -> list[Json]:
    path = "/spec/disruption/budgets"
    if budgets is None:
        return [{"op": "remove", "path": path}] if pool.budgets is not None else []
    made = [] if "disruption" in pool.spec else [{"op": "add", "path": "/spec/disruption", "value": {}}]
    return [*made, {"op": "add", "path": path, "value": list(budgets)}]


def _annotations(now: Mapping[str, str], wanted: Mapping[str, str]) -> list[Json]:
    after = {**now, **wanted}
    after = {key: value for key, value in after.items() if value}
    if after == now:
        return []
    if not after:
        return [{"op": "remove", "path": "/metadata/annotations"}]
    if not now:
        return [{"op": "add", "path": "/metadata/annotations", "value": after}]
    found: list[Json] = []
    for key, value in wanted.items():
        path = "/metadata/annotations/" + key.replace("~", "~0").replace("/", "~1")
        if value and now.get(key) != value:
            found.append({"op": "add", "path": path, "value": value})
        elif not value and key in now:
            found.append({"op": "remove", "path": path})
    return found
