"""What can be bought where, and for how much, as numbers."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.metrics import REGISTRY
from dovetail.providers.aws.cloud import REPAIR_POLICIES
from support.ec2_instances import TYPES, MachineScene
from support.nodeclasses import node_class, pool_of
from support.stage import sample, virtual

SHOWING = "cloudprovider.metrics"
CPU = "karpenter_cloudprovider_instance_type_cpu_cores"
MEMORY = "karpenter_cloudprovider_instance_type_memory_bytes"
AVAILABLE = "karpenter_cloudprovider_instance_type_offering_available"
PRICE = "karpenter_cloudprovider_instance_type_offering_price_estimate"


def shown(name: str) -> list[dict[str, str]]:
    """The labels of every series of a metric."""
    return [
        dict(each.labels) for family in REGISTRY.collect() for each in family.samples if each.name == name
    ]


def offer(kind: str, way: str, zone: str) -> dict[str, str]:
    return {"instance_type": kind, "capacity_type": way, "zone": zone}


async def resolved(scene: MachineScene, *pools: Any) -> None:
    scene.apply(node_class())
    await scene.resolve()
    for pool in pools or (pool_of(),):
        scene.apply(pool)


@virtual
async def test_in_full_every_type_is_shown_where_it_is_sold_and_reserved_ones_as_none() -> None:
    async with MachineScene("--metrics-detail=full").still() as scene:
        broken = pool_of("broken", class_name="missing")
        await resolved(scene, broken, pool_of())
        result = await scene.look(SHOWING)
        assert result.after is not None
        assert result.after.total_seconds() == 60
        assert {each["instance_type"] for each in shown(CPU)} == set(TYPES)
        assert sample(CPU, instance_type="m5.large") == 2
        assert sample(MEMORY, instance_type="m5.large") == 8192 * 2**20
        for way in ("on-demand", "spot"):
            about = offer("m5.large", way, "us-west-2a")
            assert sample(AVAILABLE, **about) == 1
            assert sample(PRICE, **about) > 0
        reserved = offer("m5.large", "reserved", "us-west-2a")
        assert reserved in shown(AVAILABLE)
        assert sample(AVAILABLE, **reserved) == sample(PRICE, **reserved) == 0
        scene.provider.unavailable.mark_offering("spot", "m5.large", "us-west-2a")
        await scene.look(SHOWING)
        assert sample(AVAILABLE, **offer("m5.large", "spot", "us-west-2a")) == 0
        assert sample(AVAILABLE, **offer("m5.large", "on-demand", "us-west-2a")) == 1


@virtual
async def test_in_brief_only_types_that_claims_have_are_shown() -> None:
    async with MachineScene().still() as scene:
        await resolved(scene)
        await scene.look(SHOWING)
        assert shown(CPU) == shown(AVAILABLE) == []
        await scene.machine()
        await scene.look(SHOWING)
        assert {each["instance_type"] for each in shown(CPU)} == {"m5.large"}
        assert {each["instance_type"] for each in shown(PRICE)} == {"m5.large"}
        assert {each["capacity_type"] for each in shown(AVAILABLE)} == {"on-demand", "spot"}


@virtual
async def test_numbers_nobody_wants_are_not_counted() -> None:
    quiet = MachineScene("--disable-cluster-state-observability=true").dovetail.controllers
    assert SHOWING not in {each.name for each in quiet}
    assert SHOWING in {each.name for each in MachineScene().dovetail.controllers}


@virtual
async def test_every_controller_of_the_provider_has_its_name() -> None:
    names = [each.name for each in MachineScene().dovetail.controllers]
    wanted = {
        *("nodeclass", "nodeclass.hash", "instance.garbagecollection", "instanceprofile.garbagecollection"),
        *("nodeclaim.tagging", "interruption", "interruption.instancestatus"),
        *("capacityreservation.capacitytype", "capacityreservation.expiration", "providers.instancetype"),
        *("providers.instancetype.capacity", "providers.pricing", "providers.ssm.invalidation"),
        *("providers.version", SHOWING, "operatorpkg.ec2nodeclass.status"),
    }
    assert wanted <= set(names), wanted - set(names)
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("condition", "status", "minutes"),
    [
        ("Ready", "False", 30),
        ("Ready", "Unknown", 30),
        ("AcceleratedHardwareReady", "False", 10),
        *((f"{each}Ready", "False", 30) for each in ("Storage", "Networking", "Kernel", "ContainerRuntime")),
    ],
)
def test_nodes_are_given_up_when_a_condition_has_lasted(condition: str, status: str, minutes: int) -> None:
    (policy,) = [p for p in REPAIR_POLICIES if (p.condition, p.status) == (condition, status)]
    assert policy.toleration.total_seconds() == minutes * 60
    assert len(REPAIR_POLICIES) == 7
