"""What to do with a batch, as far as nobody needs to be asked: parse, deduplicate, remember, route.

No I/O and no waiting: messages go in, a Plan comes out. What memory cannot answer is left in it, unresolved.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dovetail.bus.destinations import BusCluster, Destination
from dovetail.bus.events import (
    CANARY,
    ZONAL_SHIFT,
    BusEvent,
    Lane,
    MessageFate,
    MessageRefusal,
    ReceivedMessage,
    read_event,
)
from dovetail.bus.owners import UNKNOWN, InstanceOwners, KnownInstance
from dovetail.bus.ports import RouterContext
from dovetail.bus.queues import UndeletedMessages
from dovetail.bus.route import (
    RoutedEvent,
    build_broadcast,
    find_sole_destination,
    route_event,
    route_zonal_shift,
)
from dovetail.bus.send import BusCopy, MessageAttributes
from dovetail.errors import note_contained
from dovetail.logs import get_logger

__all__ = [
    "BusPlan",
    "DeliveredCopies",
    "Flight",
    "MessageSettler",
    "Planner",
    "by_deadline",
    "find_event_id",
]

log = get_logger("bus")

WINDOW = 600.0


class DeliveredCopies:
    """Keys of delivered copies, the oldest forgotten first."""

    def __init__(self, size: int = 200_000, window: float = WINDOW) -> None:
        self._size = size
        self._window = window
        self._keys: dict[Hashable, float] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def has_copy(self, key: Hashable, now: float) -> bool:
        """Was it delivered within the window?"""
        at = self._keys.get(key)
        return at is not None and now - at < self._window

    def add(self, key: Hashable, now: float) -> None:
        """Remember a copy that its queue has confirmed."""
        keys = self._keys
        keys.pop(key, None)
        keys[key] = now
        if len(keys) > self._size:
            del keys[next(iter(keys))]

    def forget_expired(self, now: float) -> None:
        """Let go of what is past the window; the oldest stand first."""
        keys = self._keys
        while keys:
            oldest = next(iter(keys))
            if now - keys[oldest] < self._window:
                return
            del keys[oldest]


NONE = "none"
BUG = MessageRefusal(MessageFate.KEPT, "bug")
MOST_TOLD = 500  # characters of an error


class MessageSettler(Protocol):
    """How a shell is told what became of its messages; `undeleted` bounds what it has still to delete."""

    @property
    def undeleted(self) -> UndeletedMessages | None: ...

    def settle_done(self, message: ReceivedMessage) -> None:
        """Nothing of it is left to do: it may be deleted."""

    def settle_failed(self, message: ReceivedMessage, urgent: bool) -> None:
        """It must come again."""


@dataclass(slots=True, eq=False)
class Flight:
    """A message on its way. Duplicates that come meanwhile share its fate."""

    message: ReceivedMessage
    body: str
    event: BusEvent | None
    lane: str
    settle: MessageSettler
    waiting: int = 0
    failed: bool = False
    over: bool = False
    repeated: bool = False
    followers: list[tuple[ReceivedMessage, MessageSettler]] | None = None

    @property
    def kind(self) -> str:
        return self.event.kind if self.event is not None else NONE

    @property
    def urgent(self) -> bool:
        return self.lane == Lane.URGENT if self.event is None else self.event.urgent


@dataclass(slots=True)
class BusPlan:
    """What to do with a batch: copies to send, flights with nothing to send, flights to look up."""

    flights: list[Flight] = field(default_factory=list)
    copies: list[BusCopy[Flight]] = field(default_factory=list)
    settled: list[Flight] = field(default_factory=list)
    unresolved: list[Flight] = field(default_factory=list)


class Planner:
    """Memory, rules and destinations, and what they say about messages."""

    def __init__(self, context: RouterContext, park_url: str) -> None:
        config = context.config
        self.config, self.registry = config, config.registry
        self.rules = config.rules
        self.owners = InstanceOwners(config["cache.size"])
        self.delivered = DeliveredCopies(config["dedupe.size"], config["dedupe.window"])
        self._park_url, self._clock, self._counts = park_url, context.clock, context.counts
        self._annotate: bool = config["annotateSplits"]
        self._pending: dict[Hashable, Flight] = {}
        # With `registry.byName`, owners without a destination are asked for once by their names.
        self._by_name: bool = config["registry.byName"]
        self._asked_for: set[BusCluster] = set()

    def plan_batch(self, lane: str, batch: Sequence[ReceivedMessage], settle: MessageSettler) -> BusPlan:
        """Everything that needs no asking. Warnings come out with the nearest deadline first."""
        plan, now = BusPlan(), self._now()
        kinds: dict[str, int] = {}
        for message in batch:
            body, event = self._read_message(message)
            if isinstance(event, MessageRefusal):
                kinds[NONE] = kinds.get(NONE, 0) + 1
                flight = Flight(message, body, None, lane, settle)
                plan.flights.append(flight)
                self._apply_refusal(flight, event, plan)
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

    def _read_message(self, message: ReceivedMessage) -> tuple[str, BusEvent | MessageRefusal]:
        try:
            return read_event(message, self.rules)
        except Exception as error:  # noqa: BLE001 (a body that meets a bug must not hold up its neighbours)
            self._log_bug("reading", message, error)
            return message.body, BUG

    def _plan_safely(self, flight: Flight, event: BusEvent, plan: BusPlan, now: float) -> None:
        """Plan one event. One that meets a bug is kept for the dead letters; the others go on."""
        planned = len(plan.copies)
        try:
            self._plan_one(flight, event, plan, now)
        except Exception as error:  # noqa: BLE001 (an event that meets a bug must not hold up its neighbours)
            self._log_bug("planning", flight.message, error)
            del plan.copies[planned:]
            flight.waiting = 0
            self._apply_refusal(flight, BUG, plan)

    def _log_bug(self, doing: str, message: ReceivedMessage, error: Exception) -> None:
        """Name a message that meets a bug, at its first receive; it comes again until the dead letters."""
        note_contained(error)
        tell = log.error if message.receives <= 1 else log.debug
        tell(f"{doing} a message met a bug", source=message.id, error=repr(error)[:MOST_TOLD])

    def _plan_one(self, flight: Flight, event: BusEvent, plan: BusPlan, now: float) -> None:
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
            self._plan_without_instances(flight, event, plan)
            return
        known = self._find_known(event.instances, now)
        if known is None or (self._by_name and self._list_without_destination(known.values())):
            plan.unresolved.append(flight)
            return
        only = (
            find_sole_destination(event, known[event.instances[0]], self.registry, now)
            if len(known) == 1
            else None
        )
        if only is not None:
            self._plan_copy(flight, event, only, flight.body, plan, now)
            self._finish_flight(flight, plan)
        elif event.urgent and any(each.state is UNKNOWN for each in known.values()):
            self._plan_broadcast(flight, event, plan)
        else:
            aged, annotate = self._latest_time(now, flight), self._annotate
            self._apply_route(
                flight, route_event(event, flight.body, known, self.registry, aged, annotate=annotate), plan
            )
        if event.kind == "instance_terminated":
            self.owners.mark_ended(event.instances[0], now)

    def _find_known(self, instances: tuple[str, ...], now: float) -> dict[str, KnownInstance] | None:
        """What memory says of all of them, or None when it says nothing of some."""
        known = {}
        for instance in instances:
            what = self.owners.get(instance, now)
            if what is None:
                return None
            known[instance] = what
        return known

    def _list_without_destination(self, known: Iterable[KnownInstance]) -> list[BusCluster]:
        """Owners without a destination that may still have a queue of their name."""
        owners = [cluster for each in known for cluster in each.owners]
        return [
            each
            for each in owners
            if self.registry.find_by_cluster(each) is None and each not in self._asked_for
        ]

    def _apply_route(self, flight: Flight, routed: RoutedEvent, plan: BusPlan) -> None:
        assert flight.event is not None
        now = self._now()
        for destination, body in routed.copies:
            part = routed.parts.get(destination.cluster)
            self._plan_copy(flight, flight.event, destination, body, plan, now, part)
        for reason, body, cluster in routed.parked:
            self._plan_park(flight, body, reason, plan, cluster)
        for reason in routed.dropped:
            self._count_drop(flight, reason)
        self._finish_flight(flight, plan)

    def _finish_flight(self, flight: Flight, plan: BusPlan) -> None:
        if flight.waiting:
            return
        if flight.repeated:
            self._counts.add("duplicates_total", 1)
        plan.settled.append(flight)

    def _plan_copy(
        self,
        flight: Flight,
        event: BusEvent,
        to: Destination,
        body: str,
        plan: BusPlan,
        now: float,
        part: frozenset[str] | None = None,
    ) -> None:
        """Plan a copy for a cluster, unless its queue has confirmed the same one already."""
        url, reason = to.queue_url, ""
        key: Hashable = (event.key, to.cluster) if part is None else (event.key, to.cluster, part)
        if self.delivered.has_copy(key, now):
            flight.repeated = True
            return
        if to.paused:
            url, reason = to.park_url or self._park_url, "paused"
        instance = event.instances[0] if len(event.instances) == 1 else ""
        hops = flight.message.hops + 1
        attributes = MessageAttributes(event.kind, instance, event.deadline, hops, reason, to.cluster.name)
        flight.waiting += 1
        plan.copies.append(BusCopy(url, body, flight, attributes, to, key))

    def _plan_without_instances(self, flight: Flight, event: BusEvent, plan: BusPlan) -> None:
        """Events that name no instance: a zonal shift, or the canary, whose way ends here."""
        if event.kind == ZONAL_SHIFT:
            self._apply_route(flight, route_zonal_shift(event, flight.body, self.registry), plan)
            return
        assert event.kind == CANARY
        if event.time is not None:
            self._counts.set("canary_seconds", max(self._now() - event.time, 0.0))
        plan.settled.append(flight)

    def _plan_broadcast(self, flight: Flight, event: BusEvent, plan: BusPlan) -> None:
        copies = build_broadcast(event, flight.body, self.registry)
        self._counts.add("unresolved_total", 1, event.kind)
        if self.config["unresolvedUrgent"] == "park" or not copies:
            reason = "unresolved" if copies else "no_destination"
            self._apply_route(flight, RoutedEvent(parked=[(reason, flight.body, "")]), plan)
            return
        self._counts.add("broadcast_total", 1)
        self._log_event("broadcast", flight, clusters=len(copies))
        self._apply_route(flight, RoutedEvent(copies=copies), plan)

    def _apply_refusal(self, flight: Flight, refusal: MessageRefusal, plan: BusPlan) -> None:
        if refusal.fate is MessageFate.KEPT:
            flight.failed = True
            self._counts.add("kept_total", 1, refusal.reason)
            self._log_event("kept", flight, reason=refusal.reason)
        elif refusal.fate is MessageFate.DROPPED:
            self._count_drop(flight, refusal.reason)
        else:
            self._plan_park(flight, flight.body, refusal.reason, plan)
            return
        plan.settled.append(flight)

    def _plan_park(self, flight: Flight, body: str, reason: str, plan: BusPlan, cluster: str = "") -> None:
        flight.waiting += 1
        attributes = MessageAttributes(flight.kind, hops=flight.message.hops, reason=reason, cluster=cluster)
        plan.copies.append(BusCopy(self._park_url, body, flight, attributes))

    def _count_drop(self, flight: Flight, reason: str) -> None:
        self._counts.add("dropped_total", 1, reason)
        self._log_event("dropped", flight, reason=reason)

    def _latest_time(self, now: float, flight: Flight) -> float:
        """The time, by a clock that is at least as late as the queue's was when the message came."""
        sent = flight.message.sent
        return now if sent is None or sent <= now else sent

    def _log_event(self, what: str, flight: Flight, **fields: object) -> None:
        event = flight.event
        instances = event.instances[:10] if event is not None else ()
        told: dict[str, object] = {
            "id": find_event_id(flight),
            "source": flight.message.id,
            "kind": flight.kind,
        }
        log.info("event " + what, **told, instances=instances, **fields)

    def _now(self) -> float:
        return self._clock.now().timestamp()


def by_deadline(copy: BusCopy[Flight]) -> float:
    deadline = copy.attributes.deadline
    return deadline if deadline is not None else float("inf")


def find_event_id(flight: Flight) -> str:
    return flight.event.id if flight.event is not None else ""
