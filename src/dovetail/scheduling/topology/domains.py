"""The domains pools could create: for every label, the values new nodes may have, and behind which taints.

Offerings, limits and weights are not looked at: a pool that may buy nothing more still counts, and so
can hold back a spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dovetail.api.core import Taint
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Toleration
from dovetail.scheduling.model.instance_type_table import InstanceTypeTable
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.taints import tolerates_all

__all__ = ["TopologyDomains"]

Behind = tuple[tuple[Taint, ...], ...]
"""Taint lists of the pools that have a domain; empty when some pool has it without any."""


class TopologyDomains:
    """Label to domains, each with the taints a pod must tolerate to get there."""

    def __init__(self, pools: Iterable[tuple[NodePool, InstanceTypeTable]]) -> None:
        self._domains: dict[str, dict[str, Behind]] = {}
        self._tolerated: dict[tuple[str, tuple[Toleration, ...]], frozenset[str]] = {}
        for nodepool, table in pools:
            template = nodepool.spec.template
            wanted = Requirements.from_expressions(
                template.spec.requirements or ()
            ) & Requirements.from_labels(template.metadata.labels)
            for key, names in _list_domain_values(wanted, table).items():
                for name in names:
                    self._add_domain(key, name, template.spec.taints)

    def _add_domain(self, key: str, name: str, taints: tuple[Taint, ...]) -> None:
        known = self._domains.setdefault(key, {})
        if not taints:
            known[name] = ()
        elif known.get(name) != ():
            known[name] = (*known.get(name, ()), taints)

    def list_domains(self, key: str) -> Iterable[str]:
        return self._domains.get(key, {})

    def list_tolerated_domains(self, key: str, tolerations: Sequence[Toleration]) -> frozenset[str]:
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


def _list_domain_values(wanted: Requirements, table: InstanceTypeTable) -> Mapping[str, set[str]]:
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
