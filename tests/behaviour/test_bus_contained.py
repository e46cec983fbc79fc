"""One bad item stops nobody: messages, bodies and registry entries are set aside one by one, and named."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail.bus import planning
from dovetail.bus.config import BusConfig, read_config
from dovetail.bus.destinations import Destination
from dovetail.bus.events import BusEvent, EventRules, MessageRefusal, ReceivedMessage, read_event
from dovetail.bus.generate import GeneratedFleet, generate_fis_experiment, generate_health_pages
from dovetail.bus.pipeline import Pipeline
from dovetail.bus.ports import BusTally
from dovetail.bus.route import RoutedEvent, route_event
from dovetail.bus.sources import DestinationSources
from dovetail.sim.clock import VirtualClock, run_virtual
from support.log_lines import open_json_lines
from support.queues import BULK, DLQ, PARK, URGENT, FleetAws, document

A, B = "cluster-000", "cluster-001"
LONG = "9" * 5_000
Json = dict[str, Any]


def bare(instances: int = 4) -> tuple[FleetAws, VirtualClock, BusTally]:
    clock = VirtualClock()
    return FleetAws(GeneratedFleet.generate_fleet(2, instances), clock), clock, BusTally()


def warnings(aws: FleetAws, clock: VirtualClock) -> list[str]:
    told = generate_fis_experiment(aws.fleet, aws.fleet.instances, start=clock.now())
    return [each.body for each in told if each.kind == "spot_interrupted"]


def health(aws: FleetAws, clock: VirtualClock, **members: Any) -> Json:
    (page,) = generate_health_pages(aws.fleet, pages=1, backup=False, start=clock.now())
    found: Json = json.loads(page.body)
    found["detail"] |= members
    return found


def record(aws: FleetAws, queue: str, id: str, body: str, **more: Any) -> Json:
    facts = {"SentTimestamp": "0", "ApproximateReceiveCount": "1", "SenderId": "AIDASIMULATED0000000"}
    return {
        "messageId": id,
        "receiptHandle": id,
        "body": body,
        "attributes": facts,
        "messageAttributes": {},
        "eventSourceARN": aws.queue(queue).arn,
        **more,
    }


def instances_told(aws: FleetAws, cluster: str) -> set[str]:
    bodies = [json.loads(body) for body in aws.bodies(cluster)]
    return {
        each["entityValue"] for body in bodies for each in body["detail"]["affectedEntities"] if each != "x"
    }


def test_a_health_event_with_names_that_differ_only_in_case_reaches_its_clusters() -> None:
    async def story() -> None:
        aws, clock, _ = bare()
        event = health(aws, clock)
        event["detail"] = {"AffectedEntities": ["x"], **event["detail"]}
        for entity in event["detail"]["affectedEntities"]:
            entity |= {"entityvalue": entity["entityValue"], "ENTITYVALUE": entity["entityValue"]}
        async with aws.routing():
            aws.queue(BULK).send(json.dumps(event))
            await aws.drained(60.0)

        for cluster, instances in aws.fleet.clusters.items():
            assert instances_told(aws, cluster) == set(instances)

    run_virtual(story())


@pytest.fixture
def faulty_routing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Routing meets a bug, of whatever kind, with Health events."""

    def meets_a_bug(event: BusEvent, *given: Any, **named: Any) -> RoutedEvent:
        if event.kind == "scheduled_change":
            raise RuntimeError("a bug nobody knows of yet")
        return route_event(event, *given, **named)

    monkeypatch.setattr(planning, "route_event", meets_a_bug)


@pytest.mark.usefixtures("faulty_routing")
def test_a_message_that_meets_a_bug_goes_to_the_dead_letters_and_its_neighbours_arrive() -> None:
    async def story() -> None:
        aws, clock, counts = bare()
        told: list[str] = []
        daemon = aws.daemon(counts=counts)
        bad = json.dumps(health(aws, clock))
        good = warnings(aws, clock)
        aws.queue(BULK).send(bad)
        for body in good:
            aws.queue(BULK).send(body)
        with open_json_lines(told.append):
            async with aws.running(daemon):
                await aws.drained(1500.0)

        assert aws.bodies(DLQ) == [bad]
        assert Counter(aws.bodies(A) + aws.bodies(B)) == Counter(good)
        assert counts.totals["kept_total", "bug"] == 5
        assert len([line for line in told if "met a bug" in line]) == 1

    run_virtual(story())


def test_a_body_that_meets_a_bug_goes_to_the_dead_letters_and_its_neighbours_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def meets_a_bug(received: ReceivedMessage, rules: EventRules) -> tuple[str, BusEvent | MessageRefusal]:
        if received.body == "bad":
            raise RuntimeError("a bug nobody knows of yet")
        return read_event(received, rules)

    monkeypatch.setattr(planning, "read_event", meets_a_bug)

    async def story() -> None:
        aws, clock, _ = bare()
        good = warnings(aws, clock)
        for body in ("bad", *good):
            aws.queue(BULK).send(body)
        async with aws.routing():
            await aws.drained(1500.0)

        assert aws.bodies(DLQ) == ["bad"]
        assert Counter(aws.bodies(A) + aws.bodies(B)) == Counter(good)

    run_virtual(story())


@pytest.mark.usefixtures("faulty_routing")
def test_on_lambda_only_the_message_that_meets_a_bug_fails() -> None:
    async def story() -> None:
        aws, clock, _ = bare()
        good = warnings(aws, clock)
        records = [record(aws, BULK, f"good-{n}", body) for n, body in enumerate(good)]
        records.insert(1, record(aws, BULK, "bad", json.dumps(health(aws, clock))))

        answer = await aws.function().handle_call({"Records": records}, 30.0)

        assert answer == {"batchItemFailures": [{"itemIdentifier": "bad"}]}
        assert Counter(aws.bodies(A) + aws.bodies(B)) == Counter(good)

    run_virtual(story())


@pytest.mark.parametrize(
    "odd",
    [
        {"messageAttributes": {"dt.hops": {"stringValue": LONG, "dataType": "Number"}}},
        {"messageAttributes": {"dt.hops": "one"}},
        {"messageAttributes": ["dt.hops"]},
        {"attributes": {"SentTimestamp": LONG, "ApproximateReceiveCount": LONG}},
        {"attributes": "none"},
    ],
)
def test_a_record_with_absurd_attributes_fails_no_other_record(odd: Mapping[str, Any]) -> None:
    async def story() -> None:
        aws, clock, _ = bare()
        first, *good = warnings(aws, clock)
        records = [record(aws, URGENT, f"good-{n}", body) for n, body in enumerate(good)]
        records.append(record(aws, URGENT, "odd", first, **odd))

        answer = await aws.function().handle_call({"Records": records}, 5.0)

        failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
        assert failed <= {"odd"}
        arrived = Counter(aws.bodies(A) + aws.bodies(B))
        arrived.subtract(good)
        assert arrived.total() + len(aws.bodies(PARK)) + len(failed) == 1

    run_virtual(story())


def test_hops_of_five_thousand_digits_are_too_many_for_the_daemon_too() -> None:
    async def story() -> None:
        aws, clock, counts = bare()
        first, *good = warnings(aws, clock)
        aws.queue(URGENT).send(first, {"dt.hops": {"DataType": "Number", "StringValue": LONG}})
        for body in good:
            aws.queue(URGENT).send(body)
        async with aws.routing(counts=counts):
            await aws.drained(60.0)

        assert Counter(aws.bodies(A) + aws.bodies(B)) == Counter(good)
        assert counts.totals["parked_total", "loop"] == 1

    run_virtual(story())


def test_half_a_surrogate_pair_stops_no_batch_on_its_way_out() -> None:
    async def story() -> None:
        aws, clock, _ = bare()
        divided = health(aws, clock, eventDescription=[{"latestDescription": "\ud800"}])
        good = warnings(aws, clock)
        wrapped = json.dumps(
            {"event": json.dumps(json.loads(good[0]) | {"id": "other"})[:-1] + ',"x":"\ud800"}'}
        )
        for body in (json.dumps(divided), wrapped, *good[1:]):
            aws.queue(BULK).send(body)
        async with aws.routing():
            await clock.sleep(60.0)

        singles = [body for name in (A, B) for body in aws.bodies(name) if "Spot" in body]
        assert Counter(singles) == Counter(good[1:])
        for cluster, instances in aws.fleet.clusters.items():
            parts = [body for body in aws.bodies(cluster) if "Health" in body]
            assert [r for body in parts for r in json.loads(body)["resources"]].sort() == list(
                instances
            ).sort()
            assert all("\\ud800" in body for body in parts)
        assert aws.bodies(BULK) + aws.bodies(DLQ) + aws.bodies(PARK) == [wrapped]

    run_virtual(story())


def test_warnings_of_a_batch_that_fails_as_a_whole_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process, failures = Pipeline.process_batch, [RuntimeError("a bug nobody knows of yet")]

    async def fail_once(self: Pipeline, *given: Any) -> None:
        if failures:
            raise failures.pop()
        await process(self, *given)

    monkeypatch.setattr(Pipeline, "process_batch", fail_once)

    async def story() -> None:
        aws, clock, _ = bare()
        good = warnings(aws, clock)
        for body in good:
            aws.queue(URGENT).send(body)
        async with aws.routing():
            await aws.drained(60.0)

        assert Counter(aws.bodies(A) + aws.bodies(B)) == Counter(good)

    run_virtual(story())


def test_a_source_of_the_registry_that_meets_a_bug_silences_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def meets_a_bug(self: DestinationSources) -> AsyncIterator[Destination]:
        raise RuntimeError("a bug nobody knows of yet")
        yield

    monkeypatch.setattr(DestinationSources, "_list_table_items", meets_a_bug)

    async def story() -> None:
        aws, _, counts = bare()
        value = json.dumps({"cluster": A, "queueUrl": aws.queue(A).url})
        await aws.sim.call("ssm", "PutParameter", {"Name": "/bus/a", "Value": value, "Type": "String"})
        config = aws.config(destinations=[], registry={"dynamodb": "registry", "ssm": "/bus"})

        registry = await DestinationSources(config, aws, counts=counts).read_destinations()

        assert [each.cluster.name for each in registry] == [A]
        assert counts.totals["registry_problems_total", "dynamodb"] == 1

    run_virtual(story())


def entry(aws: FleetAws, name: str, **more: Any) -> Json:
    return {
        "pk": {"S": f"{aws.fleet.account}#{aws.region}#{name}"},
        "queueUrl": {"S": aws.queue(A).url},
        **more,
    }


def hostile_entries(aws: FleetAws) -> Json:
    deep: Json = {"S": "x"}
    for _ in range(1_990):
        deep = {"L": [deep]}
    return {
        "exponent": entry(aws, "exponent", maxAgeSeconds={"N": "1E+3"}),
        "digits": entry(aws, "digits", maxAgeSeconds={"N": "9" * 400}),
        "endless": entry(aws, "endless", maxAgeSeconds={"N": LONG}),
        "huge": entry(aws, "huge", maxAgeSeconds={"N": "9E+99"}),
        "deep": entry(aws, "deep", kinds=deep),
        "number": entry(aws, "number", paused={"N": "9E+15"}),
        "shapeless": entry(aws, "shapeless", kinds={}),
        "listed": {"pk": ["a"]},
        "good": entry(aws, A),
    }


def test_a_bad_entry_of_the_table_is_named_once_and_the_router_starts_with_the_rest() -> None:
    async def story() -> None:
        aws, clock, counts = bare()
        aws.tables["registry"] = hostile_entries(aws)
        told: list[str] = []
        config = aws.config(destinations=[], registry={"dynamodb": "registry", "reload": "10s"})
        daemon = aws.daemon(config, counts)
        with open_json_lines(told.append):
            async with aws.running(daemon):
                await clock.sleep(35.0)
                assert daemon.pipeline is not None
                registry = {each.cluster.name: each for each in daemon.pipeline.registry}

        assert set(registry) == {A, "exponent"}
        assert registry["exponent"].max_age == 1000.0
        said = [line for line in told if "a destination could not be read" in line]
        assert len(said) == 7
        assert counts.totals["registry_problems_total", "dynamodb"] >= 3 * 7

    run_virtual(story())


def test_a_parameter_nested_two_thousand_deep_silences_no_other() -> None:
    async def story() -> None:
        aws, _, counts = bare()
        good = {"cluster": A, "queueUrl": aws.queue(A).url}
        for name, value in (
            ("deep", '{"cluster":' + "[" * 1_990 + "]" * 1_990 + "}"),
            ("deeper", "[" * 200_000),
            ("digits", json.dumps(good | {"cluster": B})[:-1] + f', "maxAgeSeconds": {"9" * 400}}}'),
            ("endless", json.dumps(good | {"cluster": B})[:-1] + f', "maxAgeSeconds": {LONG}}}'),
            ("good", json.dumps(good)),
        ):
            asked = {"Name": f"/bus/{name}", "Value": value, "Type": "String"}
            await aws.sim.call("ssm", "PutParameter", asked)
        config = aws.config(destinations=[], registry={"ssm": "/bus"})

        registry = await DestinationSources(config, aws, counts=counts).read_destinations()

        assert [each.cluster.name for each in registry] == [A]
        assert counts.totals["registry_problems_total", "ssm"] == 4

    run_virtual(story())


def test_an_item_that_publishes_nothing_keeps_no_instance_from_being_looked_up() -> None:
    async def story() -> None:
        aws, clock, _ = bare()
        good = warnings(aws, clock)
        for id in aws.fleet.instances[:2]:
            aws.tables.setdefault("instances", {})[id] = {"id": {"S": id}, "clusters": {"S": "shop"}}
        async with aws.routing(aws.config(pushed__dynamodb="instances", ec2__prefetch="0s")):
            for body in good:
                aws.queue(URGENT).send(body)
            await aws.drained(30.0)

        assert Counter(aws.bodies(A) + aws.bodies(B)) == Counter(good)

    run_virtual(story())


def test_a_queue_of_a_clusters_name_that_is_made_later_is_found_within_a_minute() -> None:
    async def story() -> None:
        aws, clock, _ = bare()
        later = aws.sim.queues.by_name.pop(B)
        config = aws.config(destinations=[], registry__byName=True)
        good = warnings(aws, clock)
        async with aws.routing(config):
            for body in good:
                aws.queue(URGENT).send(body)
            await aws.drained(60.0)
            assert len(aws.bodies(PARK)) == 2

            aws.sim.queues.by_name[B] = later
            await clock.sleep(61.0)
            for body in aws.bodies(PARK):
                aws.queue(URGENT).send(body)
            await aws.drained(60.0)
            assert Counter(aws.bodies(A) + aws.bodies(B)) == Counter(good)

            del aws.sim.queues.by_name[A]
            await clock.sleep(61.0)
            aws.queue(URGENT).send(json.dumps(json.loads(good[0]) | {"id": "again"}))
            aws.queue(URGENT).send(json.dumps(json.loads(good[1]) | {"id": "again"}))
            await aws.drained(60.0)

        reasons = Counter(m.attributes["dt.reason"]["StringValue"] for m in aws.queue(PARK).messages.values())
        assert reasons == {"no_destination": 4}  # and not `refused`, as by an old address

    run_virtual(story())


def test_a_throttled_search_by_name_parks_no_warning() -> None:
    async def story() -> None:
        aws, clock, counts = bare()
        config = aws.config(destinations=[], registry__byName=True)
        good = warnings(aws, clock)
        daemon = aws.daemon(config, counts)
        async with aws.running(daemon):
            aws.sim.faults.refuse("RequestThrottled", "sqs:GetQueueUrl", 3, status=400)
            for body in good:
                aws.queue(URGENT).send(body)
            await aws.drained(60.0)

        assert Counter(aws.bodies(A) + aws.bodies(B)) == Counter(good)
        assert aws.bodies(PARK) == []

    run_virtual(story())


def test_a_dry_run_on_lambda_acknowledges_nothing() -> None:
    async def story() -> None:
        aws, clock, _ = bare()
        records = [record(aws, URGENT, f"m-{n}", body) for n, body in enumerate(warnings(aws, clock))]

        answer = await aws.function(aws.config(dryRun=True)).handle_call({"Records": records}, 5.0)

        assert len(answer["batchItemFailures"]) == len(records)
        assert aws.bodies(A) == aws.bodies(B) == aws.bodies(PARK) == []

    run_virtual(story())


def test_destinations_in_the_file_are_read_again_and_a_slip_in_it_silences_nobody(tmp_path: Path) -> None:
    file = tmp_path / "router.json"

    def configured() -> BusConfig:
        return read_config(json.loads(file.read_text()), {}, where=str(file))

    async def story() -> None:
        aws, clock, counts = bare()
        whole = document(aws.fleet, registry__reload="10s")
        some = json.loads(json.dumps(whole))
        del some["bus"]["destinations"][1]
        file.write_text(json.dumps(some))
        good = warnings(aws, clock)
        daemon = aws.daemon(configured(), counts, reread=configured)
        async with aws.running(daemon):
            for body in good:
                aws.queue(URGENT).send(body)
            await aws.drained(60.0)
            assert len(aws.bodies(PARK)) == 2

            file.write_text(json.dumps(whole))
            await clock.sleep(11.0)
            broken = json.loads(json.dumps(whole))
            broken["bus"]["destinations"][0]["queueUrl"] = "nowhere"
            file.write_text(json.dumps(broken))
            await clock.sleep(11.0)
            for body in aws.bodies(PARK):
                aws.queue(URGENT).send(body)
            await aws.drained(60.0)

        assert Counter(aws.bodies(A) + aws.bodies(B)) == Counter(good)
        assert counts.totals["registry_problems_total", "file"] >= 1

    run_virtual(story())


# Values that absurd senders write where a text, a list or an object is meant.
HOSTILE: st.SearchStrategy[Any] = st.sampled_from(
    [
        None, True, 0, -1, 1e308, int("9" * 400), "", "\x00", "\ud800", "x" * 10_000, LONG,
        "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59",
        [], {}, [[]], [None], ["i-0"], {"": ""}, [{"entityValue": 1}], [{"entityValue": ["i-0"]}],
        "Sat, 31 Dec 9999 23:59:59 +9999", "Mon, 01 Jan 0001 00:00:00 -9999",
    ]
)  # fmt: skip


def paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield (*above, name)
        yield from paths(each, (*above, name))


def replaced(value: Any, path: tuple[Any, ...], by: Any, twice: bool) -> None:
    """Put a value at a place; `twice` adds it under the name in another case and leaves the first."""
    for name in path[:-1]:
        value = value[name]
    last = path[-1]
    if twice and isinstance(value, dict):
        value[str(last).swapcase()] = by
    else:
        value[last] = by


AWS = FleetAws(GeneratedFleet.generate_fleet(2, 4), VirtualClock())
EVENTS = [json.loads(warnings(AWS, VirtualClock())[0]), health(AWS, VirtualClock())]
PLACES = [(which, path) for which, event in enumerate(EVENTS) for path in paths(event)]


@settings(max_examples=400)
@given(st.sampled_from(PLACES), HOSTILE, st.booleans())
@example((1, ("detail", "affectedEntities")), ["x"], True)
@example((1, ("detail", "affectedEntities", 0, "entityValue")), 7, True)
def test_whatever_stands_in_a_field_the_other_messages_arrive(
    place: tuple[int, tuple[Any, ...]], value: Any, twice: bool
) -> None:
    async def story() -> None:
        aws, clock, _ = bare()
        event = json.loads(json.dumps(EVENTS[place[0]]))
        replaced(event, place[1], value, twice)
        good = warnings(aws, clock)
        records = [record(aws, URGENT, f"good-{n}", body) for n, body in enumerate(good)]
        records.insert(2, record(aws, URGENT, "odd", json.dumps(event | {"id": event.get("id")})))

        answer = await aws.function().handle_call({"Records": records}, 5.0)

        assert {each["itemIdentifier"] for each in answer["batchItemFailures"]} <= {"odd"}
        arrived = Counter(aws.bodies(A) + aws.bodies(B))
        assert all(arrived[body] == 1 for body in good)

    run_virtual(story())
