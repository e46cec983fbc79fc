"""Drift: a node is no longer what its pool or its class asks for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from dovetail.api import labels, reasons
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.disruption.bad_objects import report_bad_objects
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.budgets import Allowance, compute_allowances
from dovetail.disruption.candidates import BlockedNode, Candidate, DisruptionClass, find_candidates
from dovetail.disruption.choose import DisruptionChoice, ShouldStop, has_budget, never_stop
from dovetail.disruption.command import DRIFTED, Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.drift_waves import limit_drift, sort_by_drift
from dovetail.disruption.methods.emptiness import split_awaited
from dovetail.disruption.projection import ProjectedInputs, exclude_candidates
from dovetail.disruption.simulation.simulate import simulate_scheduling
from dovetail.disruption.spend_hold import DriftSpend
from dovetail.scheduling.bill import sum_prices
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.model.requirements import Requirements

__all__ = [
    "build_static_commands",
    "choose_drift",
    "choose_static_drift",
    "count_static_replacements",
    "find_pool_drift",
    "is_old_enough",
    "is_type_gone",
]

OLD_ENOUGH = timedelta(hours=1)


def find_pool_drift(pool: NodePool, claim: NodeClaim) -> str:
    """How the claim differs from its pool; empty when it does not."""
    if _has_hash_drifted(pool, claim):
        return reasons.NODEPOOL_DRIFTED
    return reasons.REQUIREMENTS_DRIFTED if _violates_requirements(pool, claim) else ""


def _has_hash_drifted(pool: NodePool, claim: NodeClaim) -> bool:
    keys = (labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION)
    theirs, ours = ([thing.annotations.get(key) for key in keys] for thing in (pool, claim))
    if None in theirs or None in ours or theirs[1] != ours[1]:
        return False
    return theirs[0] != ours[0]


def _violates_requirements(pool: NodePool, claim: NodeClaim) -> bool:
    wanted = Requirements.from_expressions(pool.spec.template.spec.requirements or ())
    for key in wanted:
        have, values = claim.labels.get(key), wanted[key]
        if have is None:
            if not values.negative:
                return True
        elif have not in values:
            return True
    return False


def is_old_enough(claim: NodeClaim, now: datetime) -> bool:
    """Whether its type is worth checking: in its first hour a machine's type was just bought."""
    created = claim.metadata.creation_timestamp
    return created is not None and now - created > OLD_ENOUGH


def is_type_gone(claim: NodeClaim, types: Sequence[InstanceType]) -> bool:
    """The machine's type can no longer be bought at all, available or not."""
    name = claim.labels.get(labels.INSTANCE_TYPE)
    found = next((each for each in types if each.name == name), None)
    return found is None or not any(
        _is_same_offering(offering.requirements, claim) for offering in found.offerings
    )


def _is_same_offering(requirements: Requirements, claim: NodeClaim) -> bool:
    """Whether an offering is the one the claim runs on. A reserved machine may become on-demand first."""
    own = dict(claim.labels)
    if own.get(labels.CAPACITY_TYPE) == labels.RESERVED:
        if not ({labels.RESERVED, labels.ON_DEMAND} & requirements[labels.CAPACITY_TYPE].names):
            return False
        # Which reservation it is in may change; only what every provider knows is compared.
        own = {key: own[key] for key in own if key in labels.WELL_KNOWN and key != labels.CAPACITY_TYPE}
    return all(own[key] in requirements[key] for key in requirements if key in own)


@report_bad_objects
def choose_static_drift(inputs: DisruptionInput) -> DisruptionChoice:
    """Drifted nodes of static pools, one for one, as many as budgets allow; where pods go is not asked."""
    candidates, blocked = find_candidates(inputs, DisruptionClass.EVENTUAL)
    order = [candidate for candidate in sort_by_drift(candidates) if candidate.pool.static]
    choice = DisruptionChoice(
        compute_allowances(inputs, DRIFTED.reason), eligible=len(order), blocked=blocked
    )
    limit_drift(inputs, choice.allowance)
    spend = DriftSpend(inputs)
    for candidate in order:
        template = _build_from_template(candidate.pool)
        found = spend.fit_replacements(candidate, (template,)) if inputs.spend_caps else ()
        if isinstance(found, BlockedNode):
            choice.blocked.append(found)
    held = {each.name for each in choice.blocked}
    choice.commands = build_static_commands(
        [candidate for candidate in order if candidate.name not in held], choice.allowance
    )
    return choice


@report_bad_objects
def choose_drift(
    inputs: DisruptionInput, at_once: int | None = 1, should_stop: ShouldStop = never_stop
) -> DisruptionChoice:
    """The longest drifted nodes that may be removed, each with as many replacements as its pods need.

    Without a number, all that budgets let go now. Each sees those before it as done, and no pod moves to a
    node that goes in the same turn, unless there is nowhere else.
    """
    candidates, blocked = find_candidates(inputs, DisruptionClass.EVENTUAL)
    order = [candidate for candidate in sort_by_drift(candidates) if not candidate.pool.static]
    empty = [candidate for candidate in order if not candidate.pods]
    _, awaited = split_awaited(inputs, empty, for_buffers=False)
    wanted = {each.name for each in awaited}
    order, blocked = [each for each in order if each.name not in wanted], [*blocked, *awaited]
    if at_once is not None:
        return _choose_wave(inputs, inputs, order, blocked, at_once, should_stop)
    due = _list_due(inputs, order)
    together = _choose_wave(
        inputs, exclude_candidates(inputs, due) if due else inputs, order, blocked, None, should_stop
    )
    if len(together.commands) == len(due) or should_stop():
        return together
    choice = _choose_wave(inputs, inputs, order, blocked, None, should_stop)
    return choice if len(choice.commands) > len(together.commands) else together


def _list_due(inputs: DisruptionInput, order: Sequence[Candidate]) -> list[Candidate]:
    """The drifted nodes that budgets let be removed now."""
    allowance = _compute_drift_allowance(inputs)
    return [candidate for candidate in order if allowance.take(candidate.pool.name)]


def _compute_drift_allowance(inputs: DisruptionInput) -> Allowance:
    allowance = compute_allowances(inputs, DRIFTED.reason)
    limit_drift(inputs, allowance)
    return allowance


def _choose_wave(
    inputs: DisruptionInput,
    seen: DisruptionInput,
    order: Sequence[Candidate],
    blocked: Sequence[BlockedNode],
    at_once: int | None,
    should_stop: ShouldStop,
) -> DisruptionChoice:
    """Commands for the first of these, as many as budgets allow, in a cluster seen so."""
    choice = DisruptionChoice(_compute_drift_allowance(inputs), eligible=len(order), blocked=[*blocked])
    worlds, spend = ProjectedInputs(seen), DriftSpend(inputs)
    wanted: set[str] = set()  # nodes that pods of an earlier command go to
    for candidate in order:
        if len(choice.commands) == at_once or (choice.commands and should_stop()):
            break
        if candidate.name in wanted or not has_budget(candidate, choice):
            continue
        world = worlds.find_input_for(candidate)
        if world is None:
            break
        outcome = simulate_scheduling(world, (candidate,), consolidating=False)
        if outcome.problem:
            if not choice.commands:
                choice.blocked.append(
                    BlockedNode(candidate.state, outcome.problem, blocked_reason=BlockedReason.NO_CHEAPER)
                )
            continue
        own = {pod.full_name for pod in candidate.pods}
        # What pods of others need is bought for them by the provisioner, and not a second time here.
        new = tuple(node for node in outcome.plan.new_nodes if not own.isdisjoint(node.pods))
        fitting = spend.fit_replacements(candidate, new)
        if isinstance(fitting, BlockedNode):
            choice.blocked.append(fitting)
            continue
        saved = candidate.price - sum_prices(new)
        choice.commands.append(Command(DRIFTED, (candidate,), fitting, outcome.plan, saved))
        choice.allowance.take(candidate.pool.name)
        wanted |= {name for name, pods in outcome.plan.existing.items() if pods}
        worlds.add_command(choice.commands[-1])
    return choice


def build_static_commands(order: Sequence[Candidate], allowance: Allowance) -> list[Command]:
    """One command for each node a static NodePool's budget allows, its replacement as the template has it."""
    return [
        Command(DRIFTED, (candidate,), (_build_from_template(candidate.pool),))
        for candidate in order
        if allowance.take(candidate.pool.name)
    ]


def count_static_replacements(pool: NodePool, count: int, active: int, pending: int) -> int:
    """How many of these replacements to ask room for: none while the pool has nodes to lose anyway."""
    return 0 if active + pending > (pool.spec.replicas or 0) else count


def _build_from_template(pool: NodePool) -> PlannedNode:
    wanted = Requirements.from_expressions(pool.spec.template.spec.requirements or ())
    return PlannedNode(
        name="", pool=pool.name, requirements=wanted, instance_types=(), pods=(), requests={}, price=0.0
    )
