"""The whole of it on AWS: a pod waits, a fleet is asked, a machine joins, serves, and is given back."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from dovetail.api import labels
from dovetail.api.nodepool import NodePool
from dovetail.api.quantity import Quantity
from support.aws_world import CLAIMS, AwsWorld
from support.stage import virtual


@virtual
async def test_a_pod_gets_a_machine_of_ec2_and_the_machine_goes_when_the_pod_does() -> None:
    async with AwsWorld().running() as world:
        world.default()
        world.pods(3, cpu="1", memory="1Gi")
        await world.until(lambda: world.placed() == 3, within=180)
        await world.until(lambda: world.claims and world.ready() == len(world.claims), within=120)
        machines = world.aws.list_running()
        assert len(world.nodes) == len(world.claims) == len(machines)
        by_id = {claim["status"]["providerID"]: claim for claim in world.claims}
        for node in world.nodes:
            claim = by_id[node["spec"]["providerID"]]
            known = node["metadata"]["labels"]
            assert known[labels.REGISTERED] == known[labels.INITIALIZED] == "true"
            assert known[labels.INSTANCE_TYPE] == claim["metadata"]["labels"][labels.INSTANCE_TYPE]
            assert claim["status"]["imageID"].startswith("ami-")
            assert claim["metadata"]["annotations"][labels.EC2_NODECLASS_HASH_VERSION]
        world.scale(0)
        await world.until(lambda: not world.claims and not world.nodes, within=900)
        await world.until(lambda: not world.aws.list_running(), within=120)
        assert not any(machine.alive for machine in machines)


@virtual
async def test_a_zone_without_capacity_is_tried_once_and_then_avoided() -> None:
    async with AwsWorld(types=("m5.large",)).running() as world:
        world.aws.exhaust("m5.large", "us-west-2a")
        world.aws.exhaust("m5.large", capacity_type="spot")
        world.default(requirements=[{"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}])
        world.pods(1, cpu="1")
        await world.until(lambda: world.placed() == 1, within=240)
        (machine,) = world.aws.list_running()
        assert machine.zone != "us-west-2a"


@virtual
async def test_spot_that_has_run_out_is_replaced_by_on_demand_in_the_next_plan() -> None:
    async with AwsWorld(types=("m5.large", "m5.xlarge")).running() as world:
        world.aws.exhaust(capacity_type="spot")
        ways = {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]}
        world.default(requirements=[ways])
        world.pods(1, cpu="1")
        await world.until(lambda: world.placed() == 1, within=240)
        assert "InsufficientCapacityError" in world.events()
        assert {machine.capacity_type for machine in world.aws.list_running()} == {"on-demand"}


async def caught_launching(world: AwsWorld) -> int:
    """Five pods wait, machines are launched for them, and the answer never arrives; how many there are."""
    world.default()
    await asyncio.sleep(20)
    world.aws.answers_take = {"CreateFleet": 30.0}
    world.pods(5, cpu="1500m")
    await world.until(world.aws.list_running, within=60, step=0.01)
    await asyncio.sleep(1)
    assert not any(claim.get("status", {}).get("providerID") for claim in world.claims)
    launched = len(world.aws.list_running())
    world.aws.answers_take = {}
    return launched


@pytest.mark.parametrize("seed", range(3))
def test_killed_in_the_middle_of_a_launch_nothing_is_launched_twice(seed: int) -> None:
    @virtual
    async def story() -> None:
        async with AwsWorld(seed, types=("m5.large", "m5.xlarge")).running() as world:
            launched = await caught_launching(world)
            await world.killed()
            await world.until(lambda: world.placed() == 5, within=300)
            await world.until(lambda: world.ready() == len(world.claims), within=120)
            assert launched == len(world.claims) == len(world.aws.instances.by_id) > 1

    story()


@virtual
async def test_an_answer_that_is_lost_is_looked_for_before_launching_again() -> None:
    async with AwsWorld(types=("m5.large", "m5.xlarge")).running() as world:
        world.default()
        await asyncio.sleep(20)
        world.aws.instances.hidden_for = 3.0
        world.aws.faults.lose_answers("CreateFleet", None)
        world.pods(1, cpu="1")
        await world.until(world.aws.list_running, within=60, step=0.01)
        world.aws.faults.clear()
        await world.until(lambda: world.placed() == 1, within=240)
        assert len(world.aws.instances.by_id) == len(world.claims) == 1


@virtual
async def test_a_machine_that_nobody_claims_is_ended() -> None:
    async with AwsWorld(types=("m5.large", "m5.xlarge")).running() as world:
        await caught_launching(world)
        # The claims are taken away while nobody is there to see it: their machines are nobody's.
        assert world._running is not None
        world._running.cancel()
        world.scale(0)
        for claim in world.claims:
            world.api.patch(CLAIMS, claim["metadata"]["name"], {"metadata": {"finalizers": []}})
            world.api.delete(CLAIMS, claim["metadata"]["name"])
        await world.killed()
        await world.until(lambda: not world.aws.list_running(), within=120)
        assert not world.claims


@pytest.mark.spec("aws-164")
@virtual
async def test_the_memory_of_a_node_that_joined_is_what_the_next_of_its_type_is_planned_with() -> None:
    async with AwsWorld(types=("m5.large",)).running() as world:
        world.default()
        world.pods(1, cpu="1")
        await world.until(lambda: world.ready() == 1, within=240)
        (node,) = world.nodes
        await asyncio.sleep(1)
        (pool,) = world.dovetail.get_informer(NodePool)
        (planned,) = await world.dovetail.cloud.list_instance_types(pool)
        assert planned.capacity["memory"] == Quantity.parse(node["status"]["capacity"]["memory"])
        assert planned.capacity["memory"] != Quantity.parse("7577Mi"), "the estimate"


@virtual
async def test_launch_templates_go_when_nobody_needs_them_and_those_of_an_earlier_process_too() -> None:
    async with AwsWorld(types=("m5.large",)).running() as world:
        world.default()
        world.pods(1, cpu="1")
        await world.until(lambda: world.ready() == 1, within=240)
        world.pods(1, name="more", cpu="1")
        await world.until(lambda: len(world.claims) == 2, within=60)
        await world.until(lambda: len(world.aws.list_running()) == 2, within=60)
        assert world.aws.templates.by_id
        await world.killed()
        await asyncio.sleep(120)
        assert not world.aws.templates.by_id


@pytest.mark.spec("aws-193")
@virtual
async def test_two_small_machines_serve_where_the_large_one_ran_out() -> None:
    async with AwsWorld(types=("m5.large", "m5.xlarge")).running() as world:
        world.aws.exhaust("m5.xlarge")
        world.default(requirements=[{"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}])
        world.pods(2, cpu="1800m")
        await world.until(lambda: world.placed() == 2, within=240)
        assert [machine.type for machine in world.aws.list_running()] == ["m5.large", "m5.large"]


LAUNCHING = ("CreateFleet", "TerminateInstances", "DescribeInstances", "CreateTags", "CreateLaunchTemplate")


@pytest.mark.parametrize("seed", range(2))
def test_killed_again_and_again_on_a_bad_day_of_ec2_nothing_is_lost_and_nothing_left(seed: int) -> None:
    chance = Random(seed)

    @virtual
    async def story() -> None:
        async with AwsWorld(seed).running() as world:
            world.default()
            await asyncio.sleep(30)
            world.aws.faults.latency = (0.02, 0.4)
            world.aws.instances.hidden_for = 3.0
            for operation in LAUNCHING:
                world.aws.faults.refuse_sometimes(0.15, ("RequestLimitExceeded", "InternalError"), operation)
            world.pods(20, cpu="900m", memory="2Gi")
            for _ in range(3):
                await asyncio.sleep(chance.uniform(0.5, 12))
                await world.killed(chance.uniform(1, 20))
            await world.until(lambda: world.placed() == 20, within=900, step=1)
            world.aws.faults.clear()
            await asyncio.sleep(300)
            running = {machine.id for machine in world.aws.list_running()}
            owned = {claim["status"]["providerID"].rpartition("/")[2] for claim in world.claims}
            assert running == owned
            assert world.placed() == 20
            world.scale(0)
            await world.until(lambda: not world.aws.list_running() and not world.claims, within=1800, step=5)

    story()
