"""What EC2 sells and what it costs, asked for twice a day."""

from __future__ import annotations

from typing import Final

from dovetail.controllers.base import Backoff, Result, Rounds, after, insisting
from dovetail.providers.aws.pricing import Prices
from dovetail.providers.aws.types import InstanceTypes

__all__ = ["PriceRefresh", "TypeRefresh"]

EVERY: Final = 12 * 3600.0
# A price list that cannot be had is asked for every few minutes; until then the last prices hold.
BACKOFF: Final = Backoff(first=1.0, last=300.0)


class TypeRefresh(Rounds):
    """Instance types and the zones that sell them. They were asked for before anything ran."""

    name = "providers.instancetype"
    backoff = BACKOFF

    def __init__(self, types: InstanceTypes) -> None:
        self._types = types
        self._due = False

    async def reconcile(self, key: str) -> Result:
        if self._due:
            with insisting():
                await self._types.refresh()
        self._due = True
        return after(EVERY)


class PriceRefresh(Rounds):
    """On-demand and spot prices, the first time as soon as we run."""

    name = "providers.pricing"
    backoff = BACKOFF

    def __init__(self, prices: Prices) -> None:
        self._prices = prices

    async def reconcile(self, key: str) -> Result:
        with insisting():
            await self._prices.refresh()
        return after(EVERY)
