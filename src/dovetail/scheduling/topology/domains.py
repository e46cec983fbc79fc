"""The domains pools could create: for every label, the values new nodes may have, and behind which taints.

Offerings, limits and weights are not looked at: a pool that may buy nothing more still counts, and so
can hold back a spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
        self._pools = [
            (_build_wanted(nodepool), table, nodepool.spec.template.spec.taints) for nodepool, table in pools
        ]
        self._domains: dict[str, dict[str, Behind]] = {}
        self._tolerated: dict[tuple[str, tuple[Toleration, ...]], frozenset[str]] = {}

    def _find_domains(self, key: str) -> dict[str, Behind]:
        known = self._domains.get(key)
        if known is None:
            known = self._domains[key] = {}
            for wanted, table, taints in self._pools:
                for name in _list_domain_values(key, wanted, table):
                    _add_domain(known, name, taints)
        return known

    def list_domains(self, key: str) -> Iterable[str]:
        return self._find_domains(key)

    def list_tolerated_domains(self, key: str, tolerations: Sequence[Toleration]) -> frozenset[str]:
        """The domains a pod with these tolerations could be let into."""
        wanted = key, tuple(tolerations)
        found = self._tolerated.get(wanted)
        if found is None:
            found = self._tolerated[wanted] = frozenset(
                name
                for name, behind in self._find_domains(key).items()
                if not behind or any(tolerates_all(taints, tolerations) for taints in behind)
            )
        return found


def _build_wanted(nodepool: NodePool) -> Requirements:
    template = nodepool.spec.template
    return Requirements.from_expressions(template.spec.requirements or ()) & Requirements.from_labels(
        template.metadata.labels
    )


def _add_domain(known: dict[str, Behind], name: str, taints: tuple[Taint, ...]) -> None:
    if not taints:
        known[name] = ()
    elif known.get(name) != ():
        known[name] = (*known.get(name, ()), taints)


def _list_domain_values(key: str, wanted: Requirements, table: InstanceTypeTable) -> set[str]:
    """The values that a pool's nodes may have for a label, as far as they can be counted out."""
    narrowed = wanted.by_key.get(key)
    names = set(narrowed.names) if narrowed is not None and not narrowed.open else set[str]()
    for values in table.list_label_values(key):
        both = values if narrowed is None else values & narrowed
        if not both.open:
            names |= both.names
    return names
