"""Where running pods are, by what rules can tell of them; kept from one snapshot to the next.

Between two snapshots few nodes change, and only their pods are counted again. Whoever asks names the nodes
and the pods that do not count; if these are others than the last time, the index moves there first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from operator import is_not

from dovetail.scheduling.model.pod_shapes import Numbering
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.scheduling.topology.tracker import TopologyFacts, TopologyFactsCache, TopologyNode

__all__ = ["ResidentIndex", "ResidentKind"]

ResidentKind = tuple[str, int]
"""Pods that rules cannot tell apart: their namespace, and the number of their labels."""


class ResidentIndex:
    """Pods of each kind: on which nodes, and how many there."""

    def __init__(self) -> None:
        self._states: tuple[StateNode, ...] = ()
        self._batch: AbstractSet[str] = frozenset()
        self._start()

    def _start(self) -> None:
        self._moves = 0
        self._facts: dict[int, TopologyFacts] = {}
        self.labels = Numbering()
        self._on: dict[ResidentKind, dict[int, tuple[TopologyNode, int]]] = {}
        self._by_label: dict[tuple[str, str, str], dict[ResidentKind, None]] = {}
        self._names: Counter[str] = Counter()

    def move_to(
        self, states: tuple[StateNode, ...], batch: AbstractSet[str], facts: TopologyFactsCache
    ) -> None:
        """Be about these nodes, without the pods of the batch."""
        if states is self._states and batch == self._batch:
            return
        old, new = _list_differing(self._states, states)
        self._moves += len(new) if self._states else 0
        if self._moves > len(states) or any(name in self._names for name in batch ^ self._batch):
            # Also after many moves: kinds that nobody has any more would outnumber the others in time.
            self._start()
            old, new = [], list(states)
        for state in old:
            self._remove_pods(state)
        self._batch = batch
        for state in new:
            self._add_pods(state, facts.find_facts(state))
        self._states = states

    def follow(
        self, states: tuple[StateNode, ...], batch: AbstractSet[str], facts: TopologyFactsCache
    ) -> None:
        """The same if it is about any nodes: those that are gone are not held until somebody asks."""
        if self._states:
            self.move_to(states, batch, facts)

    def _add_pods(self, state: StateNode, facts: TopologyFacts) -> None:
        node = facts.node
        if node is None:
            return
        self._facts[id(state)] = facts
        for name, namespace, labels in facts.present_pods:
            self._names[name] += 1
            if name in self._batch:
                continue
            kind = namespace, self.labels.number_value(labels)
            on = self._on.get(kind)
            if on is None:
                on = self._on[kind] = {}
                for key, value in labels.items():
                    self._by_label.setdefault((namespace, key, value), {})[kind] = None
            known = on.get(id(state))
            on[id(state)] = node, 1 if known is None else known[1] + 1

    def _remove_pods(self, state: StateNode) -> None:
        facts = self._facts.pop(id(state), None)
        if facts is None:
            return
        for name, namespace, labels in facts.present_pods:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]
            kind = namespace, self.labels.number_value(labels)
            on = self._on.get(kind)
            if on is not None and on.pop(id(state), None) is not None and not on:
                del self._on[kind]
                for key, value in labels.items():
                    del self._by_label[namespace, key, value][kind]

    def list_with_label(self, namespace: str, key: str, value: str) -> Iterable[ResidentKind]:
        """The kinds that have a label: most rules ask for a few."""
        return self._by_label.get((namespace, key, value), ())

    def list_kinds(self) -> Iterable[ResidentKind]:
        return self._on

    def list_nodes(self, kind: ResidentKind) -> Iterable[tuple[TopologyNode, int]]:
        """The nodes with pods of a kind, and how many each has."""
        return self._on[kind].values()

    def read_labels(self, kind: ResidentKind) -> Mapping[str, str]:
        labels: Mapping[str, str] = self.labels.rows[kind[1]]
        return labels


def _list_differing(
    old: tuple[StateNode, ...], new: tuple[StateNode, ...]
) -> tuple[list[StateNode], list[StateNode]]:
    """Of each, those that the other does not have."""
    if len(old) == len(new):
        places = [i for i, other in enumerate(map(is_not, old, new)) if other]
        old, new = tuple(old[i] for i in places), tuple(new[i] for i in places)
    before, now = {id(state) for state in old}, {id(state) for state in new}
    return [s for s in old if id(s) not in now], [s for s in new if id(s) not in before]
