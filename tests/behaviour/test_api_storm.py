"""A whole Dovetail whose API server misbehaves in every way: pods get their nodes, and no bug is met."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from dovetail.api import crds
from dovetail.app.controller import Dovetail
from dovetail.runtime import metrics
from dovetail.settings import read_settings
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.faults import FaultRule, FaultStorm
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from support.apiserver import deployment
from support.fault_storms import ALL_TROUBLES

CLASS = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
LINUX = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}


def bugs() -> float:
    """Reconciles that hit a bug, of all controllers."""
    samples = (sample for family in metrics.REGISTRY.collect() for sample in family.samples)
    return sum(s.value for s in samples if s.name == "controller_runtime_reconcile_panics_total")


def furnish(world: World) -> None:
    for definition in crds.build_manifests("kwok"):
        world.api.create("customresourcedefinitions.apiextensions.k8s.io", definition)


def order(world: World) -> None:
    world.api.create("kwoknodeclasses.karpenter.kwok.sh", {"metadata": {"name": "default"}, "spec": {}})
    template = {"spec": {"nodeClassRef": CLASS, "requirements": [LINUX]}}
    world.api.create(
        "nodepools.karpenter.sh", {"metadata": {"name": "default"}, "spec": {"template": template}}
    )
    world.api.create("deployments.apps", deployment("web", replicas=40), "default")


@pytest.mark.parametrize("seed", range(3))
def test_pods_get_their_nodes_through_a_storm(seed: int) -> None:
    async def main() -> tuple[int, int, int]:
        clock = VirtualClock()
        storm = FaultStorm(clock, seed=seed)
        world = World(clock, seed, faults=storm)
        furnish(world)
        settings = read_settings((), {"CLUSTER_NAME": "stormy"}, provider="kwok")
        dovetail = Dovetail(settings, LocalTransport(world.server), clock=clock, chance=Random(seed))
        async with world.running():
            running = asyncio.create_task(dovetail.run())
            storm.rules = tuple(
                FaultRule(trouble=trouble, clients=("karpenter",), probability=0.03)
                for trouble in ALL_TROUBLES
            )
            order(world)
            await clock.sleep(900)
            storm.end_faults()
            await clock.sleep(900)
            pods = world.api.list("pods", "default")
            bound = sum(1 for pod in pods if pod["spec"].get("nodeName"))
            dovetail.stop()
            await running
        return len(pods), bound, len({strike.rule.trouble for strike in storm.record})

    before = bugs()
    pods, bound, kinds = run_virtual(main())
    assert (pods, bound) == (40, 40)
    assert kinds >= 8, "the storm was real"
    assert bugs() == before
