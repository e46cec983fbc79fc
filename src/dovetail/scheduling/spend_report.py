"""SpendLimits side by side: what each allows now, what counts against it, and whom a plan holds for it."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.api.meta import Record
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.spend import compute_spend, sum_spend
from dovetail.scheduling.spend_caps import SpendCap

__all__ = ["SpendLine", "build_spend_report"]


class SpendLine(Record, frozen=True):
    """One SpendLimit at a moment. `held` are pods that wait for room in it, or would if it held any."""

    limit: str
    window: str
    warns: bool
    hourly: float | None
    spent: float
    in_flight: float
    nodes: int
    most_nodes: int | None
    held: tuple[str, ...] = ()
    # Why one of them waits.
    told: str = ""
    unpriced: tuple[str, ...] = ()
    problem: str = ""

    @property
    def share(self) -> float | None:
        """The part of its dollars an hour that is in use; None where it counts no dollars an hour."""
        if self.hourly is None:
            return None
        return (self.spent + self.in_flight) / self.hourly if self.hourly else 1.0


def build_spend_report(
    snapshot: Snapshot, caps: Sequence[SpendCap], plan: Plan, cache: DecisionCache | None = None
) -> tuple[SpendLine, ...]:
    """Every limit, by name."""
    spent = compute_spend(snapshot, DecisionCache() if cache is None else cache)
    found = []
    for cap in caps:
        used, held = sum_spend(cap, spent), plan.spend_held.get(cap.limit, ())
        found.append(
            SpendLine(
                limit=cap.limit,
                window=cap.window,
                warns=cap.warn,
                hourly=cap.hourly,
                spent=used.listed if cap.listed else used.effective,
                in_flight=used.listed_in_flight if cap.listed else used.effective_in_flight,
                nodes=used.nodes,
                most_nodes=cap.nodes,
                held=held,
                told=next((plan.deferred[name] for name in held if name in plan.deferred), ""),
                unpriced=tuple(sorted(used.unpriced)),
                problem=cap.problem,
            )
        )
    return tuple(found)
