"""What rules cost, for the dashboard: worked out by another process when somebody looks, and kept a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dovetail.controllers.rule_prices import price_all_rules
from dovetail.disruption.situation import Situation
from dovetail.errors import DovetailError
from dovetail.picture import PricedRules
from dovetail.ports import Clock, Compute

__all__ = ["RulePricer"]

# Prices this old are worked out again when somebody looks. Seconds.
OLD = 900.0
WORKING = "What rules cost is being worked out; this page comes by itself when it is."
NOTHING = "The cluster has not been looked at yet."


class RulePricer:
    """Prices the rules of the cluster that was last looked at, for whoever asks."""

    def __init__(self, clock: Clock, compute: Compute) -> None:
        self._clock = clock
        self._compute = compute
        self._situation: Situation | None = None
        self._announce: Callable[[], None] = lambda: None
        self._found = PricedRules()
        self._since: float | None = None
        self._work: asyncio.Task[None] | None = None

    def start(self, situation: Situation | None, announce: Callable[[], None]) -> None:
        """From now on pages ask; `announce` is called when there is something new to show."""
        self._situation, self._announce = situation, announce

    def note_situation(self, situation: Situation) -> None:
        """The cluster as it is now."""
        self._situation = situation

    def find_prices(self) -> PricedRules:
        """What is known; what is missing or old is worked out meanwhile."""
        if self._situation is None:
            return PricedRules(why=NOTHING)
        if self._work is None and self._is_old():
            self._work = asyncio.get_running_loop().create_task(self._price(self._situation))
        if self._since is None and not self._found.why:
            return PricedRules(why=WORKING)
        return self._found

    def _is_old(self) -> bool:
        changed = self._found.at != self._situation.snapshot.options.now if self._situation else False
        return self._since is None or (changed and self._clock.monotonic() - self._since >= OLD)

    async def _price(self, situation: Situation) -> None:
        try:
            prices = await self._compute(price_all_rules, situation)
            listed = tuple(each for each in prices if each.listed)
            self._found = PricedRules(listed, situation.snapshot.options.now)
        except DovetailError as error:
            self._found = PricedRules(why=f"What rules cost cannot be worked out now: {error}.")
        finally:
            self._work, self._since = None, self._clock.monotonic()
        self._announce()
