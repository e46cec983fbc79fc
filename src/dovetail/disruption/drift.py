"""Drift: a node is no longer what its pool or its class asks for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from dovetail.api import conditions, labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.disruption.candidates import Candidate
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.requirements import Requirements

__all__ = ["INSTANCE_TYPE_NOT_FOUND", "NODEPOOL_DRIFTED", "REQUIREMENTS_DRIFTED", "drift_order", "pool_drift"]

NODEPOOL_DRIFTED = "NodePoolDrifted"
REQUIREMENTS_DRIFTED = "RequirementsDrifted"
INSTANCE_TYPE_NOT_FOUND = "InstanceTypeNotFound"
OLD_ENOUGH = timedelta(hours=1)


def pool_drift(pool: NodePool, claim: NodeClaim) -> str:
    """How the claim differs from its pool; empty when it does not."""
    if _static(pool, claim):
        return NODEPOOL_DRIFTED
    return REQUIREMENTS_DRIFTED if _outside(pool, claim) else ""


def _static(pool: NodePool, claim: NodeClaim) -> bool:
    keys = (labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION)
    theirs, ours = ([thing.annotations.get(key) for key in keys] for thing in (pool, claim))
    if None in theirs or None in ours or theirs[1] != ours[1]:
        return False
    return theirs[0] != ours[0]


def _outside(pool: NodePool, claim: NodeClaim) -> bool:
    wanted = Requirements.of(pool.spec.template.spec.requirements or ())
    for key in wanted:
        have, values = claim.labels.get(key), wanted[key]
        if have is None:
            if not values.negative:
                return True
        elif have not in values:
            return True
    return False


def type_gone(claim: NodeClaim, types: Sequence[InstanceType], now: datetime) -> bool:
    """An hour on, the machine's type can no longer be bought at all, available or not."""
    created = claim.metadata.creation_timestamp
    if created is None or now - created < OLD_ENOUGH:
        return False
    name = claim.labels.get(labels.INSTANCE_TYPE)
    found = next((each for each in types if each.name == name), None)
    return found is None or not any(_sold(offering.requirements, claim) for offering in found.offerings)


def _sold(requirements: Requirements, claim: NodeClaim) -> bool:
    """Whether an offering is the one the claim runs on. A reserved machine may become on-demand first."""
    own = dict(claim.labels)
    if own.get(labels.CAPACITY_TYPE) == labels.RESERVED:
        if not ({labels.RESERVED, labels.ON_DEMAND} & requirements[labels.CAPACITY_TYPE].names):
            return False
        own.pop(labels.CAPACITY_TYPE)
    return all(own[key] in requirements[key] for key in requirements if key in own)


def drift_order(going: Sequence[Candidate]) -> list[Candidate]:
    """The longest drifted first, those without pods to move before the others."""
    drifted = [
        c
        for c in going
        if c.state.claim is not None and conditions.is_true(c.state.claim, conditions.DRIFTED)
    ]

    def since(candidate: Candidate) -> tuple[bool, float, str]:
        claim = candidate.state.claim
        state = conditions.find(claim, conditions.DRIFTED) if claim else None
        moment = state.last_transition_time if state else None
        return bool(candidate.pods), moment.timestamp() if moment else 0.0, candidate.name

    return sorted(drifted, key=since)
