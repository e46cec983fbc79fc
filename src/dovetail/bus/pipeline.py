"""The lines both shells share: a batch of messages goes in, every message comes out done or failed.

    plan      parse, deduplicate, look up in memory, route       no I/O, no waiting
    resolve   ask EC2 about what memory does not know
    send      copies to clusters, the rest to park queues

A message is done only when each copy of it is confirmed, parked, or dropped by a rule and counted. Nothing
kept here can lose an event: what is under way still lies in its queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from dovetail.aws import Aws
from dovetail.bus.cache import UNKNOWN, Known, Owners
from dovetail.bus.clocks import Clock, Log
from dovetail.bus.config import Config
from dovetail.bus.counts import Counts
from dovetail.bus.dedupe import Delivered
from dovetail.bus.destinations import Cluster, Destination, Registry
from dovetail.bus.events import CANARY, ZONAL_SHIFT, Event, Fate, Lane, Place, Received, Refusal, read
from dovetail.bus.lookup import Resolver
from dovetail.bus.route import Routed, broadcast, everywhere, route, sole
from dovetail.bus.send import Copy, Outcome, Sender

__all__ = ["Flight", "Pipeline", "Plan", "Settle"]

MARGIN = 60.0  # what must be left of a notice when a warning is broadcast
NOTICE = 120.0
ROUND = 1.0
BULK_PATIENCE = 20.0
NONE = "none"


class Settle(Protocol):
    """How a shell is told what became of its messages."""

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


class Pipeline:
    """One router. `patience` is how long a warning may wait for EC2; None: as long as its notice allows."""

    def __init__(
        self,
        config: Config,
        aws: Aws,
        park_url: str,
        *,
        clock: Clock,
        counts: Counts,
        log: Log,
        chance: Random,
        patience: float | None = None,
        named: Callable[[Cluster], Awaitable[Destination | None]] | None = None,
    ) -> None:
        self.config, self.registry = config, config.registry
        self.rules = config.rules
        self.owners = Owners(config["cache.size"])
        self.delivered = Delivered(config["dedupe.size"], config["dedupe.window"])
        self.resolver = Resolver(config, aws, self.owners, clock=clock, counts=counts, log=log)
        self.sender: Sender[Flight] = Sender(
            aws, clock=clock, counts=counts, log=log, chance=chance, parallel=config["parallel"]
        )
        self._park_url, self._clock, self._counts, self._log = park_url, clock, counts, log
        self._patience = patience
        # Asks for a queue that bears a cluster's name; once for each between two readings of the registry.
        self._named = named
        self._asked_for: set[Cluster] = set()
        self._annotate: bool = config["annotateSplits"]
        self._pending: dict[tuple[str, ...], Flight] = {}
        self.busy = 0

    async def process(self, lane: str, batch: Sequence[Received], settle: Settle) -> None:
        """Work on a batch until each message of it is done or failed."""
        self.busy += 1
        plan = self.plan(lane, batch, settle)
        try:
            if self.config["dryRun"]:
                await self._pretend(plan)
                return
            for flight in plan.settled:
                self._end(flight)
            await asyncio.gather(self._send(plan.copies), self._resolve(plan.unresolved))
        finally:
            self.busy -= 1
            # Whatever ends this early, no message may seem to be on its way when it is not.
            for flight in plan.flights:
                flight.failed = flight.failed or not flight.over
                self._end(flight)
        self._report(lane, batch, plan)

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
            self._plan_one(flight, event, plan, now)
        for kind, count in kinds.items():
            self._counts.add("received_total", count, lane, kind)
        if lane == Lane.URGENT:
            plan.copies.sort(key=_by_deadline)
        return plan

    def _read(self, message: Received) -> tuple[str, Event | Refusal]:
        try:
            return read(message, self.rules)
        except Exception as error:  # noqa: BLE001 (a body that meets a bug must not hold up its neighbours)
            self._log.error("reading a message met a bug", source=message.id, error=repr(error))
            return message.body, Refusal(Fate.KEPT, "bug")

    def _plan_one(self, flight: Flight, event: Event, plan: Plan, now: float) -> None:
        if self.delivered.has(event.key, now):
            self._counts.add("duplicates_total", 1)
            plan.settled.append(flight)
            return
        first = self._pending.get(event.key)
        if first is not None:
            self._counts.add("duplicates_total", 1)
            if first.followers is None:
                first.followers = []
            first.followers.append((flight.message, flight.settle))
            flight.over = True  # its end is the first one's
            return
        self._pending[event.key] = flight
        if not event.instances:
            self._spread(flight, event, plan)
            return
        known = self._known(event.instances, now)
        if known is None or (self._named is not None and self._nameless(known.values())):
            plan.unresolved.append(flight)
            return
        only = sole(event, known[event.instances[0]], self.registry, now) if len(known) == 1 else None
        if only is not None:
            self._copy(flight, event, only, flight.body, plan)
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

    async def _ask_names(self, flights: list[Flight]) -> None:
        if self._named is None:
            return
        now = self._now()
        for flight in flights:
            assert flight.event is not None
            known = self._known(flight.event.instances, now)
            for cluster in self._nameless(known.values()) if known else ():
                self._asked_for.add(cluster)
                found = await self._named(cluster)
                if found is not None:
                    self.registry = self.registry.merged([found])

    def _routed(self, flight: Flight, routed: Routed, plan: Plan) -> None:
        assert flight.event is not None
        for destination, body in routed.copies:
            self._copy(flight, flight.event, destination, body, plan)
        for reason, body, cluster in routed.parked:
            self._park(flight, body, reason, plan, cluster)
        for reason in routed.dropped:
            self._drop(flight, reason)
        if not flight.waiting:
            plan.settled.append(flight)

    def _copy(self, flight: Flight, event: Event, to: Destination, body: str, plan: Plan) -> None:
        url, reason = to.queue_url, ""
        if to.paused:
            url, reason = to.park_url or self._park_url, "paused"
        instance = event.instances[0] if len(event.instances) == 1 else ""
        hops = flight.message.hops + 1
        flight.waiting += 1
        plan.copies.append(Copy(url, body, flight, event.kind, instance, event.deadline, hops, to, reason))

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

    async def _send(self, copies: list[Copy[Flight]]) -> None:
        refused: list[Copy[Flight]] = []

        def settled(copy: Copy[Flight], outcome: Outcome) -> None:
            if outcome is Outcome.REFUSED and copy.url != self._park_url:
                refused.append(copy)  # settled once it is parked
                return
            self._settled(copy, outcome is Outcome.SENT)

        await self.sender.send(copies, settled)
        if refused:
            await self._park_refused(refused)

    async def _park_refused(self, refused: list[Copy[Flight]]) -> None:
        url, parked = self._park_url, []
        for each in refused:
            why, whose = "refused", each.cluster
            parked.append(Copy(url, each.body, each.tag, each.kind, each.instance, reason=why, cluster=whose))
        await self.sender.send(parked, lambda copy, how: self._settled(copy, how is Outcome.SENT))

    def _settled(self, copy: Copy[Flight], sent: bool) -> None:
        flight = copy.tag
        flight.waiting -= 1
        if not sent:
            flight.failed = True
        elif copy.reason:
            self._counts.add("parked_total", 1, copy.reason)
            self._audit("parked", flight, reason=copy.reason, cluster=copy.cluster)
        else:
            self._sent(copy, flight)
        if flight.waiting == 0:
            self._end(flight)

    def _sent(self, copy: Copy[Flight], flight: Flight) -> None:
        self._counts.add("routed_total", 1, copy.cluster, copy.kind)
        took = self._clock.monotonic() - flight.message.at
        self._counts.observe("latency_seconds", took, flight.lane, "receive_to_sent")
        if copy.deadline is not None and flight.urgent:
            left = copy.deadline - self._aged(self._now(), flight)
            self._counts.observe("deadline_remaining_seconds", left, copy.kind)
        self._log.debug(
            "routed", id=_id(flight), instance=copy.instance, kind=copy.kind, cluster=copy.cluster
        )

    def _end(self, flight: Flight) -> None:
        """Everything of a message is settled: tell its shell, and those of its duplicates."""
        if flight.over:
            return
        flight.over = True
        event = flight.event
        if event is not None and self._pending.get(event.key) is flight:
            del self._pending[event.key]
        followers = flight.followers or ()
        if flight.failed:
            self._counts.add("source_failures_total", 1 + len(followers))
            flight.settle.failed(flight.message, flight.urgent)
            for message, settle in followers:
                settle.failed(message, flight.urgent)
            return
        if event is not None:
            self.delivered.add(event.key, self._now())
        flight.settle.done(flight.message)
        for message, settle in followers:
            settle.done(message)

    async def _resolve(self, flights: Iterable[Flight]) -> None:
        groups: dict[tuple[Place, bool], list[Flight]] = {}
        for flight in flights:
            assert flight.event is not None
            groups.setdefault((flight.event.place, flight.event.urgent), []).append(flight)
        work = [
            (self._hold if urgent else self._look_up)(place, group)
            for (place, urgent), group in groups.items()
        ]
        await asyncio.gather(*work)

    async def _look_up(self, place: Place, flights: list[Flight]) -> None:
        """Bulk events: asked for once; what cannot be had comes again with its message."""
        await self.resolver.settle(place, self._missing(flights), urgent=False, patience=BULK_PATIENCE)
        await self._ask_names(flights)
        for flight in await self._resolved(flights):
            self._counts.add("unresolved_total", 1, flight.kind)
            flight.failed = True
            self._end(flight)

    async def _hold(self, place: Place, flights: list[Flight]) -> None:
        """Warnings: asked for until the notice gets short, then told to everyone who may be meant."""
        started = self._clock.monotonic()
        while flights:
            begun = self._clock.monotonic()
            await self.resolver.settle(place, self._missing(flights), urgent=True, patience=ROUND)
            await self._ask_names(flights)
            flights = await self._resolved(flights)
            due = [each for each in flights if self._overdue(each, started)]
            if due:
                held = set(flights) - set(due)
                flights = [each for each in flights if each in held]
                plan = Plan()
                for flight in due:
                    assert flight.event is not None
                    self._broadcast(flight, flight.event, plan)
                await self._send(sorted(plan.copies, key=_by_deadline))
            if flights:
                await self._clock.sleep(max(0.0, ROUND - (self._clock.monotonic() - begun)))

    async def _resolved(self, flights: list[Flight]) -> list[Flight]:
        """Send those that are known by now; returns the others."""
        plan, now = Plan(), self._now()
        for flight in flights:
            event = flight.event
            assert event is not None
            del self._pending[event.key]
            self._plan_one(flight, event, plan, now)
        for flight in plan.settled:
            self._end(flight)
        await self._send(sorted(plan.copies, key=_by_deadline))
        return plan.unresolved

    def _missing(self, flights: list[Flight]) -> list[str]:
        now = self._now()
        ids = dict.fromkeys(
            instance for flight in flights for instance in (flight.event.instances if flight.event else ())
        )
        return [id for id in ids if self.owners.get(id, now) is None]

    def _overdue(self, flight: Flight, started: float) -> bool:
        if self._patience is not None:
            return self._clock.monotonic() - started >= self._patience
        event = flight.event
        assert event is not None
        now = self._aged(self._now(), flight)
        deadline = event.deadline or (event.time or flight.message.sent or now) + NOTICE
        return deadline - now < MARGIN

    def _aged(self, now: float, flight: Flight) -> float:
        """The time, by a clock that is at least as late as the queue's was when the message came."""
        sent = flight.message.sent
        return now if sent is None or sent <= now else sent

    async def _pretend(self, plan: Plan) -> None:
        """A dry run: look up, say what would be sent, and leave every message where it is."""
        for (place, urgent), ids in _wanted(plan.unresolved).items():
            await self.resolver.settle(place, ids, urgent=urgent, patience=ROUND)
        again, now = Plan(), self._now()
        for flight in plan.unresolved:
            assert flight.event is not None
            del self._pending[flight.event.key]
            self._plan_one(flight, flight.event, again, now)
        for copy in (*plan.copies, *again.copies):
            self._log.info(
                "would send", id=_id(copy.tag), kind=copy.kind, cluster=copy.cluster, reason=copy.reason
            )
        for flight in plan.flights:
            flight.over = True
        self._pending.clear()

    def _report(self, lane: str, batch: Sequence[Received], plan: Plan) -> None:
        now = self._now()
        for flight in plan.flights:
            if flight.event is not None and flight.event.time is not None:
                waited = now - (self._clock.monotonic() - flight.message.at) - flight.event.time
                self._counts.observe("latency_seconds", max(waited, 0.0), lane, "event_to_receive")
        self._counts.observe("batch_size", len(batch), lane)
        sent = [each.sent for each in batch if each.sent is not None]
        if sent:
            self._counts.set("oldest_message_age_seconds", max(now - min(sent), 0.0), lane)
        self._counts.set("cache_entries", len(self.owners))
        self._counts.set("cache_hit_ratio", self.owners.hit_ratio)
        self._counts.set("ec2_tokens", self.resolver.tokens)
        self._counts.set("workers_busy", self.busy)
        self.delivered.forget(now)
        self._log.info("batch routed", lane=lane, messages=len(batch))

    def _audit(self, what: str, flight: Flight, **fields: object) -> None:
        event = flight.event
        instances = event.instances[:10] if event is not None else ()
        told: dict[str, object] = {"id": _id(flight), "source": flight.message.id, "kind": flight.kind}
        self._log.info("event " + what, **told, instances=instances, **fields)

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def reload(self, registry: Registry) -> None:
        """Use other destinations from now on; what is on its way keeps its address."""
        self.registry = registry
        self._asked_for.clear()
        urls = {each.queue_url for each in registry} | {each.park_url for each in registry} | {self._park_url}
        self.sender.forget(urls)

    async def close(self) -> None:
        await self.resolver.close()


def _wanted(flights: Iterable[Flight]) -> dict[tuple[Place, bool], list[str]]:
    found: dict[tuple[Place, bool], list[str]] = {}
    for flight in flights:
        if flight.event is not None:
            found.setdefault((flight.event.place, flight.event.urgent), []).extend(flight.event.instances)
    return found


def _by_deadline(copy: Copy[Flight]) -> float:
    return copy.deadline if copy.deadline is not None else float("inf")


def _id(flight: Flight) -> str:
    return flight.event.id if flight.event is not None else ""
