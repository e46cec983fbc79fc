"""The simulated AWS as a world: the same seed tells the same story; instances become nodes and leave."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any

import pytest

from dovetail.aws import AwsError, AwsTrouble
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.ec2.network import zone_ids
from dovetail.sim.aws.ec2.node_join import NodeJoiner, adopt_nodes
from dovetail.sim.clock import VirtualClock
from dovetail.sim.world import World
from support.aws import CLUSTER, fleet, launched, simulated, template
from support.stage import virtual

Json = dict[str, Any]
CONFIG = f"""\
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
metadata: {{}}
spec:
  cluster: {{name: {CLUSTER}, apiServerEndpoint: "https://abc"}}
  kubelet:
    config:
      maxPods: 20
      registerWithTaints: [{{key: karpenter.sh/unregistered, effect: NoExecute}}]
    flags: ['--node-labels="team=shop"']
"""
USER_DATA = b64encode(CONFIG.encode()).decode()


async def _story(seed: int) -> list[object]:
    aws = simulated(seed=seed)
    queue = aws.add_interruption_queue("q")
    await template(aws)
    ids = launched(await fleet(aws, ["m5.large", "c5.large"], way="spot", count=3))
    aws.faults.refuse_sometimes(0.5, ("RequestLimitExceeded",), "DescribeSubnets")
    await asyncio.sleep(30)
    aws.reclaim(ids[0])
    codes = []
    for _ in range(8):
        try:
            await aws.call("ec2", "DescribeSubnets", {})
            codes.append("")
        except AwsTrouble as error:
            codes.append(error.code)
    await asyncio.sleep(200)
    bodies = [message.body for message in queue.messages.values()]
    return [ids, codes, bodies, [machine.state for machine in aws.instances.by_id.values()]]


def test_the_same_seed_tells_the_same_story_and_another_another() -> None:
    told = []
    for seed in (1, 1, 2):

        @virtual
        async def story(seed: int = seed) -> None:
            told.append(await _story(seed))

        story()
    assert told[0] == told[1]
    assert told[0] != told[2]


@virtual
async def test_an_instance_joins_as_its_user_data_says_and_leaves_when_it_ends() -> None:
    clock = VirtualClock()
    aws, world = simulated(clock), World(clock, 0)
    NodeJoiner(aws, world, CLUSTER)
    async with world.running():
        await template(aws, UserData=USER_DATA)
        (one,) = launched(await fleet(aws, way="spot", zones=["us-west-2b"]))
        await asyncio.sleep(20)
        assert not world.api.list("nodes")
        await asyncio.sleep(30)
        (node,) = world.api.list("nodes")
        assert node["spec"]["providerID"] == f"aws:///us-west-2b/{one}"
        assert node["metadata"]["name"] == aws.get_instance(one).dns_name
        assert node["metadata"]["labels"]["team"] == "shop"
        assert node["metadata"]["labels"]["topology.k8s.aws/zone-id"] == "usw2-az2"
        assert {"key": "karpenter.sh/unregistered", "effect": "NoExecute"} in node["spec"]["taints"]
        assert node["status"]["capacity"]["pods"] == "20"
        assert node["status"]["capacity"]["cpu"] == "2"
        ready = [each for each in node["status"]["conditions"] if each["type"] == "Ready"]
        assert ready[0]["status"] == "True"
        aws.instances.terminate(aws.get_instance(one))
        await asyncio.sleep(60)
        assert not world.api.list("nodes")


@virtual
async def test_who_names_another_cluster_or_is_lost_never_joins() -> None:
    clock = VirtualClock()
    aws, world = simulated(clock), World(clock, 0)
    joining = NodeJoiner(aws, world, CLUSTER)
    async with world.running():
        await template(aws, "other", UserData=b64encode(CONFIG.replace(CLUSTER, "else").encode()).decode())
        await template(aws, "ours", UserData=USER_DATA)
        await fleet(aws, name="other")
        (lost,) = launched(await fleet(aws, name="ours"))
        joining.lost.add(lost)
        await asyncio.sleep(120)
        assert not world.api.list("nodes")


@virtual
async def test_a_kept_cluster_gets_its_machines_back_under_their_names() -> None:
    clock = VirtualClock()
    aws, world = simulated(clock), World(clock, 0)
    joining = NodeJoiner(aws, world, CLUSTER)
    for each in _definitions():
        world.api.create("customresourcedefinitions.apiextensions.k8s.io", each)
    async with world.running():
        await template(aws, UserData=USER_DATA)
        (one,) = launched(await fleet(aws))
        await asyncio.sleep(60)
        (node,) = world.api.list("nodes")
        _claim(world, node["spec"]["providerID"])
        again = SimulatedAws(clock, 0, cluster=CLUSTER)
        assert adopt_nodes(again, world, CLUSTER) == {one: node["metadata"]["name"]}
    machine = again.get_instance(one)
    assert (machine.state, machine.dns_name) == ("running", node["metadata"]["name"])
    assert machine.tags["karpenter.sh/nodeclaim"] == "web"
    assert machine.subnet == aws.get_instance(one).subnet
    assert joining.boots


def _definitions() -> list[Json]:
    from dovetail.api.crds import build_manifests

    return list(build_manifests("aws"))


def _claim(world: World, provider_id: str) -> None:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    claim = {"metadata": {"name": "web"}, "spec": {"nodeClassRef": reference, "requirements": []}}
    kind = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim"}
    world.api.create("nodeclaims.karpenter.sh", {**kind, **claim})
    status = {"status": {"providerID": provider_id, "imageID": "ami-1"}}
    world.api.patch("nodeclaims.karpenter.sh", "web", status, subresource="status")


@pytest.mark.parametrize(
    ("region", "first"),
    [
        ("us-east-1", "use1-az1"),
        ("us-west-2", "usw2-az1"),
        ("ap-southeast-1", "apse1-az1"),
        ("eu-central-1", "euc1-az1"),
        ("ap-northeast-1", "apne1-az1"),
        ("sa-east-1", "sae1-az1"),
    ],
)
def test_zone_ids_are_spelled_as_aws_does(region: str, first: str) -> None:
    assert next(iter(zone_ids("111122223333", region).values())) == first


@virtual
async def test_an_endpoint_that_hangs_lets_the_client_give_up() -> None:
    aws = simulated()
    aws.faults.hang_requests("DescribeSubnets", seconds=240)
    with pytest.raises(AwsTrouble):
        await aws.call("ec2", "DescribeSubnets", {})
    assert aws.clock.monotonic() == pytest.approx(240)
    assert (await aws.call("ec2", "DescribeSubnets", {}))["Subnets"]


@virtual
async def test_a_fleet_with_more_templates_than_ec2_takes_is_refused() -> None:
    aws = SimulatedAws(VirtualClock(), cluster=CLUSTER)
    configured = {"LaunchTemplateSpecification": {"LaunchTemplateName": "any", "Version": "$Latest"}}
    asked = {
        "Type": "instant",
        "LaunchTemplateConfigs": [configured] * 51,
        "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
    }
    with pytest.raises(AwsError, match="at most 50 launch template configs"):
        await aws.call("ec2", "CreateFleet", asked)


@virtual
async def test_a_client_token_is_carried_out_once_and_refused_with_other_parameters() -> None:
    aws = simulated()
    await template(aws)
    asked = {
        "Type": "instant",
        "ClientToken": "once",
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": "test", "Version": "$Latest"},
                "Overrides": [{"InstanceType": "m5.large", "SubnetId": next(iter(aws.network.subnets))}],
            }
        ],
        "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
    }
    first, again = await aws.call("ec2", "CreateFleet", asked), await aws.call("ec2", "CreateFleet", asked)
    assert (first["FleetId"], launched(dict(first))) == (again["FleetId"], launched(dict(again)))
    assert len(aws.instances.by_id) == 1
    two = {"TotalTargetCapacity": 2, "DefaultTargetCapacityType": "on-demand"}
    with pytest.raises(AwsError) as told:
        await aws.call("ec2", "CreateFleet", {**asked, "TargetCapacitySpecification": two})
    assert told.value.code == "IdempotentParameterMismatch"
    assert len(launched(dict(await aws.call("ec2", "CreateFleet", {**asked, "ClientToken": "twice"})))) == 1
    with pytest.raises(AwsError, match="64 ASCII"):
        await aws.call("ec2", "CreateFleet", {**asked, "ClientToken": "x" * 65})
