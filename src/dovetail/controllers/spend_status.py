"""What the status of a SpendLimit says: its month, its conditions, and when that is worth a write.

Nothing here asks or writes: numbers come in, and parts of a status go out.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from dovetail.api import conditions
from dovetail.api.meta import Condition
from dovetail.api.spend_limit import (
    MonthSpend,
    SpendLimit,
    SpendLimitStatus,
    find_month,
    read_dollars,
    read_time_zone,
)
from dovetail.scheduling.spend import PoolSpend
from dovetail.scheduling.spend_caps import SpendCap
from dovetail.scheduling.spend_month import MonthTally, project_month
from dovetail.scheduling.spend_prices import DUST

__all__ = [
    "ACHIEVABLE",
    "READY",
    "build_condition",
    "build_last_month",
    "build_month",
    "format_amount",
    "has_other_reason",
    "is_worth_writing",
    "judge_ready",
    "judge_within",
    "read_tally",
]

# The month is written when it moved by so much, or when so much time has passed.
MOVED, UNWRITTEN = 0.005, timedelta(minutes=5)
# Less than this is no gap: it is how often anybody looks.
LEAST_UNSEEN, HOUR = timedelta(minutes=1), timedelta(hours=1)
READY, WITHIN, ACHIEVABLE = "Ready", "WithinLimit", "Achievable"


def read_tally(limit: SpendLimit, now: datetime) -> MonthTally:
    """Where the last leader stopped counting; a limit that nobody counted begins with its creation.

    So does one whose status cannot be read, since somebody else wrote it.
    """
    month, last = limit.status.month, limit.status.last_month
    zone = read_time_zone(limit.spec.time_zone)
    spent = read_dollars(month.spent) if month is not None else None
    if month is None or month.until is None or spent is None:
        began = limit.metadata.creation_timestamp or now
        return MonthTally(of=find_month(began, zone)[0], until=min(began, now))
    return MonthTally(
        of=month.of,
        until=month.until,
        spent=spent,
        rate=read_dollars(month.rate) or 0.0,
        last_of=last.of if last is not None else "",
        last_spent=(read_dollars(last.spent) if last is not None else None) or 0.0,
        unseen=timedelta(seconds=month.unseen_seconds),
    )


def build_month(tally: MonthTally | None, limit: SpendLimit) -> MonthSpend | None:
    """The month as the status has it; what it was where it cannot be counted."""
    if tally is None:
        return limit.status.month
    return MonthSpend(
        of=tally.of,
        spent=f"{tally.spent:.4f}",
        projected=format_amount(project_month(tally, read_time_zone(limit.spec.time_zone))),
        until=tally.until,
        rate=f"{tally.rate:.4f}",
        unseen_seconds=round(tally.unseen.total_seconds()),
    )


def build_last_month(tally: MonthTally | None) -> MonthSpend | None:
    """The month before as the status has it; None where nobody counted it."""
    if tally is None or not tally.last_of:
        return None
    return MonthSpend(of=tally.last_of, spent=f"{tally.last_spent:.4f}")


def judge_ready(cap: SpendCap, used: PoolSpend, tally: MonthTally | None, selects: bool) -> Condition:
    """Whether the limit can be counted, and what is missing in its month; `selects` a NodePool or none."""
    if cap.problem:
        return build_condition(READY, conditions.FALSE, "Unreadable", cap.problem)
    if used.unpriced and cap.hourly is not None:
        names = ", ".join(sorted(used.unpriced)[:3])
        told = f"nobody knows the price of {len(used.unpriced)} nodes ({names}); their NodePools buy no more"
        return build_condition(READY, conditions.FALSE, "PriceUnknown", told)
    if not selects:
        return build_condition(READY, conditions.TRUE, "NoPools", "no NodePool is selected")
    return build_condition(READY, conditions.TRUE, "Ready", _tell_unseen(cap, tally))


def _tell_unseen(cap: SpendCap, tally: MonthTally | None) -> str:
    """For how long nobody looked at nodes, and how many dollars may be missing for that at most."""
    if tally is None or tally.unseen < LEAST_UNSEEN:
        return ""
    told = (
        f"no controller looked for {round(tally.unseen.total_seconds())}s of {tally.of}; "
        "nodes that came and went then are missing in its dollars"
    )
    if cap.hourly is None or cap.warn:
        return told
    dollars = cap.hourly * (tally.unseen / HOUR)
    return f"{told}: at ${cap.hourly:.2f} an hour, ${dollars:.2f} at most"


def judge_within(cap: SpendCap, used: PoolSpend) -> Condition:
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
        return build_condition(WITHIN, conditions.FALSE, "Exceeded", "; ".join(over))
    return build_condition(WITHIN, conditions.TRUE, WITHIN, "")


def build_condition(kind: str, status: str, reason: str, message: str) -> Condition:
    """A condition that is due now."""
    return Condition(type=kind, status=status, reason=reason, message=message)


def has_other_reason(limit: SpendLimit, reason: str) -> bool:
    """Whether the limit was not ready yet, or for another reason."""
    found = conditions.find_condition(limit, READY)
    return found is None or found.reason != reason


def format_amount(amount: float) -> str:
    """Cents, or as many digits as a small amount needs."""
    return f"{amount:.2f}" if amount >= 1 or not amount else f"{amount:.4f}"


def is_worth_writing(before: SpendLimitStatus, after: SpendLimitStatus) -> bool:
    """Whether anything but the month changed, or the month by enough, or it was not written for long."""
    if replace(before, month=None) != replace(after, month=None):
        return True
    if before.month is None or after.month is None or before.month.until is None or after.month.until is None:
        return before.month != after.month
    if before.month.of != after.month.of or after.month.until - before.month.until >= UNWRITTEN:
        return True
    old, new = read_dollars(before.month.spent), read_dollars(after.month.spent)
    return old is None or new is None or abs(new - old) > MOVED * old
