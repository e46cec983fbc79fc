"""spendlimit.status: what SpendLimits count, written to their status; it decides nothing.

The month is added up each minute from the times that nodes were there. Its sum stands in the status, so that
another leader goes on from the last write: nodes that are still there count in full, and those that came and
went meanwhile are the error, which the condition names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime

from msgspec.structs import replace

from dovetail.api import conditions
from dovetail.api.meta import Condition
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.spend_limit import (
    HourlySpend,
    MonthSpend,
    SpendLimit,
    SpendLimitStatus,
    read_dollars,
    read_time_zone,
)
from dovetail.controllers.base import SINGLETON, Backoff, Cache, Result, Trigger, requeue_after
from dovetail.controllers.context import ControllerContext
from dovetail.controllers.observing.series import GaugeSeries
from dovetail.controllers.spend_guard import SpendGuard
from dovetail.controllers.spend_status import (
    ACHIEVABLE,
    READY,
    build_condition,
    build_last_month,
    build_month,
    format_amount,
    has_other_reason,
    is_worth_writing,
    judge_ready,
    judge_within,
    read_tally,
)
from dovetail.errors import Conflict, DovetailError, Gone
from dovetail.scheduling.bill import PriceList, bill_nodes
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.spend import PoolSpend, compute_spend, sum_spend
from dovetail.scheduling.spend_caps import SpendCap
from dovetail.scheduling.spend_month import (
    MonthTally,
    PaidTime,
    add_unseen,
    advance_month,
    compute_spend_floor,
)

__all__ = ["SpendLimitController"]

EVERY, UNSYNCED = 60.0, 1.0
FLOOR_EVERY = 600.0


class SpendLimitController:
    """Counts what every SpendLimit covers, and says so on it."""

    name = "spendlimit.status"
    singleton = True
    concurrency = 1
    backoff = Backoff(first=1.0, last=30.0)

    def __init__(self, context: ControllerContext, guard: SpendGuard, limits: Cache[SpendLimit]) -> None:
        self._context = context
        self._guard = guard
        self._limits = limits
        self._clock = context.clock
        self._cache = DecisionCache()
        self._tallies: dict[str, MonthTally] = {}
        # Limits as events told of them last.
        self._told: dict[str, SpendLimit] = {}
        # Dollars an hour that limits cannot be kept below, and when that was worked out.
        self._floors: dict[str, tuple[float, float]] = {}
        # Nodes that were paid for and are gone since the last look, by NodePool.
        self._gone: list[tuple[str, PaidTime]] = []
        self._paid: dict[str, tuple[str, PaidTime]] = {}
        self._dollars = GaugeSeries(
            "dovetail_spend_dollars",
            "Dollars an hour of a SpendLimit: allowed, spent, and at most for nodes that are ordered.",
            ("limit", "of"),
        )
        self._held = GaugeSeries(
            "dovetail_spend_held_pods", "Pods that wait because of a SpendLimit.", ("limit",)
        )
        self._month = GaugeSeries(
            "dovetail_spend_month_dollars",
            "Dollars of this month of a SpendLimit: allowed, spent, and at its end at the rate of a day.",
            ("limit", "of"),
        )

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(SpendLimit, _wake_on_spec), Trigger(NodeClaim, self._note_gone))

    def _note_gone(self, before: NodeClaim | None, claim: NodeClaim | None) -> Iterable[str]:
        """Remember until when a node was paid for."""
        known = self._paid.pop(before.name, None) if claim is None and before is not None else None
        if known is not None:
            self._gone.append((known[0], replace(known[1], until=self._clock.now())))
        return ()

    async def reconcile(self, key: str) -> Result:
        if not self._context.cluster.synced:
            return requeue_after(UNSYNCED)
        limits = {each.name: each for each in self._limits}
        if limits:
            await self._learn_prices()
            snapshot, now = self._guard.capture_snapshot(), self._clock.now()
            spent = compute_spend(snapshot, self._cache)
            paid = self._list_paid(snapshot)
            for cap in self._guard.list_caps():
                limit = limits[cap.limit]
                tally = self._advance_tally(limit, cap, paid, now)
                await self._settle_limit(limit, cap, sum_spend(cap, spent), tally)
        self._forget_others({each.uid for each in limits.values()})
        return requeue_after(EVERY)

    async def _learn_prices(self) -> None:
        """Price lists of NodePools that nobody has asked for yet, as after a start."""
        context = self._context
        for pool in context.pools:
            if context.ownership.owns_pool(pool) and not self._guard.knows_types(pool.name):
                try:
                    types = await context.cloud.list_instance_types(pool)
                except DovetailError:
                    continue  # its class is not ready: it has no prices yet
                self._guard.note_offers(((pool, types),), context.options(self._clock.now()))

    # Months

    def _list_paid(self, snapshot: Snapshot) -> list[tuple[str, PaidTime]]:
        """Every node that is paid for or was since the last look, with its NodePool."""
        states = {views.read_name(each): each for each in snapshot.nodes if each.claim is not None}
        lines = bill_nodes(states.values(), PriceList.from_snapshot(snapshot)).lines
        found: dict[str, tuple[str, PaidTime]] = {}
        for line in lines:
            claim = states[line.node].claim
            since = _find_launched(states[line.node])
            if claim is not None and since is not None and claim.status.provider_id:
                found[claim.name] = line.pool, PaidTime(price=line.effective, since=since)
        gone, self._gone, self._paid = self._gone, [], found
        return [*found.values(), *gone]

    def _advance_tally(
        self, limit: SpendLimit, cap: SpendCap, paid: Sequence[tuple[str, PaidTime]], now: datetime
    ) -> MonthTally | None:
        if cap.problem:
            return None
        zone, known = read_time_zone(limit.spec.time_zone), self._tallies.get(limit.uid)
        tally = known or read_tally(limit, now)
        mine = (each for pool, each in paid if cap.covers(pool))
        found = advance_month(tally, mine, now, zone)
        if known is None:
            found = add_unseen(found, tally.until, zone)
        self._tallies[limit.uid] = found
        return found

    def _forget_others(self, known: set[str]) -> None:
        for kept in (self._tallies, self._floors, self._told):
            for uid in kept.keys() - known:
                kept.pop(uid, None)

    # Status

    async def _settle_limit(
        self, limit: SpendLimit, cap: SpendCap, used: PoolSpend, tally: MonthTally | None
    ) -> None:
        now, known = self._clock.now(), self._guard.held_pods
        # Who begins to lead knows of nobody before the first plan: what was said last stands until then.
        held = limit.status.held_pods if known is None else len(known.get(cap.limit, ()))
        status = SpendLimitStatus(
            observed_generation=limit.metadata.generation,
            hourly=HourlySpend(
                limit="" if cap.hourly is None else format_amount(cap.hourly),
                spent=format_amount(used.listed if cap.listed else used.effective),
                in_flight=format_amount(used.listed_in_flight if cap.listed else used.effective_in_flight),
            ),
            month=build_month(tally, limit),
            last_month=build_last_month(tally) or limit.status.last_month,
            held_pods=held,
            conditions=limit.status.conditions,
        )
        after = replace(limit, status=status)
        for condition in (
            judge_ready(cap, used, tally, any(cap.covers(pool.name) for pool in self._context.pools)),
            judge_within(cap, used),
            await self._judge_achievable(limit, cap, busy=bool(held or used.nodes)),
        ):
            after = conditions.set_condition(after, condition, now, conditions.ROOTLESS)
        # Told before it is written: who is killed in between tells it once more, and not never.
        self._tell_changes(limit, cap, after)
        self._told[limit.uid] = after
        if is_worth_writing(limit.status, after.status):
            with suppress(Conflict, Gone):  # somebody wrote meanwhile: the next look says it again
                await self._context.kube.patch(limit, after, status=True, guarded=True)

    async def _judge_achievable(self, limit: SpendLimit, cap: SpendCap, *, busy: bool) -> Condition:
        """Whether a fleet for the pods could cost so little; not asked while there are neither."""
        if cap.hourly is None or cap.problem:
            return build_condition(ACHIEVABLE, conditions.TRUE, "NoHourlyLimit", "")
        floor, since = self._floors.get(limit.uid, (0.0, -FLOOR_EVERY))
        now = self._clock.monotonic()
        if busy and now - since >= FLOOR_EVERY:
            floor = await self._compute_floor(cap)
            self._floors[limit.uid] = floor, now
        if floor <= cap.hourly:
            return build_condition(ACHIEVABLE, conditions.TRUE, "Achievable", "")
        told = (
            f"no fleet for the pods of these pools costs less than ${floor:.2f} an hour; "
            f"the limit is ${cap.hourly:.2f}"
        )
        return build_condition(ACHIEVABLE, conditions.FALSE, "FloorAboveLimit", told)

    async def _compute_floor(self, cap: SpendCap) -> float:
        context = self._context
        snapshot = context.capture.take_snapshot(
            self._guard.list_offers(), context.options(self._clock.now()), ()
        )
        held = frozenset((self._guard.held_pods or {}).get(cap.limit, ()))
        return await context.compute(compute_spend_floor, snapshot, cap, held)

    def _tell_changes(self, limit: SpendLimit, cap: SpendCap, after: SpendLimit) -> None:
        """Events for what is new: pods held or no longer, and limits that cannot be kept.

        Who begins to lead tells once more what stands, since nobody knows what the one before had told.
        """
        before, anew = self._told.get(limit.uid, limit), limit.uid not in self._told
        held, was = after.status.held_pods, before.status.held_pods
        if held and (anew or not was):
            note = f"SpendLimit {after.name} is reached: {held} pods wait for room in it"
            self._record_event(after, "SpendLimitReached", note, cap, warning=True)
        if was and not held:
            note = f"No pod waits for room in SpendLimit {after.name} any more"
            self._record_event(after, "SpendLimitCleared", note, cap)
        found = conditions.find_condition(after, ACHIEVABLE)
        if (
            found is not None
            and found.status == conditions.FALSE
            and (anew or not conditions.is_false(before, ACHIEVABLE))
        ):
            self._record_event(after, "SpendLimitUnachievable", found.message, cap, warning=True)
        ready = conditions.find_condition(after, READY)
        if ready is not None and ready.reason == "NoPools" and has_other_reason(before, ready.reason):
            note = "No NodePool is selected by this SpendLimit"
            self._record_event(after, "NoPools", note, cap, warning=True)

    def _record_event(
        self, limit: SpendLimit, reason: str, note: str, cap: SpendCap, *, warning: bool = False
    ) -> None:
        """An event on the limit, and on every NodePool that it covers."""
        covered = (pool for pool in self._context.pools if cap.covers(pool.name))
        for each in (limit, *covered):
            dedupe = (each.uid, limit.name)
            self._context.recorder.publish_event(each, reason, note, warning=warning, dedupe=dedupe)

    def report(self) -> None:
        """Count for whoever looks at the metrics."""
        for limit in self._limits:
            status = limit.status
            hourly, month = status.hourly or HourlySpend(), status.month or MonthSpend()
            amounts = {"limit": hourly.limit, "spent": hourly.spent, "in_flight": hourly.in_flight}
            months = {"limit": limit.spec.monthly or "", "spent": month.spent, "projected": month.projected}
            for series, found in ((self._dollars, amounts), (self._month, months)):
                for of, text in found.items():
                    if (amount := read_dollars(text)) is not None:
                        series.add({"limit": limit.name, "of": of}, amount)
            self._held.add({"limit": limit.name}, status.held_pods)
        for series in (self._dollars, self._held, self._month):
            series.show_values()


def _wake_on_spec(before: SpendLimit | None, limit: SpendLimit | None) -> Iterable[str]:
    same = before is not None and limit is not None and before.spec == limit.spec
    return () if same else (SINGLETON,)


def _find_launched(state: StateNode) -> datetime | None:
    claim = state.claim
    if claim is None:
        return None
    launched = conditions.find_condition(claim, conditions.LAUNCHED)
    since = launched.last_transition_time if launched is not None else None
    return since or claim.metadata.creation_timestamp
