"""What faults cost: machines nobody owns, machines launched, and the time until all is well again.

A story that ends well may still have been a dear one: another controller mends what the first one broke,
minutes later. So every step is looked at, and what it came to is held to a budget.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

__all__ = ["Budget", "Costs", "Ledger", "Owner"]


@dataclass(frozen=True)
class Budget:
    """The most a story may cost."""

    leaked: float
    """Seconds of machines that no claim knows of, all together."""
    launches: int
    repair: float
    """Seconds from the end of all trouble until every pod runs and everything belongs together."""
    unheard: int = 0
    """Warnings of AWS after which nothing was done before the machine was taken."""


@dataclass
class Costs:
    """What a story has cost so far."""

    leaked: float = 0.0
    launches: int = 0
    repair: float = 0.0
    unheard: int = 0

    def excess(self, budget: Budget) -> str:
        """What is over budget, in words; empty when nothing is."""
        found = [
            f"{name} is {spent:.0f} where {most:.0f} is the budget"
            for name, spent, most in (
                ("instance-seconds leaked", self.leaked, budget.leaked),
                ("machines launched", float(self.launches), float(budget.launches)),
                ("seconds to repair", self.repair, budget.repair),
                ("warnings unheard", float(self.unheard), float(budget.unheard)),
            )
            if spent > most
        ]
        return "; ".join(found)


@dataclass(frozen=True)
class Owner:
    """A claim, as far as it owns a machine: by provider ID, or while it is launched, by name."""

    uid: str
    name: str
    provider_id: str


@dataclass
class Ledger:
    """Looks at machines and claims step by step, and keeps the costs."""

    costs: Costs = field(default_factory=Costs)
    _looked: float = 0.0
    _before: dict[str, Owner] = field(default_factory=dict)

    def look(
        self,
        now: float,
        running: Mapping[str, Collection[str]],
        owners: Collection[Owner],
        present: Collection[str],
    ) -> list[str]:
        """Count one step; the claims that were let go before their machines, each in words.

        `running` are machines that cost something, by provider ID, each with the names it was launched for;
        `present` are those the cloud still shows, running or on their way out.
        """
        passed, self._looked = now - self._looked, now
        known = {each.provider_id for each in owners if each.provider_id}
        launching = {each.name for each in owners if not each.provider_id}
        for provider_id, names in running.items():
            if provider_id not in known and launching.isdisjoint(names):
                self.costs.leaked += passed
        current = {each.uid: each for each in owners}
        released = [
            f"claim {each.name} went before its machine {each.provider_id}"
            for uid, each in self._before.items()
            if uid not in current and each.provider_id in present
        ]
        self._before = current
        return released
