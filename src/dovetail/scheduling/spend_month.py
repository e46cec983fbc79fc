"""The dollars of a calendar month: what nodes cost, added up while they run; and what no fleet can undercut.

Dollars are counted by the time that nodes were there, and not by looks: who looks again after a gap, or for
the first time, counts what the nodes that are still there cost since the last look.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, tzinfo
from math import exp

from msgspec.structs import replace

from dovetail.api.meta import Record
from dovetail.api.spend_limit import find_month
from dovetail.scheduling.fleet_cost import compute_fleet_floor
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.spend_caps import SpendCap

__all__ = [
    "MonthTally",
    "PaidTime",
    "add_unseen",
    "advance_month",
    "compute_spend_floor",
    "project_month",
]

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class PaidTime(Record, frozen=True):
    """A node that is paid for: dollars an hour, since when, and until when if it is gone."""

    price: float
    since: datetime
    until: datetime | None = None

    def cost_between(self, begin: datetime, end: datetime) -> float:
        """Dollars of that part of the time for which the node was there."""
        first, last = max(begin, self.since), min(end, self.until or end)
        return self.price * max(timedelta(), last - first) / HOUR


class MonthTally(Record, frozen=True):
    """What was spent in a month up to a moment, and in the month before; `rate` is that of about a day."""

    of: str
    until: datetime
    spent: float = 0.0
    rate: float = 0.0
    last_of: str = ""
    last_spent: float = 0.0
    # For how long of it nobody looked: what came and went then is missing.
    unseen: timedelta = timedelta()


def advance_month(tally: MonthTally, paid: Iterable[PaidTime], now: datetime, zone: tzinfo) -> MonthTally:
    """The tally with what these nodes cost since; a month that ended on the way is closed at its end."""
    nodes = tuple(paid)
    if now <= tally.until:
        return tally
    began, before = tally.until, tally
    total = sum(each.cost_between(began, now) for each in nodes)
    while tally.until < now:
        tally = _open_month(tally, zone)
        until = min(find_month(tally.until, zone)[2], now)
        spent = sum(each.cost_between(tally.until, until) for each in nodes)
        tally = replace(tally, spent=tally.spent + spent, until=until)
    tally = _open_month(tally, zone)
    return replace(tally, rate=_smooth_rate(before, total / ((now - began) / HOUR), now - began))


def _open_month(tally: MonthTally, zone: tzinfo) -> MonthTally:
    """The tally of the month that its moment is in: where that is another one, with nothing spent yet."""
    name = find_month(tally.until, zone)[0]
    if name == tally.of:
        return tally
    return replace(tally, of=name, spent=0.0, last_of=tally.of, last_spent=tally.spent, unseen=timedelta())


def add_unseen(tally: MonthTally, since: datetime, zone: tzinfo) -> MonthTally:
    """The tally of somebody who goes on counting: nobody looked since this moment."""
    begins = find_month(tally.until, zone)[1]
    return replace(tally, unseen=tally.unseen + max(timedelta(), tally.until - max(since, begins)))


def _smooth_rate(before: MonthTally, rate: float, passed: timedelta) -> float:
    """Dollars an hour of about the last 24 hours: what is older counts ever less."""
    if not before.rate:
        return rate
    weight = 1 - exp(-passed / DAY)
    return before.rate + (rate - before.rate) * weight


def project_month(tally: MonthTally, zone: tzinfo) -> float:
    """What the month comes to if the rate of the last day goes on."""
    ends = find_month(tally.until, zone)[2]
    return tally.spent + tally.rate * ((ends - tally.until) / HOUR)


def compute_spend_floor(
    snapshot: Snapshot, cap: SpendCap, held: frozenset[str], cache: DecisionCache | None = None
) -> float:
    """Dollars an hour that no fleet of the covered NodePools can undercut for pods that run or wait there.

    Whatever else runs counts as free room, which makes the floor lower and never wrong.
    """
    pools = tuple(pool for pool in snapshot.pools if cap.covers(pool.name))
    waiting = tuple(pod for pod in snapshot.pods if pod.full_name in held)
    return compute_fleet_floor(replace(snapshot, pools=pools, pods=waiting), cache=cache)
