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

from dovetail.aws import AwsError
from dovetail.bus.destinations import BusCluster, Destination, DestinationRegistry
from dovetail.bus.events import BusPlace, EventRules, ReceivedMessage
from dovetail.bus.lookup import InstanceResolver
from dovetail.bus.planning import BusPlan, Flight, MessageSettler, Planner, by_deadline, find_event_id
from dovetail.bus.ports import RouterContext
from dovetail.bus.queues import UndeletedMessages
from dovetail.bus.send import BusCopy, CopySender, MessageAttributes, SendOutcome
from dovetail.logs import get_logger

__all__ = ["Pipeline"]

log = get_logger("bus")

MARGIN = 60.0  # what must be left of a notice when a warning is broadcast
NOTICE = 120.0
ROUND = 1.0
LATE = 3.0  # how long EC2 is asked for a warning whose notice is short when it comes, as on Lambda
BULK_PATIENCE = 20.0


class Pipeline(Planner):
    """One router. `patience` is how long a warning may wait for EC2; None: as long as its notice allows."""

    def __init__(
        self,
        context: RouterContext,
        park_url: str,
        *,
        patience: float | None = None,
        named: Callable[[BusCluster], Awaitable[Destination | None]] | None = None,
    ) -> None:
        super().__init__(context, park_url)
        aws, clock, counts = context.aws, context.clock, context.counts
        self.resolver = InstanceResolver(self.config, aws, self.owners, clock=clock, counts=counts)
        self.sender: CopySender[Flight] = CopySender(
            aws, clock=clock, counts=counts, rng=context.rng, parallel=self.config["parallel"]
        )
        self._patience, self._find_by_name = patience, named
        self.busy = 0

    async def process_batch(
        self, lane: str, batch: Sequence[ReceivedMessage], settle: MessageSettler
    ) -> None:
        """Work on a batch until each message of it is done or failed."""
        self.busy += 1
        plan = BusPlan()
        try:
            plan = self.plan_batch(lane, batch, settle)
            if self.config["dryRun"]:
                await self._run_dry(plan)
                return
            for flight in plan.settled:
                self._end_flight(flight)
            await asyncio.gather(self._send_copies(plan.copies), self._resolve_flights(plan.unresolved))
        finally:
            self.busy -= 1
            # Whatever ends this early, no message may seem to be on its way when it is not.
            for flight in plan.flights:
                flight.failed = flight.failed or not flight.over
                self._end_flight(flight)
        self._report_batch(lane, batch, plan)

    async def _ask_names(self, flights: list[Flight]) -> None:
        if self._find_by_name is None:
            return
        now = self._now()
        for flight in flights:
            assert flight.event is not None
            known = self._find_known(flight.event.instances, now)
            for cluster in self._list_without_destination(known.values()) if known else ():
                await self._ask_name(cluster, self._find_by_name)

    async def _ask_name(
        self, cluster: BusCluster, named: Callable[[BusCluster], Awaitable[Destination | None]]
    ) -> None:
        """Look for the queue of a cluster's name; one that cannot be asked for now is asked for again."""
        try:
            found = await named(cluster)
        except AwsError as error:
            self._counts.add("registry_problems_total", 1, "byName")
            log.warning("looking for a queue by name failed", cluster=cluster.name, error=error)
            return
        self._asked_for.add(cluster)
        if found is not None:
            self.registry = self.registry.merge_with([found])

    async def _send_copies(self, copies: list[BusCopy[Flight]]) -> None:
        refused: list[BusCopy[Flight]] = []

        def settled(copy: BusCopy[Flight], outcome: SendOutcome) -> None:
            if outcome is SendOutcome.REFUSED and copy.url != self._park_url:
                refused.append(copy)  # settled once it is parked
                return
            self._settle_copy(copy, outcome is SendOutcome.SENT)

        await self.sender.send_copies(copies, settled, _build_gate(copies))
        if refused:
            await self._park_refused(refused)

    async def _park_refused(self, refused: list[BusCopy[Flight]]) -> None:
        url, parked = self._park_url, []
        for each in refused:
            told = each.attributes
            attributes = MessageAttributes(told.kind, told.instance, reason="refused", cluster=told.cluster)
            parked.append(BusCopy(url, each.body, each.tag, attributes))
        gate = _build_gate(parked)
        await self.sender.send_copies(
            parked, lambda copy, how: self._settle_copy(copy, how is SendOutcome.SENT), gate
        )

    def _settle_copy(self, copy: BusCopy[Flight], sent: bool) -> None:
        flight, reason = copy.tag, copy.attributes.reason
        flight.waiting -= 1
        if not sent:
            flight.failed = True
        elif reason:
            self._counts.add("parked_total", 1, reason)
            self._log_event("parked", flight, reason=reason, cluster=copy.attributes.cluster)
        else:
            self._record_sent(copy, flight)
        if flight.waiting == 0:
            self._end_flight(flight)

    def _record_sent(self, copy: BusCopy[Flight], flight: Flight) -> None:
        """Only here is anything remembered as delivered: a cluster's queue has confirmed it."""
        self.delivered.add(copy.key, self._now())
        sent = copy.attributes
        self._counts.add("routed_total", 1, sent.cluster, sent.kind)
        took = self._clock.monotonic() - flight.message.at
        self._counts.observe("latency_seconds", took, flight.lane, "receive_to_sent")
        if sent.deadline is not None and flight.urgent:
            left = sent.deadline - self._latest_time(self._now(), flight)
            self._counts.observe("deadline_remaining_seconds", left, sent.kind)
        log.debug(
            "routed", id=find_event_id(flight), instance=sent.instance, kind=sent.kind, cluster=sent.cluster
        )

    def _end_flight(self, flight: Flight) -> None:
        """Everything of a message is settled: tell its shell, and those of its duplicates."""
        if flight.over:
            return
        flight.over = True
        event = flight.event
        if event is not None and self._pending.get(event.contents) is flight:
            del self._pending[event.contents]
        followers = flight.followers or ()
        if flight.failed:
            self._counts.add("source_failures_total", 1 + len(followers))
            flight.settle.settle_failed(flight.message, flight.urgent)
            for message, settle in followers:
                settle.settle_failed(message, flight.urgent)
            return
        flight.settle.settle_done(flight.message)
        for message, settle in followers:
            settle.settle_done(message)

    async def _resolve_flights(self, flights: Iterable[Flight]) -> None:
        groups: dict[tuple[BusPlace, bool], list[Flight]] = {}
        for flight in flights:
            assert flight.event is not None
            groups.setdefault((flight.event.place, flight.event.urgent), []).append(flight)
        work = [
            (self._resolve_warnings if urgent else self._resolve_bulk)(place, group)
            for (place, urgent), group in groups.items()
        ]
        await asyncio.gather(*work)

    async def _resolve_bulk(self, place: BusPlace, flights: list[Flight]) -> None:
        """Bulk events: asked for once; what cannot be had comes again with its message."""
        await self.resolver.resolve_instances(
            place, self._list_missing(flights), urgent=False, patience=BULK_PATIENCE
        )
        await self._ask_names(flights)
        for flight in await self._send_resolved(flights):
            self._counts.add("unresolved_total", 1, flight.kind)
            flight.failed = True
            self._end_flight(flight)

    async def _resolve_warnings(self, place: BusPlace, flights: list[Flight]) -> None:
        """Warnings: asked for until the notice gets short, then told to everyone who may be meant."""
        started = self._clock.monotonic()
        while flights:
            begun = self._clock.monotonic()
            await self.resolver.resolve_instances(
                place, self._list_missing(flights), urgent=True, patience=ROUND
            )
            await self._ask_names(flights)
            flights = await self._send_resolved(flights)
            due = [each for each in flights if self._is_overdue(each, started)]
            if due:
                held = set(flights) - set(due)
                flights = [each for each in flights if each in held]
                plan = BusPlan()
                for flight in due:
                    assert flight.event is not None
                    self._plan_broadcast(flight, flight.event, plan)
                await self._send_copies(sorted(plan.copies, key=by_deadline))
            if flights:
                await self._clock.sleep(max(0.0, ROUND - (self._clock.monotonic() - begun)))

    async def _send_resolved(self, flights: list[Flight]) -> list[Flight]:
        """Send those that are known by now; returns the others."""
        plan, now = BusPlan(), self._now()
        for flight in flights:
            event = flight.event
            assert event is not None
            self._pending.pop(event.contents, None)
            self._plan_safely(flight, event, plan, now)
        for flight in plan.settled:
            self._end_flight(flight)
        await self._send_copies(sorted(plan.copies, key=by_deadline))
        return plan.unresolved

    def _list_missing(self, flights: list[Flight]) -> list[str]:
        now = self._now()
        ids = dict.fromkeys(
            instance for flight in flights for instance in (flight.event.instances if flight.event else ())
        )
        return [id for id in ids if self.owners.get(id, now) is None]

    def _is_overdue(self, flight: Flight, started: float) -> bool:
        if self._patience is not None:
            return self._clock.monotonic() - started >= self._patience
        event = flight.event
        assert event is not None
        now = self._latest_time(self._now(), flight)
        deadline = event.deadline or (event.time or flight.message.sent or now) + NOTICE
        return deadline - now < MARGIN and self._clock.monotonic() - started >= LATE

    async def _run_dry(self, plan: BusPlan) -> None:
        """A dry run: look up, say what would be sent, and leave every message where it is."""
        for (place, urgent), ids in _group_instances(plan.unresolved).items():
            await self.resolver.resolve_instances(place, ids, urgent=urgent, patience=ROUND)
        again, now = BusPlan(), self._now()
        for flight in plan.unresolved:
            assert flight.event is not None
            self._pending.pop(flight.event.contents, None)
            self._plan_safely(flight, flight.event, again, now)
        for copy in (*plan.copies, *again.copies):
            told = copy.attributes
            log.info(
                "would send",
                id=find_event_id(copy.tag),
                kind=told.kind,
                cluster=told.cluster,
                reason=told.reason,
            )
        for flight in plan.flights:
            flight.over = True
        self._pending.clear()

    def _report_batch(self, lane: str, batch: Sequence[ReceivedMessage], plan: BusPlan) -> None:
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
        self.delivered.forget_expired(now)
        log.info("batch routed", lane=lane, messages=len(batch))

    def reload_destinations(self, registry: DestinationRegistry, rules: EventRules) -> None:
        """Use other destinations from now on; what is on its way keeps its address."""
        self.registry, self.rules = registry, rules
        self._asked_for.clear()
        urls = {each.queue_url for each in registry} | {each.park_url for each in registry} | {self._park_url}
        self.sender.forget_queues(urls)

    async def close(self) -> None:
        await self.resolver.close()


class _FlightGate:
    """Admits flights of a lane as long as its shell has few enough messages to delete."""

    def __init__(self, undeleted: UndeletedMessages) -> None:
        self._undeleted = undeleted

    async def admit(self, flights: Sequence[Flight], /) -> None:
        await self._undeleted.admit([each.message.receipt for each in flights])

    def withdraw(self, flights: Sequence[Flight], /) -> None:
        self._undeleted.withdraw([each.message.receipt for each in flights])


def _build_gate(copies: Sequence[BusCopy[Flight]]) -> _FlightGate | None:
    """The gate of the shell that these came from; a batch comes from one."""
    undeleted = copies[0].tag.settle.undeleted if copies else None
    return _FlightGate(undeleted) if undeleted is not None else None


def _group_instances(flights: Iterable[Flight]) -> dict[tuple[BusPlace, bool], list[str]]:
    found: dict[tuple[BusPlace, bool], list[str]] = {}
    for flight in flights:
        if flight.event is not None:
            found.setdefault((flight.event.place, flight.event.urgent), []).extend(flight.event.instances)
    return found
