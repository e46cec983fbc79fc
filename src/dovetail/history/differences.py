"""The one-step differences of a recording: each decision of another autoscaler beside ours, look by look.

    looks ─► PurchaseTracker       what was bought for waiting pods, beside our plan
          ─► ConsolidationTracker  nodes that went by their choice, and nodes that stayed though ours would go

Each is what would differ if it alone had been done; together they are no total. The twin of play/shadowing
is the one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from msgspec.structs import replace

from dovetail.disruption.situation import Situation
from dovetail.history.bought import PurchaseTracker
from dovetail.history.consolidated import ConsolidationTracker
from dovetail.history.difference import Difference
from dovetail.history.paid import RunningPrices
from dovetail.history.recording.reader import RecordedLook
from dovetail.scheduling.model.decision_cache import DecisionCache

__all__ = ["DifferenceTracker", "decide_as_dovetail", "find_differences"]


def decide_as_dovetail(situation: Situation) -> Situation:
    """The same Situation, decided on with our planner."""
    options = situation.snapshot.options
    if not options.one_by_one:
        return situation
    return situation.with_snapshot(replace(situation.snapshot, options=replace(options, one_by_one=False)))


class DifferenceTracker:
    """Compares what a cluster's autoscaler does with what ours would, one look after another."""

    def __init__(self, decide_as: Callable[[Situation], Situation] = decide_as_dovetail) -> None:
        self._prices = RunningPrices()
        cache = DecisionCache()
        self.purchases = PurchaseTracker(self._prices, cache, decide_as)
        self.consolidations = ConsolidationTracker(self._prices, cache, decide_as)
        self._last: datetime | None = None

    def add_look(self, at: datetime, situation: Situation) -> None:
        """The cluster at a time."""
        self._prices.read_snapshot(situation.snapshot)
        self.purchases.add_look(at, situation)
        self.consolidations.add_look(at, situation, self.purchases.replacements)
        self._last = at

    def note_nomination(self, pod: str, claims: Iterable[str], at: datetime) -> None:
        """The autoscaler said at this time that the pod waits for one of these NodeClaims, by its event."""
        self.purchases.note_nomination(pod, claims, at)

    def skip_gap(self) -> None:
        """Nothing was watched since the last look: nothing is concluded from what differs at the next."""
        self.purchases.skip_gap()
        self.consolidations.skip_gap()

    def count_compared(self) -> int:
        """How many decisions were compared, equal ones included."""
        return self.purchases.compared + self.consolidations.agreed

    def list_differences(self, at: datetime | None = None) -> list[Difference]:
        """All differences so far, in order of time, as they stand at a time or at the last look."""
        now = at or self._last
        if now is None:
            return []
        found = [*self.purchases.list_differences(now), *self.consolidations.list_differences(now)]
        return sorted(found, key=lambda each: (each.at, each.kind, each.about))


def find_differences(
    looks: Iterable[RecordedLook], decide_as: Callable[[Situation], Situation] = decide_as_dovetail
) -> list[Difference]:
    """The differences of a whole recording that has no gaps."""
    tracker = DifferenceTracker(decide_as)
    for look in looks:
        tracker.add_look(look.at, look.situation)
    return tracker.list_differences()
