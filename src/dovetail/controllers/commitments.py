"""commitment.status: what Commitments pay for and what is lost of them, written to their status.

It decides nothing: the ledger that bills and purchases go by is applied to the cluster as it is, once a
minute. `Denied` is a provider's word, which only the provider's mirror says and takes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from dovetail.api import conditions
from dovetail.api.bad_items import reason_of
from dovetail.api.commitment import (
    ACCOUNT,
    CURRENT,
    FULL,
    PLANS,
    USD,
    Commitment,
    find_commitment_problems,
)
from dovetail.api.meta import Condition
from dovetail.api.nodepool import NodePool
from dovetail.api.spend_limit import BadSpendLimit, parse_dollars
from dovetail.controllers.base import SINGLETON, Backoff, Cache, Result, Trigger, requeue_after
from dovetail.controllers.context import ControllerContext
from dovetail.controllers.observing.series import GaugeSeries
from dovetail.errors import Conflict, DovetailError, Gone
from dovetail.scheduling.bill import Bill
from dovetail.scheduling.commitment_terms import ENDING, build_terms
from dovetail.scheduling.commitments import CommitmentUse, Ledger, is_still_open
from dovetail.scheduling.fleet_cost import bill_running_nodes
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.snapshot import Snapshot, build_pools_and_catalogs
from dovetail.scheduling.sunk_prices import list_usage_kinds

__all__ = ["DENIED", "USED", "CommitmentController"]

# Reason of Current=False where the cloud denies the actions that a Commitment is read by.
DENIED: Final = "Denied"
# Condition type: hardly anything of it is lost. Its time says since when something is.
USED: Final = "Used"
EVERY, UNSYNCED, PRICES_EVERY = 60.0, 1.0, 300.0
# So much of a commitment may go unused, and for so long, before anybody is told.
UNUSED_SHARE, UNUSED_FOR = 0.10, timedelta(days=1)
# The end of a commitment is told so long before, and again when nothing is bought because of it any more.
TOLD_BEFORE: Final = timedelta(days=14)
DAY = 86400.0
# So many commitments have series of their own unless all detail is asked for; the rest is one sum.
MOST_SERIES: Final = 4
REST: Final = "others"


class CommitmentController:
    """Says on every Commitment what this cluster has of it, uses of it and loses of it."""

    name = "commitment.status"
    singleton = True
    concurrency = 1
    backoff = Backoff(first=1.0, last=30.0)

    def __init__(self, context: ControllerContext, commitments: Cache[Commitment]) -> None:
        self._context = context
        self._commitments = commitments
        self._clock = context.clock
        self._offers: dict[str, tuple[NodePool, Sequence[InstanceType]]] = {}
        self._priced_at = -PRICES_EVERY
        self._bill = Bill()
        self._dollars = GaugeSeries(
            "dovetail_commitment_dollars",
            "Dollars an hour of a Commitment: this cluster's part, what nodes use of it, what the rest of "
            "the account uses, and what nothing uses.",
            ("commitment", "of"),
        )
        self._billed = GaugeSeries(
            "dovetail_bill_dollars",
            "Dollars an hour of all nodes: by the price list, left to pay after commitments, committed "
            "whatever runs, and committed and not used.",
            ("of",),
        )

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(Commitment, _wake_on_spec),)

    async def reconcile(self, key: str) -> Result:
        if not self._context.cluster.synced:
            return requeue_after(UNSYNCED)
        await self._learn_prices()
        commitments, now = tuple(self._commitments), self._clock.now()
        judged = {each.name: _judge_current(each, now) for each in commitments}
        snapshot = self._take_snapshot(judged.values(), now)
        self._bill = bill_running_nodes(snapshot)
        uses = {use.name: use for use in self._bill.commitments}
        opened = _list_open(snapshot, uses)
        for before in commitments:
            use = uses.get(before.name)
            after = _describe_use(judged[before.name], use)
            after = _judge_full(after, use, before.name in opened, now)
            after = _judge_used(after, use, now)
            await self._write_status(before, after, now)
        return requeue_after(EVERY)

    async def _learn_prices(self) -> None:
        """What NodePools may buy, and at which prices; those whose class is not ready have none yet."""
        context, now = self._context, self._clock.monotonic()
        stale = now - self._priced_at >= PRICES_EVERY
        pools = {pool.name: pool for pool in context.pools if context.ownership.owns_pool(pool)}
        for name, pool in pools.items():
            if stale or name not in self._offers:
                try:
                    self._offers[name] = pool, await context.cloud.list_instance_types(pool)
                except DovetailError:
                    continue
        self._offers = {name: each for name, each in self._offers.items() if name in pools}
        if stale:
            self._priced_at = now

    def _take_snapshot(self, commitments: Iterable[Commitment], now: datetime) -> Snapshot:
        """The nodes of the cluster with their prices and what is committed."""
        pools, catalogs = build_pools_and_catalogs(self._offers.values())
        nodes = tuple(tracked.state for tracked in self._context.cluster)
        terms = build_terms(commitments, now)
        return Snapshot(
            pools=pools, catalogs=catalogs, nodes=nodes, commitments=terms, options=self._context.options(now)
        )

    async def _write_status(self, before: Commitment, after: Commitment, now: datetime) -> None:
        if after.status != before.status:
            try:
                await self._context.kube.patch(before, after, status=True, guarded=True)
            except (Conflict, Gone):
                return  # somebody wrote meanwhile: the next look says it again
        self._tell_changes(before, after, now)

    # Events

    def _tell_changes(self, before: Commitment, after: Commitment, now: datetime) -> None:
        """Events for what is new: nothing is left of it, much of it is lost, or it ends."""
        if conditions.is_true(after, FULL) and conditions.is_false(before, FULL):
            note = f"Commitment {after.name} is used up: one more node pays the listed price"
            self._record_event(after, "CommitmentFull", note)
        used = conditions.find_condition(after, USED)
        if used is not None and used.status == conditions.FALSE and _has_lasted(used, now):
            amounts = f"${after.status.unused} of ${after.status.hourly} an hour"
            note = f"{amounts} of Commitment {after.name} has gone unused for a day"
            self._record_event(after, "CommitmentUnused", note, warning=True)
        ends = after.spec.ends
        if ends is not None and conditions.is_true(after, CURRENT) and ends - now <= TOLD_BEFORE:
            note = f"Commitment {after.name} ends on {ends:%Y-%m-%d %H:%M} UTC"
            stage = "soon" if ends - now > ENDING else "now"
            if stage == "now":
                note += "; from now on no node is bought because of it"
            self._record_event(after, "CommitmentEnding", note, warning=True, stage=stage)

    def _record_event(
        self, commitment: Commitment, reason: str, note: str, *, warning: bool = False, stage: str = ""
    ) -> None:
        """An event on the Commitment; of the same kind no more than one a day."""
        dedupe = (commitment.uid, reason, stage)
        self._context.recorder.publish_event(
            commitment, reason, note, warning=warning, dedupe=dedupe, window=DAY
        )

    # Metrics

    def report(self) -> None:
        """Count for whoever looks at the metrics."""
        every = self._context.settings.metrics_detail == "full"
        ranked = sorted(self._commitments, key=lambda each: (-_read_amount(each.status.hourly), each.name))
        for place, each in enumerate(ranked):
            name = each.name if every or place < MOST_SERIES else REST
            status = each.status
            amounts = {
                "hourly": status.hourly,
                "used": status.used,
                "others": status.by_others,
                "unused": status.unused,
            }
            for of, text in amounts.items():
                self._dollars.add({"commitment": name, "of": of}, _read_amount(text))
        bill = self._bill
        billed = {
            "listed": bill.listed,
            "effective": bill.total - bill.committed,
            "committed": bill.committed,
            "unused": bill.unused,
        }
        for of, amount in billed.items():
            self._billed.add({"of": of}, amount)
        self._dollars.show_values()
        self._billed.show_values()


def _wake_on_spec(before: Commitment | None, commitment: Commitment | None) -> Iterable[str]:
    same = before is not None and commitment is not None and before.spec == commitment.spec
    return () if same else (SINGLETON,)


def _judge_current(commitment: Commitment, now: datetime) -> Commitment:
    """Whether it is in force, can be read and is paid in dollars."""
    known = conditions.find_condition(commitment, CURRENT)
    if known is not None and known.reason == DENIED:
        return commitment
    spec = commitment.spec
    problem = next(find_commitment_problems(spec), None)
    if reason_of(commitment):
        said = conditions.FALSE, "Unreadable", reason_of(commitment)
    elif problem is not None:
        said = conditions.FALSE, "Unreadable", " ".join(problem)
    elif spec.currency != USD:
        said = conditions.FALSE, "Currency", f"it is paid in {spec.currency}; only dollars are counted"
    elif spec.starts is not None and now < spec.starts:
        said = conditions.FALSE, "NotStarted", f"it begins on {spec.starts:%Y-%m-%d %H:%M} UTC"
    elif spec.ends is not None and now >= spec.ends:
        said = conditions.FALSE, "Ended", f"it ended on {spec.ends:%Y-%m-%d %H:%M} UTC"
    elif _lacks_rates(commitment):
        told = "nobody says what instances cost under it, so that it pays for none; give spec.discount"
        said = conditions.TRUE, "NoRates", told
    else:
        said = conditions.TRUE, "Current", ""
    return _set_condition(commitment, CURRENT, said, now)


def _lacks_rates(commitment: Commitment) -> bool:
    spec = commitment.spec
    return spec.kind in PLANS and not (spec.rates or spec.discount or commitment.status.rates)


def _list_open(snapshot: Snapshot, uses: Mapping[str, CommitmentUse]) -> set[str]:
    """The names of commitments that have room for at least the smallest instance they could pay for."""
    ledger = Ledger(snapshot.commitments)
    smallest = ledger.find_smallest_uses(list_usage_kinds(snapshot.catalogs))
    return {
        each.name
        for each in snapshot.commitments
        if is_still_open(uses[each.name], smallest[each.name], each.was_full)
    }


def _describe_use(commitment: Commitment, use: CommitmentUse | None) -> Commitment:
    status = commitment.status
    observed = commitment.spec.observe == ACCOUNT
    return replace(
        commitment,
        status=replace(
            status,
            observed_generation=commitment.metadata.generation,
            hourly=_format_amount(use.hourly if use is not None else 0.0),
            used=_format_amount(use.used if use is not None else 0.0),
            unused=_format_amount(use.unused if use is not None else 0.0),
            by_others=status.by_others if observed else "",
        ),
    )


def _judge_full(
    commitment: Commitment, use: CommitmentUse | None, is_open: bool, now: datetime
) -> Commitment:
    """Whether one more node pays the listed price; not said of what is not in force."""
    if use is None:
        return conditions.clear_condition(commitment, FULL, conditions.ROOTLESS)
    if is_open:
        said = conditions.FALSE, "Open", f"${use.unused:.4f} an hour of it are left"
    else:
        said = conditions.TRUE, "Full", "what is left of it pays for no instance"
    return _set_condition(commitment, FULL, said, now)


def _judge_used(commitment: Commitment, use: CommitmentUse | None, now: datetime) -> Commitment:
    """Whether at most a tenth of it is lost; the condition's time says since when that is so."""
    if use is None or use.hourly <= 0:
        return conditions.clear_condition(commitment, USED, conditions.ROOTLESS)
    share = use.unused / use.hourly
    if share > UNUSED_SHARE:
        said = conditions.FALSE, "Unused", "more than a tenth of it is lost"
    else:
        said = conditions.TRUE, "Used", ""
    return _set_condition(commitment, USED, said, now)


def _set_condition(
    commitment: Commitment, kind: str, said: tuple[str, str, str], now: datetime
) -> Commitment:
    status, reason, message = said
    condition = Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        observed_generation=commitment.metadata.generation,
    )
    return conditions.set_condition(commitment, condition, now, conditions.ROOTLESS)


def _has_lasted(condition: Condition, now: datetime) -> bool:
    since = condition.last_transition_time
    return since is not None and now - since >= UNUSED_FOR


def _format_amount(amount: float) -> str:
    return f"{amount:.4f}"


def _read_amount(text: str) -> float:
    """An amount of a status; nothing where there is none or somebody wrote other words there."""
    try:
        return parse_dollars(text) if text else 0.0
    except BadSpendLimit:
        return 0.0
