"""Pods with devices: what is held by pods that move is free, and must be found again elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api.core import ObjectReference
from dovetail.api.meta import ObjectMeta
from dovetail.api.pod import Pod, PodResourceClaim
from dovetail.api.quantity import Quantity
from dovetail.disruption.candidates import Scene
from dovetail.disruption.choose import drifted, single
from dovetail.disruption.command import Command
from dovetail.disruption.simulate import simulate
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.device_records import (
    AllocatedDevice,
    AllocatedDevices,
    Allocation,
    CapacityRequests,
    Device,
    DeviceCapacity,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceState,
    ExactRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourceSlice,
    ResourceSliceSpec,
    SlicePool,
)
from dovetail.scheduling.snapshot import StateNode
from support.builders import NOW, amounts, pod
from support.disruption import LARGE, going, machine, scene, state

GPU = "gpu.example.com"


def published(node: str, *devices: Device) -> ResourceSlice:
    return ResourceSlice(
        metadata=ObjectMeta(name=f"slice-{node}"),
        spec=ResourceSliceSpec(driver=GPU, pool=SlicePool(name=node), node_name=node, devices=devices),
    )


def shared(*devices: Device) -> ResourceSlice:
    """Devices every node can reach."""
    spec = ResourceSliceSpec(driver=GPU, pool=SlicePool(name="net"), all_nodes=True, devices=devices)
    return ResourceSlice(metadata=ObjectMeta(name="net"), spec=spec)


def claim(name: str, pool: str, device: str, share: str = "") -> ResourceClaim:
    """A claim of the pod of the same name, which has its device."""
    asked = CapacityRequests(requests=amounts({"memory": share})) if share else None
    request = DeviceRequest(name="gpu", exactly=ExactRequest(device_class_name="gpu", capacity=asked))
    used = amounts({"memory": share}) if share else {}
    given = AllocatedDevice(request="gpu", driver=GPU, pool=pool, device=device, consumed_capacity=used)
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=(request,))),
        status=ResourceClaimStatus(
            allocation=Allocation(devices=AllocatedDevices(results=(given,))),
            reserved_for=(ObjectReference(name=name),),
        ),
    )


def user(name: str, on: str) -> Pod:
    wanted = (PodResourceClaim(name="gpu", resource_claim_name=name),)
    return pod(name, cpu="500m", memory="10Mi", node=on, resource_claims=wanted)


def with_gpus(name: str, count: int, price: float, cpu: float = 16) -> InstanceType:
    devices = tuple(Device(name=f"gpu-{i}") for i in range(count))
    return replace(machine(name, cpu, price), device_slices=(published("", *devices),))


def world(*states: StateNode, claims: list[ResourceClaim], slices: list[ResourceSlice], types: Any) -> Scene:
    devices = DeviceState(
        slices=tuple(slices),
        classes={"gpu": DeviceClass(metadata=ObjectMeta(name="gpu"))},
        claims={each.full_name: each for each in claims},
    )
    return scene(*states, types=types, snapshot={"devices": devices}, ignore_dra=False)


BIG, SMALL = with_gpus("big", 1, 9.0), with_gpus("small", 1, 3.0, 4)


def only(commands: list[Command]) -> Command:
    assert len(commands) == 1
    return commands[0]


@pytest.mark.spec("disruption-155")
def test_a_device_can_be_had_again_on_the_replacement() -> None:
    mine = state("a", user("p", "a"), of=BIG, drifted=NOW)
    of = world(
        mine,
        claims=[claim("p", "a", "gpu-0")],
        slices=[published("a", Device(name="gpu-0"))],
        types=[BIG, SMALL],
    )
    assert only(single(of).commands).replacements[0].instance_types == ("small",)
    assert len(only(drifted(of).commands).replacements) == 1


@pytest.mark.spec("disruption-156", "disruption-157")
def test_a_claim_that_only_the_node_itself_can_meet_keeps_it() -> None:
    mine = state("a", user("p", "a"), of=LARGE)
    free = state("b", pod("q", cpu="500m", memory="10Mi", node="b"), of=LARGE)
    of = world(
        mine,
        free,
        claims=[claim("p", "a", "gpu-0")],
        slices=[published("a", Device(name="gpu-0"))],
        types=[LARGE],
    )
    assert [c.name for command in single(of).commands for c in command.candidates] == ["b"]
    outcome = simulate(of, [c for c in going(of) if c.name == "a"], consolidating=True)
    assert "default/p" in outcome.problem


@pytest.mark.spec("disruption-158")
def test_a_device_that_a_pod_elsewhere_holds_is_not_free() -> None:
    mine, other = state("a", user("p", "a"), of=LARGE), state("b", user("q", "b"), of=LARGE)
    of = world(
        mine,
        other,
        claims=[claim("p", "a", "gpu-0"), claim("q", "b", "gpu-0")],
        slices=[published("a", Device(name="gpu-0")), published("b", Device(name="gpu-0"))],
        types=[LARGE],
    )
    assert single(of).commands == []


@pytest.mark.spec("disruption-159")
def test_devices_of_two_nodes_fit_one_replacement() -> None:
    both = with_gpus("both", 2, 4.0)
    states = [state(n, user(f"p{n}", n), of=BIG) for n in ("a", "b")]
    of = world(
        *states,
        claims=[claim(f"p{n}", n, "gpu-0") for n in ("a", "b")],
        slices=[published(n, Device(name="gpu-0")) for n in ("a", "b")],
        types=[both, BIG],
    )
    outcome = simulate(of, going(of), consolidating=True)
    assert outcome.problem == ""
    (new,) = outcome.plan.new_nodes
    assert new.instance_types == ("both",)


@pytest.mark.spec("disruption-159")
@pytest.mark.parametrize(("share", "fits"), [("4Gi", True), ("6Gi", False)])
def test_of_a_shared_device_only_the_share_that_moves_is_free(share: str, fits: bool) -> None:
    device = Device(
        name="big",
        capacity={"memory": DeviceCapacity(value=Quantity.parse("8Gi"))},
        allow_multiple_allocations=True,
    )
    stays, goes = claim("stays", "net", "big", "4Gi"), claim("goes", "net", "big", share)
    of = world(
        state("a", user("goes", "a")),
        state("b", user("stays", "b")),
        claims=[stays, goes],
        slices=[shared(device)],
        types=[LARGE],
    )
    outcome = simulate(of, [c for c in going(of) if c.name == "a"], consolidating=True)
    assert (outcome.problem == "") is fits
