"""Room is kept free for pods to come, and pods that come find it."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import labels
from support.builders import nodepool, pod
from support.world import Scene, virtual

GATE = ("--feature-gates=CapacityBuffer=true",)
BUFFERS = "capacitybuffers.autoscaling.x-k8s.io"


def buffer(scene: Scene, name: str = "room", **spec: Any) -> None:
    scene.api.create(BUFFERS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def template(scene: Scene, name: str = "shape", cpu: str = "1") -> None:
    container = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}
    scene.api.create(
        "podtemplates",
        {
            "metadata": {"name": name, "namespace": "default"},
            "template": {"metadata": {"labels": {"app": "room"}}, "spec": {"containers": [container]}},
        },
    )


def says(scene: Scene, kind: str, name: str = "room") -> tuple[str, str] | None:
    status = scene.api.get(BUFFERS, name, "default").get("status") or {}
    return next(((c["status"], c["reason"]) for c in status.get("conditions", ()) if c["type"] == kind), None)


@virtual
async def test_a_buffer_gets_nodes_and_pods_that_come_use_them() -> None:
    async with Scene(flags=GATE).running() as scene:
        scene.apply(nodepool())
        template(scene)
        buffer(scene, podTemplateRef={"name": "shape"}, replicas=3)
        await scene.settle(5)
        assert says(scene, "ReadyForProvisioning") == ("True", "Resolved")
        await scene.settle(60)
        assert says(scene, "Provisioning") == ("True", "FitsExistingCapacity")
        nodes = {node.name for node in scene.nodes()}
        assert nodes
        assert scene.pods() == [], "nobody's pods exist only in plans"

        await scene.settle(300)
        assert {node.name for node in scene.nodes()} == nodes, "room that is wanted is not taken for empty"

        scene.create(pod("web", cpu="1"))
        await scene.settle(3)
        assert scene.node_of("web").name in nodes, "the room was there"
        await scene.settle(90)
        assert says(scene, "Provisioning") == ("True", "FitsExistingCapacity")
        status = scene.api.get(BUFFERS, "room", "default")["status"]
        assert (status["replicas"], status["podTemplateRef"]) == (3, {"name": "shape"})
        assert scene.events("Nominated") == [], "nobody's pods are told of, and web found its room by itself"


@virtual
async def test_without_the_buffer_the_room_goes() -> None:
    async with Scene(flags=GATE).running() as scene:
        scene.apply(nodepool())
        template(scene)
        buffer(scene, podTemplateRef={"name": "shape"}, replicas=2)
        await scene.settle(60)
        assert scene.nodes()
        scene.api.delete(BUFFERS, "room", "default")
        await scene.until(lambda: not scene.nodes() and not scene.claims(), within=300)


@virtual
async def test_a_buffer_follows_its_workload() -> None:
    async with Scene(flags=GATE).running() as scene:
        scene.apply(nodepool())
        buffer(scene, scalableRef={"kind": "Deployment", "name": "web"}, percentage=50)
        await scene.settle(5)
        assert says(scene, "ReadyForProvisioning") == ("False", "ScalableRefNotFound")
        container = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}
        spec = {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
        }
        meta = {"name": "web", "namespace": "default"}
        scene.api.create("deployments.apps", {"metadata": meta, "spec": spec})
        await scene.settle(90)
        assert says(scene, "ReadyForProvisioning") == ("True", "Resolved")
        assert scene.api.get(BUFFERS, "room", "default")["status"]["replicas"] == 2
        scene.api.patch("deployments.apps", "web", {"spec": {"replicas": 0}}, "default")
        await scene.settle(90)
        assert scene.api.get(BUFFERS, "room", "default")["status"]["replicas"] == 0
        assert says(scene, "Provisioning") == ("False", "BufferEmpty")


@pytest.mark.spec("T-287")
@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"podTemplateRef": {"name": "none"}, "replicas": 1}, "PodTemplateNotFound"),
        ({"scalableRef": {"kind": "Deployment", "name": "none"}, "replicas": 1}, "ScalableRefNotFound"),
        ({"scalableRef": {"kind": "Job", "name": "none"}, "replicas": 1}, "ResolutionFailed"),
        ({"replicas": 1}, "ResolutionFailed"),
    ],
)
def test_a_buffer_that_leads_nowhere_says_why(spec: dict[str, Any], reason: str) -> None:
    @virtual
    async def told() -> None:
        async with Scene(flags=GATE).running() as scene:
            scene.apply(nodepool())
            buffer(scene, **spec)
            await scene.settle(40)
            assert says(scene, "ReadyForProvisioning") == ("False", reason)
            assert scene.nodes() == []

    told()


@virtual
async def test_a_buffer_of_absurd_size_is_refused_and_the_others_are_served() -> None:
    async with Scene(flags=GATE).running() as scene:
        scene.apply(nodepool())
        template(scene)
        buffer(scene, name="absurd", podTemplateRef={"name": "shape"}, replicas=2_147_483_647)
        buffer(scene, podTemplateRef={"name": "shape"}, replicas=2)
        await scene.settle(60)

        assert says(scene, "ReadyForProvisioning", "absurd") == ("False", "ResolutionFailed")
        assert says(scene, "Provisioning") == ("True", "FitsExistingCapacity")
        assert scene.nodes()


@virtual
async def test_without_the_gate_buffers_are_inert() -> None:
    async with Scene().running() as scene:
        scene.apply(nodepool())
        template(scene)
        buffer(scene, podTemplateRef={"name": "shape"}, replicas=3)
        await scene.settle(60)
        assert says(scene, "ReadyForProvisioning") is None
        assert scene.nodes() == []
        assert labels.BUFFER_FAKE_POD not in str(scene.pods())


@virtual
async def test_room_that_is_wanted_can_be_asked_for_without_a_word_written() -> None:
    async with Scene(flags=GATE).still() as scene:
        template(scene)
        buffer(scene, podTemplateRef={"name": "shape"}, replicas=3)
        buffer(scene, "lost", podTemplateRef={"name": "nowhere"}, replicas=2)
        await scene.heard()
        buffers = scene.dovetail.parts.buffers
        assert buffers is not None
        assert len(buffers.resolve_all()) == 3
        assert says(scene, "ReadyForProvisioning") is None
