"""What to do with a batch, as far as nobody needs to be asked: parse, deduplicate, remember, route.

No I/O and no waiting: messages go in, a Plan comes out. What memory cannot answer is left in it, unresolved.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dovetail.bus.cache import UNKNOWN, Known, Owners
from dovetail.bus.clocks import Clock, Log
from dovetail.bus.config import Config
from dovetail.bus.counts import Counts
from dovetail.bus.dedupe import Delivered
from dovetail.bus.destinations import Cluster, Destination
from dovetail.bus.events import CANARY, ZONAL_SHIFT, Event, Fate, Lane, Received, Refusal, read
from dovetail.bus.route import Routed, broadcast, everywhere, route, sole
from dovetail.bus.send import Copy
from dovetail.bus.undeleted import Undeleted

__all__ = ["Flight", "Plan", "Planner", "Settle", "by_deadline", "event_id"]

NONE = "none"
BUG = Refusal(Fate.KEPT, "bug")
MOST_TOLD = 500  # characters of an error


class Settle(Protocol):
    """How a shell is told what became of its messages; `undeleted` bounds what it has still to delete."""

    @property
    def undeleted(self) -> Undeleted | None: ...

    def done(self, message: Received) -> None:
        """Nothing of it is left to do: it may be deleted."""

    def failed(self, message: Received, urgent: bool) -> None:
        """It must come again."""


@dataclass(slots=True, eq=False)
class Flight:
    """A message on its way. Duplicates that come meanwhile share its fate."""

    message: Received
    body: str
    event: Event | None
    lane: str
    settle: Settle
    waiting: int = 0
    failed: bool = False
    over: bool = False
    repeated: bool = False
    followers: list[tuple[Received, Settle]] | None = None

    @property
    def kind(self) -> str:
        return self.event.kind if self.event is not None else NONE

    @property
    def urgent(self) -> bool:
        return self.lane == Lane.URGENT if self.event is None else self.event.urgent


@dataclass(slots=True)
class Plan:
    """What to do with a batch: copies to send, flights with nothing to send, flights to look up."""

    flights: list[Flight] = field(default_factory=list)
    copies: list[Copy[Flight]] = field(default_factory=list)
    settled: list[Flight] = field(default_factory=list)
    unresolved: list[Flight] = field(default_factory=list)


class Planner:
    """Memory, rules and destinations, and what they say about messages."""

    def __init__(self, config: Config, park_url: str, *, clock: Clock, counts: Counts, log: Log) -> None:
        self.config, self.registry = config, config.registry
        self.rules = config.rules
        self.owners = Owners(config["cache.size"])
        self.delivered = Delivered(config["dedupe.size"], config["dedupe.window"])
        self._park_url, self._clock, self._counts, self._log = park_url, clock, counts, log
        self._annotate: bool = config["annotateSplits"]
        self._pending: dict[Hashable, Flight] = {}
        # With `registry.byName`, owners without a destination are asked for once by their names.
        self._by_name: bool = config["registry.byName"]
        self._asked_for: set[Cluster] = set()

    def plan(self, lane: str, batch: Sequence[Received], settle: Settle) -> Plan:
        """Everything that needs no asking. Warnings come out with the nearest deadline first."""
        plan, now = Plan(), self._now()
        kinds: dict[str, int] = {}
        for message in batch:
            body, event = self._read(message)
            if isinstance(event, Refusal):
                kinds[NONE] = kinds.get(NONE, 0) + 1
                flight = Flight(message, body, None, lane, settle)
                plan.flights.append(flight)
                self._refuse(flight, event, plan)
                continue
            kinds[event.kind] = kinds.get(event.kind, 0) + 1
            flight = Flight(message, body, event, lane, settle)
            plan.flights.append(flight)
            self._plan_safely(flight, event, plan, now)
        for kind, count in kinds.items():
            self._counts.add("received_total", count, lane, kind)
        if lane == Lane.URGENT:
            plan.copies.sort(key=by_deadline)
        return plan

    def _read(self, message: Received) -> tuple[str, Event | Refusal]:
        try:
            return read(message, self.rules)
        except Exception as error:  # noqa: BLE001 (a body that meets a bug must not hold up its neighbours)
            self._name_bug("reading", message, error)
            return message.body, BUG

    def _plan_safely(self, flight: Flight, event: Event, plan: Plan, now: float) -> None:
        """Plan one event. One that meets a bug is kept for the dead letters; the others go on."""
        planned = len(plan.copies)
        try:
            self._plan_one(flight, event, plan, now)
        except Exception as error:  # noqa: BLE001 (an event that meets a bug must not hold up its neighbours)
            self._name_bug("planning", flight.message, error)
            del plan.copies[planned:]
            flight.waiting = 0
            self._refuse(flight, BUG, plan)

    def _name_bug(self, doing: str, message: Received, error: Exception) -> None:
        """Name a message that meets a bug, at its first receive; it comes again until the dead letters."""
        tell = self._log.error if message.receives <= 1 else self._log.debug
        tell(f"{doing} a message met a bug", source=message.id, error=repr(error)[:MOST_TOLD])

    def _plan_one(self, flight: Flight, event: Event, plan: Plan, now: float) -> None:
        contents = event.contents
        first = self._pending.get(contents)
        if first is not None:
            self._counts.add("duplicates_total", 1)
            if first.followers is None:
                first.followers = []
            first.followers.append((flight.message, flight.settle))
            flight.over = True  # its end is the first one's
            return
        self._pending[contents] = flight
        if not event.instances:
            self._spread(flight, event, plan)
            return
        known = self._known(event.instances, now)
        if known is None or (self._by_name and self._nameless(known.values())):
            plan.unresolved.append(flight)
            return
        only = sole(event, known[event.instances[0]], self.registry, now) if len(known) == 1 else None
        if only is not None:
            self._copy(flight, event, only, flight.body, plan, now)
            self._planned(flight, plan)
        elif event.urgent and any(each.state is UNKNOWN for each in known.values()):
            self._broadcast(flight, event, plan)
        else:
            aged, annotate = self._aged(now, flight), self._annotate
            self._routed(
                flight, route(event, flight.body, known, self.registry, aged, annotate=annotate), plan
            )
        if event.kind == "instance_terminated":
            self.owners.ended(event.instances[0], now)

    def _known(self, instances: tuple[str, ...], now: float) -> dict[str, Known] | None:
        """What memory says of all of them, or None when it says nothing of some."""
        known = {}
        for instance in instances:
            what = self.owners.get(instance, now)
            if what is None:
                return None
            known[instance] = what
        return known

    def _nameless(self, known: Iterable[Known]) -> list[Cluster]:
        """Owners without a destination that may still have a queue of their name."""
        owners = [cluster for each in known for cluster in each.owners]
        return [each for each in owners if self.registry.of(each) is None and each not in self._asked_for]

    def _routed(self, flight: Flight, routed: Routed, plan: Plan) -> None:
        assert flight.event is not None
        now = self._now()
        for destination, body in routed.copies:
            part = routed.parts.get(destination.cluster)
            self._copy(flight, flight.event, destination, body, plan, now, part)
        for reason, body, cluster in routed.parked:
            self._park(flight, body, reason, plan, cluster)
        for reason in routed.dropped:
            self._drop(flight, reason)
        self._planned(flight, plan)

    def _planned(self, flight: Flight, plan: Plan) -> None:
        if flight.waiting:
            return
        if flight.repeated:
            self._counts.add("duplicates_total", 1)
        plan.settled.append(flight)

    def _copy(
        self,
        flight: Flight,
        event: Event,
        to: Destination,
        body: str,
        plan: Plan,
        now: float,
        part: frozenset[str] | None = None,
    ) -> None:
        """Plan a copy for a cluster, unless its queue has confirmed the same one already."""
        url, reason = to.queue_url, ""
        key: Hashable = (event.key, to.cluster) if part is None else (event.key, to.cluster, part)
        if self.delivered.has(key, now):
            flight.repeated = True
            return
        if to.paused:
            url, reason = to.park_url or self._park_url, "paused"
        instance = event.instances[0] if len(event.instances) == 1 else ""
        hops = flight.message.hops + 1
        flight.waiting += 1
        plan.copies.append(
            Copy(url, body, flight, event.kind, instance, event.deadline, hops, to, reason, key=key)
        )

    def _spread(self, flight: Flight, event: Event, plan: Plan) -> None:
        """Events that name no instance: a zonal shift, or the canary, whose way ends here."""
        if event.kind == ZONAL_SHIFT:
            self._routed(flight, everywhere(event, flight.body, self.registry), plan)
            return
        assert event.kind == CANARY
        if event.time is not None:
            self._counts.set("canary_seconds", max(self._now() - event.time, 0.0))
        plan.settled.append(flight)

    def _broadcast(self, flight: Flight, event: Event, plan: Plan) -> None:
        copies = broadcast(event, flight.body, self.registry)
        self._counts.add("unresolved_total", 1, event.kind)
        if self.config["unresolvedUrgent"] == "park" or not copies:
            reason = "unresolved" if copies else "no_destination"
            self._routed(flight, Routed(parked=[(reason, flight.body, "")]), plan)
            return
        self._counts.add("broadcast_total", 1)
        self._audit("broadcast", flight, clusters=len(copies))
        self._routed(flight, Routed(copies=copies), plan)

    def _refuse(self, flight: Flight, refusal: Refusal, plan: Plan) -> None:
        if refusal.fate is Fate.KEPT:
            flight.failed = True
            self._counts.add("kept_total", 1, refusal.reason)
            self._audit("kept", flight, reason=refusal.reason)
        elif refusal.fate is Fate.DROPPED:
            self._drop(flight, refusal.reason)
        else:
            self._park(flight, flight.body, refusal.reason, plan)
            return
        plan.settled.append(flight)

    def _park(self, flight: Flight, body: str, reason: str, plan: Plan, cluster: str = "") -> None:
        flight.waiting += 1
        hops = flight.message.hops
        copy = Copy(self._park_url, body, flight, flight.kind, hops=hops, reason=reason, cluster=cluster)
        plan.copies.append(copy)

    def _drop(self, flight: Flight, reason: str) -> None:
        self._counts.add("dropped_total", 1, reason)
        self._audit("dropped", flight, reason=reason)

    def _aged(self, now: float, flight: Flight) -> float:
        """The time, by a clock that is at least as late as the queue's was when the message came."""
        sent = flight.message.sent
        return now if sent is None or sent <= now else sent

    def _audit(self, what: str, flight: Flight, **fields: object) -> None:
        event = flight.event
        instances = event.instances[:10] if event is not None else ()
        told: dict[str, object] = {"id": event_id(flight), "source": flight.message.id, "kind": flight.kind}
        self._log.info("event " + what, **told, instances=instances, **fields)

    def _now(self) -> float:
        return self._clock.now().timestamp()


def by_deadline(copy: Copy[Flight]) -> float:
    return copy.deadline if copy.deadline is not None else float("inf")


def event_id(flight: Flight) -> str:
    return flight.event.id if flight.event is not None else ""
