"""The nodes of a snapshot, sorted out once for every run over the very same nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from dovetail.api.pod import Pod
from dovetail.scheduling.model import state_node
from dovetail.scheduling.model.decision_cache import DecisionCache, IdentityCache
from dovetail.scheduling.model.nodeclaim_template import uses_devices
from dovetail.scheduling.model.snapshot import Snapshot, StateNode, Storage
from dovetail.scheduling.sequential.nodes import ExistingNode, NodeFactsCache

__all__ = ["ExistingNodeIndex", "ExistingNodeIndexCache", "ExistingNodes"]


@dataclass(frozen=True, slots=True)
class ExistingNodeIndex:
    """Who stays, in the order in which nodes are tried: initialised ones first, then by name."""

    active: tuple[StateNode, ...]
    at: Mapping[str, int]
    """The place of each in that order, by its name."""


class ExistingNodeIndexCache(IdentityCache[ExistingNodeIndex]):
    """The index of the nodes of each snapshot."""

    def find_index(self, states: tuple[StateNode, ...]) -> ExistingNodeIndex:
        known = self.get(states)
        if known is None:
            found = [
                (not state_node.is_initialized(s), state_node.read_name(s), s)
                for s in state_node.list_active(states)
            ]
            found.sort(key=lambda each: each[:2])
            at = {name: i for i, (_, name, _) in enumerate(found)}
            known = self.put(ExistingNodeIndex(tuple(state for _, _, state in found), at), states)
        return known


class ExistingNodes(Sequence[ExistingNode]):
    """The nodes of one run, each made when it is first looked at."""

    def __init__(self, snapshot: Snapshot, cache: DecisionCache) -> None:
        self._index = cache.get_part(ExistingNodeIndexCache).find_index(snapshot.nodes)
        self._facts = cache.get_part(NodeFactsCache)
        self._daemons = _list_daemon_pods(snapshot)
        self._storage: Storage = snapshot.storage
        self._made: list[ExistingNode | None] = [None] * len(self._index.active)

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, index: int) -> ExistingNode: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ExistingNode]: ...
    def __getitem__(self, index: int | slice) -> ExistingNode | Sequence[ExistingNode]:
        if isinstance(index, slice):
            return list(self)[index]
        return self._made[index] or self._build_node(index)

    def __iter__(self) -> Iterator[ExistingNode]:
        return (node or self._build_node(i) for i, node in enumerate(self._made))

    def find_by_name(self, name: str) -> ExistingNode | None:
        place = self._index.at.get(name)
        return None if place is None else self[place]

    def list_filled(self) -> list[ExistingNode]:
        """Those that were given pods."""
        return [node for node in self._made if node is not None and node.pods]

    def _build_node(self, index: int) -> ExistingNode:
        state = self._index.active[index]
        made = ExistingNode(index, state, self._facts.find_facts(state, self._daemons, self._storage))
        self._made[index] = made
        return made


def _list_daemon_pods(snapshot: Snapshot) -> tuple[Pod, ...]:
    if snapshot.options.ignore_dra and any(map(uses_devices, snapshot.daemons)):
        return tuple(pod for pod in snapshot.daemons if not uses_devices(pod))
    return snapshot.daemons
