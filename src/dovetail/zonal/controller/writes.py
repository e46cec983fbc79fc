"""Every write of the zonal controller: made, or only told in a dry run, and put on record either way."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.meta import Kind, Object, ObjectMeta
from dovetail.api.nodepool import NodePool
from dovetail.errors import DovetailError, note_contained
from dovetail.logs import audit, get_logger
from dovetail.metrics import counter
from dovetail.ports import Kube

__all__ = [
    "GUARD",
    "Audit",
    "AuditedWriter",
    "JsonPatchKube",
    "PoolDocument",
    "build_patch",
    "note_bad_object",
]

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


class JsonPatchKube(Kube, Protocol):
    """A Kubernetes that also takes JSON patches."""

    async def json_patch(self, obj: T, operations: Sequence[Json], *, subresource: str = "") -> T:
        """RFC 6902, applied as a whole or not at all."""


def build_patch(
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
        found += _patch_budgets(pool, budgets)
    found += _patch_annotations(pool.annotations, {labels.ZONE_LEDGER: ledger, GUARD: guard})
    return found if len(found) > 1 else []


def _patch_budgets(pool: PoolDocument, budgets: Sequence[Mapping[str, Any]] | None) -> list[Json]:
    path = "/spec/disruption/budgets"
    if budgets is None:
        return [{"op": "remove", "path": path}] if pool.budgets is not None else []
    made = [] if "disruption" in pool.spec else [{"op": "add", "path": "/spec/disruption", "value": {}}]
    return [*made, {"op": "add", "path": path, "value": list(budgets)}]


def _patch_annotations(now: Mapping[str, str], wanted: Mapping[str, str]) -> list[Json]:
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


KEPT = 1000
WROTE = audit(
    "zonal shift wrote",
    "The zonal controller changed one field of one object, or would have in a dry run.",
    ("object", "field", "before", "after", "shift", "reason"),
)


@dataclass(frozen=True, slots=True)
class Audit:
    """What was written where, for which shift and why."""

    object: str
    field: str
    before: Any
    after: Any
    shift: str
    reason: str

    def __str__(self) -> str:
        before, after = render_value(self.before), render_value(self.after)
        return f"{self.object} {self.field}: {before} -> {after} ({self.reason}, {self.shift})"


def render_value(value: object) -> str:
    """A field's value as people write it: requirements as `zone NotIn [a]`, anything else as in JSON."""
    if value is None or value == [] or value == ():
        return "none"
    if isinstance(value, list | tuple) and all(isinstance(each, Mapping) and "key" in each for each in value):
        return "; ".join(map(_render_requirement, value))
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _render_requirement(entry: Mapping[str, Any]) -> str:
    least = f" minValues {entry['minValues']}" if entry.get("minValues") is not None else ""
    return (
        f"{entry['key']} {entry.get('operator', '')} [{' '.join(map(str, entry.get('values') or ()))}]{least}"
    )


class AuditedWriter:
    """Hands for nodes and pools."""

    def __init__(self, kube: JsonPatchKube) -> None:
        self.kube = kube
        self.audits: deque[Audit] = deque(maxlen=KEPT)

    async def write_node(self, before: Node, after: Node, audits: Sequence[Audit]) -> Node:
        """One patch; Conflict when someone wrote meanwhile, so that the ledger tells the truth."""
        done = await self.kube.patch(before, after, guarded=True)
        self.record_audits(audits)
        return done

    async def write_pool(
        self, pool: PoolDocument, changes: Sequence[dict[str, Any]], audits: Sequence[Audit]
    ) -> None:
        await self.kube.json_patch(pool, changes)
        self.record_audits(audits)

    def record_audits(self, audits: Sequence[Audit]) -> None:
        """Put on record what was written, here or by whoever writes another kind."""
        self.audits.extend(audits)
        for each in audits:
            WROTE(asdict(each))


log = get_logger()
SET_ASIDE = counter(
    "dovetail_zonal_shift_set_aside_total", "Objects a pass could not make sense of, by kind.", ("kind",)
)
LONGEST_NOTE = 300


def note_bad_object(failures: dict[str, str], name: str, error: Exception) -> None:
    """Note what is wrong with an object, such as `Node/a`; what is noted already is not told again."""
    note_contained(error)
    ours = isinstance(error, DovetailError)
    told = str(error) if ours else f"{type(error).__name__}: {str(error)[:LONGEST_NOTE]}"
    if failures.get(name) == told:
        return
    failures[name] = told
    SET_ASIDE.labels(name.partition("/")[0]).inc()
    # What is no error of ours is a value nobody thought of: loud, and survived.
    (log.warning if ours else log.error)("an object is set aside", object=name, error=told)
