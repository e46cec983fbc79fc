"""Every write of the zonal controller: made, or only told in a dry run, and put on record either way."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from dovetail.api.core import Node
from dovetail.controllers.zonal.documents import Documents, PoolDocument
from dovetail.logs import info

__all__ = ["Audit", "Writer"]

KEPT = 1000
WROTE = info(
    "zonal shift wrote",
    "The zonal controller changed one field of one object, or would have in a dry run.",
    ("object", "field", "before", "after", "shift", "reason"),
    ours=True,
    logger="audit",
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
        before, after = shown_value(self.before), shown_value(self.after)
        return f"{self.object} {self.field}: {before} -> {after} ({self.reason}, {self.shift})"


def shown_value(value: object) -> str:
    """A field's value as people write it: requirements as `zone NotIn [a]`, anything else as in JSON."""
    if value is None or value == [] or value == ():
        return "none"
    if isinstance(value, list | tuple) and all(isinstance(each, Mapping) and "key" in each for each in value):
        return "; ".join(map(_shown_requirement, value))
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _shown_requirement(entry: Mapping[str, Any]) -> str:
    least = f" minValues {entry['minValues']}" if entry.get("minValues") is not None else ""
    return (
        f"{entry['key']} {entry.get('operator', '')} [{' '.join(map(str, entry.get('values') or ()))}]{least}"
    )


class Writer:
    """Hands for nodes and pools."""

    def __init__(self, kube: Documents) -> None:
        self._kube = kube
        self.audits: deque[Audit] = deque(maxlen=KEPT)

    async def node(self, before: Node, after: Node, audits: Sequence[Audit]) -> Node:
        """One patch; Conflict when someone wrote meanwhile, so that the ledger tells the truth."""
        done = await self._kube.patch(before, after, guarded=True)
        self.record(audits)
        return done

    async def pool(
        self, pool: PoolDocument, changes: Sequence[dict[str, Any]], audits: Sequence[Audit]
    ) -> None:
        await self._kube.json_patch(pool, changes)
        self.record(audits)

    def record(self, audits: Sequence[Audit]) -> None:
        """Put on record what was written, here or by whoever writes another kind."""
        self.audits.extend(audits)
        for each in audits:
            WROTE(asdict(each))
