"""When a Node may be counted on: ready, free of passing taints, with everything that was asked for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.core import Taint
from dovetail.scheduling.model.instance_types import InstanceType
from support.builders import amounts, taint
from support.world import Scene, virtual

GPU = "example.com/gpu"
DRA = ("--ignore-dra-requests=false",)
NOT_YET = "DRADriverPoolsNotPublished"


@pytest.mark.spec("lifecycle-39")
@virtual
async def test_a_ready_node_with_everything_is_initialised() -> None:
    async with Scene().still() as scene:
        await scene.initialized()
        assert scene.says("Initialized") == ("True", "Initialized")
        assert scene.says("Ready") == ("True", "Ready")
        assert scene.node_now("node-claim").labels[labels.INITIALIZED] == "true"


@pytest.mark.spec("lifecycle-40")
@virtual
async def test_nothing_is_initialised_before_it_is_registered() -> None:
    async with Scene().still() as scene:
        claim = await scene.launched()
        scene.join(claim, name="one", ready=True)
        scene.join(claim, name="two", ready=True)
        await scene.live()
        assert scene.says("Registered") == ("False", "MultipleNodesFound")
        assert scene.says("Initialized") == ("Unknown", "AwaitingReconciliation")


@pytest.mark.spec("lifecycle-41")
@virtual
async def test_a_node_that_is_not_ready_is_waited_for() -> None:
    async with Scene().still() as scene:
        await scene.registered()
        scene.node_ready("node-claim", "False")
        await scene.live()
        state = scene.claim_now().status.find_condition("Initialized")
        assert state is not None
        assert (state.status, state.reason) == ("Unknown", "NodeNotReady")
        assert state.message == "Node status is NotReady"


@pytest.mark.spec("lifecycle-42")
@virtual
async def test_a_resource_that_was_asked_for_must_be_there() -> None:
    async with Scene().still() as scene:
        scene.claim(requests={"cpu": "1", GPU: "1"})
        scene.cloud.types = tuple(
            _with(each, GPU) for each in scene.cloud.types if each.name == "default-instance-type"
        )
        await scene.live()
        scene.join(scene.claim_now(), allocatable={GPU: "0"})
        await scene.live()
        scene.node_ready("node-claim")
        await scene.live()
        state = scene.claim_now().status.find_condition("Initialized")
        assert state is not None
        assert state.reason == "ResourceNotRegistered"
        assert state.message == f'Resource "{GPU}" was requested but not registered'

        scene.set_status("nodes", "node-claim", {"allocatable": {GPU: "1"}})
        await scene.live()
        assert scene.says("Initialized") == ("True", "Initialized")


@pytest.mark.spec("lifecycle-43")
@virtual
async def test_startup_taints_must_be_gone() -> None:
    async with Scene().still() as scene:
        await scene.registered(startup_taints=[taint("warming", value="up")])
        scene.node_ready("node-claim")
        await scene.live()
        state = scene.claim_now().status.find_condition("Initialized")
        assert state is not None
        assert state.reason == "StartupTaintsExist"
        assert state.message == 'StartupTaint "warming=up:NoSchedule" still exists'

        scene.retaint("node-claim")
        await scene.live()
        assert scene.says("Initialized") == ("True", "Initialized")


@pytest.mark.spec("lifecycle-44", "lifecycle-45")
@pytest.mark.parametrize(
    "passing",
    [
        taint("node.kubernetes.io/not-ready"),
        taint("node.kubernetes.io/not-ready", "NoExecute"),
        taint("node.kubernetes.io/unreachable"),
        taint("node.cloudprovider.kubernetes.io/uninitialized"),
        taint("readiness.k8s.io/network", "NoExecute"),
    ],
    ids=str,
)
def test_passing_taints_must_have_passed(passing: Taint) -> None:
    @virtual
    async def told() -> None:
        async with Scene().still() as scene:
            await scene.registered()
            scene.node_ready("node-claim")
            scene.retaint("node-claim", passing)
            await scene.live()
            assert scene.says("Initialized") == ("Unknown", "KnownEphemeralTaintsExist")

            scene.retaint("node-claim")
            await scene.live()
            assert scene.says("Initialized") == ("True", "Initialized")

    told()


def publish(
    scene: Scene, name: str, driver: str, of: int = 1, generation: int = 1, owned: bool = False
) -> None:
    """A slice of one driver's only pool on the node."""
    spec: dict[str, Any] = {
        "driver": driver,
        "pool": {"name": "pool", "generation": generation, "resourceSliceCount": of},
        "nodeName": "node-claim",
        "devices": [{"name": f"device-{name}"}],
    }
    metadata: dict[str, Any] = {"name": name}
    if owned:
        del spec["nodeName"]
        spec["allNodes"] = True
        uid = scene.node_now("node-claim").uid
        owner = {"apiVersion": "v1", "kind": "Node", "name": "node-claim", "uid": uid}
        metadata["ownerReferences"] = [owner]
    scene.api.create("resourceslices.resource.k8s.io", {"metadata": metadata, "spec": spec})


async def asking(scene: Scene, drivers: str) -> None:
    """A ready node of a claim whose pods ask for devices of these drivers."""
    await scene.registered(annotations={labels.REQUESTED_DRA_DRIVERS: drivers})
    scene.node_ready("node-claim")
    await scene.live()


@pytest.mark.spec("lifecycle-46")
@pytest.mark.parametrize("owned", [False, True])
def test_a_driver_must_have_published_its_devices(owned: bool) -> None:
    @virtual
    async def told() -> None:
        async with Scene(flags=DRA).still() as scene:
            await asking(scene, "gpu.example.com")
            state = scene.claim_now().status.find_condition("Initialized")
            assert state is not None
            assert state.reason == NOT_YET
            assert state.message == (
                'DRA driver "gpu.example.com" has not published a complete resource pool'
            )
            publish(scene, "a", "gpu.example.com", owned=owned)
            await scene.live()
            assert scene.says("Initialized") == ("True", "Initialized")

    told()


@pytest.mark.spec("lifecycle-47")
@virtual
async def test_half_a_pool_is_not_a_pool() -> None:
    async with Scene(flags=DRA).still() as scene:
        await asking(scene, "gpu.example.com")
        publish(scene, "a", "gpu.example.com", of=2)
        await scene.live()
        assert scene.says("Initialized") == ("Unknown", NOT_YET)
        publish(scene, "b", "gpu.example.com", of=2)
        await scene.live()
        assert scene.says("Initialized") == ("True", "Initialized")


@pytest.mark.spec("lifecycle-48")
@virtual
async def test_only_the_newest_generation_of_a_pool_counts() -> None:
    async with Scene(flags=DRA).still() as scene:
        await asking(scene, "gpu.example.com")
        publish(scene, "old", "gpu.example.com", generation=1)
        publish(scene, "new", "gpu.example.com", of=2, generation=2)
        await scene.live()
        assert scene.says("Initialized") == ("Unknown", NOT_YET)


@pytest.mark.spec("lifecycle-49")
@virtual
async def test_every_driver_that_was_asked_for_counts() -> None:
    async with Scene(flags=DRA).still() as scene:
        await asking(scene, "gpu.example.com,nic.example.com")
        publish(scene, "a", "gpu.example.com")
        await scene.live()
        state = scene.claim_now().status.find_condition("Initialized")
        assert state is not None
        assert state.reason == NOT_YET
        assert "nic.example.com" in state.message


@pytest.mark.spec("lifecycle-50")
@pytest.mark.parametrize(("flags", "drivers"), [((), "gpu.example.com"), (DRA, "")])
def test_devices_are_waited_for_only_where_they_are_asked_for(flags: tuple[str, ...], drivers: str) -> None:
    @virtual
    async def told() -> None:
        async with Scene(flags=flags).still() as scene:
            await asking(scene, drivers)
            assert scene.says("Initialized") == ("True", "Initialized")

    told()


@pytest.mark.spec("lifecycle-46")
@virtual
async def test_what_a_driver_publishes_wakes_the_claim() -> None:
    async with Scene(flags=DRA).running() as scene:
        scene.claim(annotations={labels.REQUESTED_DRA_DRIVERS: "gpu.example.com"})
        await scene.settle(20)
        assert scene.says("Initialized") == ("Unknown", NOT_YET)
        publish(scene, "a", "gpu.example.com")
        await scene.settle(1)
        assert scene.says("Initialized") == ("True", "Initialized")


def _with(instance_type: InstanceType, resource: str) -> InstanceType:
    return replace(instance_type, capacity={**instance_type.capacity, **amounts({resource: "2"})})


@virtual
async def test_devices_and_claims_on_them_are_part_of_what_is_decided_on() -> None:
    async with Scene(flags=DRA).still() as scene:
        group, claim = "resource.k8s.io", {"metadata": {"name": "gpu", "namespace": "default"}}
        device = {"name": "gpu-0"}
        pool = {"name": "node", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.example.com", "nodeName": "node", "pool": pool, "devices": [device]}
        scene.api.create(f"resourceslices.{group}", {"metadata": {"name": "slice"}, "spec": spec})
        asked = {"name": "one", "exactly": {"deviceClassName": "gpu"}}
        scene.api.create(f"resourceclaims.{group}", claim | {"spec": {"devices": {"requests": [asked]}}})
        scene.api.create(f"deviceclasses.{group}", {"metadata": {"name": "gpu"}, "spec": {}})
        await scene.heard()
        world = scene.dovetail.capture.take_snapshot((), scene.dovetail.build_options(scene.true_clock.now()))
        assert [each.name for each in world.devices.slices] == ["slice"]
        assert (list(world.devices.classes), list(world.devices.claims)) == (["gpu"], ["default/gpu"])
