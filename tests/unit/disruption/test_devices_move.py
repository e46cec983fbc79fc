"""Pods with devices: what is held by pods that move is free, and must be found again elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api.core import ObjectReference
from dovetail.api.meta import ObjectMeta
from dovetail.api.pod import Pod, PodResourceClaim
from dovetail.api.quantity import Quantity
from dovetail.disruption.command import Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.consolidation import choose_multi_node, choose_single_node
from dovetail.disruption.methods.drift import choose_drift
from dovetail.disruption.simulation.simulate import simulate_scheduling
from dovetail.scheduling.model.device_objects import (
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
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.snapshot import StateNode
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


def world(
    *states: StateNode, claims: list[ResourceClaim], slices: list[ResourceSlice], types: Any
) -> DisruptionInput:
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


def names(commands: list[Command]) -> list[str]:
    return [candidate.name for command in commands for candidate in command.candidates]


def why(of: DisruptionInput, node: str) -> str:
    """What stands in the way of a node's going."""
    return simulate_scheduling(of, [c for c in going(of) if c.name == node], consolidating=True).problem


@pytest.mark.spec("disruption-155")
def test_a_device_can_be_had_again_on_the_replacement() -> None:
    mine = state("a", user("p", "a"), of=BIG, drifted=NOW)
    held: dict[str, Any] = {
        "claims": [claim("p", "a", "gpu-0")],
        "slices": [published("a", Device(name="gpu-0"))],
    }
    of = world(mine, types=[BIG, SMALL], **held)
    assert why(of, "a") == ""
    assert only(choose_single_node(of).commands).replacements[0].instance_types == ("small",)
    (new,) = only(choose_drift(of).commands).replacements
    assert new.pods == ("default/p",)
    # It is the device that is found again, not merely room: the same machine without one will not do.
    bare = world(mine, types=[machine("big", 16, 9.0), machine("small", 4, 3.0)], **held)
    assert "default/p" in why(bare, "a")
    assert (choose_single_node(bare).commands, choose_drift(bare).commands) == ([], [])


@pytest.mark.spec("disruption-156")
def test_what_the_node_itself_publishes_is_no_place_to_go() -> None:
    """It has a second device, which is free, and goes with it."""
    mine = state("a", user("p", "a"), of=LARGE)
    free = state("b", pod("q", cpu="500m", memory="10Mi", node="b"), of=LARGE)
    two = (Device(name="gpu-0"), Device(name="gpu-1"))
    held = [claim("p", "a", "gpu-0")]
    own = world(mine, free, claims=held, slices=[published("a", *two)], types=[LARGE])
    assert "default/p" in why(own, "a")
    # The same free device on a node that stays is one.
    slices = [published("a", two[0]), published("b", two[1])]
    assert why(world(mine, free, claims=held, slices=slices, types=[LARGE]), "a") == ""


@pytest.mark.spec("disruption-157")
def test_a_claim_that_nothing_else_can_meet_keeps_the_node() -> None:
    mine = state("a", user("p", "a"), of=LARGE)
    free = state("b", pod("q", cpu="500m", memory="10Mi", node="b"), of=LARGE)
    held, slices = [claim("p", "a", "gpu-0")], [published("a", Device(name="gpu-0"))]
    of = world(mine, free, claims=held, slices=slices, types=[LARGE])
    # The pod beside it needs no device, and moves; the one with the claim has nowhere to go.
    assert names(choose_single_node(of).commands) == ["b"]
    assert "a" not in names(choose_multi_node(of).commands)
    alone = choose_single_node(
        world(mine, claims=held, slices=slices, types=[LARGE, machine("cheap", 4, 1.0)])
    )
    assert alone.commands == []
    (stays,) = [each for each in alone.blocked if each.name == "a"]
    assert stays.why.startswith("not all pods would schedule, default/p => ")


@pytest.mark.spec("disruption-158")
def test_a_device_that_a_pod_elsewhere_holds_is_not_free() -> None:
    mine, other = state("a", user("p", "a"), of=LARGE), state("b", user("q", "b"), of=LARGE)
    slices = [published("a", Device(name="gpu-0")), published("b", Device(name="gpu-0"))]
    taken = [claim("p", "a", "gpu-0"), claim("q", "b", "gpu-0")]
    of = world(mine, other, claims=taken, slices=slices, types=[LARGE])
    assert "default/p" in why(of, "a")
    assert choose_single_node(of).commands == []
    # Nobody holds it: then it is where the pod goes.
    idle = state("b", pod("r", cpu="500m", memory="10Mi", node="b"), of=LARGE)
    freed = world(mine, idle, claims=taken[:1], slices=slices, types=[LARGE])
    assert why(freed, "a") == ""
    moving = [c for c in going(freed) if c.name == "a"]
    assert "default/p" in simulate_scheduling(freed, moving, consolidating=True).plan.existing["b"]


@pytest.mark.spec("disruption-159")
def test_devices_of_two_nodes_fit_one_replacement() -> None:
    both = with_gpus("both", 2, 4.0)
    states = [state(n, user(f"p{n}", n), of=BIG) for n in ("a", "b")]
    held: dict[str, Any] = {
        "claims": [claim(f"p{n}", n, "gpu-0") for n in ("a", "b")],
        "slices": [published(n, Device(name="gpu-0")) for n in ("a", "b")],
    }
    of = world(*states, types=[both, BIG], **held)
    (new,) = simulate_scheduling(of, going(of), consolidating=True).plan.new_nodes
    assert (new.instance_types, sorted(new.pods)) == (("both",), ["default/pa", "default/pb"])
    merged = only(choose_multi_node(of).commands)
    assert (names([merged]), merged.replacements[0].instance_types) == (["a", "b"], ("both",))
    # With one device a machine, it takes two of them: there is nothing to merge into.
    apart = world(*states, types=[with_gpus("lone", 1, 4.0), BIG], **held)
    assert len(simulate_scheduling(apart, going(apart), consolidating=True).plan.new_nodes) == 2
    assert choose_multi_node(apart).commands == []


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
    outcome = simulate_scheduling(of, [c for c in going(of) if c.name == "a"], consolidating=True)
    assert (outcome.problem == "") is fits
