"""Which pods belong to whom: kept up to date with every commit, so that nobody searches."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.objects import key_of
from dovetail.sim.cluster.pods_of import owned_by

__all__ = ["Owned"]


class Owned(Neighbour):
    """Pods by the uid of their controller; those without one are filed under the empty uid."""

    name = "owned"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._by_owner: dict[str, dict[Key, Json]] = {}

    def hears(self) -> Mapping[str, Heard]:
        return {"pods": self._heard}

    def _heard(self, before: Json | None, after: Json | None) -> None:
        old, new = owned_by(before), owned_by(after)
        if before is not None and (after is None or old != new):
            file = self._by_owner.get(old, {})
            file.pop(key_of(before), None)
            if not file:
                self._by_owner.pop(old, None)
        if after is not None:
            self._by_owner.setdefault(new, {})[key_of(after)] = after

    def pods(self, uid: str) -> list[Json]:
        return list(self._by_owner.get(uid, {}).values())
