"""What a command saves by the bill, where commitments are followed.

Prices say what a node costs by itself. What is saved by taking nodes away is what the bill comes to with them
minus what it comes to without: a commitment that becomes free pays for another node if there is one that
pays the list price, and for nobody otherwise. Then taking the node away saves nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.candidates import BlockedNode, Candidate
from dovetail.disruption.command import Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.policy import PolicyBlock
from dovetail.scheduling.bill import PriceList, find_usage
from dovetail.scheduling.commitments import CoveredUsage, Ledger, UsageKind
from dovetail.scheduling.committed_plan import find_planned_offering, pin_to_commitment
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.sunk_prices import CommitmentBook, find_offering_usage, find_paid_zones

__all__ = ["explain_sunk", "find_committed_block", "pin_sunk_node", "split_committed", "value_command"]

# Sums of prices that differ by less are the same.
DUST = 1e-9
_NOTE = "valued by the bill"
NOTHING_SAVED = "Can't replace with a cheaper node: by the bill it saves nothing"


class _FleetBook(CommitmentBook):
    """The book of the fleets that disruption looks at, in which sunk prices are what they are."""


@dataclass(frozen=True)
class _FleetValue:
    """The fleet of an input as commitments see it, without what is being removed already."""

    inputs: DisruptionInput

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.inputs.snapshot.commitments)

    @cached_property
    def usage(self) -> dict[UsageKind, float]:
        snapshot, queued = self.inputs.snapshot, self.inputs.queued
        staying = tuple(
            state
            for state in snapshot.nodes
            if not views.is_deleting(state) and views.read_provider_id(state) not in queued
        )
        book = self.inputs.cache.get_part(_FleetBook)
        return book.count_usage(replace(snapshot, nodes=staying), snapshot.commitments)

    @cached_property
    def covered(self) -> CoveredUsage:
        return self.ledger.apply_kinds(self.usage)

    @cached_property
    def prices(self) -> PriceList:
        return PriceList.from_snapshot(self.inputs.snapshot)

    def find_bought(self, candidate: Candidate) -> tuple[float, UsageKind | None]:
        """What a node costs by the price list, and what it is to commitments."""
        bought = self.prices.find_offering(candidate.pool.name, candidate.labels)
        if bought is None:
            return candidate.price, None
        name = candidate.labels.get(labels.INSTANCE_TYPE, "")
        return bought.listed_price, find_usage(name, bought, candidate.labels)

    def find_planned(self, node: PlannedNode) -> tuple[float, UsageKind | None]:
        """What a planned node is expected to cost by the price list, and what it is to commitments."""
        each = self.inputs.types.get(node.pool, {}).get(node.instance_type)
        bought = find_planned_offering(each, node)
        if each is None or bought is None:
            return node.price, None
        return bought.listed_price, find_offering_usage(each, bought)

    def compute_saving(self, candidates: Iterable[Candidate], nodes: Iterable[PlannedNode]) -> float:
        """Dollars an hour that the bill is less once the candidates are gone and the nodes are there."""
        usage, listed = dict(self.usage), 0.0
        changes = [(1.0, self.find_bought(each)) for each in candidates]
        changes += [(-1.0, self.find_planned(node)) for node in nodes]
        for sign, (price, kind) in changes:
            listed += sign * price
            if kind is not None:
                usage[kind] = usage.get(kind, 0.0) - sign
        return listed - (self.covered.saved - self.ledger.apply_kinds(usage).saved)

    def list_payers(self, candidates: Iterable[Candidate]) -> list[str]:
        """The commitments that pay for nodes like these now."""
        found: dict[str, None] = {}
        for candidate in candidates:
            _, kind = self.find_bought(candidate)
            if kind is not None:
                found |= dict.fromkeys(name for name, _ in self.covered.kinds.get(kind, ()))
        return list(found)


def _find_value(inputs: DisruptionInput) -> _FleetValue | None:
    """The fleet by the bill; None where commitments are not followed or there are none."""
    snapshot = inputs.snapshot
    if not snapshot.options.follow_commitments or not snapshot.commitments:
        return None
    found: _FleetValue | None = inputs.notes.get(_NOTE)
    if found is None:
        found = inputs.notes[_NOTE] = _FleetValue(inputs)
    return found


def value_command(inputs: DisruptionInput, command: Command) -> Command:
    """The command with what it saves by the bill, its replacements at list prices; else the very same.

    A replacement keeps no type that could cost more than is saved: a launch may go to any of them.
    """
    value = _find_value(inputs)
    if value is None:
        return command
    saved = value.compute_saving(command.candidates, command.replacements)
    nodes = tuple(
        _settle_node(value, node, saved / len(command.replacements)) for node in command.replacements
    )
    return dataclasses.replace(command, replacements=nodes, savings=saved)


def _settle_node(value: _FleetValue, node: PlannedNode, saved: float) -> PlannedNode:
    price, _ = value.find_planned(node)
    # One that a commitment pays for was pinned to types which it pays for; the others may cost what they do.
    if price == node.price and saved > DUST:
        prices = value.inputs.build_price_lookup(node)
        kept = tuple(
            name
            for name in node.instance_types
            if name == node.instance_type or prices(name).worst < price + saved
        )
        if kept != node.instance_types and not replace(node, instance_types=kept).ordered.too_few:
            node = replace(node, instance_types=kept)
    return node if price == node.price else replace(node, price=price)


def find_committed_block(inputs: DisruptionInput, command: Command) -> PolicyBlock | None:
    """Why a command is not made that saves nothing by the bill; None where it saves, or nobody follows it."""
    value = _find_value(inputs)
    if value is None or command.savings > DUST:
        return None
    return _explain_block(value, command.candidates, command.savings)


def _explain_block(value: _FleetValue, candidates: Sequence[Candidate], saved: float) -> PolicyBlock:
    payers = value.list_payers(candidates)
    if not payers:
        return PolicyBlock(BlockedReason.NO_CHEAPER, NOTHING_SAVED)
    amount = f"saves ${max(0.0, saved):.2f}" if saved > -0.005 else f"costs ${-saved:.2f}"
    return PolicyBlock(
        BlockedReason.COMMITTED,
        f"its hour is paid for by {' and '.join(payers)}; taking it away {amount}",
    )


def explain_sunk(inputs: DisruptionInput, candidate: Candidate) -> PolicyBlock | None:
    """Why a node for which nothing cheaper is found is blocked, if that is because it is paid for."""
    value = _find_value(inputs)
    if value is None or not value.list_payers((candidate,)):
        return None
    return _explain_block(value, (candidate,), 0.0)


def split_committed(
    inputs: DisruptionInput, candidates: Sequence[Candidate]
) -> tuple[list[Candidate], list[BlockedNode], float]:
    """Those of some empty nodes that the bill is less without, why others stay, and what is saved."""
    value = _find_value(inputs)
    kept: list[Candidate] = []
    blocked: list[BlockedNode] = []
    saved = 0.0
    for candidate in candidates:
        more = value.compute_saving((*kept, candidate), ()) if value is not None else saved + candidate.price
        if value is not None and more - saved <= DUST:
            block = _explain_block(value, (candidate,), more - saved)
            blocked.append(BlockedNode(candidate.state, block.why, blocked_reason=block.blocked_reason))
            continue
        kept.append(candidate)
        saved = more
    return kept, blocked, saved


def pin_sunk_node(inputs: DisruptionInput, node: PlannedNode) -> PlannedNode:
    """A planned node as an order that a commitment pays for, if it is expected to; else the very same."""
    each = inputs.types.get(node.pool, {}).get(node.instance_type)
    bought = find_planned_offering(each, node)
    if bought is None or bought.listed is None:
        return node
    paid = find_paid_zones(inputs.snapshot, node.pool, inputs.cache)
    return pin_to_commitment(node, inputs.types[node.pool], paid)
