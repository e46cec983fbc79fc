"""commitment.others: what the rest of the account uses of Commitments that say `observe: Account`.

Instances are counted, since what AWS bills is told a day late. The account's commitments are applied to them
alone: other accounts and Fargate cannot be seen, for which `share` is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from dovetail.api.commitment import ACCOUNT, CLUSTER, Commitment
from dovetail.controllers.base import (
    SINGLETON,
    SOON,
    Backoff,
    Cache,
    Result,
    Trigger,
    requeue_after,
    retry_refusals,
)
from dovetail.errors import Conflict, Gone
from dovetail.ports import Clock, Kube
from dovetail.providers.aws.commitments import AccountUsage, CommitmentReader
from dovetail.providers.aws.pricing import PricingProvider
from dovetail.scheduling.commitment_terms import build_terms
from dovetail.scheduling.commitments import CommitmentUse, Ledger, UsageKind

__all__ = ["CommitmentObserver"]

EVERY: Final = 300.0


class CommitmentObserver:
    """Every five minutes: counts what the account runs beside this cluster, where a Commitment asks."""

    name = "commitment.others"
    singleton = True
    concurrency = 1
    backoff = Backoff(first=1.0, last=EVERY)

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        commitments: Cache[Commitment],
        reader: CommitmentReader,
        prices: PricingProvider,
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._commitments = commitments
        self._reader = reader
        self._prices = prices

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(Commitment, _wake_on_observe),)

    async def reconcile(self, key: str) -> Result:
        commitments = tuple(self._commitments)
        observed = [each for each in commitments if each.spec.observe == ACCOUNT]
        if not observed:
            return requeue_after(EVERY)
        with retry_refusals():
            usage = await self._reader.count_others()
        uses = self._apply_usage(commitments, usage, self._clock.now())
        try:
            for each in observed:
                use = uses.get(each.name)
                await self._write_others(each, f"{use.used:.4f}" if use is not None else "")
        except Conflict:
            return SOON  # somebody wrote meanwhile
        return requeue_after(EVERY)

    def _apply_usage(
        self, commitments: Iterable[Commitment], usage: Counter[AccountUsage], now: datetime
    ) -> dict[str, CommitmentUse]:
        """What the others alone would use of every whole commitment."""
        ledger = Ledger(build_terms(map(_take_whole, commitments), now))
        counts: Counter[UsageKind] = Counter()
        for (name, zone, windows), count in usage.items():
            price = self._prices.find_on_demand_price(name)
            if price is not None:
                counts[UsageKind(name, zone, price, windows)] += count
        return {use.name: use for use in ledger.apply_kinds(counts).uses}

    async def _write_others(self, commitment: Commitment, amount: str) -> None:
        if commitment.status.by_others == amount:
            return
        after = replace(commitment, status=replace(commitment.status, by_others=amount))
        try:
            await self._kube.patch(commitment, after, status=True, guarded=True)
        except Gone:
            return


def _take_whole(commitment: Commitment) -> Commitment:
    """The commitment as the account has it, whoever's share it is."""
    return replace(commitment, spec=replace(commitment.spec, share="100%", observe=CLUSTER))


def _wake_on_observe(before: Commitment | None, commitment: Commitment | None) -> Iterable[str]:
    """One that is to be observed from now on."""
    wanted = commitment is not None and commitment.spec.observe == ACCOUNT
    known = before is not None and before.spec.observe == ACCOUNT
    return (SINGLETON,) if wanted and not known else ()
