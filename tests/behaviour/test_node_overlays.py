"""Overlays correct prices and capacities, and say on themselves whether they hold."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import labels
from dovetail.errors import Retry
from support.builders import nodepool, pod
from support.world import Scene, virtual

GATE = ("--feature-gates=NodeOverlay=true",)
OVERLAYS = "nodeoverlays.karpenter.sh"
SMALL, LARGE = "small-instance-type", "default-instance-type"


def overlay(scene: Scene, name: str, only: str, **spec: Any) -> None:
    wanted = [{"key": labels.INSTANCE_TYPE, "operator": "In", "values": [only]}]
    scene.api.create(OVERLAYS, {"metadata": {"name": name}, "spec": {"requirements": wanted, **spec}})


def says(scene: Scene, name: str, kind: str = "ValidationSucceeded") -> tuple[str, str] | None:
    status = scene.api.get(OVERLAYS, name).get("status") or {}
    found = (c for c in status.get("conditions", ()) if c["type"] == kind)
    return next(((c["status"], c["reason"]) for c in found), None)


@virtual
async def test_a_price_that_people_correct_is_believed() -> None:
    async with Scene(flags=GATE).running() as scene:
        scene.apply(nodepool(requirements=[(labels.INSTANCE_TYPE, "In", SMALL)]))
        overlay(scene, "dear", SMALL, price="1000")
        await scene.settle(5)
        served = await scene.dovetail.parts.cloud.list_instance_types(scene.pool_now())
        prices = {each.name: {offering.price for offering in each.offerings} for each in served}
        assert prices[SMALL] == {1000.0}
        assert 1000.0 not in prices[LARGE]
        scene.create(pod("web", cpu="500m", memory="100Mi"))
        await scene.settle(30)
        assert scene.claims()[0].annotations["karpenter.sh/price-overlay-applied"] == "true"
        assert says(scene, "dear") == ("True", "ValidationSucceeded")
        assert says(scene, "dear", "Ready") == ("True", "Ready")


@virtual
async def test_of_two_that_contradict_each_other_the_later_name_holds() -> None:
    async with Scene(flags=GATE).running() as scene:
        scene.apply(nodepool())
        overlay(scene, "alpha", SMALL, price="1", weight=5)
        overlay(scene, "beta", SMALL, price="2", weight=5)
        await scene.settle(5)
        assert says(scene, "alpha") == ("False", "Conflict")
        assert says(scene, "beta") == ("True", "ValidationSucceeded")
        scene.api.delete(OVERLAYS, "beta")
        await scene.settle(5)
        assert says(scene, "alpha") == ("True", "ValidationSucceeded")


@virtual
async def test_a_resource_that_people_add_can_be_asked_for() -> None:
    async with Scene(flags=GATE, kwok=True).running() as scene:
        scene.apply(nodepool())
        scene.create(pod("web", requests={"example.com/licence": "1", "cpu": "100m"}, cpu=None, memory=None))
        await scene.settle(30)
        assert scene.claims() == []
        overlay(scene, "licensed", "c-4x-amd64-linux", capacity={"example.com/licence": "4"})
        await scene.settle(60)
        assert scene.node_of("web").labels[labels.INSTANCE_TYPE] == "c-4x-amd64-linux"


@pytest.mark.spec("T-285")
@virtual
async def test_a_pool_waits_until_its_overlays_are_evaluated() -> None:
    async with Scene(flags=GATE).running() as scene:
        scene.cloud.fail("instance_types", Retry("not now"), Retry("not now"))
        scene.apply(nodepool(), pod("web"))
        await scene.settle(40)
        assert scene.node_of("web")


@virtual
async def test_without_the_gate_overlays_are_inert() -> None:
    async with Scene().running() as scene:
        scene.apply(nodepool())
        overlay(scene, "dear", SMALL, price="1000")
        await scene.settle(10)
        assert says(scene, "dear") is None
