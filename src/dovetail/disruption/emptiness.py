"""Empty nodes: all of them at once, as far as budgets go."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.api import conditions
from dovetail.api.nodepool import NodePool
from dovetail.disruption.allowance import Allowance
from dovetail.disruption.candidates import Candidate, Scene, Stays, by_ratio
from dovetail.disruption.command import EMPTY, Command
from dovetail.settings.durations import parse_or_never

__all__ = ["consolidation_disabled", "emptiness"]


def emptiness(
    scene: Scene, going: Iterable[Candidate], allowance: Allowance
) -> tuple[Command | None, list[Stays]]:
    """One command for every empty node that may go, and why the others stay."""
    kept: list[Candidate] = []
    staying: list[Stays] = []
    for candidate in by_ratio(list(going)):
        why = _why_not(scene, candidate)
        if why is None and not allowance.take(candidate.pool.name):
            why = "budget"
        if why is None:
            kept.append(candidate)
        elif why:
            staying.append(Stays(candidate.state, why))
    if not kept:
        return None, staying
    saved = sum(candidate.price for candidate in kept)
    return Command(EMPTY, tuple(kept), savings=saved), staying


def _why_not(scene: Scene, candidate: Candidate) -> str | None:
    """Why it is not for emptiness: in words worth telling, in none, or (None) it is."""
    if candidate.pool.static or not candidate.empty:
        return ""
    if consolidation_disabled(candidate.pool):
        return f'NodePool "{candidate.pool.name}" has consolidation disabled'
    if candidate.key in scene.buffered:
        return f'Node "{candidate.name}" has buffer pods'
    claim = candidate.state.claim
    assert claim is not None
    return None if conditions.is_true(claim, conditions.CONSOLIDATABLE) else ""


def consolidation_disabled(pool: NodePool) -> bool:
    """`consolidateAfter: Never`; a pool that does not say consolidates at once."""
    text = pool.spec.disruption.consolidate_after
    return text is not None and parse_or_never(text) is None
