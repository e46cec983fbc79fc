"""What commitments pay for of a plan's new nodes, and the floor under what any plan adds to the bill.

The floor is that of list prices less all that commitments could still pay for, each at its lowest rate: what
is unused, and what runs at a higher rate now and would make room. Sunk hours are not counted as savings.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.api.meta import Record
from dovetail.scheduling.commitments import UsageLine
from dovetail.scheduling.committed_plan import find_planned_offering
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.sunk_prices import (
    CommitmentBook,
    find_offering_usage,
    index_offerings,
    list_usage_kinds,
)

__all__ = ["PlanCover", "cover_plan"]

_LAST = "\uffff"  # before a planned node's name: what runs is paid for first


class PlanCover(Record, frozen=True):
    """What is left to pay of planned nodes, in dollars an hour, and which commitments pay the rest."""

    # By the name of a node that is paid for in part or whole.
    left: Mapping[str, float] = {}
    covered_by: Mapping[str, str] = {}
    # What all new nodes add to the bill. It is no more than what is left of each, as what runs may be paid
    # for less than before.
    total: float = 0.0
    # What no plan for the same pods can add to the bill less than; 0 when nothing is proven.
    floor: float = 0.0

    def find_left(self, name: str, price: float) -> float:
        """What is left to pay of a node of this list price."""
        return self.left.get(name, price)


def cover_plan(snapshot: Snapshot, plan: Plan) -> PlanCover | None:
    """How commitments would be applied once the plan's nodes run beside the others; None without any."""
    if not snapshot.commitments:
        return None
    book = CommitmentBook()
    usage = book.count_usage(snapshot, snapshot.commitments)
    before = book.ledger.apply_kinds(usage).saved
    lines = [
        UsageLine(f"{kind.instance_type} {kind.zone} {number}", kind)
        for kind, count in usage.items()
        for number in range(round(count))
    ]
    types, prices = index_offerings(snapshot), dict[str, float]()
    for node in plan.new_nodes:
        each = types[node.pool].get(node.instance_type)
        offering = find_planned_offering(each, node)
        kind = find_offering_usage(each, offering) if each is not None and offering is not None else None
        if kind is not None:
            lines.append(UsageLine(_LAST + node.name, kind))
            prices[node.name] = kind.price
    covers, found = book.ledger.apply_nodes(lines)
    mine = {node.name: covers[_LAST + node.name] for node in plan.new_nodes if _LAST + node.name in covers}
    kinds = list_usage_kinds(snapshot.catalogs) | usage.keys()
    most = book.ledger.find_most_saved(kinds) - before
    return PlanCover(
        left={
            node.name: node.price - mine[node.name].share * prices[node.name]
            for node in plan.new_nodes
            if node.name in mine
        },
        covered_by={name: ",".join(cover.by) for name, cover in mine.items()},
        total=plan.price - (found.saved - before),
        floor=max(0.0, plan.bound - most),
    )
