"""Commands side by side: each sees the world in which those before it are done."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.disruption.candidates import Candidate, Scene
from dovetail.disruption.command import Command
from dovetail.disruption.room import counts_nobody
from dovetail.disruption.simulate import beside
from dovetail.scheduling import nodes as views
from dovetail.scheduling.fulfilled import fulfilled
from dovetail.scheduling.snapshot import StateNode

__all__ = ["Worlds", "sparing"]


class Worlds:
    """The world as the next command must see it.

    Most commands only need to keep out of the way of the others, and see a world without the nodes these
    use: that is quick. A pod that counts others must see them all, where they will be.
    """

    def __init__(self, scene: Scene) -> None:
        self._quick: Scene | None = scene
        self._full: Scene | None = scene
        self._to_add: list[Command] = []

    def seen_by(self, candidate: Candidate) -> Scene | None:
        """The world for one more node that goes; None where nobody can tell what the others leave."""
        if self._quick is not None and all(map(counts_nobody, candidate.pods)):
            return self._quick
        while self._full is not None and self._to_add:
            self._full = _settled(self._full, self._to_add.pop(0))
        return self._full

    def add(self, command: Command) -> None:
        """This one will be done too."""
        self._to_add.append(command)
        self._quick = beside(self._quick, command) if self._quick is not None else None


def _settled(scene: Scene, command: Command) -> Scene | None:
    """The world with the command done, as the next one beside it must see it; None where none can tell.

    Its pods are where they will be, and count there; what was bought for them has no room for others,
    for it is not there yet.
    """
    plan, snapshot = command.plan, scene.snapshot
    if plan is None or not snapshot.options.ignore_dra or any(node.reservations for node in plan.new_nodes):
        return None
    keys = {candidate.key for candidate in command.candidates}
    moved = tuple(pod for candidate in command.candidates for pod in candidate.pods)
    left = tuple(state for state in snapshot.nodes if views.provider_id(state) not in keys)
    done = fulfilled(replace(snapshot, nodes=left, moving=(*snapshot.moving, *moved)), plan)
    # Two commands plan nodes of the same names; the names of these must not be taken for those of the next.
    known = {views.name(state) for state in left}
    nodes = tuple(s if views.name(s) in known else _full(s, command.candidates[0].name) for s in done.nodes)
    return Scene(replace(done, nodes=nodes), scene.queued, scene.buffered, scene.spot_to_spot)


def sparing(scene: Scene, going: Iterable[Candidate]) -> Scene:
    """The world in which these nodes have no room for the pods of others."""
    keys = {candidate.key for candidate in going}
    nodes = tuple(_spared(s) if views.provider_id(s) in keys else s for s in scene.snapshot.nodes)
    return Scene(replace(scene.snapshot, nodes=nodes), scene.queued, scene.buffered, scene.spot_to_spot)


def _spared(state: StateNode) -> StateNode:
    assert state.node is not None, "a candidate has a node"
    return replace(state, node=replace(state.node, status=replace(state.node.status, allocatable={})))


def _full(state: StateNode, beside: str) -> StateNode:
    assert state.node is not None, "a planned node is a Node once it is there"
    name = f"{state.node.name} for {beside}"
    meta = replace(state.node.metadata, name=name, labels={**state.node.labels, labels.HOSTNAME: name})
    spec = replace(state.node.spec, provider_id=name)
    return replace(
        state,
        node=replace(state.node, metadata=meta, spec=spec, status=replace(state.node.status, allocatable={})),
    )
