"""What was paid: the hours of recorded nodes times their recorded prices, exactly, with no model.

A node is paid for from the launch that its NodeClaim tells until it is told to terminate or is gone, by these
times and not by those of the looks that tell of them. One that has no NodeClaim is the same in every world
and is left out. Prices are list prices, as each look had them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import fsum

from dovetail.api import conditions, labels
from dovetail.api.meta import Record
from dovetail.api.nodeclaim import NodeClaim
from dovetail.disruption.situation import Situation
from dovetail.history.recording.reader import RecordedLook, RecordingGap
from dovetail.scheduling.bill import find_running_offering, find_usage
from dovetail.scheduling.commitments import UsageKind
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.snapshot import Snapshot, StateNode

__all__ = ["PaidBill", "PaidHour", "PaidMeter", "RunningPrices", "add_hours", "integrate_paid"]

HOUR = timedelta(hours=1)
_PriceKey = tuple[str, str, str, str, str]
LATE_WORD = timedelta(minutes=10)
"""How long after a machine went its end may still be told."""


class PaidHour(Record, frozen=True):
    """One hour by the clock, UTC, as far as it was watched."""

    began: datetime
    dollars: float = 0.0
    node_hours: float = 0.0
    watched_seconds: float = 0.0


class PaidBill(Record, frozen=True):
    """What nodes cost from one look to another, hour by hour and by NodePool.

    `unpriced_hours` are those of nodes whose price was never known; they count as nothing. `gap_seconds` were
    not watched, and nothing is counted for them. `estimated` of the dollars are at estimated prices.
    """

    since: datetime | None = None
    until: datetime | None = None
    dollars: float = 0.0
    node_hours: float = 0.0
    unpriced_hours: float = 0.0
    estimated: float = 0.0
    gap_seconds: float = 0.0
    by_pool: Mapping[str, float] = {}
    hours: tuple[PaidHour, ...] = ()

    @property
    def watched_seconds(self) -> float:
        """How long the cluster was watched."""
        return fsum(hour.watched_seconds for hour in self.hours)

    def sum_days(self) -> dict[str, float]:
        """The dollars of each day, UTC, by its date."""
        days: dict[str, list[float]] = {}
        for hour in self.hours:
            days.setdefault(f"{hour.began:%Y-%m-%d}", []).append(hour.dollars)
        return {day: fsum(found) for day, found in days.items()}

    def add(self, after: PaidBill) -> PaidBill:
        """This time and one that came after it together."""
        names = sorted(self.by_pool.keys() | after.by_pool.keys())
        hours = add_hours(self.hours, after.hours)
        return PaidBill(
            since=self.since or after.since,
            until=after.until or self.until,
            dollars=fsum(hour.dollars for hour in hours),
            node_hours=fsum(hour.node_hours for hour in hours),
            unpriced_hours=self.unpriced_hours + after.unpriced_hours,
            estimated=self.estimated + after.estimated,
            gap_seconds=self.gap_seconds + after.gap_seconds,
            by_pool={name: self.by_pool.get(name, 0.0) + after.by_pool.get(name, 0.0) for name in names},
            hours=hours,
        )


def add_hours(some: Iterable[PaidHour], others: Iterable[PaidHour]) -> tuple[PaidHour, ...]:
    """Hours by the clock in their order; one that is on both sides is the sum of its parts."""
    hours = {hour.began: hour for hour in some}
    for hour in others:
        old = hours.get(hour.began, PaidHour(began=hour.began))
        hours[hour.began] = PaidHour(
            began=hour.began,
            dollars=old.dollars + hour.dollars,
            node_hours=old.node_hours + hour.node_hours,
            watched_seconds=old.watched_seconds + hour.watched_seconds,
        )
    return tuple(hours[began] for began in sorted(hours))


class RunningPrices:
    """What nodes of a snapshot cost; a price that the catalogue no longer tells stays what it was."""

    def __init__(self) -> None:
        self._known: dict[_PriceKey, float] = {}
        self._estimated: set[_PriceKey] = set()
        self._catalogs: tuple[tuple[InstanceType, ...], ...] = ()
        self._by_name: tuple[dict[str, InstanceType], ...] = ()
        self._pools: dict[str, int] = {}
        self._fresh: set[_PriceKey] = set()
        # The label that names a reservation: two of them may cost differently.
        self._reservation = ""

    def read_snapshot(self, snapshot: Snapshot) -> None:
        """Take the prices of this snapshot from now on."""
        self._reservation = snapshot.options.reservation_label
        pools = {pool.name: pool.catalog for pool in snapshot.pools}
        if pools == self._pools and snapshot.catalogs == self._catalogs:  # mostly the very same types
            return
        self._catalogs, self._pools, self._fresh = snapshot.catalogs, pools, set()
        self._by_name = tuple({each.name: each for each in types} for types in snapshot.catalogs)

    def find_price(self, pool: str, known: Mapping[str, str]) -> float:
        """Dollars an hour of a node of the pool with these labels; 0 when nobody ever said."""
        key = self._build_key(pool, known)
        if key not in self._fresh:
            self._fresh.add(key)
            kind = known.get(labels.INSTANCE_TYPE, "")
            sold = find_running_offering(known, self._find_type(pool, kind))
            price = sold.price if sold is not None else 0.0
            if price > 0 or key not in self._known:
                self._known[key] = price
                (
                    self._estimated.add
                    if sold is not None and sold.price_estimated
                    else self._estimated.discard
                )(key)
        return self._known[key]

    def find_usage(self, pool: str, known: Mapping[str, str]) -> UsageKind | None:
        """What commitments see of such a node; None if none of them could pay for it."""
        kind = known.get(labels.INSTANCE_TYPE, "")
        sold = find_running_offering(known, self._find_type(pool, kind))
        return None if sold is None else find_usage(kind, sold, known)

    def is_estimated(self, pool: str, known: Mapping[str, str]) -> bool:
        """Whether the price of such a node stands for one that nobody knows."""
        self.find_price(pool, known)
        return self._build_key(pool, known) in self._estimated

    def _build_key(self, pool: str, known: Mapping[str, str]) -> _PriceKey:
        place = known.get(labels.INSTANCE_TYPE, ""), known.get(labels.ZONE, "")
        reservation = known.get(labels.CAPACITY_RESERVATION_ID) or known.get(self._reservation, "")
        return pool, *place, known.get(labels.CAPACITY_TYPE, ""), reservation

    def _find_type(self, pool: str, kind: str) -> InstanceType | None:
        """The type as its NodePool has it; of a NodePool that is gone, as any other has it."""
        own = self._pools.get(pool, -1)
        if own >= 0 and kind in self._by_name[own]:
            return self._by_name[own][kind]
        return next((types[kind] for types in self._by_name if kind in types), None)


@dataclass(slots=True)
class _PaidNode:
    """A node that is paid for: from its launch, for how much, and until when it is in the bill."""

    name: str
    pool: str
    price: float
    # The time in the bill: from the launch, or from when watching began if that is later.
    since: datetime
    paid_until: datetime
    until: datetime | None = None
    # From when on nobody knew its price; that time is charged once somebody does.
    unpriced_since: datetime | None = None
    estimated: bool = False


class PaidMeter:
    """Adds up what nodes cost, look after look.

    Times are those that NodeClaims tell of themselves and not those of looks: a launch that a look tells late
    is charged from the launch on, and what was charged beyond an end that is heard of later is taken back.
    """

    def __init__(self) -> None:
        self._prices = RunningPrices()
        self._running: dict[str, _PaidNode] = {}
        self._gone: dict[str, _PaidNode] = {}
        self._hours: dict[datetime, list[float]] = {}
        self._by_pool: dict[str, float] = {}
        self._since: datetime | None = None
        self._began: datetime | None = None
        self._last: datetime | None = None
        self._unpriced = self._gap = self._estimated = 0.0

    @property
    def rate(self) -> float:
        """What the nodes of the last look cost an hour."""
        return fsum(node.price for node in self._running.values() if node.until is None)

    def add_look(self, at: datetime, situation: Situation) -> None:
        """The cluster at a time: what ran since the look before is charged until now."""
        self._prices.read_snapshot(situation.snapshot)
        last = self._last
        self._since = at if self._since is None else self._since
        self._began = at if self._began is None else self._began
        self._last = at
        now: dict[str, _PaidNode] = {}
        for state in situation.snapshot.nodes:
            node = self._read_node(state)
            if node is not None:
                now[_name_machine(state)] = node
        for key, node in self._running.items():
            if key not in now:  # it went since the look before; until when is mostly told later
                self._settle(node, at)
                self._gone[node.name] = node
        self._running = now
        for node in now.values():
            self._settle(node, at)
        for name in [name for name, node in self._gone.items() if node.paid_until < at - LATE_WORD]:
            del self._gone[name]
        if last is not None:
            self._watch(last, at)

    def note_end(self, claim: str, ended: datetime) -> None:
        """The machine of this NodeClaim, by its name, ended at this time, and no look says so."""
        node = self._gone.pop(claim, None)
        if node is None:
            node = next((each for each in self._running.values() if each.name == claim), None)
        if node is not None and node.until is None:
            node.until = max(ended, node.since)
            self._settle(node, node.paid_until)

    def skip_gap(self, until: datetime) -> None:
        """Nothing was watched from the last look to this time: nothing is charged for it."""
        if self._last is not None and until > self._last:
            self._gap += (until - self._last).total_seconds()
            self._last = self._began = until
            self._running, self._gone = {}, {}

    def charge_until(self, until: datetime) -> None:
        """Nothing differed from the last look to this time."""
        last = self._last
        if last is None or until <= last:
            return
        for node in self._running.values():
            self._settle(node, until)
        self._watch(last, until)
        self._last = until

    def bill(self) -> PaidBill:
        """What it comes to so far."""
        hours = tuple(
            PaidHour(began=began, dollars=found[0], node_hours=found[1], watched_seconds=found[2])
            for began, found in sorted(self._hours.items())
        )
        return PaidBill(
            since=self._since,
            until=self._last,
            dollars=fsum(hour.dollars for hour in hours),
            node_hours=fsum(hour.node_hours for hour in hours),
            unpriced_hours=self._unpriced,
            estimated=self._estimated,
            gap_seconds=self._gap,
            by_pool=dict(sorted(self._by_pool.items())),
            hours=hours,
        )

    def _read_node(self, state: StateNode) -> _PaidNode | None:
        """The node as this look has it, charged as far as it was before; None before its launch."""
        claim, began = state.claim, self._began
        launched = _find_launch(claim) if claim is not None else None
        if claim is None or launched is None or began is None:
            return None
        pool = claim.labels.get(labels.NODEPOOL, "")
        price = self._prices.find_price(pool, claim.labels)
        estimated = self._prices.is_estimated(pool, claim.labels)
        node = self._running.get(_name_machine(state))
        if node is None:
            since = max(launched, began)
            return _PaidNode(claim.name, pool, price, since, since, _find_end(claim), estimated=estimated)
        node.until = _find_end(claim) or node.until
        if self._last is not None:
            self._settle(node, self._last)  # at the price of the look before
        node.estimated = estimated
        self._price_late(node, price)
        node.price = price
        return node

    def _settle(self, node: _PaidNode, until: datetime) -> None:
        """Bring the node into the bill until a time, or back to its end where that came before."""
        target = until if node.until is None else min(until, max(node.until, node.since))
        if target > node.paid_until:
            if node.price <= 0 and node.unpriced_since is None:
                node.unpriced_since = node.paid_until
            self._charge(node, node.paid_until, target, 1)
        elif node.until is not None and target < node.paid_until:
            self._charge(node, target, node.paid_until, -1)
        else:
            return
        node.paid_until = target

    def _price_late(self, node: _PaidNode, price: float) -> None:
        """A launch is told before what was launched: the time in between costs the same."""
        since, node.unpriced_since = node.unpriced_since, None
        if since is None or price <= 0:
            node.unpriced_since = since
            return
        for began, hours in _split_hours(since, node.paid_until):
            self._hours.setdefault(began, [0.0, 0.0, 0.0])[0] += price * hours
            self._by_pool[node.pool] = self._by_pool.get(node.pool, 0.0) + price * hours
            self._estimated += price * hours if node.estimated else 0.0
            self._unpriced -= hours

    def _charge(self, node: _PaidNode, since: datetime, until: datetime, sign: int) -> None:
        for began, length in _split_hours(since, until):
            found, hours = self._hours.setdefault(began, [0.0, 0.0, 0.0]), sign * length
            found[0] += node.price * hours
            found[1] += hours
            self._by_pool[node.pool] = self._by_pool.get(node.pool, 0.0) + node.price * hours
            self._estimated += node.price * hours if node.estimated else 0.0
            if node.price <= 0:
                self._unpriced += hours

    def _watch(self, since: datetime, until: datetime) -> None:
        for began, hours in _split_hours(since, until):
            self._hours.setdefault(began, [0.0, 0.0, 0.0])[2] += hours * 3600


def integrate_paid(
    looks: Iterable[RecordedLook], gaps: Iterable[RecordingGap] = (), until: datetime | None = None
) -> PaidBill:
    """What was paid over these looks, less the gaps; `until` is how long the last one held, if known."""
    meter, pending = PaidMeter(), sorted(gaps, key=lambda gap: gap.since)
    for look in looks:
        while pending and pending[0].until is not None and pending[0].until <= look.at:
            gap = pending.pop(0)
            meter.charge_until(gap.since)
            meter.skip_gap(look.at)
        meter.add_look(look.at, look.situation)
    if until is not None:
        meter.charge_until(until)
    return meter.bill()


def _name_machine(state: StateNode) -> str:
    claim = state.claim
    return claim.uid or claim.name if claim is not None else views.read_name(state)


def _find_launch(claim: NodeClaim) -> datetime | None:
    """When the machine of a NodeClaim was launched; None before that."""
    launched = claim.status.find_condition(conditions.LAUNCHED)
    if launched is not None and launched.status != conditions.TRUE:
        return None
    if launched is None and not claim.status.provider_id:
        return None
    return (launched.last_transition_time if launched else None) or claim.metadata.creation_timestamp


def _find_end(claim: NodeClaim) -> datetime | None:
    """When the machine was told to terminate; None while it was not."""
    ends = claim.status.find_condition(conditions.INSTANCE_TERMINATING)
    return ends.last_transition_time if ends is not None and ends.status == conditions.TRUE else None


def _split_hours(since: datetime, until: datetime) -> Iterable[tuple[datetime, float]]:
    """The time between, as hours by the clock, each with how much of it."""
    while since < until:
        began = since.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        ends = min(until, began + HOUR)
        yield began, (ends - since) / HOUR
        since = ends
