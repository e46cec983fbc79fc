"""The order of the disruption methods, and what they have in common.

emptiness ─► drift of static pools ─► drift ─► many for one ─► one at a time ─► many for several ─► rebalance

The first method with something to do wins. What each method decides is in its file in methods/.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from dovetail.api.bad_items import SetAside
from dovetail.disruption import policy
from dovetail.disruption.budgets import Allowance
from dovetail.disruption.candidates import QUIET, UNCONSOLIDATABLE, BlockedNode, Candidate
from dovetail.disruption.command import DRIFTED, EMPTY, MANY, MULTI, REBALANCE, SINGLE, Command, Method

__all__ = ["DisruptionChoice", "ShouldStop", "has_budget", "never_stop", "order_methods", "split_by_reason"]

ShouldStop = Callable[[], bool]
Run = TypeVar("Run")


def order_methods(
    *,
    empty: Run,
    static_drift: Run,
    drift: Run,
    multi_node: Run,
    single_node: Run,
    split: Run | None = None,
    rebalance: Run | None = None,
) -> tuple[tuple[Method, Run], ...]:
    """The methods in the order in which they are asked, each with how it is run; None leaves one out."""
    ordered = (
        (EMPTY, empty),
        (DRIFTED, static_drift),
        (DRIFTED, drift),
        (MULTI, multi_node),
        (SINGLE, single_node),
        (MANY, split),
        (REBALANCE, rebalance),
    )
    return tuple((method, run) for method, run in ordered if run is not None)


def never_stop() -> bool:
    """There is all the time in the world."""
    return False


@dataclass
class DisruptionChoice:
    """What one method found: commands, how many nodes it could choose from, and why the others are blocked.

    `proposed` are the replacements that were considered, `judged` the moves that were scored, and
    `unseen` the pools the search did not reach before its time was over.
    """

    allowance: Allowance
    commands: list[Command] = field(default_factory=list)
    eligible: int = 0
    blocked: list[BlockedNode] = field(default_factory=list)
    timed_out: bool = False
    proposed: list[Command] = field(default_factory=list)
    judged: list[policy.BalanceResult] = field(default_factory=list)
    unseen: frozenset[str] = frozenset()
    set_aside: tuple[SetAside, ...] = ()

    @property
    def constrained(self) -> bool:
        """A budget turned someone away: what was not found may be found once it allows more."""
        return self.allowance.constrained

    @property
    def settled(self) -> bool:
        """Nothing was found, and nothing will be until the world changes."""
        return not self.commands and not self.constrained and not self.timed_out


def split_by_reason(
    candidates: Sequence[Candidate], why_not: Callable[[Candidate], str | None]
) -> tuple[list[Candidate], list[BlockedNode]]:
    """Those a method may choose from, and those it says something about."""
    mine: list[Candidate] = []
    blocked: list[BlockedNode] = []
    for candidate in candidates:
        why = why_not(candidate)
        if why is None:
            mine.append(candidate)
        elif why:
            blocked.append(BlockedNode(candidate.state, why, UNCONSOLIDATABLE))
    return mine, blocked


def has_budget(candidate: Candidate, choice: DisruptionChoice) -> bool:
    """Whether its pool's budget has something left; it is not spent here, as one command is one node."""
    if choice.allowance.count_left(candidate.pool.name) > 0:
        return True
    choice.allowance.constrained = True
    _block_over_budget(candidate, choice)
    return False


def _block_over_budget(candidate: Candidate, choice: DisruptionChoice) -> None:
    blocked_reason, why = choice.allowance.explain_block(candidate.pool.name)
    choice.blocked.append(BlockedNode(candidate.state, why, QUIET, blocked_reason))
