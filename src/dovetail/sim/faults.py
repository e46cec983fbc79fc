"""Trouble on demand: what goes wrong with which requests, how often and when, decided by one seed.

    Storm(clock, seed=7, rules=[
        Rule(trouble="throttled", resources=["pods"], probability=0.1),
        Rule(trouble="watch-expired", amount=5, count=3),
        Rule(trouble="unreachable", clients=["karpenter"], start=60, end=90),
    ])

Rules are plain data, so that a scenario file can hold them. The first rule that strikes decides; every
strike is kept in `Storm.record`. The server, its in-process clients and LocalTransport all ask here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Literal

import msgspec

from dovetail.ports import Clock
from dovetail.sim.kube import status
from dovetail.sim.kube.faults_hook import Call, Fault

__all__ = ["TROUBLES", "ClockFault", "LateReply", "Rule", "Storm", "Strike", "WrongClock"]

Trouble = Literal[
    "latency",
    "late-reply",
    "throttled",
    "server-error",
    "unavailable",
    "reset",
    "lost-reply",
    "unreachable",
    "conflict",
    "expired",
    "stale",
    "watch-reset",
    "watch-expired",
    "watch-delay",
]
WRITES = frozenset(("update", "patch", "delete"))
READS = frozenset(("get", "list"))
# Longer than any client waits: the request is neither answered nor refused.
NEVER = 3600.0


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """One kind of trouble, and whom it strikes. Empty selections mean everyone; times are the storm's own."""

    trouble: Trouble
    verbs: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    probability: float = 1.0
    count: int | None = None
    """Strike at most this often."""
    start: float = 0.0
    end: float = float("inf")
    amount: float | None = None
    """Seconds of delay, of Retry-After; revisions a read lags; events before a stream ends."""

    def meets(self, call: Call, now: float) -> bool:
        """Whether the rule has anything to say about a request at a time."""
        about = (
            (self.verbs, call.verb),
            (self.resources, call.resource),
            (self.clients, call.client),
            (self.names, call.name),
            (self.subresources, call.subresource),
        )
        suits = _SUITS.get(self.trouble)
        return (
            self.start <= now < self.end
            and all(not chosen or one in chosen for chosen, one in about)
            and (suits is None or call.verb in suits)
        )


@dataclass(frozen=True, slots=True)
class LateReply(Fault):
    """A fault that also holds the answer back after the work was done; heard by LocalTransport alone."""

    reply_delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Strike:
    """Something that went wrong, and when."""

    at: float
    rule: Rule
    call: Call
    fault: Fault


class Storm:
    """Decides by its rules and its seed what goes wrong. The same requests meet the same trouble."""

    def __init__(self, clock: Clock, rules: Sequence[Rule] = (), seed: int = 0) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._chance = Random(seed)
        self._rules = tuple(rules)
        self._struck: Counter[int] = Counter()
        self.record: list[Strike] = []

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The trouble of the moment. New rules start with none of it used up."""
        return self._rules

    @rules.setter
    def rules(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        self._struck.clear()

    @property
    def age(self) -> float:
        """Seconds since the storm began."""
        return self._clock.monotonic() - self._began

    def calm(self) -> None:
        """End all trouble."""
        self.rules = ()

    def consult(self, call: Call) -> Fault | None:
        """The fault for this request, or None to let it be."""
        now = self.age
        for number, rule in enumerate(self._rules):
            if not rule.meets(call, now) or self._spent(number, rule):
                continue
            if rule.probability < 1 and self._chance.random() >= rule.probability:
                continue
            fault = TROUBLES[rule.trouble](call, rule.amount, self._chance)
            self._struck[number] += 1
            self.record.append(Strike(now, rule, call, fault))
            return fault
        return None

    def _spent(self, number: int, rule: Rule) -> bool:
        return rule.count is not None and self._struck[number] >= rule.count


Maker = Callable[[Call, float | None, Random], Fault]
_SUITS: Mapping[str, frozenset[str]] = {
    "conflict": WRITES,
    "expired": frozenset(("list",)),
    "stale": READS,
    "lost-reply": WRITES | {"create"},
    "watch-reset": frozenset(("watch",)),
    "watch-expired": frozenset(("watch",)),
    "watch-delay": frozenset(("watch",)),
}


def _latency(call: Call, amount: float | None, chance: Random) -> Fault:
    return Fault(delay=_or(amount, 0.5) * (0.5 + chance.random()))


def _late_reply(call: Call, amount: float | None, chance: Random) -> Fault:
    return LateReply(reply_delay=_or(amount, 0.5) * (0.5 + chance.random()))


def _throttled(call: Call, amount: float | None, chance: Random) -> Fault:
    return Fault(error=status.too_many_requests("the storm says slow down", int(_or(amount, 1))))


def _server_error(call: Call, amount: float | None, chance: Random) -> Fault:
    return Fault(error=status.internal("the storm"))


def _unavailable(call: Call, amount: float | None, chance: Random) -> Fault:
    text = "the server is currently unable to handle the request"
    return Fault(error=status.ApiError(503, "ServiceUnavailable", text, retry_after=int(_or(amount, 0))))


def _conflict(call: Call, amount: float | None, chance: Random) -> Fault:
    text = f'Operation cannot be fulfilled on {call.resource} "{call.name}": the storm wrote first'
    return Fault(error=status.ApiError(409, "Conflict", text, {"name": call.name, "kind": call.resource}))


def _expired(call: Call, amount: float | None, chance: Random) -> Fault:
    return Fault(error=status.expired("The provided continue parameter is too old: the storm took it."))


def _stale(call: Call, amount: float | None, chance: Random) -> Fault:
    return Fault(behind=chance.randint(1, max(int(_or(amount, 5)), 1)))


def _watch_end(end: Literal["reset", "expired"]) -> Maker:
    def make(call: Call, amount: float | None, chance: Random) -> Fault:
        return Fault(watch_events=chance.randint(0, max(int(_or(amount, 3)), 0)), watch_end=end)

    return make


def _watch_delay(call: Call, amount: float | None, chance: Random) -> Fault:
    return Fault(watch_delay=_or(amount, 2.0) * (0.5 + chance.random()))


TROUBLES: Mapping[str, Maker] = {
    "latency": _latency,
    "late-reply": _late_reply,
    "throttled": _throttled,
    "server-error": _server_error,
    "unavailable": _unavailable,
    "reset": lambda call, amount, chance: Fault(reset=True),
    "lost-reply": lambda call, amount, chance: Fault(reset=True, after_commit=True),
    "unreachable": lambda call, amount, chance: Fault(delay=_or(amount, NEVER), reset=True),
    "conflict": _conflict,
    "expired": _expired,
    "stale": _stale,
    "watch-reset": _watch_end("reset"),
    "watch-expired": _watch_end("expired"),
    "watch-delay": _watch_delay,
}
"""Each trouble as the fault it makes of a request; names are those of `Rule.trouble`."""


def _or(amount: float | None, default: float) -> float:
    return default if amount is None else amount


class ClockFault(msgspec.Struct, frozen=True, kw_only=True):
    """From `at` on, the time of day is wrong by `by` seconds more."""

    at: float
    by: float


class WrongClock:
    """A clock of one machine: its time of day jumps, and its seconds may be a little long or short.

    `rate` is how many of its seconds pass in one true one. Only the time of day jumps: a monotonic clock
    by its nature does not.
    """

    def __init__(self, true: Clock, faults: Sequence[ClockFault] = (), rate: float = 1.0) -> None:
        self._true = true
        self._faults = tuple(faults)
        self._rate = rate
        self._began = true.monotonic()

    def now(self) -> datetime:
        age = self._true.monotonic() - self._began
        wrong = sum(fault.by for fault in self._faults if fault.at <= age)
        return self._true.now() + timedelta(seconds=wrong)

    def monotonic(self) -> float:
        return self._began + (self._true.monotonic() - self._began) * self._rate

    async def sleep(self, seconds: float) -> None:
        await self._true.sleep(seconds / self._rate)
