"""Every write of the zonal controller: made, or only told in a dry run, and put on record either way."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

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
        return f"{self.object} {self.field}: {self.before!r} -> {self.after!r} ({self.reason}, {self.shift})"


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
