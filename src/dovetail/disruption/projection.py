"""Commands side by side: each sees the world in which those before it are done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.disruption.candidates import (
    Candidate,
)
from dovetail.disruption.command import Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.policy import format_moves, read_policy, read_recent_moves
from dovetail.disruption.simulation.base_state import ignores_other_pods
from dovetail.disruption.simulation.simulate import build_remaining_input
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.plan import NodeClaimOptions, PlannedNode
from dovetail.scheduling.model.snapshot import SnapshotPool, StateNode
from dovetail.scheduling.postprocess import apply_plan

__all__ = ["ProjectedInputs", "exclude_candidates", "project_commands"]


class ProjectedInputs:
    """The world as the next command must see it.

    Most commands only need to keep out of the way of the others, and see a world without the nodes these
    use: that is quick. A pod that counts others must see them all, where they will be.
    """

    def __init__(self, inputs: DisruptionInput) -> None:
        self._quick: DisruptionInput | None = inputs
        self._full: DisruptionInput | None = inputs
        self._to_add: list[Command] = []

    def find_input_for(self, candidate: Candidate) -> DisruptionInput | None:
        """The input for one more node to remove; None where nobody can tell what the others leave."""
        if self._quick is not None and all(map(ignores_other_pods, candidate.pods)):
            return self._quick
        while self._full is not None and self._to_add:
            self._full = _apply_command(self._full, self._to_add.pop(0))
        return self._full

    def add_command(self, command: Command) -> None:
        """This one will be done too."""
        self._to_add.append(command)
        self._quick = build_remaining_input(self._quick, command) if self._quick is not None else None


def _apply_command(inputs: DisruptionInput, command: Command) -> DisruptionInput | None:
    """The world with the command done, as the next one beside it must see it; None where none can tell.

    Its pods are where they will be, and count there; what was bought for them has no room for others,
    for it is not there yet.
    """
    plan, snapshot = command.plan, inputs.snapshot
    if plan is None or not snapshot.options.ignore_dra or any(node.reservations for node in plan.new_nodes):
        return None
    keys = {candidate.key for candidate in command.candidates}
    moved = tuple(pod for candidate in command.candidates for pod in candidate.pods)
    left = tuple(state for state in snapshot.nodes if views.read_provider_id(state) not in keys)
    done = apply_plan(replace(snapshot, nodes=left, moving=(*snapshot.moving, *moved)), plan)
    # Two commands plan nodes of the same names; the names of these must not be taken for those of the next.
    known = {views.read_name(state) for state in left}
    nodes = tuple(
        s if views.read_name(s) in known else _rename_full_node(s, command.candidates[0].name)
        for s in done.nodes
    )
    return inputs.with_snapshot(replace(done, nodes=nodes))


def exclude_candidates(inputs: DisruptionInput, candidates: Iterable[Candidate]) -> DisruptionInput:
    """The world in which these nodes have no room for the pods of others."""
    keys = {candidate.key for candidate in candidates}
    nodes = tuple(
        _clear_allocatable(s) if views.read_provider_id(s) in keys else s for s in inputs.snapshot.nodes
    )
    return inputs.with_snapshot(replace(inputs.snapshot, nodes=nodes))


def _clear_allocatable(state: StateNode) -> StateNode:
    assert state.node is not None, "a candidate has a node"
    return replace(state, node=replace(state.node, status=replace(state.node.status, allocatable={})))


def _rename_full_node(state: StateNode, beside: str) -> StateNode:
    assert state.node is not None, "a planned node is a Node once it is there"
    name = f"{state.node.name} for {beside}"
    meta = replace(state.node.metadata, name=name, labels={**state.node.labels, labels.HOSTNAME: name})
    spec = replace(state.node.spec, provider_id=name)
    return replace(
        state,
        node=replace(state.node, metadata=meta, spec=spec, status=replace(state.node.status, allocatable={})),
    )


def project_commands(inputs: DisruptionInput, commands: Sequence[Command]) -> DisruptionInput:
    """What the loop sees in its next turn, before anything has come up or gone."""
    candidates = [candidate for command in commands for candidate in command.candidates]
    keys = {candidate.key for candidate in candidates}
    wanted = {name for c in commands if c.plan for name, pods in c.plan.existing.items() if pods}
    nodes = tuple(
        replace(
            state,
            marked=state.marked or views.read_provider_id(state) in keys,
            nominated=_is_nominated(state, wanted),
        )
        for state in inputs.snapshot.nodes
    )
    snapshot = replace(
        inputs.snapshot,
        pools=tuple(_record_moves(inputs, pool, candidates) for pool in inputs.snapshot.pools),
        nodes=(*nodes, *_build_ordered_nodes(inputs, commands)),
        moving=(*inputs.snapshot.moving, *_list_moving_pods(inputs, candidates)),
    )
    return inputs.with_snapshot(snapshot).with_queued(frozenset(keys))


def _is_nominated(state: StateNode, wanted: set[str]) -> bool:
    return state.nominated or views.read_name(state) in wanted


def _list_moving_pods(inputs: DisruptionInput, candidates: Iterable[Candidate]) -> Iterable[Pod]:
    now = inputs.snapshot.options.now
    return (p for c in candidates for p in c.pods if inputs.limits.currently_reschedulable(p, now))


def _record_moves(
    inputs: DisruptionInput, pool: SnapshotPool, candidates: Iterable[Candidate]
) -> SnapshotPool:
    """The pool as it is noted that these went, if it has a rate to keep."""
    nodepool = pool.nodepool
    rate, now = read_policy(nodepool).rate, inputs.snapshot.options.now
    count = Counter(candidate.pool.name for candidate in candidates)[pool.name]
    if rate is None or not count:
        return pool
    moves = read_recent_moves(nodepool)
    moves[now] = moves.get(now, 0) + count
    annotations = {**nodepool.annotations, labels.RECENT: format_moves(moves, now, rate.per)}
    metadata = replace(nodepool.metadata, annotations=annotations)
    return replace(pool, nodepool=replace(nodepool, metadata=metadata))


def _build_ordered_nodes(inputs: DisruptionInput, commands: Sequence[Command]) -> Iterable[StateNode]:
    begun = len(inputs.snapshot.nodes)
    new = [node for command in commands for node in command.replacements]
    for number, node in enumerate(new):
        yield StateNode(
            claim=_build_claim(inputs, inputs.pools[node.pool], node, f"{node.pool}-new-{begun + number}")
        )


def _build_claim(inputs: DisruptionInput, pool: NodePool, node: PlannedNode, name: str) -> NodeClaim:
    """The order as it is once the machine was found, and before it has joined."""
    claim = node.build_claim(pool, NodeClaimOptions(flavour=inputs.snapshot.options.flavour))
    of = inputs.types[pool.name].get(node.instance_type)
    known = {
        labels.INSTANCE_TYPE: node.instance_type,
        labels.ZONE: node.zone,
        labels.CAPACITY_TYPE: node.capacity_type,
    }
    known = {key: value for key, value in known.items() if value}
    metadata = replace(
        claim.metadata,
        name=name,
        uid=name,
        labels={**claim.labels, **known},
        creation_timestamp=inputs.snapshot.options.now,
    )
    status = replace(
        claim.status,
        provider_id=f"planned://{name}",
        capacity=of.capacity if of else {},
        allocatable=of.allocatable() if of else {},
    )
    return replace(claim, metadata=metadata, status=status)
