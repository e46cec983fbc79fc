"""NodeOverlay as admitted: karpenter.sh/v1alpha1."""

from __future__ import annotations

from typing import Any

from dovetail.api import labels
from dovetail.api.crds import patterns
from dovetail.api.crds.definition import AGE, READY, Column, Definition, Field, Rule, constrained, mounted
from dovetail.api.crds.parts import (
    CONDITION,
    CONDITIONS,
    CORE_ALLOWED,
    OVERLAY_AWS_ALLOWED,
    SELECTOR_REQUIREMENT,
    closed_domain_key,
    forbidden_key,
    needs_a_number,
    needs_values,
)
from dovetail.api.overlay import NodeOverlay

_REQUIREMENTS = "spec.requirements"
_CORE_RESOURCES = ("cpu", "memory", "ephemeral-storage", "pods")

FIELDS: dict[str, Field] = {
    "spec": constrained("Which instance types, and what to believe of them.", required=True),
    _REQUIREMENTS: constrained(
        "Which instance types are meant.", required=True, maxItems=100, listType="atomic"
    ),
    **mounted(f"{_REQUIREMENTS}[]", SELECTOR_REQUIREMENT),
    "spec.price": constrained("The price to use instead.", pattern=patterns.PRICE),
    "spec.priceAdjustment": constrained(
        "A signed amount or percentage to add to the price.", pattern=patterns.PRICE_ADJUSTMENT
    ),
    "spec.capacity": constrained("Extended resources the instance types also have."),
    "spec.weight": constrained("Overlays of greater weight win.", format="int32", minimum=1, maximum=10000),
    "status": constrained("Whether the overlay is in force."),
    "status.conditions": CONDITIONS,
    **mounted("status.conditions[]", CONDITION),
}


def _one_price(spec: Any, _: Any) -> bool:
    return not ("price" in spec and "priceAdjustment" in spec)


def _extended_only(capacity: Any, _: Any) -> bool:
    return not any(name in _CORE_RESOURCES for name in capacity)


RULES: tuple[Rule, ...] = (
    Rule(
        "NO-1",
        "spec",
        "price and priceAdjustment exclude each other",
        "!has(self.price) || !has(self.priceAdjustment)",
        _one_price,
    ),
    Rule(
        "NO-2",
        "spec.capacity",
        "cpu, memory, ephemeral-storage and pods cannot be overlaid",
        " && ".join(f"!('{name}' in self)" for name in _CORE_RESOURCES),
        _extended_only,
    ),
    needs_values("NO-3", "NotIn").under(_REQUIREMENTS),
    needs_values("NO-4", "In").under(_REQUIREMENTS),
    needs_a_number("NO-5").under(_REQUIREMENTS),
    closed_domain_key("NO-6", labels.KARPENTER, CORE_ALLOWED).under(f"{_REQUIREMENTS}[]"),
    forbidden_key("NO-7", labels.HOSTNAME).under(f"{_REQUIREMENTS}[]"),
    closed_domain_key("NO-8", labels.KARPENTER_AWS, OVERLAY_AWS_ALLOWED, "aws").under(f"{_REQUIREMENTS}[]"),
)

NODEOVERLAY = Definition(
    NodeOverlay,
    "A correction to what the provider says of its instance types.",
    FIELDS,
    RULES,
    (READY, AGE, Column("Weight", ".spec.weight", "integer", 1)),
    short_names=("overlays",),
)
