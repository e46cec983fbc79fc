"""What disruption proposes: nodes to remove, and the nodes that replace them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dovetail.api import reasons
from dovetail.disruption.candidates import Candidate
from dovetail.scheduling.bill import sum_prices
from dovetail.scheduling.model.decision_cache import SentOnce
from dovetail.scheduling.model.plan import Plan, PlannedNode

__all__ = ["Command", "ConsolidationVerdict", "Method"]


@dataclass(frozen=True, slots=True)
class Method:
    """A disruption method, as metrics and events call it."""

    reason: str
    kind: str


EMPTY = Method(reasons.EMPTY, "empty")
DRIFTED = Method(reasons.DRIFTED, "")
MULTI = Method(reasons.UNDERUTILIZED, "multi")
SINGLE = Method(reasons.UNDERUTILIZED, "single")
MANY = Method(reasons.UNDERUTILIZED, "many")
REBALANCE = Method(reasons.UNDERUTILIZED, "rebalance")


@dataclass(frozen=True, slots=True)
class Command:
    """Nodes to remove, their replacements, and what it saves an hour. `plan` is where their pods would be."""

    method: Method
    candidates: tuple[Candidate, ...]
    replacements: tuple[PlannedNode, ...] = ()
    plan: Plan | None = None
    savings: float = 0.0

    @property
    def decision(self) -> str:
        if not self.candidates:
            return "no-op"
        return "replace" if self.replacements else "delete"

    @property
    def cost(self) -> float:
        """What the nodes to remove cost an hour."""
        return sum_prices(self.candidates)

    @property
    def evictions(self) -> int:
        return sum(len(candidate.pods) for candidate in self.candidates)

    @property
    def payback(self) -> float | None:
        """Hours until the saving has paid for running old and new side by side; None without one."""
        new = sum_prices(self.replacements)
        return new * OVERLAP_HOURS / self.savings if self.savings > 0 and self.replacements else None

    def __str__(self) -> str:
        return (
            self._format_nodes(", ".join(candidate.name for candidate in self.candidates))
            + self._format_replacements()
        )

    @property
    def sentence(self) -> str:
        """The command as `plan --disruption` says it: why, and what is done to which nodes."""
        return f"{self.method.reason}, {self}"

    @property
    def saving(self) -> str:
        """What it saves, as `plan --disruption` and `explain` say it."""
        return f"saves ${self.savings:.4f} an hour"

    @property
    def worth(self) -> str:
        """What it saves; of an exchange for several, also what that takes."""
        saved = f"savings: ${self.savings:.2f}"
        if self.method != MANY:
            return saved
        back = f", paid back in {self.payback * 60:.0f} min" if self.payback is not None else ""
        return f"{saved}, evictions: {self.evictions}{back}"

    def describe_for(self, candidate: Candidate) -> str:
        """The command as one of its nodes hears of it."""
        count = len(self.candidates)
        if count == 1:
            return str(self)
        return f"{self._format_nodes(candidate.name)} (part of {count}-node consolidation)"

    def _format_nodes(self, names: str) -> str:
        return f"{self.decision}: [{names}]"

    def _format_replacements(self) -> str:
        count = len(self.replacements)
        return f" -> [{count} replacement{'s' if count != 1 else ''}]" if count else ""


# A replacement runs beside the node it replaces for about this long before that one is gone.
OVERLAP_HOURS = 0.1


@dataclass(frozen=True, slots=True)
class ConsolidationVerdict(SentOnce):
    """What came of looking at some candidates: a command, or why there is none."""

    command: Command | None = None
    why: str = ""

    def __reduce__(self) -> tuple[type[ConsolidationVerdict], tuple[Command | None, str]]:
        # Thousands of them come from a worker at once; this is the shortest way to send one.
        return ConsolidationVerdict, (self.command, self.why)

    def with_candidate(self, candidate: Candidate) -> ConsolidationVerdict:
        """The verdict, which left out what it is about."""
        return (
            self
            if self.command is None
            else ConsolidationVerdict(replace(self.command, candidates=(candidate,)))
        )

    @property
    def brief(self) -> ConsolidationVerdict:
        """Without what whoever asked knows, or will ask for once more if it comes to that."""
        return (
            self
            if self.command is None
            else ConsolidationVerdict(replace(self.command, candidates=(), plan=None))
        )
