"""Difference: one decision of theirs beside ours in the same Situation, with dollars and the first reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from math import isfinite

from dovetail.api import labels
from dovetail.api.meta import Record
from dovetail.scheduling.model.plan import PlannedNode

__all__ = [
    "Difference",
    "DifferenceKind",
    "DifferenceReason",
    "DifferenceSums",
    "NodeShape",
    "describe_shapes",
    "format_price",
    "name_planned",
    "sum_differences",
]

CENT_TENTH = 0.0005
"""Dollars an hour below which two prices are the same."""


class DifferenceKind(StrEnum):
    """What differed: what was bought for waiting pods, a node that went, or one that stayed."""

    BOUGHT = "bought"
    WENT = "went"
    STAYED = "stayed"


class DifferenceReason(StrEnum):
    """The first reason for which two decisions part. Add freely, never rename: programs read these."""

    SPOT = "spot"
    TYPES = "other types allowed"
    PACKING = "packing"
    LAUNCH = "launched otherwise"
    BUDGET = "budget"
    KNOB = "knob"
    RULE = "rule"
    METHOD = "method unknown to the other"
    TIMING = "timing"
    CONSOLIDATION = "consolidation"


class NodeShape(Record, frozen=True):
    """So many nodes of a type, bought in one way, and what one of them costs an hour."""

    count: int
    instance_type: str
    capacity_type: str = ""
    price: float = 0.0

    def __str__(self) -> str:
        kind = self.instance_type or "as the template has it"
        return f"{self.count} × {kind} {self.capacity_type}".rstrip()


class Difference(Record, frozen=True):
    """Two decisions in one Situation that part.

    `rate` is what ours costs less an hour, negative where it costs more, and `dollars` what that came to
    while it lasted: an upper mark, as if each had been done alone. `about` names the nodes, or NodeClaims. Of
    a purchase, `attributed_by` says how its pods are known: by their autoscaler's event, or by the binding.
    `their_reason` and `our_reason` are what each side says of its own decision; `why` is where the two part.
    `estimated` is set where a price stands for one that nobody knows.
    """

    kind: DifferenceKind
    at: datetime
    reason: DifferenceReason
    why: str
    theirs: str
    ours: str
    pool: str = ""
    about: tuple[str, ...] = ()
    pods: int = 0
    their_price: float = 0.0
    our_price: float = 0.0
    rate: float = 0.0
    hours: float = 0.0
    dollars: float = 0.0
    until: datetime | None = None
    ended: str = ""
    attributed_by: str = ""
    their_reason: str = ""
    our_reason: str = ""
    estimated: bool = False

    @property
    def sentence(self) -> str:
        """Both sides and the reason, in a line."""
        return f"{self.theirs}; here {self.ours}: {self.why}"


class DifferenceSums(Record, frozen=True):
    """How many differences of a kind there were, and what they come to."""

    count: int = 0
    dollars: float = 0.0


def sum_differences(found: Iterable[Difference]) -> dict[str, DifferenceSums]:
    """Counts and dollars saved by kind; purchases that part over spot or on-demand stand by themselves."""
    counts, dollars = Counter[str](), dict[str, float]()
    for each in found:
        kind = each.kind.value
        if each.kind is DifferenceKind.BOUGHT and each.reason is DifferenceReason.SPOT:
            kind = DifferenceReason.SPOT.value
        counts[kind] += 1
        dollars[kind] = dollars.get(kind, 0.0) + each.dollars
    return {kind: DifferenceSums(count=counts[kind], dollars=dollars[kind]) for kind in sorted(counts)}


def format_price(dollars: float, estimated: bool) -> str:
    """Dollars an hour, marked where they stand for a price that nobody knows."""
    return f"{'~' if estimated else ''}${dollars:.4f}/h"


def describe_shapes(shapes: Sequence[NodeShape]) -> str:
    """Nodes as a person would say them: the most of a kind first."""
    return " + ".join(map(str, shapes)) if shapes else "nothing"


def group_shapes(nodes: Iterable[tuple[str, str, float]]) -> tuple[NodeShape, ...]:
    """Nodes by type, capacity type and price."""
    counted = Counter(nodes)
    ordered = sorted(counted.items(), key=lambda each: (-each[1], each[0]))
    return tuple(
        NodeShape(count=count, instance_type=kind, capacity_type=way, price=price)
        for (kind, way, price), count in ordered
    )


def name_planned(nodes: Iterable[PlannedNode]) -> tuple[NodeShape, ...]:
    """Planned nodes by what each is expected to be."""
    return group_shapes(
        (node.instance_type, node.capacity_type, node.price if isfinite(node.price) else 0.0)
        for node in nodes
    )


def list_ways(shapes: Iterable[NodeShape]) -> Counter[str]:
    """How many nodes are spot, and how many are not."""
    found = Counter[str]()
    for shape in shapes:
        found["spot" if shape.capacity_type == labels.SPOT else "other"] += shape.count
    return found
