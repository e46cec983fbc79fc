"""rules.prices: what the rules of the cluster cost, worked out from time to time; it decides nothing.

The work is done by a process of its own, so that no decision waits for it. When it is next due follows from
the clock alone: a leader that takes over waits for the same moment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime

from dovetail.api.core import PodDisruptionBudget
from dovetail.api.cron import parse_schedule
from dovetail.controllers.base import Backoff, Result, Trigger, requeue_after
from dovetail.controllers.context import ControllerContext
from dovetail.controllers.observing.series import GaugeSeries
from dovetail.disruption.pricing_rules import (
    PricedCluster,
    RuleKind,
    RulePrice,
    list_rules,
    price_rules,
    rank_prices,
)
from dovetail.disruption.situation import Situation
from dovetail.scheduling.bill import HOURS_A_MONTH

__all__ = ["RulePricesController", "price_all_rules"]

UNSYNCED = 1.0


def price_all_rules(situation: Situation) -> tuple[RulePrice, ...]:
    """What every rule of a cluster costs, for another process to work out."""
    return tuple(rank_prices(price_rules(PricedCluster(situation), list_rules(situation))))


class RulePricesController:
    """Prices all rules when it is time, and tells what they come to."""

    name = "rules.prices"
    concurrency = 1
    singleton = True
    backoff = Backoff(first=60.0, last=3600.0)
    triggers: tuple[Trigger, ...] = ()

    def __init__(
        self, context: ControllerContext, take_situation: Callable[[], Awaitable[Situation]]
    ) -> None:
        self._cluster = context.cluster
        self._clock = context.clock
        self._recorder = context.recorder
        self._compute = context.aside or context.compute
        self._schedule = parse_schedule(context.settings.rule_prices)
        self._from = context.settings.rule_prices_from
        self._take_situation = take_situation
        self._due: datetime | None = None
        # Dollars an hour by kind of price, once they were worked out.
        self._sums: dict[str, float] = {}
        self._dollars = GaugeSeries(
            "dovetail_rule_price_dollars",
            "Dollars an hour that rules cost, each by itself, added up by kind of price: held or shape.",
            ("kind",),
        )

    async def reconcile(self, key: str) -> Result:
        if not self._cluster.synced:
            return requeue_after(UNSYNCED)
        now = self._clock.now()
        if self._due is None:
            self._due = self._schedule.find_next(now)
        assert self._due is not None, "every schedule that can be set recurs"
        if now >= self._due:
            situation = await self._take_situation()
            prices = await self._compute(price_all_rules, situation)
            self._sums = _sum_by_kind(prices)
            self._tell_budgets(prices, situation.snapshot.budgets)
            self._due = self._schedule.find_next(self._clock.now())
            assert self._due is not None
        return requeue_after(self._due - self._clock.now())

    def _tell_budgets(self, prices: Sequence[RulePrice], budgets: Iterable[PodDisruptionBudget]) -> None:
        """An event on every PodDisruptionBudget that costs as much as is asked for."""
        known = {each.full_name: each for each in budgets}
        for price in prices:
            budget = known.get(price.rule.subject) if price.rule.kind is RuleKind.PDB else None
            if budget is not None and price.costs_now >= self._from:
                month = price.costs_now * HOURS_A_MONTH
                note = f"It costs ${price.costs_now:.2f} an hour (${month:,.0f} a month): {price.how}"
                self._recorder.publish_event(budget, "RuleIsDear", note, dedupe=(budget.uid, "RuleIsDear"))

    def report(self) -> None:
        """Count for whoever looks at the metrics; nothing before the first time."""
        for kind, dollars in self._sums.items():
            self._dollars.add({"kind": kind}, dollars)
        self._dollars.show_values()


def _sum_by_kind(prices: Iterable[RulePrice]) -> dict[str, float]:
    """Dollars an hour by kind of price; a rule that is the whole of others counts by its parts."""
    found: dict[str, float] = {}
    listed = tuple(prices)
    names = {each.rule.name for each in listed}
    for each in listed:
        if not any(part.name in names for part in each.rule.parts):
            found[str(each.kind)] = found.get(str(each.kind), 0.0) + each.costs_now
    return found
