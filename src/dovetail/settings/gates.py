"""Feature gates: features that are not finished, or not wanted everywhere, switched one by one.

Read leniently, because one list is often shared by several versions: a name nobody knows is
ignored and remarked on, and a name left out keeps its default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Generic, TypeVar

from dovetail.settings.value_kinds import BOOLEANS, SettingKind


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The gates of the core, with the defaults of the released line."""

    node_repair: bool = False
    reserved_capacity: bool = True
    spot_to_spot_consolidation: bool = False
    node_overlay: bool = False
    static_capacity: bool = False
    capacity_buffer: bool = False


@dataclass(frozen=True, slots=True)
class AWSFeatureGates:
    """The gates of the AWS provider."""

    node_class_cel: bool = False


@dataclass(frozen=True, slots=True)
class FeatureGate:
    """One gate as it is written by people, and what it switches on."""

    name: str
    field: str
    stage: str
    since: str
    effect: str


GATES = (
    FeatureGate(
        "NodeRepair", "node_repair", "alpha", "1.1", "delete nodes that have been unhealthy for long"
    ),
    FeatureGate("ReservedCapacity", "reserved_capacity", "beta", "1.6", "use capacity reservations"),
    FeatureGate(
        "SpotToSpotConsolidation",
        "spot_to_spot_consolidation",
        "alpha",
        "0.34",
        "replace spot nodes with cheaper spot nodes",
    ),
    FeatureGate("NodeOverlay", "node_overlay", "alpha", "1.7", "apply NodeOverlays to prices and capacity"),
    FeatureGate(
        "StaticCapacity", "static_capacity", "alpha", "1.8", "keep pools with replicas at their size"
    ),
    FeatureGate(
        "CapacityBuffer", "capacity_buffer", "alpha", "1.13", "keep room for the pods of CapacityBuffers"
    ),
)
AWS_GATES = (
    FeatureGate(
        "NodeClassCEL", "node_class_cel", "alpha", "1.15", "expressions in the kubelet section of a class"
    ),
)
# Gates that once existed: what became of them.
REMOVED_GATES = {"Drift": "drift is always on; limit it with disruption budgets for the reason Drifted"}

G = TypeVar("G", FeatureGates, AWSFeatureGates)


@dataclass(frozen=True, slots=True)
class _GateFamily(Generic[G]):
    record: Callable[..., G]
    gates: tuple[FeatureGate, ...]

    def read_gates(self, text: str) -> G:
        known = {gate.name: gate.field for gate in self.gates}
        return self.record(**{known[name]: on for name, on in _parse_pairs(text) if name in known})

    def show_gates(self, value: G) -> str:
        on = {field.name: getattr(value, field.name) for field in fields(value)}
        return ", ".join(f"{gate.name}={str(on[gate.field]).lower()}" for gate in self.gates)

    def list_remarks(self, text: str) -> tuple[str, ...]:
        known = [gate.name for gate in self.gates]
        return tuple(_describe_unknown(name, known) for name, _ in _parse_pairs(text) if name not in known)


def _parse_pairs(text: str) -> list[tuple[str, bool]]:
    pairs = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in item.partition("="))
        if not equals or not name:
            raise ValueError(f'"{item}" has no name or no value')
        if value not in BOOLEANS:
            raise ValueError(f'{name} has "{value}"')
        pairs.append((name, BOOLEANS[value]))
    return pairs


def _describe_unknown(name: str, known: list[str]) -> str:
    if name in REMOVED_GATES:
        return f"the gate {name} was removed: {REMOVED_GATES[name]}"
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"known gates are {', '.join(known)}"
    return f"there is no gate {name}, so it is ignored; {hint}"


_CORE = _GateFamily(FeatureGates, GATES)
_AWS = _GateFamily(AWSFeatureGates, AWS_GATES)
_ALLOWED = "a list of name=true or name=false with commas between them"

FEATURE_GATES = SettingKind(
    _ALLOWED, _CORE.read_gates, _CORE.show_gates, blank=True, remarks=_CORE.list_remarks
)
AWS_FEATURE_GATES = SettingKind(
    _ALLOWED, _AWS.read_gates, _AWS.show_gates, blank=True, remarks=_AWS.list_remarks
)
