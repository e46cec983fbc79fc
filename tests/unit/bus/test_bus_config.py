"""The router's configuration: every key from a document or a variable, and one sentence when it is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dovetail.bus.config import FIELDS, KEYS, read_config
from dovetail.bus.destinations import BusCluster, DestinationRegistry, parse_destination
from dovetail.errors import Misconfigured

URL = "https://sqs.us-east-2.amazonaws.com/123456789012/prod-a"
GOOD: dict[str, Any] = {
    "mode": "daemon",
    "region": "us-east-2",
    "queues": {"urgent": "u", "bulk": "b", "park": "p"},
    "batch": {"urgent": {"size": 100, "window": "1s"}, "bulk": {"size": 1000, "window": "5s"}},
    "ec2": {"callsPerSecond": 5, "chunk": 200, "prefetch": "15m"},
    "tags": ["eks:eks-cluster-name", "aws:eks:cluster-name", "kubernetes.io/cluster/*"],
    "unresolvedUrgent": "broadcast",
    "accounts": [
        {"id": "123456789012", "roleArn": None},
        {"id": "210987654321", "roleArn": "arn:aws:iam::210987654321:role/Reader", "externalId": "x"},
    ],
    "destinations": [
        {"account": "123456789012", "cluster": "prod-a", "queueUrl": URL, "rebalance": "forward"}
    ],
    "dryRun": False,
}


def test_the_documented_example_is_read() -> None:
    config = read_config({"bus": GOOD}, {})

    assert config["ec2.prefetch"] == 900.0
    assert config.get_batch_limits("bulk").size == 1000
    assert config.rules.accounts == {"123456789012", "210987654321"}
    found = config.registry.find_by_cluster(BusCluster("123456789012", "us-east-2", "prod-a"))
    assert found is not None
    assert found.queue_url == URL


def test_every_key_has_a_variable_and_the_variable_wins() -> None:
    environment = {
        "DOVETAIL_BUS_EC2_CALLS_PER_SECOND": "2.5",
        "DOVETAIL_BUS_BATCH_URGENT_WINDOW": "500ms",
        "DOVETAIL_BUS_DRY_RUN": "true",
        "DOVETAIL_BUS_QUEUES_PARK": "elsewhere",
        "DOVETAIL_BUS_DESTINATIONS": json.dumps(
            [{"account": "123456789012", "cluster": "b", "queueUrl": URL}]
        ),
    }

    config = read_config({"bus": GOOD}, environment)

    assert (config["ec2.callsPerSecond"], config["batch.urgent.window"], config["dryRun"]) == (2.5, 0.5, True)
    assert config["queues.park"] == "elsewhere"
    assert [each.cluster.name for each in config.registry] == ["b"]
    assert len({key.variable for key in KEYS}) == len(KEYS)


def test_a_function_needs_no_file() -> None:
    config = read_config(None, {"AWS_REGION": "eu-west-1"})
    assert (config["region"], len(config.registry)) == ("eu-west-1", 0)


def altered(path: str, value: Any) -> dict[str, Any]:
    document = json.loads(json.dumps(GOOD))
    inner = document
    *above, last = path.split(".")
    for name in above:
        inner = inner.setdefault(name, {})
    inner[last] = value
    return {"bus": document}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (altered("region", "mars-1x"), "region is 'mars-1x', which is no AWS region; write it as us-east-2"),
        (altered("region", None), "which is no AWS region"),
        (altered("regin", "us-east-2"), "there is no key regin"),
        (altered("queues.urgent", URL), "give the name of a queue, not its URL or ARN"),
        (altered("batch.urgent.window", "1 second"), "give a duration such as 500ms"),
        (altered("batch.urgent.size", 0), "give a number from 1 to 10000"),
        (altered("ec2.chunk", 500), "give a number from 1 to 200"),
        (altered("unresolvedUrgent", "shrug"), "one of broadcast, park"),
        (altered("dryRun", "yes"), "it is true or false"),
        (altered("tags", "eks"), "it is not JSON|is not JSON"),
        (altered("accounts", [{"id": 123456789012}]), "an account id is twelve digits in quotes"),
        (
            altered("accounts", [{"id": "1" * 12, "roleArn": "role"}]),
            "roleArn is 'role'; write it as arn:aws:iam",
        ),
        (
            altered("accounts", [{"id": "1" * 12, "roleArn": "arn:aws:iam::111111111111:role/r"}]),
            "a reader role needs an externalId",
        ),
        (altered("accounts", [{"id": "1" * 12}, {"id": "1" * 12}]), "listed twice; keep one"),
        (altered("senders", ["AROA1234=prod"]), "give a SenderId, or one and its account"),
        (
            altered("accounts", [{"id": "123456789012", "senderId": "no id"}]),
            "the unique id of the role that writes",
        ),
        (altered("destinations", [{"cluster": "a", "queueUrl": URL}]), "account is missing"),
        (altered("destinations", ["prod"]), "a destination has account, cluster and queueUrl"),
        (altered("optionalKinds", ["coffee"]), "there is no coffee"),
        ({"bus": GOOD, "more": 1}, "`bus` stands alone"),
        ([1, 2], "is not a mapping"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(document: Any, words: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        read_config(document, {}, where="router.yaml")

    assert any(each in str(caught.value) for each in words.split("|"))
    assert "router.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


TO: dict[str, Any] = {"account": "123456789012", "region": "us-east-2", "cluster": "a", "queueUrl": URL}


@pytest.mark.spec("bus-13")
@pytest.mark.parametrize(
    "url",
    [
        "http://sqs.us-east-2.amazonaws.com/123456789012/prod",
        "https://evil/",
        "file:///etc/passwd",
        "https://user@sqs.us-east-2.amazonaws.com/1/q",
        "https://sqs/1/q?Action=DeleteQueue",
        "javascript:alert(1)",
        "//[",
        "",
    ],
)
def test_a_queue_url_that_can_be_none_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured, match="is not the URL of a queue"):
        parse_destination({**TO, "queueUrl": url}, "here")


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({**TO, "color": "red"}, "unknown key color"),
        ({**TO, "account": "12"}, "it has twelve digits"),
        ({**TO, "cluster": 5}, "it must be a text"),
        ({**TO, "maxAgeSeconds": -1}, "a number of seconds above 0"),
        ({**TO, "paused": "maybe"}, "it is true or false"),
        ({**TO, "rebalance": "later"}, "it is one of forward, skip"),
        ({**TO, "kinds": ["tea"]}, "there is no kind tea"),
        ({**TO, "kinds": "spot_interrupted"}, "it is a list of kinds"),
    ],
)
def test_a_destination_is_read_strictly(raw: dict[str, Any], words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        parse_destination(raw, "here")


def test_names_alone_collide_so_clusters_are_told_apart_by_account_and_region() -> None:
    here = parse_destination(TO, "here")
    there = parse_destination({**TO, "account": "210987654321"}, "there")
    registry = DestinationRegistry([here, there])

    assert len(registry) == 2
    assert registry.list_at_place(here.cluster.place) == [here]
    assert (
        registry.merge_with([parse_destination({**TO, "paused": True}, "later")]).find_by_cluster(
            here.cluster
        )
        == here
    )


def changed(path: str) -> Any:
    """A value of a field of `advanced` that is not its default."""
    default = next(key.default for key in FIELDS if key.path == path)
    if isinstance(default, bool):
        return not default
    if isinstance(default, float):
        return "7s"
    return ["a"] if isinstance(default, tuple) else default - 1


@pytest.mark.parametrize("path", [key.path for key in FIELDS])
def test_a_field_of_advanced_is_read_under_every_name_it_ever_had(path: str) -> None:
    key = next(each for each in FIELDS if each.path == path)
    value = changed(path)
    nested = altered(path, value)["bus"]
    fields = {path.split(".")[0]: nested[path.split(".")[0]]}
    as_text = value if isinstance(value, str) else json.dumps(value)
    base = {"region": "us-east-2"}

    new = read_config({**base, "advanced": fields_of(path, value)}, {})
    by_variable = read_config(base, {"DOVETAIL_BUS_ADVANCED": json.dumps(fields_of(path, value))})
    old = read_config({**base, **fields}, {})
    old_variable = read_config(base, {key.variable: as_text})

    assert new[path] != key.default
    assert new[path] == by_variable[path] == old[path] == old_variable[path]
    assert new.old_names == by_variable.old_names == ()
    assert f"{path} is an old name: write advanced.{path}" in [str(each) for each in old.old_names]
    (told,) = old_variable.old_names
    assert (told.name, f"advanced.{path}" in told.instead) == (key.variable, True)


def fields_of(path: str, value: Any) -> dict[str, Any]:
    for name in reversed(path.split(".")):
        value = {name: value}
    made: dict[str, Any] = value
    return made


def test_advanced_wins_over_the_old_name_and_a_variable_over_the_file() -> None:
    document = {"region": "us-east-2", "parallel": 1, "advanced": {"parallel": 2}}
    assert read_config(document, {})["parallel"] == 2
    assert read_config(document, {"DOVETAIL_BUS_PARALLEL": "3"})["parallel"] == 3
    both = {"DOVETAIL_BUS_PARALLEL": "3", "DOVETAIL_BUS_ADVANCED": '{"parallel": 4}'}
    assert read_config(document, both)["parallel"] == 4
    assert read_config({"region": "us-east-2"}, {}, defaults={"parallel": 5})["parallel"] == 5


@pytest.mark.parametrize(
    ("document", "environment", "words"),
    [
        ({"advanced": {"region": "us-east-2"}}, {}, "there is no key advanced.region"),
        ({"advanced": {"ec2": {"chunk": 500}}}, {}, "advanced.ec2.chunk is 500; give a number from 1 to 200"),
        ({"advanced": []}, {}, "advanced is []; it holds a mapping"),
        ({}, {"DOVETAIL_BUS_ADVANCED": "{"}, "DOVETAIL_BUS_ADVANCED is not JSON"),
        ({}, {"DOVETAIL_BUS_ADVANCED": '{"ec2": 1}'}, "there is no key advanced.ec2"),
        ({}, {"DOVETAIL_BUS_ADVANCED": '{"ec2": {"chunk": 0}}'}, "advanced.ec2.chunk is 0"),
    ],
)
def test_what_is_wrong_inside_advanced_is_said(
    document: dict[str, Any], environment: dict[str, str], words: str
) -> None:
    with pytest.raises(Misconfigured) as caught:
        read_config({"region": "us-east-2", **document}, environment)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
