"""Drift: a node is no longer what its pool or its class asks for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from dovetail.api import conditions, labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.disruption.budgets import Allowance
from dovetail.disruption.candidates import Candidate
from dovetail.disruption.command import DRIFTED, Command
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.model.requirements import Requirements

__all__ = [
    "INSTANCE_TYPE_NOT_FOUND",
    "NODEPOOL_DRIFTED",
    "REQUIREMENTS_DRIFTED",
    "build_static_commands",
    "count_static_replacements",
    "find_pool_drift",
    "is_old_enough",
    "is_type_gone",
    "sort_by_drift",
]

NODEPOOL_DRIFTED = "NodePoolDrifted"
REQUIREMENTS_DRIFTED = "RequirementsDrifted"
INSTANCE_TYPE_NOT_FOUND = "InstanceTypeNotFound"
OLD_ENOUGH = timedelta(hours=1)


def find_pool_drift(pool: NodePool, claim: NodeClaim) -> str:
    """How the claim differs from its pool; empty when it does not."""
    if _has_hash_drifted(pool, claim):
        return NODEPOOL_DRIFTED
    return REQUIREMENTS_DRIFTED if _violates_requirements(pool, claim) else ""


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


def sort_by_drift(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The longest drifted first, those without pods to move before the others."""
    drifted = [
        c
        for c in candidates
        if c.state.claim is not None and conditions.is_true(c.state.claim, conditions.DRIFTED)
    ]

    def since(candidate: Candidate) -> tuple[bool, float, str]:
        claim = candidate.state.claim
        state = conditions.find_condition(claim, conditions.DRIFTED) if claim else None
        moment = state.last_transition_time if state else None
        return bool(candidate.pods), moment.timestamp() if moment else 0.0, candidate.name

    return sorted(drifted, key=since)


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
