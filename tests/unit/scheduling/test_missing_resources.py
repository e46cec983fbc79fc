"""A pod that requests what no pool can buy: which resource, which types have it, and what excludes them."""

from __future__ import annotations

from dovetail.api.nodepool import NodePool
from dovetail.scheduling.missing_resources import MissingResource, TypeExclusion, find_missing_resources
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.snapshot import SchedulingOptions, Snapshot, build_pools_and_catalogs
from support.builders import NOW, nodepool, pod, requirement
from support.worlds import FLAVOUR, Z1, instance_type, offering

GPU = "nvidia.com/gpu"
PLAIN = instance_type("plain", price=1.0)
ONE, TWO = (instance_type(f"gpu-{n}", more={GPU: str(n)}, price=float(9 - n)) for n in (1, 2))
LINUX = requirement("kubernetes.io/os", "In", "linux")


def world(*pools: NodePool, types: tuple[InstanceType, ...] = (PLAIN, ONE, TWO)) -> Snapshot:
    listed, catalogs = build_pools_and_catalogs((pool, types) for pool in pools)
    return Snapshot(pools=listed, catalogs=catalogs, options=SchedulingOptions(now=NOW, flavour=FLAVOUR))


def asking(snapshot: Snapshot, name: str = GPU, amount: int = 1) -> tuple[MissingResource, ...]:
    return find_missing_resources(snapshot, pod("train", requests={name: amount}))


def confined(name: str, *types: str) -> NodePool:
    return nodepool(name, requirements=[LINUX, requirement("node.kubernetes.io/instance-type", "In", *types)])


def test_the_requirement_of_each_pool_that_excludes_them_is_named() -> None:
    other = requirement("kubernetes.io/arch", "In", "arm64")
    (found,) = asking(world(confined("a", "plain"), nodepool("b", requirements=[LINUX, other])))

    assert found.types == ("gpu-2", "gpu-1")
    assert found.excluded_by == (
        TypeExclusion("b", "kubernetes.io/arch In [arm64]", 2),
        TypeExclusion("a", "node.kubernetes.io/instance-type In [plain]", 2),
    )
    assert str(found) == "requests nvidia.com/gpu 1, and no instance type of any pool has it"
    assert list(found.list_lines()) == [
        "types with it: gpu-2, gpu-1",
        "pool b excludes them: kubernetes.io/arch In [arm64]",
        "pool a excludes them: node.kubernetes.io/instance-type In [plain]",
    ]


def test_nothing_is_missing_while_one_pool_has_it() -> None:
    assert asking(world(confined("a", "plain"), nodepool("b"))) == ()
    assert asking(world(confined("a", "plain", "gpu-1"))) == ()


def test_no_type_with_enough_is_told_by_the_most_there_is() -> None:
    (found,) = asking(world(nodepool()), amount=8)
    assert str(found) == "requests nvidia.com/gpu 8, and no instance type has as much: the most is 2 (gpu-2)"
    (found,) = asking(world(nodepool()), "example.com/fpga")
    assert str(found) == "requests example.com/fpga 1, and no instance type has any"
    assert list(found.list_lines()) == []


def test_requirements_that_only_together_exclude_all_are_named_with_their_counts() -> None:
    some = instance_type("gpu-arm", more={GPU: "1"}, arch="arm64")
    both = [
        requirement("kubernetes.io/arch", "In", "arm64"),
        requirement("node.kubernetes.io/instance-type", "In", "gpu-1"),
    ]
    (found,) = asking(world(nodepool(requirements=both), types=(ONE, some)))
    assert [(each.requirement, each.count) for each in found.excluded_by] == [
        ("kubernetes.io/arch In [arm64]", 1),
        ("node.kubernetes.io/instance-type In [gpu-1]", 1),
    ]
    assert "pool default excludes 1 of them: kubernetes.io/arch In [arm64]" in list(found.list_lines())


def test_types_that_cannot_be_bought_now_are_told_apart_from_those_that_are_excluded() -> None:
    sold_out = instance_type("gpu-1", more={GPU: "1"}, offerings=[offering(Z1, "spot", 1.0, available=False)])
    (found,) = asking(world(nodepool(), types=(PLAIN, sold_out)))
    assert [each.requirement for each in found.excluded_by] == ["none of their offerings is available to it"]


def test_cpu_and_memory_are_left_to_the_nearest_miss_and_without_pools_there_is_nothing_to_say() -> None:
    assert find_missing_resources(world(nodepool()), pod("big", cpu="10000")) == ()
    assert asking(world(nodepool(ready=False))) == ()
