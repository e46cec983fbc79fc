"""From counts to groups: which pods of a class go on which node, under the exact host rules.

Big nodes choose first, and each takes from the groups with most pods left, so that no group is left
with more pods than there are hosts for it. What a node may not take is put where there is room for it,
or handed back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dovetail.scheduling.packing.host_rules import HostRules, HostState
from dovetail.scheduling.packing.problem import Floats, Ints, PackingProblem, Rows

__all__ = ["ClassMembers", "FilledNode", "assign_groups", "place_leftovers"]


@dataclass(slots=True)
class ClassMembers:
    """The groups inside each class, fullest first, and what is left of each."""

    groups: list[list[int]]  # class -> groups
    left: dict[int, int]  # group -> pods

    def __post_init__(self) -> None:
        for groups in self.groups:
            groups.sort(key=lambda g: (-self.left[g], g))

    def take(self, index: int, wanted: int, state: HostState | None) -> list[tuple[int, int]]:
        """Up to `wanted` pods of a class that the host lets in: (group, pods)."""
        groups = self.groups[index]
        if state is None:
            return self._take_in_order(groups, wanted)
        taken: dict[int, int] = {}
        while wanted:
            at = next((i for i, g in enumerate(groups) if self.left[g] and state.allows_group(g)), None)
            if at is None:
                break
            group = groups[at]
            state.add(group)
            taken[group] = taken.get(group, 0) + 1
            self.left[group] -= 1
            self._sink_group(groups, at)
            wanted -= 1
        return list(taken.items())

    def _take_in_order(self, groups: list[int], wanted: int) -> list[tuple[int, int]]:
        """Nobody minds: empty one group after another."""
        taken = []
        while wanted and groups:
            group = groups[-1]
            pods = min(wanted, self.left[group])
            self.left[group] -= pods
            wanted -= pods
            if pods:
                taken.append((group, pods))
            if not self.left[group]:
                groups.pop()
        return taken

    def _sink_group(self, groups: list[int], at: int) -> None:
        """Keep the fullest first after one pod was taken."""
        mine = self.left[groups[at]]
        while at + 1 < len(groups) and self.left[groups[at + 1]] > mine:
            groups[at], groups[at + 1] = groups[at + 1], groups[at]
            at += 1
        if mine == 0 and at == len(groups) - 1:
            groups.pop()


@dataclass(slots=True)
class FilledNode:
    """One node to be: its option, its pods, and how its host sees them."""

    option: int
    state: HostState
    pods: dict[int, int] = field(default_factory=dict)

    def add_pods(self, taken: list[tuple[int, int]]) -> None:
        for group, pods in taken:
            self.pods[group] = self.pods.get(group, 0) + pods


def assign_groups(
    problem: PackingProblem, rows: Rows, members: ClassMembers, hosts: HostRules, ruled: list[bool]
) -> list[FilledNode]:
    """Nodes with pods of named groups; what found no host stays in `members.left`."""
    out: list[FilledNode] = []
    order = sorted(rows, key=lambda row: -problem.price[row.option])
    for row in order:
        classes = [(int(c), int(row.counts[c])) for c in np.flatnonzero(row.counts)]
        # The fussiest first: classes with host rules see the node while it is empty.
        classes.sort(key=lambda item: not ruled[item[0]])
        for _ in range(row.copies):
            node = FilledNode(row.option, HostState(hosts))
            for index, wanted in classes:
                node.add_pods(members.take(index, wanted, node.state if ruled[index] else None))
            if node.pods:
                out.append(node)
    return out


def place_leftovers(
    nodes: list[FilledNode], room: Floats, request: Floats, left: dict[int, int], takes: dict[int, Ints]
) -> None:
    """Put pods left over on nodes that have room and let them in. `room` is what each node has left."""
    for group in sorted((g for g, n in left.items() if n), key=lambda g: (-float(request[g].max()), g)):
        wide = np.flatnonzero((room >= request[group]).all(axis=1) & takes[group])
        for at in wide.tolist():
            node = nodes[at]
            while left[group] and (room[at] >= request[group]).all() and node.state.allows_group(group):
                node.state.add(group)
                node.add_pods([(group, 1)])
                room[at] -= request[group]
                left[group] -= 1
            if not left[group]:
                break
