"""The nodes of a snapshot, sorted out once for every run over the very same nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from dovetail.api.pod import Pod
from dovetail.scheduling import nodes
from dovetail.scheduling.places import RunningNode
from dovetail.scheduling.remembered import Remembered
from dovetail.scheduling.snapshot import Snapshot, StateNode, Storage
from dovetail.scheduling.templates import uses_devices

__all__ = ["Roster", "RunningNodes", "roster_of"]


@dataclass(frozen=True, slots=True)
class Roster:
    """Who stays, in the order in which nodes are tried: initialised ones first, then by name."""

    active: tuple[StateNode, ...]
    at: Mapping[str, int]
    """The place of each in that order, by its name."""


_ROSTERS: Remembered[Roster] = Remembered()


def roster_of(states: tuple[StateNode, ...]) -> Roster:
    known = _ROSTERS.get(states)
    if known is None:
        found = [(not nodes.initialized(s), nodes.name(s), s) for s in nodes.active(states)]
        found.sort(key=lambda each: each[:2])
        at = {name: i for i, (_, name, _) in enumerate(found)}
        known = _ROSTERS.put(Roster(tuple(state for _, _, state in found), at), states)
    return known


class RunningNodes(Sequence[RunningNode]):
    """The nodes of one run, each made when it is first looked at."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._roster = roster_of(snapshot.nodes)
        self._daemons = _daemons(snapshot)
        self._storage: Storage = snapshot.storage
        self._made: list[RunningNode | None] = [None] * len(self._roster.active)

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, index: int) -> RunningNode: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RunningNode]: ...
    def __getitem__(self, index: int | slice) -> RunningNode | Sequence[RunningNode]:
        if isinstance(index, slice):
            return list(self)[index]
        return self._made[index] or self._make(index)

    def __iter__(self) -> Iterator[RunningNode]:
        return (node or self._make(i) for i, node in enumerate(self._made))

    def named(self, name: str) -> RunningNode | None:
        place = self._roster.at.get(name)
        return None if place is None else self[place]

    def filled(self) -> list[RunningNode]:
        """Those that were given pods."""
        return [node for node in self._made if node is not None and node.pods]

    def _make(self, index: int) -> RunningNode:
        made = RunningNode(index, self._roster.active[index], self._daemons, self._storage)
        self._made[index] = made
        return made


def _daemons(snapshot: Snapshot) -> tuple[Pod, ...]:
    if snapshot.options.ignore_dra and any(map(uses_devices, snapshot.daemons)):
        return tuple(pod for pod in snapshot.daemons if not uses_devices(pod))
    return snapshot.daemons
