"""Where events go and in which words: byte identity, division of Health events, wishes of destinations."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.aws.eventbridge import MessageKind, parse_message
from dovetail.bus.destinations import BusCluster, Destination, DestinationRegistry
from dovetail.bus.events import BusEvent, EventRules, ReceivedMessage, read_event
from dovetail.bus.owners import FOREIGN, OWNED, UNKNOWN, KnownInstance
from dovetail.bus.route import build_broadcast, find_sole_destination, route_event, route_zonal_shift

GOLDEN = Path(__file__).parent / "golden"
ACCOUNT, REGION = "123456789012", "us-east-2"
RULES = EventRules(
    frozenset({ACCOUNT}), frozenset({REGION}), optional_kinds=frozenset({"asg_terminate", "zonal_shift"})
)
A, B, C = "i-0aaaabbbbccccdddd", "i-0bbbbccccddddeeee", "i-0ccccddddeeeeffff"
NOW = 1770112800.0


def cluster(name: str) -> BusCluster:
    return BusCluster(ACCOUNT, REGION, name)


def to(name: str, **wishes: object) -> Destination:
    url = f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{name}"
    return replace(Destination(cluster(name), url), **wishes)  # type: ignore[arg-type]


def owned(*names: str) -> KnownInstance:
    return KnownInstance(OWNED, tuple(map(cluster, names)), NOW + 1000, NOW)


def golden(name: str) -> tuple[str, BusEvent]:
    body = (GOLDEN / f"{name}.json").read_text(encoding="utf-8")
    kept, event = read_event(ReceivedMessage("m", body), RULES)
    assert isinstance(event, BusEvent)
    assert kept == body
    return body, event


SINGLE = [
    path.stem
    for path in sorted(GOLDEN.glob("*.json"))
    if path.stem not in ("scheduled_change", "zonal_shift")
]


@pytest.mark.parametrize("name", SINGLE)
def test_an_event_about_one_instance_goes_out_byte_for_byte(name: str) -> None:
    body, event = golden(name)

    routed = route_event(event, body, {A: owned("prod")}, DestinationRegistry([to("prod")]), NOW)

    assert [(each.cluster.name, text) for each, text in routed.copies] == [("prod", body)]
    assert find_sole_destination(event, owned("prod"), DestinationRegistry([to("prod")]), NOW) == to("prod")
    assert (routed.parked, routed.dropped) == ([], [])


def test_a_health_event_is_divided_and_nothing_else_in_it_changes() -> None:
    body, event = golden("scheduled_change")
    known = {A: owned("one"), B: owned("two"), C: owned("one")}

    routed = route_event(event, body, known, DestinationRegistry([to("one"), to("two")]), NOW)

    copies = {each.cluster.name: json.loads(text) for each, text in routed.copies}
    whole = json.loads(body)
    assert [entity["entityValue"][-19:] for entity in copies["one"]["detail"]["affectedEntities"]] == [A, C]
    assert copies["one"]["resources"] == [A, C]
    assert copies["two"]["resources"] == [B]
    for part in copies.values():
        assert list(part) == list(whole)
        assert {k: v for k, v in part.items() if k not in ("detail", "resources")} == {
            k: v for k, v in whole.items() if k not in ("detail", "resources")
        }
        assert {**part["detail"], "affectedEntities": 0} == {**whole["detail"], "affectedEntities": 0}
        assert parse_message(json.dumps(part)).kind is MessageKind.SCHEDULED_CHANGE


def test_a_health_event_of_one_cluster_is_not_touched() -> None:
    body, event = golden("scheduled_change")
    known = {A: owned("one"), B: owned("one"), C: owned("one")}

    assert route_event(event, body, known, DestinationRegistry([to("one")]), NOW).copies == [
        (to("one"), body)
    ]


def test_parts_are_marked_only_when_asked() -> None:
    body, event = golden("scheduled_change")
    known = {A: owned("one"), B: owned("two"), C: KnownInstance(FOREIGN, (), NOW + 1, NOW)}
    registry = DestinationRegistry([to("one"), to("two", format="annotated")])

    told = {
        each.cluster.name: json.loads(text)
        for each, text in route_event(event, body, known, registry, NOW).copies
    }
    marked = route_event(event, body, known, registry, NOW, annotate=True).copies

    assert "dovetail" not in told["one"]["detail"]
    assert told["two"]["detail"]["dovetail"] == {"split": True, "of": 2}
    assert all(json.loads(text)["detail"]["dovetail"]["split"] for _, text in marked)


def test_entities_of_no_cluster_are_left_out_and_counted() -> None:
    body, event = golden("scheduled_change")
    known = {
        A: owned("one"),
        B: KnownInstance(FOREIGN, (), NOW, NOW),
        C: KnownInstance(UNKNOWN, (), NOW, NOW),
    }

    routed = route_event(event, body, known, DestinationRegistry([to("one")]), NOW)

    assert json.loads(routed.copies[0][1])["resources"] == [A]
    assert routed.dropped == ["foreign", "unresolvable"]


def test_an_owner_that_is_not_registered_gets_its_part_parked() -> None:
    body, event = golden("scheduled_change")
    known = {A: owned("one"), B: owned("lost"), C: owned("one")}

    routed = route_event(event, body, known, DestinationRegistry([to("one")]), NOW)

    ((reason, part, whose),) = routed.parked
    assert (reason, whose, json.loads(part)["resources"]) == ("no_destination", "lost", [B])


def test_every_cluster_that_owns_an_instance_hears_of_it() -> None:
    body, event = golden("spot_interrupted")
    routed = route_event(
        event, body, {A: owned("one", "two")}, DestinationRegistry([to("one"), to("two")]), NOW
    )
    assert [each.cluster.name for each, _ in routed.copies] == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "wishes", "reason"),
    [
        ("rebalance_recommendation", {"rebalance": "skip"}, "unsubscribed"),
        ("state_stopping", {"kinds": frozenset({"spot_interrupted"})}, "unsubscribed"),
        ("state_stopping", {"max_age": 60.0}, "too_old"),
    ],
)
def test_a_destination_hears_what_it_wants(name: str, wishes: dict[str, object], reason: str) -> None:
    body, event = golden(name)
    later = NOW + 3600

    routed = route_event(event, body, {A: owned("one")}, DestinationRegistry([to("one", **wishes)]), later)

    assert (routed.copies, routed.dropped) == ([], [reason])
    assert (
        find_sole_destination(event, owned("one"), DestinationRegistry([to("one", **wishes)]), later) is None
    )


def test_a_warning_is_never_too_old() -> None:
    body, event = golden("spot_interrupted")
    registry = DestinationRegistry([to("one", max_age=60.0)])
    assert len(route_event(event, body, {A: owned("one")}, registry, NOW + 9999).copies) == 1


@pytest.mark.parametrize(("wants", "copies"), [(False, 0), (True, 1)])
def test_a_closed_maintenance_is_no_call_to_drain(wants: bool, copies: int) -> None:
    raw = json.loads((GOLDEN / "scheduled_change.json").read_text())
    closed = json.dumps({**raw, "detail": {**raw["detail"], "statusCode": "closed"}})
    _, event = read_event(ReceivedMessage("m", closed), RULES)
    assert isinstance(event, BusEvent)

    routed = route_event(
        event,
        closed,
        dict.fromkeys((A, B, C), owned("one")),
        DestinationRegistry([to("one", include_closed=wants)]),
        NOW,
    )

    assert len(routed.copies) == copies
    assert routed.dropped == ([] if wants else ["closed"])


def test_a_broadcast_reaches_the_place_and_no_further() -> None:
    body, event = golden("spot_interrupted")
    elsewhere = Destination(
        BusCluster(ACCOUNT, "eu-west-1", "far"), "https://sqs.eu-west-1.amazonaws.com/1/far"
    )
    stranger = Destination(
        BusCluster("210987654321", REGION, "other"), "https://sqs.us-east-2.amazonaws.com/2/other"
    )
    registry = DestinationRegistry([to("one"), to("two"), elsewhere, stranger])

    assert [each.cluster.name for each, _ in build_broadcast(event, body, registry)] == ["one", "two"]


def test_a_zonal_shift_goes_to_the_clusters_it_names_or_to_all() -> None:
    body, event = golden("zonal_shift")
    registry = DestinationRegistry([to("cluster-001"), to("cluster-002")])
    everyone = json.dumps({**json.loads(body), "resources": []})
    _, unnamed = read_event(ReceivedMessage("m", everyone), RULES)
    assert isinstance(unnamed, BusEvent)

    assert [each.cluster.name for each, _ in route_zonal_shift(event, body, registry).copies] == [
        "cluster-001"
    ]
    assert len(route_zonal_shift(unnamed, everyone, registry).copies) == 2
    assert route_zonal_shift(event, body, DestinationRegistry()).parked == [
        ("no_destination", body, "cluster-001")
    ]
