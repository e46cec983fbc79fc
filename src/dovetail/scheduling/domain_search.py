"""Other domains: of several that the rules like equally, the cheapest now need not be so in the end.

The original takes any of them, so its plans differ from run to run. The exact placer takes the cheapest
each time. This search places the batch again with one choice made otherwise, keeps what is better and goes
on from there (a limited discrepancy search), for a number of runs that depends on the batch alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from dovetail.scheduling.exact import Run, plan_run
from dovetail.scheduling.outcome import plan_of
from dovetail.scheduling.places import Fit
from dovetail.scheduling.plan import Plan
from dovetail.scheduling.snapshot import Snapshot

__all__ = ["search_domains"]

MOST_RUNS = 24
_WORK = 1_500  # pods placed, over all runs

Choice = tuple[int, int]
"""Which domain was taken, of how many."""


class GuidedRun(Run):
    """A run that takes the given domains at its first choices, and the cheapest ones after that."""

    def __init__(self, snapshot: Snapshot, guide: Sequence[int] = ()) -> None:
        super().__init__(snapshot)
        self.guide = guide
        self.choices: list[Choice] = []

    def choose(self, fits: Sequence[Fit], price: Callable[[Fit], float]) -> Fit:
        """The domain the guide names, or else the cheapest."""
        at = len(self.choices)
        taken = self.guide[at] if at < len(self.guide) else fits.index(super().choose(fits, price))
        taken = min(taken, len(fits) - 1)
        self.choices.append((taken, len(fits)))
        return fits[taken]


def search_domains(snapshot: Snapshot, should_stop: Callable[[], bool] | None = None) -> Plan:
    """The exact placer's plan, or a better one found by choosing other domains than it chose."""
    first = GuidedRun(snapshot)
    plan = plan_run(first, None, should_stop)
    runs = 0 if first.timed_out else min(MOST_RUNS, _WORK // max(1, len(snapshot.pods)))
    best, tried = plan, set[tuple[int, ...]]()
    untried = _neighbours(first.choices, tried)
    for _ in range(runs):
        run = GuidedRun(snapshot, next(untried, ()))
        if not run.guide:
            break
        run.place_all(None, should_stop)
        found = plan_of(run)
        if not run.timed_out and _rank(found, plan) < _rank(best, plan):
            best, untried = found, _neighbours(run.choices, tried)
    return best if best is plan else replace(best, zones=plan.zones)


def _rank(plan: Plan, usual: Plan) -> tuple[int, bool, float]:
    """More pods placed; then those that are placed usually; then the cheaper."""
    left_out = plan.left_out
    return len(left_out), left_out != usual.left_out, round(plan.price, 9)


def _neighbours(choices: Sequence[Choice], tried: set[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """The same choices up to one that is made otherwise: each such start once."""
    made = tuple(taken for taken, _ in choices)
    for at, (taken, many) in enumerate(choices):
        for other in range(many):
            start = (*made[:at], other)
            if other != taken and start not in tried:
                tried.add(start)
                yield start
