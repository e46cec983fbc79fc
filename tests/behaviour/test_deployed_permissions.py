"""The controller with exactly the IAM of the deployed stack and exactly the RBAC of the rendered chart."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from dovetail.api.nodepool import NodePool
from dovetail.errors import NotAuthorized
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.leader import ElectionTerms, Elector
from dovetail.sim.transport import LocalTransport
from support.aws import CLUSTER
from support.aws_world import AwsWorld
from support.deployed_stack import deployed
from support.helm import rendered
from support.lifetime import SPARE_IAM, a_whole_life, lived_with
from support.rbac import Rbac, grants
from support.stage import virtual

Json = dict[str, Any]
# Moto makes everything of the stack but the queue's policy, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse AWS..SQS..QueuePolicy")
# Granted because upstream's roles grant it; pods of such an owner are known without asking for it.
SPARE_RBAC = {("", "replicationcontrollers")}
EXTRAS: dict[str, Json] = {
    "nodeoverlays.karpenter.sh": {
        "metadata": {"name": "dear"},
        "spec": {"requirements": [], "priceAdjustment": "+1%"},
    },
    "podtemplates": {
        "metadata": {"name": "spare", "namespace": "default"},
        "template": {
            "spec": {"containers": [{"name": "a", "image": "a", "resources": {"requests": {"cpu": "1"}}}]}
        },
    },
    "capacitybuffers.autoscaling.x-k8s.io": {
        "metadata": {"name": "spare", "namespace": "default"},
        "spec": {"replicas": 1, "podTemplateRef": {"name": "spare"}},
    },
}


@pytest.fixture(scope="module")
def stack() -> tuple[list[Json], dict[str, Any]]:
    documents, made = asyncio.run(deployed(CLUSTER))
    return documents, dict(made)


def test_the_stack_makes_a_role_a_queue_and_its_rules(stack: tuple[list[Json], dict[str, Any]]) -> None:
    documents, made = stack

    assert made["status"] == "CREATE_COMPLETE"
    assert made["role"]
    assert made["queue"]
    assert len(made["patterns"]) == 5
    assert made["targets"] == {made["outputs"]["InterruptionQueueArn"]}
    assert made["outputs"]["InterruptionQueueName"] == CLUSTER
    assert len(documents) == 6
    assert not made["left"]


@pytest.mark.spec("operations-18.3", "operations-12.2")
@virtual
async def test_nothing_is_denied_and_nothing_the_stack_grants_is_unused(
    stack: tuple[list[Json], dict[str, Any]],
) -> None:
    denied, unused = await lived_with(stack[0])

    assert denied == set()
    assert unused == SPARE_IAM


@pytest.mark.spec("operations-18.3")
@virtual
async def test_the_charts_roles_are_enough() -> None:
    # Zonal shift is off, and there is nothing of it to undo.
    least = {"rbac": {"planning": False}, "zonalShift": {"onDisable": "leave"}}
    objects = rendered({**least, "settings": {"clusterName": CLUSTER}})
    rbac = Rbac(grants(objects, "karpenter", "kube-system"))
    gates = "--feature-gates=NodeOverlay=true,CapacityBuffer=true"
    world = AwsWorld(0, f"--interruption-queue={CLUSTER}", gates)
    world.aws.add_interruption_queue(CLUSTER)
    world.world.server.faults = rbac
    for resource, body in EXTRAS.items():
        world.api.create(resource, body)
    standing = asyncio.create_task(elector(world).run())
    await a_whole_life(world)
    standing.cancel()
    await asyncio.gather(standing, return_exceptions=True)

    # Both are known to be dispensable; their absence is told once.
    assert rbac.refused == {"watch limitranges", "watch services"}
    touched = {(each.group, each.resource) for each in rbac.used}
    assert {(each.group, each.resource) for each in rbac.granted} - touched == SPARE_RBAC


def elector(world: AwsWorld) -> Elector:
    kube = KubeClient(LocalTransport(world.world.server), world.clock)
    return Elector(kube, ElectionTerms(namespace="kube-system"), "one", clock=world.clock, rng=Random(1))


@pytest.mark.spec("operations-18.3")
@virtual
async def test_a_missing_permission_is_told_in_one_sentence() -> None:
    objects = rendered({"settings": {"clusterName": CLUSTER}})
    granted = [each for each in grants(objects, "karpenter", "kube-system") if each.resource != "nodepools"]
    world = AwsWorld(0)
    world.world.server.faults = Rbac(granted)
    kube = KubeClient(LocalTransport(world.world.server), world.clock)
    with pytest.raises(NotAuthorized) as refused:
        await kube.list(NodePool)

    assert "nodepools" in str(refused.value)
    assert "\n" not in str(refused.value)
