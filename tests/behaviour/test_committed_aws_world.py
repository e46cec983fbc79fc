"""A whole controller on a simulated AWS that has commitments: its rights in Kubernetes, and when denied."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from dovetail.api import labels
from dovetail.api.commitment import Commitment
from dovetail.api.crds import build_own_manifest
from dovetail.sim.aws.iam.permissions import Principal
from support.aws import CLUSTER
from support.aws_world import AwsWorld
from support.commitments import COMMITMENTS, DEFINITIONS
from support.helm import rendered
from support.rbac import Rbac, grants
from support.stage import virtual

Json = dict[str, Any]
TYPES = ("m5.large", "m5.xlarge", "c5.large")
ANY_KIND = {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]}
DENY = {
    "Effect": "Deny",
    "Action": ["savingsplans:*", "ec2:DescribeReservedInstances"],
    "Resource": "*",
}


def build_world(mode: str) -> AwsWorld:
    world = AwsWorld(0, f"--commitments={mode}", types=TYPES)
    world.api.create(DEFINITIONS, build_own_manifest(Commitment))
    return world


async def run_story(world: AwsWorld) -> list[tuple[str, ...]]:
    """Pods come and some go; what was launched, in order, and what runs in the end."""
    async with world.running():
        world.default(requirements=[ANY_KIND])
        world.pods(9, cpu="900m")
        await world.until(lambda: world.placed() == 9 and world.ready() == len(world.claims), within=600)
        first = describe_claims(world)
        world.scale(4)
        await asyncio.sleep(400)
        return [*first, ("then",), *describe_claims(world)]


def describe_claims(world: AwsWorld) -> list[tuple[str, ...]]:
    keys = (labels.INSTANCE_TYPE, labels.ZONE, labels.CAPACITY_TYPE)
    return sorted(tuple(each["metadata"]["labels"][key] for key in keys) for each in world.claims)


@pytest.mark.spec("CM-9")
@virtual
async def test_where_aws_denies_following_is_what_off_is() -> None:
    off = await run_story(build_world("Off"))
    world = build_world("Follow")
    world.aws.savings_plans.add("25.00")
    allow = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    who = f"arn:aws:iam::{world.aws.account}:role/controller"
    world.aws.principal = Principal(who, ({"Statement": [allow, DENY]},))
    denied = await run_story(world)
    assert denied == off
    assert {each[2] for each in off if len(each) == 3} == {"spot"}
    # And where it does not deny, they differ: the plan is filled before spot is bought.
    world = build_world("Follow")
    world.aws.savings_plans.add("25.00")
    open_ = await run_story(world)
    assert Counter(each[2] for each in open_ if len(each) == 3)["on-demand"] > 0


@virtual
async def test_the_charts_role_is_what_the_mirror_and_the_status_need() -> None:
    values = {"settings": {"clusterName": CLUSTER, "commitments": "Show"}}
    rbac = Rbac(grants(rendered(values), "karpenter", "kube-system"))
    world = build_world("Show")
    plan = world.aws.savings_plans.add("0.50")
    kept = {"metadata": {"name": "aws-ri-old", "labels": {"dovetail.sh/source": "aws"}}}
    spec = {"kind": "Reserved", "instanceType": "m5.large", "count": 1, "ends": "2025-01-01T00:00:00Z"}
    world.api.create(COMMITMENTS, {**kept, "spec": spec})
    world.world.server.faults = rbac
    async with world.running():
        world.default()
        await asyncio.sleep(200)
        (found,) = world.listed(COMMITMENTS)
        assert found["metadata"]["name"] == f"aws-sp-{plan.id}"
        assert found["status"]["hourly"] == "0.5000"
    assert not {each for each in rbac.refused if "commitment" in each}
    ours = {each for each in rbac.granted if each.resource.startswith("commitments")}
    # A server-side apply that creates needs the right to create, which is asked for with the patch itself.
    unused = {str(each) for each in ours if each not in rbac.used}
    assert unused <= {"create commitments.dovetail.sh", "list commitments.dovetail.sh"}
