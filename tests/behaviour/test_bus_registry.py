"""Where destinations come from, and the tools beside the router: replay, trace, doctor, the canary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from dovetail.bus.destinations import BusCluster
from dovetail.bus.generate import GeneratedFleet, generate_fis_experiment, generate_reclaim_storm
from dovetail.bus.operator_tools import ReplayFilter, examine_setup, replay_queue, trace_log
from dovetail.bus.ports import BusTally
from dovetail.bus.sources import DestinationSources
from dovetail.errors import Misconfigured
from dovetail.sim.clock import VirtualClock, run_virtual
from support.log_lines import open_json_lines
from support.queues import BULK, DLQ, PARK, URGENT, FleetAws, expected


def bare(clusters: int = 2, instances: int = 6) -> tuple[FleetAws, VirtualClock, BusTally]:
    clock = VirtualClock()
    return FleetAws(GeneratedFleet.generate_fleet(clusters, instances), clock), clock, BusTally()


def url(aws: FleetAws, name: str) -> str:
    return f"https://sqs.{aws.region}.amazonaws.com/{aws.fleet.account}/{name}"


def in_table(aws: FleetAws, name: str, **more: Any) -> Mapping[str, Any]:
    return {
        "pk": {"S": f"{aws.fleet.account}#{aws.region}#{name}"},
        "queueUrl": {"S": url(aws, name)},
        **more,
    }


def test_a_later_cluster_only_adds_an_item_to_the_table() -> None:
    async def story() -> None:
        aws, clock, counts = bare()
        aws.tables["registry"] = {"a": in_table(aws, "cluster-000")}
        config = aws.config(destinations=[], registry={"dynamodb": "registry", "reload": "10s"})
        storm = list(generate_reclaim_storm(aws.fleet, within=1.0, start=clock.now()))
        async with aws.routing(config, counts):
            await aws.play(storm)
            await aws.drained(60.0)
            assert (len(aws.bodies("cluster-000")), len(aws.bodies(PARK))) == (12, 12)

            aws.tables["registry"]["b"] = in_table(aws, "cluster-001")
            await clock.sleep(11.0)
            again = list(generate_reclaim_storm(aws.fleet, 5, within=1.0, start=clock.now()))
            await aws.play(again)
            await aws.drained(60.0)

        assert aws.received()["cluster-001"] == expected(aws.fleet, again)["cluster-001"]

    run_virtual(story())


def test_a_broken_entry_is_said_and_the_rest_stays() -> None:
    async def story() -> None:
        aws, _, counts = bare()
        written: list[str] = []
        aws.tables["registry"] = {
            "good": in_table(aws, "cluster-000"),
            "url": in_table(aws, "cluster-001", queueUrl={"S": "ftp://evil/x/y"}),
            "key": {"pk": {"S": "prod"}, "queueUrl": {"S": "x"}},
            "other": {"pk": {"S": f"666666666666#{aws.region}#c"}, "queueUrl": {"S": url(aws, "c")}},
            "gone": in_table(aws, "left", state={"S": "draining"}),
        }
        config = aws.config(destinations=[], registry={"dynamodb": "registry"})

        with open_json_lines(written.append):
            registry = await DestinationSources(config, aws, counts=counts).read_destinations()

        assert [each.cluster.name for each in registry] == ["cluster-000"]
        assert counts.totals["registry_problems_total", "dynamodb"] == 3
        said = "\n".join(written)
        assert "is not the URL of a queue" in said
        assert "is not account#region#cluster" in said
        assert "is not one the router serves" in said

    run_virtual(story())


def test_destinations_come_from_parameters_and_from_tagged_queues_too() -> None:
    async def story() -> None:
        aws, _, counts = bare(clusters=4)
        aws.queue("cluster-001").tags.update(
            {"dovetail.sh/bus": "true", "dovetail.sh/cluster": "cluster-001"}
        )
        aws.queue("cluster-002").tags.update(
            {"dovetail.sh/cluster": "cluster-002"}
        )  # says nothing of the bus
        for name, value in (
            (
                "good",
                json.dumps({"cluster": "cluster-000", "queueUrl": url(aws, "cluster-000"), "paused": True}),
            ),
            ("bad", "{"),
        ):
            asked = {"Name": f"/bus/{name}", "Value": value, "Type": "String"}
            await aws.sim.call("ssm", "PutParameter", asked)
        config = aws.config(destinations=[], registry={"ssm": "/bus", "discover": True})

        registry = await DestinationSources(config, aws, counts=counts).read_destinations()

        assert {each.cluster.name: each.paused for each in registry} == {
            "cluster-000": True,
            "cluster-001": False,
        }
        assert counts.totals["registry_problems_total", "ssm"] == 1

    run_virtual(story())


def test_a_source_that_cannot_be_read_leaves_what_it_said_before() -> None:
    async def story() -> None:
        aws, _, counts = bare()
        aws.queue("cluster-000").tags.update(
            {"dovetail.sh/bus": "true", "dovetail.sh/cluster": "cluster-000"}
        )
        config = aws.config(destinations=[], registry={"discover": True})
        sources = DestinationSources(config, aws, counts=counts)
        before = await sources.read_destinations()
        aws.sim.faults.refuse("AccessDenied", "sqs:ListQueues", None)

        after = await sources.read_destinations()

        assert len(before) == 1
        assert after == before
        assert counts.totals["registry_problems_total", "discover"] == 1

    run_virtual(story())


def test_a_queue_of_the_clusters_name_is_found_when_that_is_agreed() -> None:
    async def story() -> None:
        aws, clock, counts = bare(clusters=3)
        del aws.sim.queues.by_name["cluster-002"]
        storm = list(generate_reclaim_storm(aws.fleet, within=1.0, start=clock.now()))
        async with aws.routing(aws.config(destinations=[], registry__byName=True), counts):
            await aws.play(storm)
            await aws.drained(60.0)

        assert len(aws.bodies("cluster-000")) == len(aws.bodies("cluster-001")) == len(aws.bodies(PARK)) == 8

    run_virtual(story())


def test_what_a_cluster_publishes_itself_needs_no_ec2() -> None:
    async def story() -> None:
        aws, clock, _ = bare()
        (first, *_) = aws.fleet.clusters["cluster-001"]
        aws.tags.clear()
        aws.ids.clear()
        aws.tables["instances"] = {first: {"id": {"S": first}, "clusters": {"SS": ["cluster-001"]}}}
        async with aws.routing(aws.config(pushed__dynamodb="instances", ec2__prefetch="0s")):
            for happening in generate_fis_experiment(aws.fleet, [first], start=clock.now()):
                aws.put(happening)
            await aws.drained(60.0)

        assert len(aws.bodies("cluster-001")) == 4
        assert aws.requests["ec2:DescribeInstances"] == 0

    run_virtual(story())


def test_parked_events_are_replayed_by_kind_and_cluster_and_dead_ones_stay_dead() -> None:
    async def story() -> None:
        aws, clock, _ = bare()
        storm = list(generate_reclaim_storm(aws.fleet, within=1.0, start=clock.now()))
        async with aws.routing(aws.config(destinations=[])):
            await aws.play(storm)
            await aws.drained(60.0)
        assert len(aws.bodies(PARK)) == 24
        aws.queue(PARK).send("poison")
        config = aws.config()

        wanted = ReplayFilter(kind="spot_interrupted", cluster="cluster-001")
        some = await replay_queue(aws, config, PARK, wanted, clock=clock, rate=10.0)
        assert (some.moved, some.left, some.unreadable) == (3, 22, 0)
        assert len(aws.queue(URGENT).messages) == 3
        await clock.sleep(31.0)
        rest = await replay_queue(aws, config, PARK, ReplayFilter(), clock=clock)
        assert (rest.moved, rest.left, rest.unreadable) == (21, 0, 1)
        async with aws.routing(config):
            await aws.drained(60.0)

        assert aws.received() == expected(aws.fleet, storm)
        assert aws.bodies(PARK) == ["poison"]
        assert (await replay_queue(aws, config, DLQ, ReplayFilter(), clock=clock)).moved == 0

    run_virtual(story())


def test_a_replay_deletes_nothing_that_its_lane_has_not_taken() -> None:
    async def story() -> None:
        aws, clock, _ = bare()
        first = aws.fleet.instances[0]
        body = next(iter(generate_fis_experiment(aws.fleet, [first], start=clock.now()))).body
        aws.queue(DLQ).send(body)
        aws.sim.faults.refuse("AccessDenied", "sqs:SendMessage", 1)
        with pytest.raises(Misconfigured, match="moving an event"):
            await replay_queue(aws, aws.config(), DLQ, ReplayFilter(), clock=clock)
        assert aws.bodies(DLQ) == [body]

    run_virtual(story())


def test_old_names_are_reported_once_when_the_router_starts() -> None:
    async def story() -> None:
        aws, clock, _ = bare()
        written: list[str] = []
        config = aws.config(maxUndeleted=20, registry={"reload": "10s"})
        with open_json_lines(written.append):
            async with aws.running(aws.daemon(config, reread=lambda: config)):
                await clock.sleep(35.0)
        said = [json.loads(line) for line in written if "a key has an old name" in line]
        assert [(each["key"], each["instead"]) for each in said] == [
            (name, f"advanced.{name}") for name in ("maxUndeleted", "registry.reload")
        ]

    run_virtual(story())


def test_an_instance_can_be_followed_through_the_log() -> None:
    async def story() -> list[str]:
        aws, clock, _ = bare()
        written: list[str] = []
        daemon = aws.daemon()
        aws.tags["i-0bastion"] = {"Name": "bastion"}
        await daemon.prepare()
        assert daemon.pipeline is not None
        for happening in generate_fis_experiment(
            aws.fleet, [aws.fleet.instances[0], "i-0bastion"], start=clock.now()
        ):
            aws.put(happening)
        with open_json_lines(written.append, "debug"):
            for line in daemon._lines:
                got = await line._queue.receive(0)
                line._take_messages(got)
                await daemon.pipeline.process_batch(line.lane, got, line)
            await daemon.pipeline.close()
        return written

    written = run_virtual(story())
    followed = list(trace_log(["not json", *written], "i-0bastion"))
    delivered = list(trace_log(written, GeneratedFleet.generate_fleet(2, 6).instances[0]))

    assert [(line["message"], line["reason"]) for line in followed] == [("event dropped", "foreign")] * 4
    assert [line["message"] for line in delivered] == ["routed"] * 4


def test_the_canary_goes_the_whole_way() -> None:
    async def story() -> None:
        aws, clock, counts = bare()
        pattern = json.dumps({"source": ["dovetail.bus.canary"]})
        await aws.sim.call("events", "PutRule", {"Name": "canary", "EventPattern": pattern})
        target = {"Id": "t", "Arn": aws.queue(URGENT).arn}
        await aws.sim.call("events", "PutTargets", {"Rule": "canary", "Targets": [target]})
        async with aws.routing(aws.config(canary__every="1h"), counts):
            await clock.sleep(10.0)

        assert 0 < counts.values["canary_seconds",] < 5
        assert aws.bodies(PARK) == []

    run_virtual(story())


def test_the_doctor_finds_what_is_missing() -> None:
    async def story() -> dict[str, str]:
        aws, _, _ = bare()
        roles = {"ArnNotLike": {"aws:PrincipalArn": "arn:aws:iam::123456789012:role/bus-writer"}}
        deny = {"Effect": "Deny", "Principal": "*", "Action": "sqs:SendMessage", "Condition": roles}
        aws.queue(URGENT).attributes["Policy"] = json.dumps({"Statement": [deny]})
        aws.queue(BULK).attributes["RedrivePolicy"] = ""
        aws.queue(PARK).attributes["MessageRetentionPeriod"] = "300"
        del aws.sim.queues.by_name["cluster-001"]
        aws.ec2_denied = True
        pattern = json.dumps(
            {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]}
        )
        await aws.sim.call("events", "PutRule", {"Name": "spot", "EventPattern": pattern})
        target = {"Id": "t", "Arn": aws.queue(URGENT).arn}
        await aws.sim.call("events", "PutTargets", {"Rule": "spot", "Targets": [target]})
        config = aws.config()
        return {each.subject: each.problem for each in await examine_setup(aws, config, config.registry)}

    found = run_virtual(story())

    assert found[f"queue {URGENT}"] == ""
    assert "it has no dead letters" in found[f"queue {BULK}"]
    assert "less than 14 days" in found[f"queue {PARK}"]
    assert "give its target a DeadLetterConfig" in found["rule spot"]
    assert "no rule for aws.health" in found["events AWS Health Event"]
    assert "events EC2 Spot Instance Interruption Warning" not in found
    assert "grant ec2:DescribeInstances" in found["account 123456789012"]
    assert found["cluster 123456789012/us-east-2/cluster-000"] == ""
    assert "does not exist" in found["cluster 123456789012/us-east-2/cluster-001"]


@pytest.mark.parametrize(
    ("code", "words"), [("AccessDenied", "grant sqs:GetQueueUrl"), ("", "there is no queue")]
)
def test_a_router_that_cannot_start_says_why(code: str, words: str) -> None:
    async def story() -> None:
        aws, _, _ = bare()
        if code:
            aws.sim.faults.refuse(code, "sqs:GetQueueUrl", None)
        else:
            del aws.sim.queues.by_name[URGENT]
        await aws.daemon().prepare()

    with pytest.raises(Misconfigured, match=words) as caught:
        run_virtual(story())
    assert URGENT in str(caught.value)


@pytest.mark.spec("bus-13")
def test_forgeries_are_refused_counted_and_kept_and_reach_no_cluster() -> None:
    async def story() -> None:
        aws, clock, counts = bare()
        (warning,) = [
            each
            for each in generate_fis_experiment(aws.fleet, aws.fleet.instances[:1], start=clock.now())
            if each.lane == "urgent"
        ]
        raw = json.loads(warning.body)
        forged = [
            {**raw, "source": "my.app"},
            {**raw, "account": "666666666666"},
            {**raw, "region": "mars-north-1"},
            {**raw, "id": "big", "resources": ["x" * 300_000]},
        ]
        # Addresses in a message lead nowhere: this one is delivered to its owner, by the registry.
        hostile = {
            **raw,
            "id": "hostile",
            "queueUrl": "https://evil/1/q",
            "detail": {**raw["detail"], "queueUrl": "x"},
        }
        # A spoofed tag names a cluster of another account: the place of the event decides, so there is none.
        aws.tags["i-0spoofed"] = {"eks:eks-cluster-name": "elsewhere"}
        spoofed = {**raw, "id": "spoofed", "detail": {"instance-id": "i-0spoofed"}}
        async with aws.routing(counts=counts):
            for each in (*forged, hostile, spoofed):
                aws.queue(URGENT).send(json.dumps(each))
            await aws.drained(60.0)

        reasons = {key[1]: amount for key, amount in counts.totals.items() if key[0] == "parked_total"}
        assert reasons == {
            "forged_source": 1,
            "wrong_account": 1,
            "wrong_region": 1,
            "oversize": 1,
            "no_destination": 1,
        }
        assert len(aws.bodies(PARK)) == 5
        assert [json.loads(body)["id"] for body in aws.bodies("cluster-000")] == ["hostile"]
        assert aws.bodies("cluster-001") == []
        assert aws.fleet.map_owners()[raw["detail"]["instance-id"]] == "cluster-000"
        assert BusCluster("666666666666", aws.region, "elsewhere") not in [
            each.cluster for each in aws.config().registry
        ]

    run_virtual(story())


class Doors(FleetAws):
    """Remembers through which doors it was asked."""

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> FleetAws:
        self.opened.append((region, role, external_id))
        return self

    opened: list[tuple[str, str, str]]


def test_clusters_of_one_name_in_two_accounts_are_told_apart_and_read_by_their_roles() -> None:
    async def story() -> None:
        clock, counts = VirtualClock(), BusTally()
        fleet = GeneratedFleet({"prod": ("i-0aaa", "i-0bbb")})
        aws = Doors(fleet, clock)
        aws.opened = []
        aws.sim.queues.add("prod-spoke")
        spoke, role = "210987654321", "arn:aws:iam::210987654321:role/Reader"
        accounts = [{"id": fleet.account}, {"id": spoke, "roleArn": role, "externalId": "x"}]
        destinations = [
            {"account": fleet.account, "cluster": "prod", "queueUrl": url(aws, "prod")},
            {"account": spoke, "cluster": "prod", "queueUrl": url(aws, "prod-spoke"), "region": "us-east-2"},
        ]
        config = aws.config(accounts=accounts, destinations=destinations, ec2__prefetch="0s")
        ours = list(generate_fis_experiment(fleet, ["i-0aaa"], seed=1, start=clock.now()))
        theirs = list(
            generate_fis_experiment(
                GeneratedFleet(fleet.clusters, spoke), ["i-0bbb"], seed=2, start=clock.now()
            )
        )
        async with aws.routing(config, counts):
            for each in (*ours, *theirs):
                aws.put(each)
            await aws.drained(60.0)

        assert sorted(aws.bodies("prod")) == sorted(each.body for each in ours)
        assert sorted(aws.bodies("prod-spoke")) == sorted(each.body for each in theirs)
        assert aws.opened == [("us-east-2", role, "x")]

    run_virtual(story())


def test_a_queue_in_another_region_is_reached_there() -> None:
    async def story() -> None:
        clock, counts = VirtualClock(), BusTally()
        fleet = GeneratedFleet({"far": ("i-0aaa",)}, region="us-east-2")
        aws = Doors(fleet, clock)
        aws.opened = []
        where = {
            "account": fleet.account,
            "cluster": "far",
            "region": "eu-west-1",
            "queueUrl": url(aws, "far"),
        }
        config = aws.config(destinations=[where], regions=["us-east-2", "eu-west-1"], ec2__prefetch="0s")
        there = GeneratedFleet(fleet.clusters, region="eu-west-1")
        async with aws.routing(config, counts):
            for each in generate_fis_experiment(there, ["i-0aaa"], start=clock.now()):
                aws.put(each)
            await aws.drained(60.0)

        assert len(aws.bodies("far")) == 4
        assert set(aws.opened) == {("eu-west-1", "", "")}

    run_virtual(story())
