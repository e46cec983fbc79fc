"""What a cluster comes to when disruption does all that it would, one command after the other.

`plan --disruption` shows commands under way: budgets are used up by them, and what comes later is not seen.
Here each command is done before the next is looked for, so that budgets which only slow disruption down hold
nothing. Drift is left out: it replaces nodes for another reason than money.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.api.meta import Condition, ObjectMeta
from dovetail.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus
from dovetail.api.nodepool import NodePool
from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.command import Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.consolidation import choose_multi_node, choose_single_node
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
    done: list[Command] = []
    while (command := _find_command(inputs)) is not None:
        if len(done) == most or not _is_accepted(inputs, command):
            return SettledCluster(inputs, tuple(done), more=True)
        inputs = _complete_command(inputs, command, len(done))
        done.append(command)
        step(f"{len(done)} commands so far")
    return SettledCluster(inputs, tuple(done))


def _find_command(inputs: DisruptionInput) -> Command | None:
    """What the loop's next turn would start first, for money."""
    many = any(read_policy(pool).many for pool in inputs.pools.values())
    methods: tuple[Callable[[DisruptionInput], DisruptionChoice], ...] = (
        choose_empty_nodes,
        choose_multi_node,
        choose_single_node,
        *((choose_split,) if many else ()),
    )
    for ask in methods:
        found = ask(inputs).commands
        if found:
            return found[0]
    return None


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
