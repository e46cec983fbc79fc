"""Empty nodes: all of them at once, as far as budgets allow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.api import conditions
from dovetail.api.nodepool import NodePool
from dovetail.disruption.bad_objects import report_bad_objects
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.budgets import OVER_BUDGET, Allowance, compute_allowances
from dovetail.disruption.candidates import (
    QUIET,
    BlockedNode,
    Candidate,
    DisruptionClass,
    find_candidates,
    sort_by_ratio,
)
from dovetail.disruption.choose import DisruptionChoice, split_by_reason
from dovetail.disruption.command import EMPTY, Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.simulation.simulate import simulate_scheduling
from dovetail.disruption.valuing import split_committed, value_command
from dovetail.scheduling.bill import sum_prices
from dovetail.settings.durations import parse_or_never

__all__ = [
    "OVER_BUDGET",
    "build_delete_command",
    "build_empty_command",
    "choose_empty_nodes",
    "explain_not_empty",
    "is_consolidation_disabled",
    "split_awaited",
]

AWAITED = "pending pods, or pods of a node that is being removed, will need it"


@report_bad_objects
def choose_empty_nodes(inputs: DisruptionInput) -> DisruptionChoice:
    """All empty nodes, as one command."""
    candidates, blocked = find_candidates(inputs, DisruptionClass.GRACEFUL)
    mine, more = split_by_reason(candidates, lambda candidate: explain_not_empty(inputs, candidate))
    allowance = compute_allowances(inputs, EMPTY.reason)
    free, awaited = split_awaited(inputs, mine)
    worth, committed, _ = split_committed(inputs, sort_by_ratio(free))
    command, turned_away = build_empty_command(worth, allowance)
    return DisruptionChoice(
        allowance,
        [value_command(inputs, command)] if command else [],
        len(mine),
        [*blocked, *more, *awaited, *committed, *turned_away],
    )


def build_empty_command(
    candidates: Iterable[Candidate], allowance: Allowance
) -> tuple[Command | None, list[BlockedNode]]:
    """One command for every empty node that may be removed, the best first, and why others are blocked."""
    kept: list[Candidate] = []
    blocked: list[BlockedNode] = []
    for candidate in sort_by_ratio(list(candidates)):
        if allowance.take(candidate.pool.name):
            kept.append(candidate)
        else:
            blocked_reason, why = allowance.explain_block(candidate.pool.name)
            blocked.append(BlockedNode(candidate.state, why, QUIET, blocked_reason))
    return (build_delete_command(kept) if kept else None), blocked


def split_awaited(
    inputs: DisruptionInput, mine: Sequence[Candidate], *, for_buffers: bool = True
) -> tuple[list[Candidate], list[BlockedNode]]:
    """Those that no pod without a node will need, nor one of a node on its way out; and those that one will.

    A node comes up empty: it must not be taken away before the pods it was bought for arrive. Pods of a
    capacity buffer never arrive, and which nodes have room for them is known only since the last pass. They
    keep a node from going for nothing (`for_buffers`), not from being replaced.
    """
    snapshot = inputs.snapshot
    if not mine or not (snapshot.moving or snapshot.pods or (for_buffers and snapshot.virtual)):
        return list(mine), []
    ignored = set() if for_buffers else {pod.full_name for pod in snapshot.virtual}
    plan = simulate_scheduling(inputs, (), consolidating=False).plan
    taken = {name for name, pods in plan.existing.items() if not ignored.issuperset(pods)}
    kept = [candidate for candidate in mine if candidate.name not in taken]
    return kept, [
        BlockedNode(c.state, AWAITED, QUIET, BlockedReason.AWAITED) for c in mine if c.name in taken
    ]


def build_delete_command(kept: Sequence[Candidate]) -> Command:
    """All of these at once, for nothing."""
    return Command(EMPTY, tuple(kept), savings=sum_prices(kept))


def explain_not_empty(inputs: DisruptionInput, candidate: Candidate) -> str | None:
    """Why it is not for emptiness: in words worth telling, in none, or (None) it is."""
    if candidate.pool.static:
        return ""
    if is_consolidation_disabled(candidate.pool):
        return f'NodePool "{candidate.pool.name}" has consolidation disabled'
    if candidate.name in inputs.buffered:
        return f'Node "{candidate.name}" has buffer pods'
    claim = candidate.state.claim
    assert claim is not None
    return None if candidate.empty and conditions.is_true(claim, conditions.CONSOLIDATABLE) else ""


def is_consolidation_disabled(pool: NodePool) -> bool:
    """`consolidateAfter: Never`; a pool that does not say consolidates at once."""
    text = pool.spec.disruption.consolidate_after
    return text is not None and parse_or_never(text) is None
