"""Dynamic resource allocation: pods that claim devices, and the nodes that have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.api.core import ObjectReference
from dovetail.api.meta import ObjectMeta
from dovetail.api.pod import NodeSelector, Pod, PodResourceClaim
from dovetail.api.quantity import Quantity
from dovetail.scheduling.model.device_objects import (
    AllocatedDevice,
    AllocatedDevices,
    Allocation,
    CapacityPolicy,
    CapacityRange,
    CapacityRequests,
    CELSelector,
    CounterSet,
    CounterUse,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
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
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot_codec import decode_snapshot, encode_snapshot
from dovetail.scheduling.sequential import pod_errors
from dovetail.scheduling.sequential.device_search import AvailableDevice, ChosenDevice, DeviceLedger
from support.builders import amounts, nodeclaim, pod
from support.worlds import Z1, Z2, World, instance_type, running, term

GPU = "gpu.example.com"


def device(name: str, capacity: dict[str, Any] | None = None, **more: Any) -> Device:
    attributes = {"model": DeviceAttribute(text=more.pop("model", "a100"))}
    numa = more.pop("numa", None)
    if numa is not None:
        attributes["numa"] = DeviceAttribute(number=numa)
    return Device(name=name, attributes=attributes, capacity=capacity or {}, **more)


def amount(text: str, **policy: Any) -> DeviceCapacity:
    return DeviceCapacity(
        value=Quantity.parse(text), request_policy=CapacityPolicy(**policy) if policy else None
    )


def published(
    *devices: Device, node: str = "", zone: str = "", pool: str = "", slices: int = 1, **more: Any
) -> ResourceSlice:
    selector = NodeSelector(node_selector_terms=(term((names.ZONE, "In", zone)),)) if zone else None
    return ResourceSlice(
        metadata=ObjectMeta(name=f"{node or zone or 'slice'}-{pool}"),
        spec=ResourceSliceSpec(
            driver=GPU,
            pool=SlicePool(name=pool or node or zone or "pool", resource_slice_count=slices),
            node_name=node,
            node_selector=selector,
            all_nodes=not node and not zone,
            devices=devices,
            **more,
        ),
    )


def kind(name: str, *devices: Device, cpu: float = 4, arch: str = "amd64", **more: Any) -> InstanceType:
    """An instance type whose nodes will have these devices."""
    made = instance_type(name, cpu, "8Gi", 20, arch=arch)
    return replace(made, device_slices=(published(*devices, pool=name, **more),) if devices else ())


def claim(
    name: str, *requests: DeviceRequest, constraints: Sequence[DeviceConstraint] = (), **status: Any
) -> ResourceClaim:
    wanted = requests or (asking("gpu"),)
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=wanted, constraints=tuple(constraints))),
        status=ResourceClaimStatus(**status),
    )


def exact(
    device_class: str = "gpu", cel: str = "", capacity: dict[str, str] | None = None, **more: Any
) -> ExactRequest:
    selectors = (DeviceSelector(cel=CELSelector(expression=cel)),) if cel else ()
    asked = CapacityRequests(requests=amounts(capacity)) if capacity else None
    return ExactRequest(device_class_name=device_class, selectors=selectors, capacity=asked, **more)


def asking(name: str, *args: Any, **more: Any) -> DeviceRequest:
    return DeviceRequest(name=name, exactly=exact(*args, **more))


GPUS = DeviceClass(
    metadata=ObjectMeta(name="gpu"),
    spec=DeviceClassSpec(
        selectors=(DeviceSelector(cel=CELSelector(expression=f'device.driver == "{GPU}"')),)
    ),
)


def using(name: str, *claims: str, **more: Any) -> Pod:
    wanted = tuple(PodResourceClaim(name=each, resource_claim_name=each) for each in claims)
    return pod(name, cpu="100m", memory="100M", resource_claims=wanted, **more)


def world(
    *types: InstanceType,
    claims: Sequence[ResourceClaim] = (),
    slices: Sequence[ResourceSlice] = (),
    **more: Any,
) -> World:
    made = World(types=types or (kind("plain"),), ignore_dra=more.pop("ignore_dra", False), **more)
    made.more["devices"] = DeviceState(
        slices=tuple(slices), classes={"gpu": GPUS}, claims={each.full_name: each for each in claims}
    )
    return made


def nodes_of(plan: Plan) -> list[set[str]]:
    return [{name.partition("/")[2] for name in node.pods} for node in plan.new_nodes]


@pytest.mark.spec("T-292")
def test_devices_are_refused_while_they_are_ignored() -> None:
    made = world(kind("gpu", device("g0")), claims=[claim("c")], ignore_dra=True)
    made.daemons = (using("daemon", "c", requests={"cpu": "3"}),)
    plan = made.solve(using("web", "c"), pod("other", cpu="1"))
    assert plan.unschedulable == {"default/web": pod_errors.NO_DEVICES}
    (node,) = plan.new_nodes
    assert node.requests == amounts(cpu="1", memory="1Gi", pods="1")


@pytest.mark.spec("T-293")
@pytest.mark.parametrize(("devices", "nodes"), [(("g0", "g1"), 1), (("g0",), 2)])
def test_only_types_with_the_devices_are_listed(devices: tuple[str, ...], nodes: int) -> None:
    gpu = kind("gpu", *(device(name) for name in devices))
    made = world(kind("plain"), gpu, claims=[claim("a"), claim("b")])
    plan = made.solve(using("one", "a"), using("two", "b"))
    assert [node.instance_types for node in plan.new_nodes] == [("gpu",)] * nodes
    assert {node.annotations[names.REQUESTED_DRA_DRIVERS] for node in plan.new_nodes} == {GPU}


@pytest.mark.spec("T-294")
def test_a_pod_waits_for_its_claim_to_exist() -> None:
    made = world(kind("gpu", device("g0")))
    plan = made.solve(using("web", "c"))
    assert plan.unschedulable == {"default/web": "resource claim default/c does not exist yet"}
    made.more["devices"] = replace(made.more["devices"], claims={"default/c": claim("c")})
    assert not made.solve(using("web", "c")).unschedulable


@pytest.mark.spec("T-294")
@pytest.mark.parametrize(
    ("types", "request_", "wishes"),
    [
        pytest.param([kind("gpu", device("g0"))], asking("r", "unknown"), {}, id="no such class"),
        pytest.param([kind("plain")], asking("r"), {}, id="no type has it"),
        pytest.param(
            [kind("gpu", device("g0"), arch="arm64")],
            asking("r"),
            {"node_selector": {names.ARCH: "amd64"}},
            id="another arch",
        ),
        pytest.param(
            [kind("gpu", device("g0"))],
            asking("r", cel=f'device.attributes["{GPU}"].model == "h100"'),
            {},
            id="another model",
        ),
    ],
)
def test_devices_nobody_has_cannot_be_had(types: Any, request_: DeviceRequest, wishes: Any) -> None:
    plan = world(*types, claims=[claim("c", request_)]).solve(using("web", "c", **wishes))
    assert list(plan.unschedulable) == ["default/web"]


@pytest.mark.spec("T-295")
def test_a_device_that_is_there_comes_before_a_new_node() -> None:
    node = running("up", claim=nodeclaim("up", node="up"))
    made = world(
        kind("gpu", device("g0")),
        claims=[claim("c")],
        slices=[published(device("g0"), node="up")],
        nodes=[node],
    )
    assert made.solve(using("web", "c")).existing == {"up": ("default/web",)}


@pytest.mark.spec("T-295")
@pytest.mark.parametrize("where", ["unknown", "coming"])
def test_devices_of_nodes_that_are_not_up_do_not_count(where: str) -> None:
    coming = running("coming", claim=nodeclaim("coming", node="coming"), initialized=False)
    made = world(claims=[claim("c")], slices=[published(device("g0"), node=where)], nodes=[coming])
    assert list(made.solve(using("web", "c")).unschedulable) == ["default/web"]


@pytest.mark.spec("T-295")
def test_a_coming_node_has_what_its_type_promises_and_not_more() -> None:
    coming = running(
        "coming", claim=nodeclaim("coming", node="coming"), initialized=False, instance_type="gpu"
    )
    both: dict[str, Any] = {"claims": [claim("a"), claim("b")], "nodes": [coming]}
    # Its driver has begun to publish; the device must not be counted twice.
    made = world(kind("gpu", device("g0")), slices=[published(device("g0"), node="coming")], **both)
    plan = made.solve(using("one", "a"), using("two", "b"))
    assert (len(plan.existing["coming"]), len(plan.new_nodes)) == (1, 1)


@pytest.mark.spec("T-296")
def test_a_device_of_one_zone_pins_the_node() -> None:
    made = world(claims=[claim("c")], slices=[published(device("g0"), zone=Z2)])
    (node,) = made.solve(using("web", "c")).new_nodes
    assert (node.zone, node.requirements[names.ZONE].only) == (Z2, Z2)


@pytest.mark.spec("T-296")
def test_devices_of_two_zones_do_not_come_together() -> None:
    slices = [published(device("g0", model="x"), zone=Z1), published(device("g1", model="y"), zone=Z2)]
    wanted = [
        claim(name, asking("r", cel=f'device.attributes["{GPU}"].model == "{name}"')) for name in ("x", "y")
    ]
    plan = world(claims=wanted, slices=slices).solve(using("web", "x", "y"))
    assert list(plan.unschedulable) == ["default/web"]


@pytest.mark.spec("T-296")
@pytest.mark.parametrize("moving", [True, False])
def test_a_device_is_free_again_when_its_pod_moves(moving: bool) -> None:
    given = Allocation(
        devices=AllocatedDevices(
            results=(AllocatedDevice(request="gpu", driver=GPU, pool="pool", device="g0"),)
        )
    )
    old = claim("old", allocation=given, reserved_for=(ObjectReference(name="user"),))
    holder = running("n", using("user", "old", node="n"), marked=moving)
    made = world(
        kind("plain"), claims=[old, claim("new")], slices=[published(device("g0"))],
        nodes=[holder],
    )  # fmt: skip
    plan = made.solve(*([] if moving else [using("web", "new")]))
    placed = {name for node in plan.new_nodes for name in node.pods}
    assert placed == ({"default/user"} if moving else set())


@pytest.mark.spec("T-297")
def test_a_shared_claim_is_given_once() -> None:
    made = world(claims=[claim("c")], slices=[published(device("g0"))])
    assert not made.solve(using("one", "c"), using("two", "c")).unschedulable
    promised = world(kind("gpu", device("g0"), cpu=1), claims=[claim("c")])
    pods = [using(f"w{i}", "c", requests={"cpu": "500m"}) for i in range(3)]
    plan = promised.solve(*(replace(each, spec=replace(each.spec, containers=())) for each in pods))
    assert nodes_of(plan) == [{"w0", "w1", "w2"}]


@pytest.mark.spec("T-297")
def test_all_takes_every_device_and_needs_to_know_them_all() -> None:
    everything = claim("c", asking("r", allocation_mode="All"))
    gpu = kind("gpu", device("g0"), device("g1"))
    plan = world(gpu, claims=[everything, claim("d")]).solve(using("one", "c"), using("two", "d"))
    assert len(plan.new_nodes) == 2
    partial = kind("gpu", device("g0"), slices=2)
    assert world(partial, claims=[everything]).solve(using("one", "c")).unschedulable


@pytest.mark.spec("T-297")
def test_the_first_available_of_several_is_taken() -> None:
    options = tuple(exact(cel=f'device.attributes["{GPU}"].model == "{m}"', name=m) for m in ("h100", "a100"))
    wanted = claim("c", DeviceRequest(name="r", first_available=options))
    plan = world(kind("gpu", device("g0")), claims=[wanted]).solve(using("web", "c"))
    assert [node.instance_type for node in plan.new_nodes] == ["gpu"]


@pytest.mark.spec("T-297")
@pytest.mark.parametrize(("second", "placed"), [(0, True), (1, False)])
def test_devices_that_must_match_do(second: int, placed: bool) -> None:
    gpu = kind("gpu", device("g0", numa=0), device("g1", numa=second))
    rule = DeviceConstraint(match_attribute=f"{GPU}/numa")
    wanted = claim("c", asking("r", count=2), constraints=[rule])
    assert bool(world(gpu, claims=[wanted]).solve(using("web", "c")).new_nodes) == placed


@pytest.mark.spec("T-297")
def test_devices_that_must_differ_are_not_promised() -> None:
    wanted = claim("c", constraints=[DeviceConstraint(distinct_attribute=f"{GPU}/numa")])
    assert world(kind("gpu", device("g0")), claims=[wanted]).solve(using("web", "c")).unschedulable


SHARED = device("g0", {"memory": amount("40Gi")}, allow_multiple_allocations=True)


@pytest.mark.spec("T-298")
def test_a_device_is_shared_until_it_is_full() -> None:
    wanted = [claim(f"c{i}", asking("r", capacity={"memory": "20Gi"})) for i in range(3)]
    plan = world(kind("gpu", SHARED), claims=wanted).solve(*(using(f"w{i}", f"c{i}") for i in range(3)))
    assert sorted(len(each) for each in nodes_of(plan)) == [1, 2]


@pytest.mark.spec("T-298")
@pytest.mark.parametrize(
    ("policy", "asked", "placed"),
    [
        ({}, {"memory": "50Gi"}, False),
        ({}, {"bandwidth": "1"}, False),
        ({"valid_values": (Quantity.parse("10Gi"), Quantity.parse("20Gi"))}, {"memory": "15Gi"}, True),
        ({"valid_values": (Quantity.parse("10Gi"),)}, {"memory": "15Gi"}, False),
        (
            {"valid_range": CapacityRange(min=Quantity.parse("1Gi"), max=Quantity.parse("8Gi"))},
            {"memory": "9Gi"},
            False,
        ),
    ],
)
def test_what_is_asked_of_a_device_must_be_there_and_allowed(
    policy: dict[str, Any], asked: dict[str, str], placed: bool
) -> None:
    made = device("g0", {"memory": amount("40Gi", **policy)}, allow_multiple_allocations=True)
    plan = world(kind("gpu", made), claims=[claim("c", asking("r", capacity=asked))]).solve(using("web", "c"))
    assert bool(plan.new_nodes) == placed


@pytest.mark.spec("T-298")
def test_partitions_share_their_counters() -> None:
    use = (CounterUse(counter_set="card", counters={"slots": amount("4")}),)
    parts = [device(f"part-{i}", consumes_counters=use) for i in range(3)]
    counters = (CounterSet(name="card", counters={"slots": amount("8")}),)
    gpu = kind("gpu", *parts, shared_counters=counters)
    wanted = [claim(f"c{i}") for i in range(3)]
    plan = world(gpu, claims=wanted).solve(*(using(f"w{i}", f"c{i}") for i in range(3)))
    assert sorted(len(each) for each in nodes_of(plan)) == [1, 2]


def test_selectors_compare_amounts() -> None:
    cel = f'device.capacity["{GPU}"].memory.compareTo(quantity("{{}}")) >= 0'
    made = device("g0", {"memory": amount("40Gi")})
    for size, placed in (("40Gi", True), ("41Gi", False)):
        wanted = claim("c", asking("r", cel=cel.format(size)))
        assert bool(world(kind("gpu", made), claims=[wanted]).solve(using("web", "c")).new_nodes) == placed


def test_devices_travel_with_the_snapshot() -> None:
    made = world(kind("gpu", device("g0", {"memory": amount("40Gi")}, numa=1)), claims=[claim("c")])
    snapshot = made.snapshot(using("web", "c"))
    again = decode_snapshot(encode_snapshot(snapshot))
    assert again == snapshot
    assert again.catalogs[0][0].device_slices[0].spec.devices[0].attributes["numa"].value == 1


@pytest.mark.parametrize("shared", [True, False])
def test_what_is_given_back_is_free_as_before_and_what_others_took_is_not(shared: bool) -> None:
    use = (CounterUse(counter_set="set", counters={"slots": amount("2")}),)
    mine = device("g0", allow_multiple_allocations=shared, consumes_counters=use)
    stocked = AvailableDevice("driver", "pool", mine, Requirements())
    first, second = (
        ChosenDevice(name, "r", stocked, {"memory": size}) for name, size in (("a", 3), ("b", 4))
    )
    ledger = DeviceLedger()
    ledger.take(first)
    taken = ledger.copy()
    assert taken.whole == (set() if shared else {stocked.key})
    assert taken.shares == ({(stocked.key, "memory"): 3} if shared else {})
    if shared:
        ledger.take(second)
        assert ledger.shares == {(stocked.key, "memory"): 7}
        ledger.give_back(second)
        assert ledger == taken
    ledger.give_back(first)
    assert not ledger.whole
    assert not any(ledger.shares.values())
    assert list(ledger.counters.values()) == [0]
