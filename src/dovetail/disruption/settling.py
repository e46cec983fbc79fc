"""What a cluster comes to when disruption does all that it would, one command after the other.

`plan --disruption` shows commands under way: budgets are used up by them, and what comes later is not seen.
Here each command is done before the next is looked for, so that budgets which only slow disruption down hold
nothing. Drift is left out: it replaces nodes for another reason than money.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.api.meta import Condition, ObjectMeta
from dovetail.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus
from dovetail.api.nodepool import NodePool
from dovetail.disruption.budgets import compute_allowances
from dovetail.disruption.candidates import Candidate, DisruptionClass, evaluate_node
from dovetail.disruption.command import SINGLE, Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.consolidation import (
    choose_multi_node,
    judge_single_node,
    list_single_node_queue,
)
from dovetail.disruption.methods.emptiness import choose_empty_nodes, is_consolidation_disabled
from dovetail.disruption.methods.split import choose_split
from dovetail.disruption.policy import read_policy
from dovetail.disruption.simulation.simulate import build_snapshot_without
from dovetail.scheduling import verify
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.postprocess import apply_plan

__all__ = ["SettledCluster", "build_planned_cluster", "settle_disruption"]

# Commands after which it is called off; a fleet of thousands that was never consolidated takes some hundred.
MOST = 500
_REACHED = (conditions.LAUNCHED, conditions.REGISTERED, conditions.INITIALIZED)


@dataclass(frozen=True)
class SettledCluster:
    """A cluster after all its commands; `more` says that there were further ones."""

    inputs: DisruptionInput
    commands: tuple[Command, ...] = ()
    more: bool = False

    @property
    def snapshot(self) -> Snapshot:
        return self.inputs.snapshot


def settle_disruption(
    inputs: DisruptionInput, most: int = MOST, step: Callable[[str], None] = lambda text: None
) -> SettledCluster:
    """The cluster when disruption has nothing left to do; a plan that breaks a rule ends it early."""
    run = _SettlingRun(inputs, most, step)
    while run.do_round():
        pass
    return SettledCluster(run.inputs, tuple(run.done), run.stopped)


class _SettlingRun:
    """Commands done one after the other, in rounds: all of one method before any of the next.

    The loop begins with the first method after every command; to begin there after a whole sweep of single
    nodes finds the same nodes, and looks at each once and not once for every command.
    """

    def __init__(self, inputs: DisruptionInput, most: int, step: Callable[[str], None]) -> None:
        self.inputs = inputs
        self.done: list[Command] = []
        self.stopped = False
        self._most = most
        self._step = step

    def do_round(self) -> bool:
        """Whether a round of all methods did something, and another one may."""
        before = len(self.done)
        for choose in (choose_empty_nodes, choose_multi_node):
            while self._do_first(choose(self.inputs).commands):
                pass
        self._sweep_single_nodes()
        if len(self.done) == before and any(read_policy(pool).many for pool in self.inputs.pools.values()):
            self._do_first(choose_split(self.inputs).commands)
        return not self.stopped and len(self.done) > before

    def _sweep_single_nodes(self) -> None:
        for key in list_single_node_queue(self.inputs):
            if self.stopped:
                return
            inputs = self.inputs
            state = next((s for s in inputs.snapshot.nodes if views.read_provider_id(s) == key), None)
            found = None if state is None else evaluate_node(inputs, state, DisruptionClass.GRACEFUL)
            if isinstance(found, Candidate) and _has_room(inputs, found):
                command, _ = judge_single_node(inputs, found)
                self._do_first([command] if command is not None else [])

    def _do_first(self, commands: Sequence[Command]) -> bool:
        """Whether there was a command, and it is done."""
        if not commands or self.stopped:
            return False
        if len(self.done) == self._most or not _is_accepted(self.inputs, commands[0]):
            self.stopped = True
            return False
        self.inputs = _complete_command(self.inputs, commands[0], len(self.done))
        self.done.append(commands[0])
        self._step(f"{len(self.done)} commands so far")
        return True


def _has_room(inputs: DisruptionInput, candidate: Candidate) -> bool:
    return compute_allowances(inputs, SINGLE.reason).count_left(candidate.pool.name) > 0


def _is_accepted(inputs: DisruptionInput, command: Command) -> bool:
    """Whether the plan of a command keeps every rule; without a plan no pod moves."""
    if command.plan is None:
        return not any(candidate.pods for candidate in command.candidates)
    without = build_snapshot_without(inputs, command.candidates, consolidating=False)
    return not verify.verify_plan(without, command.plan, inputs.cache)


def _complete_command(inputs: DisruptionInput, command: Command, number: int) -> DisruptionInput:
    """The cluster with the command done: its nodes are gone, and its pods run where its plan says."""
    keys = {candidate.key for candidate in command.candidates}
    moved = tuple(pod for candidate in command.candidates for pod in candidate.pods)
    snapshot = inputs.snapshot
    left = tuple(state for state in snapshot.nodes if views.read_provider_id(state) not in keys)
    plan = replace(command.plan or Plan(), new_nodes=command.replacements)
    before = replace(snapshot, nodes=left, moving=(*snapshot.moving, *moved))
    return inputs.with_snapshot(build_planned_cluster(before, plan, f"settled-{number}"))


def build_planned_cluster(snapshot: Snapshot, plan: Plan, prefix: str) -> Snapshot:
    """The cluster once the plan is done: its nodes are up, ordered by NodeClaims, and on the bill."""
    new = tuple(replace(node, name=f"{prefix}-{number}") for number, node in enumerate(plan.new_nodes))
    done = apply_plan(snapshot, replace(plan, new_nodes=new))
    pools = {pool.name: pool.nodepool for pool in snapshot.pools}
    owner = {node.name: pools[node.pool] for node in new}
    nodes = tuple(
        _add_claim(state, owner[views.read_name(state)]) if views.read_name(state) in owner else state
        for state in done.nodes
    )
    return replace(done, nodes=nodes, virtual=snapshot.virtual)


def _add_claim(state: StateNode, pool: NodePool) -> StateNode:
    """A planned node as it is when it has been up for long enough to be consolidated."""
    node = state.node
    assert node is not None, "a planned node is a Node once it is there"
    up = {labels.REGISTERED: labels.TRUE, labels.INITIALIZED: labels.TRUE}
    known = {**node.labels, **up}
    reached = _REACHED if is_consolidation_disabled(pool) else (*_REACHED, conditions.CONSOLIDATABLE)
    template = pool.spec.template.spec
    claim = NodeClaim(
        metadata=ObjectMeta(name=node.name, uid=node.name, labels=known, annotations=_copy_hashes(pool)),
        spec=NodeClaimSpec(node_class_ref=template.node_class_ref, taints=template.taints),
        status=NodeClaimStatus(
            node_name=node.name,
            provider_id=node.name,
            capacity=node.status.capacity,
            allocatable=node.status.allocatable,
            conditions=tuple(Condition(type=each, status=conditions.TRUE) for each in reached),
        ),
    )
    ready = Condition(type="Ready", status=conditions.TRUE)
    status = replace(node.status, conditions=(ready,))
    made = replace(node, metadata=replace(node.metadata, labels=known), status=status)
    return replace(state, node=made, claim=claim)


def _copy_hashes(pool: NodePool) -> Mapping[str, str]:
    keys: Iterable[str] = (labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION)
    return {key: pool.annotations[key] for key in keys if key in pool.annotations}
