"""Nothing is lost: a model watches every message while routers start, crash and meet failures."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dovetail.bus.destinations import BusCluster, Destination, DestinationRegistry
from dovetail.bus.events import BusEvent, EventRules, ReceivedMessage, read_event
from dovetail.bus.generate import (
    GeneratedEvent,
    GeneratedFleet,
    generate_fis_experiment,
    generate_health_pages,
)
from dovetail.bus.owners import FOREIGN, OWNED, UNKNOWN, KnownInstance
from dovetail.bus.ports import BusTally
from dovetail.bus.route import find_sole_destination, route_event
from dovetail.sim.clock import VirtualClock, VirtualLoop
from support.queues import BULK, CENTRAL, DLQ, PARK, URGENT, FleetAws

CLUSTERS = 4
ODD = {
    "poison": "{",
    "forged": '{"version":"0","id":"f%d","detail-type":"EC2 Spot Instance Interruption Warning",'
    '"source":"evil","account":"123456789012","time":"2026-01-01T00:00:00Z","region":"us-east-2","resources":[],"detail":{}}',
    "unwanted": '{"version":"0","id":"u%d","detail-type":"EC2 Instance State-change Notification",'
    '"source":"aws.ec2","account":"123456789012","time":"2026-01-01T00:00:00Z","region":"us-east-2",'
    '"resources":[],"detail":{"instance-id":"i-0aa","state":"running"}}',
}


class Routers(RuleBasedStateMachine):
    """Events and failures of every sort, crashes at any time; then calm, and the books are checked."""

    @initialize(seed=st.integers(0, 1000))
    def begin(self, seed: int) -> None:
        self.loop = VirtualLoop()
        self.runner = asyncio.Runner(loop_factory=lambda: self.loop)
        self.seed, self.number = seed, 0
        self.runner.run(self._founded())
        self.routers: list[asyncio.Task[None]] = []
        self.owed: dict[str, Counter[str]] = {name: Counter() for name in self.fleet.clusters}
        self.odd: Counter[str] = Counter()

    async def _founded(self) -> None:
        self.clock, self.counts = VirtualClock(), BusTally()
        self.fleet = GeneratedFleet.generate_fleet(CLUSTERS, 24, self.seed)
        self.aws = FleetAws(self.fleet, self.clock, visibility=(30, 60))
        self.aws.tags["i-0bastion"] = {"Name": "bastion"}

    def owe(self, happening: GeneratedEvent) -> None:
        owner = self.fleet.map_owners()
        for instance in happening.instances:
            if instance in owner:
                self.owed[owner[instance]][f"{json.loads(happening.body)['id']} {instance}"] += 1

    @rule(which=st.lists(st.integers(0, 23), min_size=1, max_size=5, unique=True), copies=st.integers(1, 2))
    def instances_are_reclaimed(self, which: list[int], copies: int) -> None:
        self.number += 1
        chosen = [self.fleet.instances[index] for index in which]
        for happening in generate_fis_experiment(
            self.fleet, chosen, seed=1000 + self.number, start=self.clock_now()
        ):
            self.owe(happening)
            for _ in range(copies):
                self.aws.put(happening)

    @rule()
    def a_health_event_comes_in_pages(self) -> None:
        self.number += 1
        for happening in generate_health_pages(
            self.fleet, 5000 + self.number, pages=2, start=self.clock_now()
        ):
            if "false" in happening.body.partition("backupEvent")[2][:12]:
                self.owe(happening)
            self.aws.put(happening)

    @rule(what=st.sampled_from(sorted(ODD)), lane=st.sampled_from([URGENT, BULK]))
    def something_odd_comes(self, what: str, lane: str) -> None:
        self.number += 1
        body = ODD[what] % self.number if "%d" in ODD[what] else ODD[what] + str(self.number)
        self.odd[what] += 1
        self.aws.queue(lane).send(body)

    @rule()
    def a_stranger_is_spoken_of(self) -> None:
        self.number += 1
        for happening in generate_fis_experiment(
            self.fleet, ["i-0bastion"], seed=9000 + self.number, start=self.clock_now()
        ):
            self.aws.put(happening)

    @precondition(lambda self: len(self.routers) < 2)
    @rule()
    def a_router_starts(self) -> None:
        async def start() -> None:
            daemon = self.aws.daemon(self.aws.config(ec2__prefetch="0s"), self.counts)
            self.routers.append(asyncio.get_running_loop().create_task(daemon.run(asyncio.Event())))

        self.runner.run(start())

    @precondition(lambda self: self.routers)
    @rule(choice=st.randoms(use_true_random=False))
    def a_router_crashes(self, choice: Any) -> None:
        """Everything it was doing stops at once: no goodbye, no cleaning up."""

        async def crash() -> None:
            self.routers.clear()
            here = asyncio.current_task()
            for task in asyncio.all_tasks() - {here}:
                task.cancel()
            await asyncio.sleep(0)

        # Crashing is stopping mid-flight, so the cleanup a cancelled batch does must not reach the queues.
        self.aws.silenced = True
        self.runner.run(crash())
        self.aws.silenced = False

    @rule(seconds=st.sampled_from([0.01, 0.03, 0.07, 0.3, 1.1, 5.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)

        self.runner.run(wait())

    @rule(name=st.sampled_from([f"cluster-{n:03d}" for n in range(CLUSTERS)]), fails=st.booleans())
    def a_queue_changes_its_mind(self, name: str, fails: bool) -> None:
        (self.aws.failing.add if fails else self.aws.failing.discard)(name)

    @rule(down=st.booleans())
    def ec2_comes_and_goes(self, down: bool) -> None:
        self.aws.ec2_down = down

    @invariant()
    def nothing_is_anywhere_it_does_not_belong(self) -> None:
        """I1: what left the central queues is with its owner, parked, dead, or dropped and counted."""
        if not hasattr(self, "aws"):
            return
        central = [body for name in CENTRAL for body in self.aws.bodies(name)]
        waiting = Counter(key for body in central for key in _keys(body))
        for name, owed in self.owed.items():
            got = self._told(name)
            missing = [key for key in owed if key not in got and key not in waiting and not self._dead(key)]
            assert missing == [], f"{name} is owed {missing}"

    def _told(self, name: str) -> Counter[str]:
        return Counter(key for body in self.aws.bodies(name) for key in _keys(body))

    def _dead(self, key: str) -> bool:
        return any(key in _keys(body) for body in self.aws.bodies(DLQ))

    def clock_now(self) -> Any:
        async def now() -> Any:
            return self.clock.now()

        return self.runner.run(now())

    def teardown(self) -> None:
        if not hasattr(self, "aws"):
            return
        self.aws.failing.clear()
        self.aws.ec2_down = False

        async def calm() -> None:
            daemon, stop = self.aws.daemon(self.aws.config(), self.counts), asyncio.Event()
            task = asyncio.create_task(daemon.run(stop))
            await self.aws.drained(7200.0)
            stop.set()
            await task

        self.runner.run(calm())
        dead = self.aws.bodies(DLQ)
        for name, owed in self.owed.items():
            got = self._told(name)
            assert all(key in got or self._dead(key) for key in owed)
        assert sum(body.startswith("{") and not body.endswith("}") for body in dead) == self.odd["poison"]
        assert sum('"evil"' in body for body in self.aws.bodies(PARK)) >= self.odd["forged"]
        self.runner.close()


def _keys(body: str) -> list[str]:
    """What a body is about: the event's id with each instance."""
    try:
        document = json.loads(body)
    except ValueError:
        return []
    detail = document.get("detail", {})
    named = [detail["instance-id"]] if "instance-id" in detail else []
    named += [entity["entityValue"] for entity in detail.get("affectedEntities", ())]
    return [f"{document['id']} {id}" for id in named]


Routers.TestCase.settings = settings(max_examples=15, stateful_step_count=25)
TestRouters = Routers.TestCase


NAMES = ("one", "two", "three")
RULES = EventRules(frozenset({"123456789012"}), frozenset({"us-east-2"}))


def _cluster(name: str) -> BusCluster:
    return BusCluster("123456789012", "us-east-2", name)


destinations = st.builds(
    lambda name, kinds, rebalance, age: Destination(
        _cluster(name), f"https://sqs/1/{name}", kinds=kinds, rebalance=rebalance, max_age=age
    ),
    st.sampled_from(NAMES),
    st.none() | st.sets(st.sampled_from(["spot_interrupted", "instance_terminated"])).map(frozenset),
    st.sampled_from(["forward", "skip"]),
    st.none() | st.floats(1, 1000),
)
knowledge = st.one_of(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True).map(
        lambda names: KnownInstance(OWNED, tuple(map(_cluster, names)), 1e12, 0.0)
    ),
    st.sampled_from([KnownInstance(FOREIGN, (), 1e12, 0.0), KnownInstance(UNKNOWN, (), 1e12, 0.0)]),
)


@given(st.integers(0, 3), knowledge, st.lists(destinations, max_size=4), st.floats(1.7e9, 1.8e9))
def test_the_short_road_and_the_long_one_agree(
    which: int, known: KnownInstance, given_to: list[Destination], now: float
) -> None:
    fleet = GeneratedFleet.generate_fleet(1, 1)
    happening = list(generate_fis_experiment(fleet, fleet.instances))[which]
    body, event = read_event(ReceivedMessage("m", happening.body), RULES)
    assert isinstance(event, BusEvent)
    registry = DestinationRegistry(given_to)

    short = find_sole_destination(event, known, registry, now)
    long = route_event(event, body, {fleet.instances[0]: known}, registry, now)

    if short is not None:
        assert (long.copies, long.parked, long.dropped) == ([(short, body)], [], [])
    else:
        assert len(long.copies) != 1 or len(known.owners) > 1


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), min_size=1, max_size=12), st.booleans())
def test_division_keeps_every_entity_and_invents_none(owners: list[tuple[str, bool]], annotate: bool) -> None:
    fleet = GeneratedFleet.generate_fleet(1, len(owners))
    (page,) = list(generate_health_pages(fleet, pages=1, backup=False))
    body, event = read_event(ReceivedMessage("m", page.body), RULES)
    assert isinstance(event, BusEvent)
    known = {
        id: KnownInstance(OWNED, (_cluster(name),), 1e12, 0.0)
        if owned
        else KnownInstance(FOREIGN, (), 1e12, 0.0)
        for id, (name, owned) in zip(event.instances, owners, strict=True)
    }
    registry = DestinationRegistry(Destination(_cluster(name), f"https://sqs/1/{name}") for name in NAMES)

    routed = route_event(event, body, known, registry, 0.0, annotate=annotate)

    told = Counter(
        (each.cluster.name, entity["entityValue"])
        for each, text in routed.copies
        for entity in json.loads(text)["detail"]["affectedEntities"]
    )
    wanted = Counter((what.owners[0].name, id) for id, what in known.items() if what.state is OWNED)
    assert told == wanted
    assert len(routed.dropped) == sum(what.state is FOREIGN for what in known.values())


@given(
    st.text(max_size=300)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    ).map(json.dumps)
)
def test_no_body_makes_the_reader_stumble(body: str) -> None:
    kept, found = read_event(ReceivedMessage("m", body), RULES)
    assert isinstance(kept, str)
    assert found is not None
