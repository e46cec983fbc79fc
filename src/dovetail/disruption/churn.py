"""Not too often and not for too little: what a pool asks of a move besides that it can be made.

Every knob is off until a pool's annotation, or a setting for all pools, turns it on. Settings reach this
page as annotations too, so that a pool says all there is to know. What was done lately is read off the
world itself: pods and nodes have a birthday, and nodes that went are noted on their pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodepool import NodePool
from dovetail.disruption.candidates import Candidate
from dovetail.disruption.command import Command
from dovetail.disruption.held import Held
from dovetail.settings import Settings, durations
from dovetail.settings.rates import Rate
from dovetail.settings.rates import parse as parse_rate

__all__ = [
    "Knobs",
    "Objection",
    "from_settings",
    "knobs",
    "noted",
    "objection",
    "rate_left",
    "recent",
    "resting",
    "with_defaults",
]

MANY, ONE = "many", "one"
NONE = timedelta()
KNOBS = (
    labels.CONSOLIDATION,
    labels.MIN_SAVING,
    labels.MIN_SAVING_PERCENT,
    labels.MAX_PAYBACK,
    labels.REST,
    labels.RATE,
)
# Prices are sums of floats: a saving that is short by less than this is not short.
DUST = 1e-9


@dataclass(frozen=True, slots=True)
class Knobs:
    """What one pool asks for. `problems` are annotations that cannot be read, by their key."""

    many: bool = False
    min_saving: float = 0.0
    min_percent: float = 0.0
    max_payback: timedelta = NONE
    rest: timedelta = NONE
    rate: Rate | None = None
    problems: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a move that could be made is not."""

    held: Held
    why: str


def from_settings(settings: Settings) -> dict[str, str]:
    """The knobs that hold for pools which do not say otherwise, as annotations; none while all are off."""
    asked = {
        labels.CONSOLIDATION: MANY if settings.consolidate_many else "",
        labels.MIN_SAVING: _number(settings.consolidation_min_saving),
        labels.MIN_SAVING_PERCENT: _number(settings.consolidation_min_saving_percent),
        labels.MAX_PAYBACK: _length(settings.consolidation_max_payback),
        labels.REST: _length(settings.consolidation_rest),
        labels.RATE: str(settings.disruption_rate or ""),
        labels.DRIFT_PAUSE_AFTER: _length(settings.drift_pause_after),
    }
    return {key: value for key, value in asked.items() if value}


def _number(value: float) -> str:
    return repr(value) if value else ""


def _length(value: timedelta) -> str:
    return durations.render(value) if value else ""


def with_defaults(pool: NodePool, defaults: Mapping[str, str]) -> NodePool:
    """The pool with what it leaves unsaid; the very same pool when that is nothing."""
    missing = {key: value for key, value in defaults.items() if key not in pool.annotations}
    if not missing:
        return pool
    return replace(pool, metadata=replace(pool.metadata, annotations={**pool.annotations, **missing}))


def knobs(pool: NodePool) -> Knobs:
    """What the pool asks for."""
    known = pool.annotations
    return _read(tuple(known.get(key) for key in KNOBS)) if known else _OFF


_OFF = Knobs()


@lru_cache(maxsize=1024)
def _read(values: tuple[str | None, ...]) -> Knobs:
    """Read once per set of values: a sweep asks for every node."""
    problems: dict[str, str] = {}
    given = {key: text for key, text in zip(KNOBS, values, strict=True) if text is not None}

    def amount(key: str) -> float:
        try:
            value = float(given.get(key) or 0)
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            problems[key] = f"{key} is {given[key]!r}, which is no amount; write one such as 0.05"
            return 0.0
        return value

    def length(key: str) -> timedelta:
        try:
            return durations.parse(given.get(key) or "0")
        except ValueError:
            problems[key] = f"{key} is {given[key]!r}, which is no duration; write one such as 30m"
            return NONE

    how = given.get(labels.CONSOLIDATION) or ONE
    if how not in (MANY, ONE):
        problems[labels.CONSOLIDATION] = f"{labels.CONSOLIDATION} is {how!r}; write {MANY} or {ONE}"
    return Knobs(
        many=how == MANY,
        min_saving=amount(labels.MIN_SAVING),
        min_percent=amount(labels.MIN_SAVING_PERCENT),
        max_payback=length(labels.MAX_PAYBACK),
        rest=length(labels.REST),
        rate=_rate(given.get(labels.RATE) or "", problems),
        problems=problems,
    )


def _rate(text: str, problems: dict[str, str]) -> Rate | None:
    """What cannot be read lets nothing go, as with budgets."""
    try:
        return parse_rate(text) if text else None
    except ValueError as error:
        problems[labels.RATE] = f"{labels.RATE}: {error}"
        return Rate(0, timedelta(hours=1))


def objection(command: Command) -> Objection | None:
    """Why the pools of a consolidation would rather leave it; None when it is worth its while."""
    pools = {candidate.pool.name: candidate.pool for candidate in command.candidates}
    for pool in pools.values():
        found = _too_little(command, pool.name, knobs(pool))
        if found is not None:
            return found
    return None


def _too_little(command: Command, pool: str, asked: Knobs) -> Objection | None:
    least = max(asked.min_saving, command.cost * asked.min_percent / 100)
    short = least - command.savings
    if short > DUST:
        share = f" ({asked.min_percent:g}%)" if least > asked.min_saving else ""
        return Objection(
            Held.SAVING,
            f"saving too small by ${_cents(short)}/h: it saves ${_cents(command.savings)}, "
            f"and pool {pool} asks for ${_cents(least)}{share}",
        )
    hours = command.payback
    if asked.max_payback and hours is not None and timedelta(hours=hours) > asked.max_payback:
        takes, most = _told(timedelta(hours=hours)), _told(asked.max_payback)
        return Objection(
            Held.PAYBACK, f"it pays for itself after {takes}, and pool {pool} asks for {most} at most"
        )
    return None


def _cents(amount: float) -> str:
    """Thousandths, or as many digits as a small amount needs."""
    return f"{amount:.3f}" if abs(amount) >= 0.001 or not amount else f"{amount:.2g}"


def _told(length: timedelta) -> str:
    return durations.render(timedelta(seconds=round(length.total_seconds())))


def resting(candidate: Candidate, now: datetime) -> Objection | None:
    """Why consolidation leaves a node alone for now: it, or a pod on it, came only lately.

    A pod that was evicted is followed by a new one, so a pod's age is the time since its last move; it
    needs no memory of ours, and a restart forgets nothing.
    """
    asked = knobs(candidate.pool)
    if asked.problems:
        return Objection(Held.UNREADABLE, next(iter(asked.problems.values())))
    if not asked.rest:
        return None
    claim = candidate.state.claim
    born = [(f"pod {pod.full_name}", pod.metadata.creation_timestamp) for pod in candidate.pods]
    born.append(("the node", claim.metadata.creation_timestamp if claim else None))
    name, latest = max(born, key=lambda each: each[1].timestamp() if each[1] else 0.0)
    if latest is None or now - latest >= asked.rest:
        return None
    ago, left = _told(now - latest), _told(latest + asked.rest - now)
    return Objection(
        Held.RESTING,
        f"{name} came {ago} ago and is left alone for {_told(asked.rest)} ({left} to go)",
    )


def recent(pool: NodePool) -> dict[datetime, int]:
    """How many nodes of the pool went when, as noted on it. What is not a note is passed over."""
    found: dict[datetime, int] = {}
    for note in pool.annotations.get(labels.RECENT, "").split():
        moment, _, count = note.partition("=")
        try:
            found[datetime.fromisoformat(moment.replace("Z", "+00:00"))] = int(count)
        except (ValueError, OverflowError):
            continue
    return {moment: count for moment, count in found.items() if moment.tzinfo is not None and count > 0}


def noted(moves: Mapping[datetime, int], now: datetime, per: timedelta) -> str:
    """The note of these moves, without those that no longer count."""
    kept = sorted((moment, count) for moment, count in moves.items() if now - moment < per)
    return " ".join(f"{moment.isoformat().replace('+00:00', 'Z')}={count}" for moment, count in kept)


def rate_left(pool: NodePool, now: datetime) -> int | None:
    """How many more nodes the pool's rate lets go now; None when it has none."""
    rate = knobs(pool).rate
    if rate is None:
        return None
    gone = sum(count for moment, count in recent(pool).items() if now - moment < rate.per)
    return max(0, rate.nodes - gone)
