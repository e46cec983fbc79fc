"""spendlimit.status: what SpendLimits count, written to their status; it decides nothing.

The month is added up each minute from the times that nodes were there. Its sum stands in the status, so that
another leader goes on from the last write: nodes that are still there count in full, and those that came and
went meanwhile are the error, which the condition names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from dovetail.api import conditions
from dovetail.api.meta import Condition
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.spend_limit import (
    HourlySpend,
    MonthSpend,
    SpendLimit,
    SpendLimitStatus,
    find_month,
    parse_dollars,
    read_time_zone,
)
from dovetail.controllers.base import SINGLETON, Backoff, Cache, Result, Trigger, requeue_after
from dovetail.controllers.context import ControllerContext
from dovetail.controllers.observing.series import GaugeSeries
from dovetail.controllers.spend_guard import SpendGuard
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
    advance_month,
    compute_spend_floor,
    project_month,
)
from dovetail.scheduling.spend_prices import DUST

__all__ = ["SpendLimitController"]

EVERY, UNSYNCED = 60.0, 1.0
# The month is written when it moved by so much, or when so much time has passed.
MOVED, UNWRITTEN = 0.005, timedelta(minutes=5)
FLOOR_EVERY = 600.0
READY, WITHIN, ACHIEVABLE = "Ready", "WithinLimit", "Achievable"


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
        zone = read_time_zone(limit.spec.time_zone)
        tally = self._tallies.get(limit.uid) or _read_tally(limit, now)
        mine = (each for pool, each in paid if cap.covers(pool))
        found = self._tallies[limit.uid] = advance_month(tally, mine, now, zone)
        return found

    def _forget_others(self, known: set[str]) -> None:
        for kept in (self._tallies, self._floors):
            for uid in kept.keys() - known:
                kept.pop(uid, None)

    # Status

    async def _settle_limit(
        self, limit: SpendLimit, cap: SpendCap, used: PoolSpend, tally: MonthTally | None
    ) -> None:
        now, held = self._clock.now(), len(self._guard.held_pods.get(cap.limit, ()))
        status = SpendLimitStatus(
            observed_generation=limit.metadata.generation,
            hourly=HourlySpend(
                limit="" if cap.hourly is None else _format_amount(cap.hourly),
                spent=_format_amount(used.listed if cap.listed else used.effective),
                in_flight=_format_amount(used.listed_in_flight if cap.listed else used.effective_in_flight),
            ),
            month=_build_month(tally, limit),
            last_month=_build_last_month(tally) or limit.status.last_month,
            held_pods=held,
            conditions=limit.status.conditions,
        )
        after = replace(limit, status=status)
        for condition in (
            self._judge_ready(cap, used),
            _judge_within(cap, used),
            await self._judge_achievable(limit, cap, busy=bool(held or used.nodes)),
        ):
            after = conditions.set_condition(after, condition, now, conditions.ROOTLESS)
        if _is_worth_writing(limit.status, after.status):
            try:
                await self._context.kube.patch(limit, after, status=True, guarded=True)
            except (Conflict, Gone):
                return  # somebody wrote meanwhile: the next look says it again
            self._tell_changes(limit, after)

    def _judge_ready(self, cap: SpendCap, used: PoolSpend) -> Condition:
        if cap.problem:
            return _build_condition(READY, conditions.FALSE, "Unreadable", cap.problem)
        if used.unpriced and cap.hourly is not None:
            names = ", ".join(sorted(used.unpriced)[:3])
            told = (
                f"nobody knows the price of {len(used.unpriced)} nodes ({names}); their NodePools buy no more"
            )
            return _build_condition(READY, conditions.FALSE, "PriceUnknown", told)
        if not any(cap.covers(pool.name) for pool in self._context.pools):
            return _build_condition(READY, conditions.TRUE, "NoPools", "no NodePool is selected")
        return _build_condition(READY, conditions.TRUE, "Ready", "")

    async def _judge_achievable(self, limit: SpendLimit, cap: SpendCap, *, busy: bool) -> Condition:
        """Whether a fleet for the pods could cost so little; not asked while there are neither."""
        if cap.hourly is None or cap.problem:
            return _build_condition(ACHIEVABLE, conditions.TRUE, "NoHourlyLimit", "")
        floor, since = self._floors.get(limit.uid, (0.0, -FLOOR_EVERY))
        now = self._clock.monotonic()
        if busy and now - since >= FLOOR_EVERY:
            floor = await self._compute_floor(cap)
            self._floors[limit.uid] = floor, now
        if floor <= cap.hourly:
            return _build_condition(ACHIEVABLE, conditions.TRUE, "Achievable", "")
        told = (
            f"no fleet for the pods of these pools costs less than ${floor:.2f} an hour; "
            f"the limit is ${cap.hourly:.2f}"
        )
        return _build_condition(ACHIEVABLE, conditions.FALSE, "FloorAboveLimit", told)

    async def _compute_floor(self, cap: SpendCap) -> float:
        context = self._context
        snapshot = context.capture.take_snapshot(
            self._guard.list_offers(), context.options(self._clock.now()), ()
        )
        held = frozenset(self._guard.held_pods.get(cap.limit, ()))
        return await context.compute(compute_spend_floor, snapshot, cap, held)

    def _tell_changes(self, before: SpendLimit, after: SpendLimit) -> None:
        """Events for what is new: pods held or no longer, and limits that cannot be kept."""
        held, was = after.status.held_pods, before.status.held_pods
        if held and not was:
            note = f"SpendLimit {after.name} is reached: {held} pods wait for room in it"
            self._record_event(after, "SpendLimitReached", note, warning=True)
        if was and not held:
            note = f"No pod waits for room in SpendLimit {after.name} any more"
            self._record_event(after, "SpendLimitCleared", note)
        found = conditions.find_condition(after, ACHIEVABLE)
        if (
            found is not None
            and found.status == conditions.FALSE
            and not conditions.is_false(before, ACHIEVABLE)
        ):
            self._record_event(after, "SpendLimitUnachievable", found.message, warning=True)
        ready = conditions.find_condition(after, READY)
        if ready is not None and ready.reason == "NoPools" and _has_other_reason(before, ready.reason):
            self._record_event(after, "NoPools", "No NodePool is selected by this SpendLimit", warning=True)

    def _record_event(self, limit: SpendLimit, reason: str, note: str, *, warning: bool = False) -> None:
        """An event on the limit, and on every NodePool that it covers."""
        covered = (pool for pool in self._context.pools if self._covers(limit, pool.name))
        for each in (limit, *covered):
            dedupe = (each.uid, limit.name)
            self._context.recorder.publish_event(each, reason, note, warning=warning, dedupe=dedupe)

    def _covers(self, limit: SpendLimit, pool: str) -> bool:
        return any(cap.limit == limit.name and cap.covers(pool) for cap in self._guard.list_caps())

    def report(self) -> None:
        """Count for whoever looks at the metrics."""
        for limit in self._limits:
            status = limit.status
            hourly, month = status.hourly or HourlySpend(), status.month or MonthSpend()
            amounts = {"limit": hourly.limit, "spent": hourly.spent, "in_flight": hourly.in_flight}
            months = {"limit": limit.spec.monthly or "", "spent": month.spent, "projected": month.projected}
            for series, found in ((self._dollars, amounts), (self._month, months)):
                for of, text in found.items():
                    if text:
                        series.add({"limit": limit.name, "of": of}, float(text))
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


def _read_tally(limit: SpendLimit, now: datetime) -> MonthTally:
    """Where the last leader stopped counting; a limit that nobody counted begins with its creation."""
    month, last = limit.status.month, limit.status.last_month
    zone = read_time_zone(limit.spec.time_zone)
    if month is None or month.until is None:
        began = limit.metadata.creation_timestamp or now
        return MonthTally(of=find_month(began, zone)[0], until=min(began, now))
    return MonthTally(
        of=month.of,
        until=month.until,
        spent=parse_dollars(month.spent),
        rate=parse_dollars(month.rate or "0"),
        last_of=last.of if last is not None else "",
        last_spent=parse_dollars(last.spent) if last is not None else 0.0,
    )


def _build_month(tally: MonthTally | None, limit: SpendLimit) -> MonthSpend | None:
    if tally is None:
        return limit.status.month
    return MonthSpend(
        of=tally.of,
        spent=f"{tally.spent:.4f}",
        projected=_format_amount(project_month(tally, read_time_zone(limit.spec.time_zone))),
        until=tally.until,
        rate=f"{tally.rate:.4f}",
    )


def _build_last_month(tally: MonthTally | None) -> MonthSpend | None:
    if tally is None or not tally.last_of:
        return None
    return MonthSpend(of=tally.last_of, spent=f"{tally.last_spent:.4f}")


def _judge_within(cap: SpendCap, used: PoolSpend) -> Condition:
    """Whether what there is stays within the limit; lowering a limit takes nothing away."""
    dollars = used.listed + used.listed_in_flight if cap.listed else used.effective + used.effective_in_flight
    over = [
        f"there is more {name} than is allowed"
        for name, most in cap.resources.items()
        if used.capacity.get(name, 0) > most
    ]
    if cap.hourly is not None and dollars > cap.hourly + DUST:
        over.append(f"nodes cost ${dollars:.2f} an hour and ${cap.hourly:.2f} are allowed")
    if cap.nodes is not None and used.nodes > cap.nodes:
        over.append(f"there are {used.nodes} nodes and {cap.nodes} are allowed")
    if cap.month:
        over.append(f"the ${cap.monthly:.2f} of {cap.month} are spent")
    if over:
        return _build_condition(WITHIN, conditions.FALSE, "Exceeded", "; ".join(over))
    return _build_condition(WITHIN, conditions.TRUE, WITHIN, "")


def _build_condition(kind: str, status: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message)


def _has_other_reason(limit: SpendLimit, reason: str) -> bool:
    found = conditions.find_condition(limit, READY)
    return found is None or found.reason != reason


def _format_amount(amount: float) -> str:
    return f"{amount:.2f}" if amount >= 1 or not amount else f"{amount:.4f}"


def _is_worth_writing(before: SpendLimitStatus, after: SpendLimitStatus) -> bool:
    """Whether anything but the month changed, or the month by enough, or it was not written for long."""
    if replace(before, month=None) != replace(after, month=None):
        return True
    if before.month is None or after.month is None or before.month.until is None or after.month.until is None:
        return before.month != after.month
    if before.month.of != after.month.of or after.month.until - before.month.until >= UNWRITTEN:
        return True
    old, new = float(before.month.spent), float(after.month.spent)
    return abs(new - old) > MOVED * old
