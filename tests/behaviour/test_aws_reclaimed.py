"""Spot takes a machine back: another is there before the two minutes are over, whatever becomes of us."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dovetail.api import labels
from support.aws_world import CLAIMS, AwsWorld
from support.ec2_instances import QUEUE
from support.stage import virtual

SPOT = [{"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["spot"]}]
TYPES = ("m5.large", "m5.xlarge", "c5.large")


def spread(world: AwsWorld, count: int) -> None:
    """That many pods, each with a machine of its own."""
    marks = {"app": "web"}
    apart = [{"labelSelector": {"matchLabels": marks}, "topologyKey": labels.HOSTNAME}]
    pod = {
        "containers": [{"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}},
    }
    template = {"metadata": {"labels": marks}, "spec": pod}
    world.api.create(
        "deployments.apps",
        {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": count, "selector": {"matchLabels": marks}, "template": template},
        },
    )


def on_time(world: AwsWorld, doomed: set[str], pods: int) -> bool:
    """Every pod runs on a machine that stays."""
    going = {each["metadata"]["name"] for each in world.nodes if _instance(each) in doomed}
    running = [
        pod
        for pod in world.listed("pods")
        if pod.get("status", {}).get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
        and pod["spec"].get("nodeName") not in going
    ]
    return len(running) == pods


def _instance(node: dict[str, Any]) -> str:
    return str(node["spec"].get("providerID", "")).rpartition("/")[2]


async def settled(world: AwsWorld, count: int) -> None:
    world.aws.add_interruption_queue(QUEUE)
    world.default(requirements=SPOT)
    spread(world, count)
    await world.until(lambda: world.placed() == count and world.ready() == len(world.claims), within=300)


@virtual
async def test_pods_run_elsewhere_before_the_machines_are_gone() -> None:
    async with AwsWorld(0, f"--interruption-queue={QUEUE}", types=TYPES).running() as world:
        await settled(world, 4)
        doomed = {each.id for each in world.aws.list_running()[:3]}
        began = world.clock.monotonic()
        for each in doomed:
            world.aws.reclaim(each)
        # The orders are out within seconds: one for each machine, all at once.
        await world.until(lambda: len(world.claims) == 7, within=15)
        await world.until(lambda: on_time(world, doomed, 4), within=110)
        assert world.clock.monotonic() - began < 120
        replaced = [each for each in world.aws.list_running() if each.id not in doomed]
        kinds = {(each.type, each.zone) for each in replaced[1:]}
        lost = {(world.aws.get_instance(each).type, world.aws.get_instance(each).zone) for each in doomed}
        assert not kinds & lost  # spot is not bought again where it was just taken away
        await world.until(lambda: len(world.claims) == 4, within=300)
        events = world.events()
        assert {"SpotInterrupted", "TerminatingOnInterruption"} <= set(events)


@pytest.mark.parametrize("after", [0.0, 0.05, 0.5, 3.0])
def test_killed_on_the_way_the_next_process_does_what_is_left(after: float) -> None:
    @virtual
    async def story() -> None:
        async with AwsWorld(1, f"--interruption-queue={QUEUE}", types=TYPES).running() as world:
            await settled(world, 2)
            (doomed, *_) = world.aws.list_running()
            world.aws.reclaim(doomed.id)
            await asyncio.sleep(after)
            await world.killed(down=5)
            await world.until(lambda: on_time(world, {doomed.id}, 2), within=110)
            await world.until(lambda: len(world.claims) == len(world.aws.list_running()) == 2, within=300)
            assert not doomed.alive
            assert not world.aws.queues.by_name[QUEUE].messages

    story()


@virtual
async def test_a_pod_that_its_budget_keeps_is_stopped_in_time_to_end_well() -> None:
    async with AwsWorld(2, f"--interruption-queue={QUEUE}", types=TYPES).running() as world:
        await settled(world, 2)
        budget = {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}
        world.api.create(
            "poddisruptionbudgets.policy",
            {"metadata": {"name": "web", "namespace": "default"}, "spec": budget},
        )
        (doomed, *_) = world.aws.list_running()
        (node,) = [each["metadata"]["name"] for each in world.nodes if _instance(each) == doomed.id]
        began = world.clock.monotonic()
        world.aws.reclaim(doomed.id)
        await world.until(
            lambda: not [p for p in world.listed("pods") if p["spec"].get("nodeName") == node], within=119
        )
        assert world.clock.monotonic() - began >= 60  # nobody was hurried while there was time
        (claim,) = [c for c in world.listed(CLAIMS) if c["status"].get("providerID", "").endswith(doomed.id)]
        assert labels.TERMINATION_TIMESTAMP in json.dumps(claim)
