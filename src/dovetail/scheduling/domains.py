"""The domains pools could create: for every label, the values new nodes may have, and behind which taints.

Offerings, limits and weights are not looked at: a pool that may buy nothing more still counts, and so
can hold back a spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dovetail.api.core import Taint
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Toleration
from dovetail.scheduling.requirements import Requirements
from dovetail.scheduling.taints import tolerates_all
from dovetail.scheduling.typetable import TypeTable

__all__ = ["Universe"]

Behind = tuple[tuple[Taint, ...], ...]
"""Taint lists of the pools that have a domain; empty when some pool has it without any."""


class Universe:
    """Label to domains, each with the taints a pod must tolerate to get there."""

    def __init__(self, pools: Iterable[tuple[NodePool, TypeTable]]) -> None:
        self._domains: dict[str, dict[str, Behind]] = {}
        self._tolerated: dict[tuple[str, tuple[Toleration, ...]], frozenset[str]] = {}
        for nodepool, table in pools:
            template = nodepool.spec.template
            wanted = Requirements.of(template.spec.requirements or ()) & Requirements.labels(
                template.metadata.labels
            )
            for key, names in _finite(wanted, table).items():
                for name in names:
                    self._add(key, name, template.spec.taints)

    def _add(self, key: str, name: str, taints: tuple[Taint, ...]) -> None:
        known = self._domains.setdefault(key, {})
        if not taints:
            known[name] = ()
        elif known.get(name) != ():
            known[name] = (*known.get(name, ()), taints)

    def all(self, key: str) -> Iterable[str]:
        return self._domains.get(key, {})

    def tolerated(self, key: str, tolerations: Sequence[Toleration]) -> frozenset[str]:
        """The domains a pod with these tolerations could be let into."""
        wanted = key, tuple(tolerations)
        found = self._tolerated.get(wanted)
        if found is None:
            found = self._tolerated[wanted] = frozenset(
                name
                for name, behind in self._domains.get(key, {}).items()
                if not behind or any(tolerates_all(taints, tolerations) for taints in behind)
            )
        return found


def _finite(wanted: Requirements, table: TypeTable) -> Mapping[str, set[str]]:
    """Every label a pool's nodes may have that can be counted out, with its values."""
    found: dict[str, set[str]] = {
        key: set(values.names) for key, values in wanted.by_key.items() if not values.open
    }
    for key, listed in table.label_values.items():
        narrowed = wanted.by_key.get(key)
        names: set[str] = set()
        for values in listed:
            both = values if narrowed is None else values & narrowed
            if not both.open:
                names |= both.names
        if narrowed is not None and not narrowed.open:
            names |= narrowed.names
        found[key] = names
    return found
