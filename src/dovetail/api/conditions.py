"""The rules by which conditions change, and the names of the conditions.

Kinds with a root condition, Ready, compute it from a fixed set of dependents. Timeouts are measured from
transition times, so these change exactly when upstream's would: dependents begin Unknown at the object's
creation, any other condition begins now, and a time moves only when the status does.

Functions take an object and give back one with other conditions, or the very same object when nothing
changed. They read no clock: `now` is handed in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TypeVar

from msgspec.structs import replace

from dovetail.api import reasons
from dovetail.api.meta import Condition, ObjectMeta

__all__ = [
    "EC2_NODECLASS",
    "EC2_NODECLASS_WITHOUT_RESERVATIONS",
    "FALSE",
    "KWOK_NODECLASS",
    "NODECLAIM",
    "NODEOVERLAY",
    "NODEPOOL",
    "TRUE",
    "UNKNOWN",
    "ReadinessRules",
    "clear_condition",
    "find_condition",
    "is_false",
    "is_true",
    "is_unknown",
    "open_conditions",
    "set_condition",
    "set_false",
    "set_true",
    "set_unknown",
]

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"

# All kinds
READY: Final = "Ready"
VALIDATION_SUCCEEDED: Final = "ValidationSucceeded"
# NodePool
NODECLASS_READY: Final = "NodeClassReady"
NODE_REGISTRATION_HEALTHY: Final = "NodeRegistrationHealthy"
DRIFT_PAUSED: Final = "DriftPaused"
REPLACEMENTS_LOST: Final = "ReplacementsLost"
# NodeClaim
LAUNCHED: Final = "Launched"
REGISTERED: Final = "Registered"
INITIALIZED: Final = "Initialized"
CONSOLIDATABLE: Final = "Consolidatable"
DRIFTED: Final = "Drifted"
DISRUPTION_REASON: Final = "DisruptionReason"
DRAINED: Final = "Drained"
VOLUMES_DETACHED: Final = "VolumesDetached"
INSTANCE_TERMINATING: Final = "InstanceTerminating"
CONSISTENT_STATE_FOUND: Final = "ConsistentStateFound"
# EC2NodeClass
AMIS_READY: Final = "AMIsReady"
SUBNETS_READY: Final = "SubnetsReady"
SECURITY_GROUPS_READY: Final = "SecurityGroupsReady"
INSTANCE_PROFILE_READY: Final = "InstanceProfileReady"
PLACEMENT_GROUP_READY: Final = "PlacementGroupReady"
CAPACITY_RESERVATIONS_READY: Final = "CapacityReservationsReady"
# CapacityBuffer; it has no root condition
READY_FOR_PROVISIONING: Final = "ReadyForProvisioning"
PROVISIONING: Final = "Provisioning"
# Node and Pod
POD_SCHEDULED: Final = "PodScheduled"

AWAITING: Final = "object is awaiting reconciliation"
_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ReadinessRules:
    """What a kind's Ready condition is computed from. A kind without a root has no such computation."""

    dependents: tuple[str, ...] = ()
    root: str = READY

    def owns_condition(self, kind: str) -> bool:
        """Whether a condition exists from the object's creation on."""
        return kind == self.root or kind in self.dependents


NODEPOOL: Final = ReadinessRules((VALIDATION_SUCCEEDED, NODECLASS_READY))
NODECLAIM: Final = ReadinessRules((LAUNCHED, REGISTERED, INITIALIZED))
NODEOVERLAY: Final = ReadinessRules((VALIDATION_SUCCEEDED,))
KWOK_NODECLASS: Final = ReadinessRules()
EC2_NODECLASS_WITHOUT_RESERVATIONS: Final = ReadinessRules(
    (
        AMIS_READY,
        SUBNETS_READY,
        SECURITY_GROUPS_READY,
        INSTANCE_PROFILE_READY,
        PLACEMENT_GROUP_READY,
        VALIDATION_SUCCEEDED,
    )
)
EC2_NODECLASS: Final = ReadinessRules(
    (*EC2_NODECLASS_WITHOUT_RESERVATIONS.dependents, CAPACITY_RESERVATIONS_READY)
)
ROOTLESS: Final = ReadinessRules(root="")

_BY_KIND: Final = {
    "NodePool": NODEPOOL,
    "NodeClaim": NODECLAIM,
    "NodeOverlay": NODEOVERLAY,
    "KWOKNodeClass": KWOK_NODECLASS,
    "EC2NodeClass": EC2_NODECLASS,
}


class Conditioned(Protocol):
    """An object with conditions in its status."""

    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def status(self) -> Any: ...


C = TypeVar("C", bound=Conditioned)


def find_condition(thing: Conditioned, kind: str) -> Condition | None:
    """The condition of this type, if it is there."""
    listed: tuple[Condition, ...] = thing.status.conditions
    for each in listed:  # asked so often that a generator would be felt
        if each.type == kind:
            return each
    return None


def is_true(thing: Conditioned, kind: str) -> bool:
    return (found := find_condition(thing, kind)) is not None and found.status == TRUE


def is_false(thing: Conditioned, kind: str) -> bool:
    return (found := find_condition(thing, kind)) is not None and found.status == FALSE


def is_unknown(thing: Conditioned, kind: str) -> bool:
    """An absent condition is unknown too."""
    return (found := find_condition(thing, kind)) is None or found.status == UNKNOWN


def open_conditions(thing: C, now: datetime, rules: ReadinessRules | None = None) -> C:
    """The object with its root and all dependents, those that were missing Unknown since its creation."""
    rules = rules or find_readiness_rules(thing)
    for kind in (*rules.dependents, rules.root):
        # Setting a dependent computes the root, so only a kind without dependents has its root set here.
        if kind and find_condition(thing, kind) is None:
            awaiting = _build_condition(kind, UNKNOWN, reasons.AWAITING_RECONCILIATION, AWAITING)
            thing = _set_condition(thing, awaiting, now, rules)
    return thing


def set_true(
    thing: C,
    kind: str,
    now: datetime,
    reason: str = "",
    message: str = "",
    rules: ReadinessRules | None = None,
) -> C:
    """The condition holds; without a reason, its own name is the reason."""
    return set_condition(thing, _build_condition(kind, TRUE, reason or kind, message), now, rules)


def set_false(
    thing: C, kind: str, now: datetime, reason: str, message: str = "", rules: ReadinessRules | None = None
) -> C:
    """The condition does not hold."""
    return set_condition(thing, _build_condition(kind, FALSE, reason, message), now, rules)


def set_unknown(
    thing: C,
    kind: str,
    now: datetime,
    reason: str = reasons.AWAITING_RECONCILIATION,
    message: str = AWAITING,
    rules: ReadinessRules | None = None,
) -> C:
    """Nobody can say yet."""
    return set_condition(thing, _build_condition(kind, UNKNOWN, reason, message), now, rules)


def set_condition(thing: C, wanted: Condition, now: datetime, rules: ReadinessRules | None = None) -> C:
    """The object with this condition, its time and generation seen to, and the root computed anew."""
    rules = rules or find_readiness_rules(thing)
    return _set_condition(open_conditions(thing, now, rules), wanted, now, rules)


def _set_condition(thing: C, wanted: Condition, now: datetime, rules: ReadinessRules) -> C:
    old = find_condition(thing, wanted.type)
    new = replace(
        wanted,
        observed_generation=thing.metadata.generation,
        last_transition_time=_find_transition_time(thing, wanted, old, now, rules),
    )
    if new == old:
        return thing
    others = [c for c in thing.status.conditions if c.type != wanted.type]
    if thing.metadata.deletion_timestamp is not None:
        others = [replace(c, observed_generation=thing.metadata.generation) for c in others]
    changed = _with_conditions(thing, sorted([*others, new], key=lambda c: _stored_order(c, rules)))
    return changed if wanted.type == rules.root else _update_root(changed, now, rules)


def clear_condition(thing: C, kind: str, rules: ReadinessRules | None = None) -> C:
    """The object without this condition. The root and its dependents cannot be taken away."""
    rules = rules or find_readiness_rules(thing)
    if rules.owns_condition(kind):
        raise ValueError(f"clearing {kind}: a condition that readiness depends on is always there")
    if find_condition(thing, kind) is None:
        return thing
    left = (c for c in thing.status.conditions if c.type != kind)
    return _with_conditions(thing, sorted(left, key=lambda c: c.type))


def find_readiness_rules(thing: Conditioned) -> ReadinessRules:
    """The rules of the object's kind."""
    return _BY_KIND.get(type(thing).__name__, ROOTLESS)


def _build_condition(kind: str, status: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message)


def _find_transition_time(
    thing: Conditioned, wanted: Condition, old: Condition | None, now: datetime, rules: ReadinessRules
) -> datetime | None:
    if old is None:
        return thing.metadata.creation_timestamp if rules.owns_condition(wanted.type) else now
    return old.last_transition_time if old.status == wanted.status else now


def _stored_order(condition: Condition, rules: ReadinessRules) -> tuple[bool, datetime]:
    return condition.type == rules.root, condition.last_transition_time or _BEGINNING


def _update_root(thing: C, now: datetime, rules: ReadinessRules) -> C:
    """The object with its root computed from its dependents."""
    if not rules.root:
        return thing
    unhealthy = _list_unhealthy(thing, rules)
    if not unhealthy:
        return _set_condition(thing, _build_condition(rules.root, TRUE, rules.root, ""), now, rules)
    generation = thing.metadata.generation
    failed = any(c.status == FALSE and c.observed_generation == generation for c in unhealthy)
    status = FALSE if failed else UNKNOWN
    reason = reasons.UNHEALTHY_DEPENDENTS if failed else reasons.RECONCILING_DEPENDENTS
    message = ", ".join(f"{c.type}={c.status}" for c in unhealthy)
    return _set_condition(thing, _build_condition(rules.root, status, reason, message), now, rules)


def _list_unhealthy(thing: Conditioned, rules: ReadinessRules) -> list[Condition]:
    """Dependents that are not True at the current generation, the latest transition first."""
    unhealthy = (
        c
        for c in thing.status.conditions
        if c.type in rules.dependents
        and not (c.status == TRUE and c.observed_generation == thing.metadata.generation)
    )
    return sorted(unhealthy, key=lambda c: c.last_transition_time or _BEGINNING, reverse=True)


def _with_conditions(thing: C, conditions: Iterable[Condition]) -> C:
    status = replace(thing.status, conditions=tuple(conditions))
    changed: C = replace(thing, status=status)  # type: ignore[type-var]
    return changed
