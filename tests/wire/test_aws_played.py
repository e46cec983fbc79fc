"""What a person plays in the simulated AWS: autoshifts, experiments, Auto Mode, and its own rules."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from dovetail.api.crds import build_manifests
from dovetail.aws import AwsInvalid
from dovetail.sim.aws.eks import follow_auto_mode
from dovetail.sim.aws.wire.server import serve_aws
from dovetail.sim.clock import VirtualClock
from dovetail.sim.world import World
from support.aws import CLUSTER, fleet, launched, simulated, template
from support.aws_clients import DOORS, Door, opened

ARC = "arc-zonal-shift"
ROLE = f"arn:aws:iam::111122223333:role/KarpenterNodeRole-{CLUSTER}"


@pytest.fixture(params=DOORS)
async def door(request: pytest.FixtureRequest) -> AsyncIterator[Door]:
    async with opened(request.param) as found:
        yield found


async def cluster_arn(door: Door) -> str:
    found = await door.aws.call("eks", "DescribeCluster", {"name": CLUSTER})
    return str(found["cluster"]["arn"])


async def test_the_rules_of_the_interruption_queue_are_removed_as_they_are_listed(door: Door) -> None:
    door.world.add_interruption_queue("interruptions")
    rules = (await door.aws.call("events", "ListRules", {}))["Rules"]
    assert len(rules) == 5
    for rule in rules:
        listed = (await door.aws.call("events", "ListTargetsByRule", {"Rule": rule["Name"]}))["Targets"]
        ids = [each["Id"] for each in listed]
        assert ids == ["KarpenterInterruptionQueueTarget"]
        await door.aws.call("events", "RemoveTargets", {"Rule": rule["Name"], "Ids": ids})
        await door.aws.call("events", "DeleteRule", {"Name": rule["Name"]})
    assert (await door.aws.call("events", "ListRules", {}))["Rules"] == []


async def test_an_attribute_of_an_instance_is_told_by_itself(door: Door) -> None:
    await template(door.aws, UserData=b64encode(b"#!/bin/sh").decode())
    (instance,) = launched(await fleet(door.aws))
    asked = {"InstanceId": instance, "Attribute": "userData"}
    told = await door.aws.call("ec2", "DescribeInstanceAttribute", asked)
    assert told["UserData"]["Value"] == b64encode(b"#!/bin/sh").decode()
    told = await door.aws.call("ec2", "DescribeInstanceAttribute", {**asked, "Attribute": "instanceType"})
    assert told["InstanceType"]["Value"] == door.world.get_instance(instance).type
    told = await door.aws.call("ec2", "DescribeInstanceAttribute", {**asked, "Attribute": "groupSet"})
    assert told["Groups"]
    with pytest.raises(AwsInvalid, match="attribute is invalid"):
        await door.world.call("ec2", "DescribeInstanceAttribute", {**asked, "Attribute": "colour"})


async def test_an_autoshift_of_aws_is_begun_and_ended_at_the_endpoint() -> None:
    aws = simulated()
    shifts, arn = aws.shifts, aws.eks.clusters[CLUSTER].arn
    practice = {"resourceIdentifier": arn, "outcomeAlarms": [{"type": "CLOUDWATCH", "alarmIdentifier": "a"}]}
    await aws.call(ARC, "CreatePracticeRunConfiguration", practice)
    await aws.call(
        ARC,
        "UpdateZonalAutoshiftConfiguration",
        {"resourceIdentifier": arn, "zonalAutoshiftStatus": "ENABLED"},
    )
    async with serve_aws(aws, moto=False) as server, aiohttp.ClientSession(server.url) as person:
        zone = aws.network.zone_ids["us-west-2a"]
        for path, status in (
            ("autoshift/us-west-2a", 200),
            (f"autoshift/{zone}", 409),
            (f"end-autoshift/{zone}", 200),
            (f"end-autoshift/{zone}", 409),
            ("autoshift/nowhere", 404),
        ):
            async with person.post(f"/_simulation/{path}") as answer:
                assert (answer.status, bool((await answer.json())["message"])) == (status, True)
            if path == "autoshift/us-west-2a":
                managed = await aws.call(ARC, "GetManagedResource", {"resourceIdentifier": arn})
                (shift,) = managed["autoshifts"]
                assert (shift["awayFrom"], shift["appliedStatus"]) == (zone, "APPLIED")
                assert managed["appliedWeights"][zone] == 0.0
    assert not shifts.list_running_autoshifts()


def experiment(arn: str, **parameters: str) -> dict[str, Any]:
    """FIS's zonal action, as its guide writes it."""
    told = {
        "availabilityZoneIdentifier": "us-west-2a",
        "duration": "PT10M",
        "managedResourceTypes": "EKS",
        "zonalAutoshiftStatus": "ANY",
    }
    return {
        "clientToken": "once",
        "description": "a zone is shifted away",
        "roleArn": ROLE,
        "stopConditions": [{"source": "none"}],
        "targets": {
            "clusters": {
                "resourceType": "aws:arc:zonal-shift-managed-resource",
                "resourceArns": [arn],
                "selectionMode": "ALL",
            }
        },
        "actions": {
            "shift": {
                "actionId": "aws:arc:start-zonal-autoshift",
                "parameters": {**told, **parameters},
                "targets": {"ManagedResources": "clusters"},
            }
        },
    }


async def shift_of(door: Door, arn: str) -> list[tuple[str, str]]:
    managed = await door.aws.call(ARC, "GetManagedResource", {"resourceIdentifier": arn})
    return [(each["awayFrom"], each["shiftType"]) for each in managed["zonalShifts"]]


async def test_an_experiment_shifts_a_zone_away_until_it_is_over_or_stopped(door: Door) -> None:
    arn = await cluster_arn(door)
    zone = door.world.network.zone_ids["us-west-2a"]
    made = await door.aws.call("fis", "CreateExperimentTemplate", experiment(arn))
    asked = {"clientToken": "x", "experimentTemplateId": made["experimentTemplate"]["id"]}
    started = (await door.aws.call("fis", "StartExperiment", asked))["experiment"]
    assert started["state"]["status"] == "running"
    assert await shift_of(door, arn) == [(zone, "FIS_EXPERIMENT")]
    door.wait(601)
    assert await shift_of(door, arn) == []
    over = await door.aws.call("fis", "GetExperiment", {"id": started["id"]})
    assert over["experiment"]["state"]["status"] == "completed"
    again = (await door.aws.call("fis", "StartExperiment", {**asked, "clientToken": "y"}))["experiment"]
    assert await shift_of(door, arn)
    stopped = await door.aws.call("fis", "StopExperiment", {"id": again["id"]})
    assert stopped["experiment"]["state"]["status"] == "stopped"
    assert await shift_of(door, arn) == []
    listed = (await door.aws.call("fis", "ListExperiments", {}))["experiments"]
    assert {each["state"]["status"] for each in listed} == {"completed", "stopped"}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"availabilityZoneIdentifier": "eu-west-1a"}, "is no zone"),
        ({"duration": "PT30S"}, "PT1M to PT12H"),
        ({"duration": "PT13H"}, "PT1M to PT12H"),
        ({"zonalAutoshiftStatus": "SOME"}, "ENABLED, DISABLED, ANY"),
        ({"managedResourceTypes": ""}, "managedResourceTypes is missing"),
    ],
)
async def test_an_experiment_fis_would_refuse_is_refused(wrong: dict[str, str], told: str) -> None:
    aws = simulated()
    with pytest.raises(AwsInvalid, match=told):
        await aws.call("fis", "CreateExperimentTemplate", experiment("arn", **wrong))


async def test_an_experiment_for_clusters_in_autoshift_finds_none_where_none_takes_part() -> None:
    aws = simulated()
    arn = aws.eks.clusters[CLUSTER].arn
    asked = experiment(arn, zonalAutoshiftStatus="ENABLED")
    made = (await aws.call("fis", "CreateExperimentTemplate", asked))["experimentTemplate"]
    started = await aws.call("fis", "StartExperiment", {"experimentTemplateId": made["id"]})
    assert started["experiment"]["state"]["status"] == "failed"


async def test_auto_mode_brings_its_pools_into_the_cluster_and_takes_them_along(door: Door) -> None:
    world = World(VirtualClock(), 0)
    api = world.server.build_local_client("someone")
    for each in build_manifests("aws"):
        api.create("customresourcedefinitions.apiextensions.k8s.io", each)
    follow_auto_mode(door.world.world, world.server.build_local_client("eks"), CLUSTER)

    def switched(on: bool, *pools: str) -> dict[str, Any]:
        return {
            "name": CLUSTER,
            "computeConfig": {"enabled": on, **({"nodePools": list(pools)} if pools else {})},
            "kubernetesNetworkConfig": {"elasticLoadBalancing": {"enabled": on}},
            "storageConfig": {"blockStorage": {"enabled": on}},
        }

    def pools() -> list[str]:
        return sorted(each["metadata"]["name"] for each in api.list("nodepools.karpenter.sh"))

    with pytest.raises(AwsInvalid, match="fully enabled or fully disabled"):
        await door.aws.call(
            "eks", "UpdateClusterConfig", {"name": CLUSTER, "computeConfig": {"enabled": True}}
        )
    on = await door.aws.call("eks", "UpdateClusterConfig", switched(True, "general-purpose", "system"))
    assert on["update"]["type"] == "AutoModeUpdate"
    shown = (await door.aws.call("eks", "DescribeCluster", {"name": CLUSTER}))["cluster"]
    assert shown["computeConfig"]["enabled"] is True
    assert pools() == ["general-purpose", "system"]
    await door.aws.call("eks", "UpdateClusterConfig", switched(True, "general-purpose"))
    assert pools() == ["general-purpose"]
    await door.aws.call("eks", "UpdateClusterConfig", switched(False))
    assert pools() == []
    assert shown["version"] == "1.35"
