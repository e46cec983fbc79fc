"""Trouble on demand: what goes wrong with which requests, how often and when, decided by one seed.

    Storm(clock, seed=7, rules=[
        Rule(trouble="throttled", resources=["pods"], probability=0.1),
        Rule(trouble="watch-expired", amount=5, count=3),
        Rule(trouble="unreachable", clients=["karpenter"], start=60, end=90),
    ])

Rules are plain data, so that a scenario file can hold them. The first rule that strikes decides; every
strike is kept in `FaultStorm.record`. The server, its in-process clients and LocalTransport all ask here.
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
from dovetail.sim.kube.faults import ApiCall, Fault

__all__ = ["TROUBLES", "ClockFault", "FaultRule", "FaultStorm", "InjectedFault", "LateReply", "WrongClock"]

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


class FaultRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
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

    def applies_to(self, call: ApiCall, now: float) -> bool:
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
class InjectedFault:
    """Something that went wrong, and when."""

    at: float
    rule: FaultRule
    call: ApiCall
    fault: Fault


class FaultStorm:
    """Decides by its rules and its seed what goes wrong. The same requests meet the same trouble."""

    def __init__(self, clock: Clock, rules: Sequence[FaultRule] = (), seed: int = 0) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._chance = Random(seed)
        self._rules = tuple(rules)
        self._struck: Counter[int] = Counter()
        self.record: list[InjectedFault] = []

    @property
    def rules(self) -> tuple[FaultRule, ...]:
        """The trouble of the moment. New rules start with none of it used up."""
        return self._rules

    @rules.setter
    def rules(self, rules: Sequence[FaultRule]) -> None:
        self._rules = tuple(rules)
        self._struck.clear()

    @property
    def age(self) -> float:
        """Seconds since the storm began."""
        return self._clock.monotonic() - self._began

    def end_faults(self) -> None:
        """End all trouble."""
        self.rules = ()

    def find_fault(self, call: ApiCall) -> Fault | None:
        """The fault for this request, or None to let it be."""
        now = self.age
        for number, rule in enumerate(self._rules):
            if not rule.applies_to(call, now) or self._is_spent(number, rule):
                continue
            if rule.probability < 1 and self._chance.random() >= rule.probability:
                continue
            fault = TROUBLES[rule.trouble](call, rule.amount, self._chance)
            self._struck[number] += 1
            self.record.append(InjectedFault(now, rule, call, fault))
            return fault
        return None

    def _is_spent(self, number: int, rule: FaultRule) -> bool:
        return rule.count is not None and self._struck[number] >= rule.count


Maker = Callable[[ApiCall, float | None, Random], Fault]
_SUITS: Mapping[str, frozenset[str]] = {
    "conflict": WRITES,
    "expired": frozenset(("list",)),
    "stale": READS,
    "lost-reply": WRITES | {"create"},
    "watch-reset": frozenset(("watch",)),
    "watch-expired": frozenset(("watch",)),
    "watch-delay": frozenset(("watch",)),
}


def _add_latency(call: ApiCall, amount: float | None, rng: Random) -> Fault:
    return Fault(delay=_use_default(amount, 0.5) * (0.5 + rng.random()))


def _delay_reply(call: ApiCall, amount: float | None, rng: Random) -> Fault:
    return LateReply(reply_delay=_use_default(amount, 0.5) * (0.5 + rng.random()))


def _throttle_request(call: ApiCall, amount: float | None, rng: Random) -> Fault:
    return Fault(error=status.too_many_requests("the storm says slow down", int(_use_default(amount, 1))))


def _server_error(call: ApiCall, amount: float | None, rng: Random) -> Fault:
    return Fault(error=status.internal_error("the storm"))


def _make_unavailable(call: ApiCall, amount: float | None, rng: Random) -> Fault:
    text = "the server is currently unable to handle the request"
    return Fault(
        error=status.ApiError(503, "ServiceUnavailable", text, retry_after=int(_use_default(amount, 0)))
    )


def _make_conflict(call: ApiCall, amount: float | None, rng: Random) -> Fault:
    text = f'Operation cannot be fulfilled on {call.resource} "{call.name}": the storm wrote first'
    return Fault(error=status.ApiError(409, "Conflict", text, {"name": call.name, "kind": call.resource}))


def _expire_list(call: ApiCall, amount: float | None, rng: Random) -> Fault:
    return Fault(
        error=status.expired_version("The provided continue parameter is too old: the storm took it.")
    )


def _serve_stale(call: ApiCall, amount: float | None, rng: Random) -> Fault:
    return Fault(behind=rng.randint(1, max(int(_use_default(amount, 5)), 1)))


def _end_watch(end: Literal["reset", "expired"]) -> Maker:
    def make(call: ApiCall, amount: float | None, rng: Random) -> Fault:
        return Fault(watch_events=rng.randint(0, max(int(_use_default(amount, 3)), 0)), watch_end=end)

    return make


def _delay_watch(call: ApiCall, amount: float | None, rng: Random) -> Fault:
    return Fault(watch_delay=_use_default(amount, 2.0) * (0.5 + rng.random()))


TROUBLES: Mapping[str, Maker] = {
    "latency": _add_latency,
    "late-reply": _delay_reply,
    "throttled": _throttle_request,
    "server-error": _server_error,
    "unavailable": _make_unavailable,
    "reset": lambda call, amount, rng: Fault(reset=True),
    "lost-reply": lambda call, amount, rng: Fault(reset=True, after_commit=True),
    "unreachable": lambda call, amount, rng: Fault(delay=_use_default(amount, NEVER), reset=True),
    "conflict": _make_conflict,
    "expired": _expire_list,
    "stale": _serve_stale,
    "watch-reset": _end_watch("reset"),
    "watch-expired": _end_watch("expired"),
    "watch-delay": _delay_watch,
}
"""Each trouble as the fault it makes of a request; names are those of `CelRule.trouble`."""


def _use_default(amount: float | None, default: float) -> float:
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
