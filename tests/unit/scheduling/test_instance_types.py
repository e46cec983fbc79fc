"""Which instance types a batch may become, and how many nodes it takes."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import labels as names
from dovetail.scheduling.model.instance_types import InstanceType, Overhead, find_lowest_price
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.resources import convert_to_nano
from support.builders import amounts, container, nodepool, pod
from support.worlds import (
    FLAVOUR,
    Z1,
    Z2,
    Z3,
    World,
    assorted,
    default_types,
    instance_type,
    offering,
    series,
)


def tiny(name: str, **more: Any) -> Any:
    return pod(name, cpu="10m", memory="10M", **more)


@pytest.mark.spec("T-092")
@pytest.mark.parametrize("memory", ["100M", "2000M"])
def test_a_small_pod_gets_the_small_type(memory: str) -> None:
    world = World()
    world.provision(pod("web", cpu=None, memory=memory))
    assert world.type_of("web") == "small-instance-type"


@pytest.mark.spec("T-093")
def test_the_overhead_of_a_runtime_counts() -> None:
    world = World()
    world.provision(pod("web", cpu="1", memory=None, overhead=amounts(cpu="2")))
    assert world.type_of("web") == "default-instance-type"


@pytest.mark.spec("T-094", "T-099")
@pytest.mark.parametrize(("count", "nodes"), [(5, 1), (25, 5)])
def test_small_pods_share_small_nodes(count: int, nodes: int) -> None:
    world = World()
    plan = world.provision(*(pod(f"web-{i}", cpu=None, memory="10M") for i in range(count)))
    assert len(plan.new_nodes) == nodes
    assert {node.instance_type for node in plan.new_nodes} == {"small-instance-type"}


@pytest.mark.spec("T-095")
def test_larger_pods_are_packed_first_and_small_ones_fill_up() -> None:
    amd: dict[str, Any] = {"node_selector": {names.ARCH: "amd64"}}
    large = [pod(f"large-{i}", cpu="10m", memory="1800M", **amd) for i in range(40)]
    small = [pod(f"small-{i}", cpu="10m", memory="400M", **amd) for i in range(20)]
    for pods in (large, [*small, *large]):
        plan = World().solve(*pods)
        assert [node.instance_type for node in plan.new_nodes] == ["default-instance-type"] * 20


@pytest.mark.spec("T-096")
def test_pods_that_do_not_fit_together_get_different_types() -> None:
    plan = World(types=series(5)).solve(pod("big", cpu="4500m"), pod("small", cpu="1"))
    assert len({node.instance_type for node in plan.new_nodes}) == 2


@pytest.mark.spec("T-097", "T-098")
def test_asking_for_nothing_of_an_unknown_resource_is_fine_and_for_too_much_is_not() -> None:
    world = World()
    world.provision(
        pod("zero", requests={"foo.com/weird": "0"}),
        pod("huge", cpu="512", memory="2Ti"),
    )
    assert world.node_of("zero") is not None
    assert world.node_of("huge") is None


@pytest.mark.spec("T-100")
def test_init_containers_count_by_the_largest() -> None:
    def with_init(name: str, memory: str) -> Any:
        init = container("init", cpu="2", memory=memory)
        return pod(name, cpu="1", memory="1Gi", init_containers=(init,))

    world = World()
    world.provision(with_init("web", "1Gi"), with_init("huge", "1Ti"))
    assert world.type_of("web") == "default-instance-type"
    assert world.node_of("huge") is None


def priced(name: str, cpu: int, cost: float) -> InstanceType:
    return instance_type(name, cpu, f"{cpu}Gi", offerings=[offering(Z1, "on-demand", cost)])


@pytest.mark.spec("T-101")
def test_the_cheapest_type_comes_first_whatever_its_size() -> None:
    types = [priced("medium", 4, 3.0), priced("small", 2, 2.0), priced("large", 8, 1.0)]
    (node,) = World(types=types).solve(tiny("web")).new_nodes
    assert node.instance_types == ("large", "small", "medium")


@pytest.mark.spec("T-102")
@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        (names.ARCH, "amd64", "arm64"),
        (names.OS, "linux", "windows"),
        (names.INSTANCE_TYPE, "small-instance-type", "default-instance-type"),
        (names.ZONE, Z1, Z2),
    ],
)
def test_pods_with_different_selectors_get_different_nodes(key: str, one: str, other: str) -> None:
    plan = World().solve(tiny("one", node_selector={key: one}), tiny("two", node_selector={key: other}))
    assert len(plan.new_nodes) == 2


@pytest.mark.spec("T-103")
def test_extended_resources_of_different_types_do_not_come_together() -> None:
    a, b = "fake.com/vendor-a", "fake.com/vendor-b"
    plan = World().solve(
        pod("a", requests={a: "1"}), pod("b", requests={b: "1"}), pod("both", requests={a: "1", b: "1"})
    )
    assert len(plan.new_nodes) == 2
    assert list(plan.unschedulable) == ["default/both"]


@pytest.mark.spec("T-104")
@pytest.mark.parametrize(
    ("wishes", "types"),
    [
        ({"node_selector": {names.ARCH: "arm64"}}, {"arm-instance-type"}),
        ({"node_selector": {names.OS: "ios"}}, {"arm-instance-type"}),
        ({"requests": {"fake.com/vendor-a": "1"}}, {"gpu-vendor-instance-type"}),
    ],
)
def test_only_types_that_suit_are_listed(wishes: dict[str, Any], types: set[str]) -> None:
    (node,) = World().solve(tiny("web", **wishes)).new_nodes
    assert set(node.instance_types) == types


@pytest.mark.spec("T-105")
def test_a_type_for_one_pod_takes_one_pod() -> None:
    only = {names.INSTANCE_TYPE: "single-pod-instance-type"}
    assert len(World().solve(*(tiny(f"w{i}", node_selector=only) for i in range(3))).new_nodes) == 3


ASSORTED = assorted()


@pytest.mark.spec("T-106")
@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {names.ARCH: "arm64"},
        {names.OS: "windows"},
        {names.ZONE: Z2},
        {names.CAPACITY_TYPE: "spot"},
        {names.ZONE: Z1, names.CAPACITY_TYPE: "on-demand"},
        {names.ARCH: "amd64", names.OS: "linux", names.ZONE: Z3, names.CAPACITY_TYPE: "spot"},
    ],
)
@pytest.mark.parametrize("by", ["pod", "pool", "both"])
def test_the_cheapest_compatible_offering_is_found(chosen: dict[str, str], by: str) -> None:
    asked = [(key, "In", value) for key, value in chosen.items()] if by != "pod" else []
    world = World(nodepool(requirements=asked), types=ASSORTED)
    (node,) = world.solve(tiny("web", node_selector=chosen if by != "pool" else {})).new_nodes
    wanted = Requirements.from_labels(chosen)
    suiting = [each for each in ASSORTED if each.requirements.intersects(wanted)]
    assert node.price == min(find_lowest_price(each, wanted, FLAVOUR.well_known) for each in suiting)
    by_name = {each.name: each for each in ASSORTED}
    assert all(by_name[name].requirements.intersects(wanted) for name in node.instance_types)


@pytest.mark.spec("T-107")
@pytest.mark.parametrize(
    ("pool", "chosen"),
    [
        ({}, {names.ARCH: "arm"}),
        ({}, {names.ARCH: "arm", names.ZONE: Z2}),
        ({names.ARCH: "arm"}, {names.ZONE: Z2}),
    ],
)
def test_what_no_type_has_cannot_be_had(pool: dict[str, str], chosen: dict[str, str]) -> None:
    asked = [(key, "In", value) for key, value in pool.items()]
    plan = World(nodepool(requirements=asked), types=ASSORTED).solve(tiny("web", node_selector=chosen))
    assert not plan.new_nodes
    assert list(plan.unschedulable) == ["default/web"]


@pytest.mark.spec("T-108")
@pytest.mark.parametrize("cpu", ["100m", "1", "2500m", "16"])
@pytest.mark.parametrize("memory", ["100Mi", "1Gi", "10Gi", "32Gi"])
def test_every_listed_type_holds_the_pods_and_its_own_overhead(cpu: str, memory: str) -> None:
    before = [(each.capacity, each.overhead) for each in ASSORTED]
    (node,) = World(types=ASSORTED).solve(*(pod(f"w{i}", cpu=cpu, memory=memory) for i in range(3))).new_nodes
    by_name = {each.name: each for each in ASSORTED}
    for name in node.instance_types:
        room = convert_to_nano(by_name[name].allocatable())
        assert all(amount.nano <= room.get(key, 0) for key, amount in node.requests.items())
    assert before == [(each.capacity, each.overhead) for each in ASSORTED]


@pytest.mark.spec("T-109")
def test_types_are_ordered_by_offerings_that_may_be_used() -> None:
    types = [
        instance_type("a", offerings=[offering(Z1, "on-demand", 1.0), offering(Z1, "spot", 0.2)]),
        instance_type("b", offerings=[offering(Z1, "on-demand", 1.3), offering(Z1, "spot", 0.1)]),
    ]
    pool = nodepool(requirements=[(names.CAPACITY_TYPE, "In", "on-demand")])
    (node,) = World(pool, types=types).solve(tiny("web")).new_nodes
    assert (node.instance_type, node.price) == ("a", 1.0)


@pytest.mark.spec("T-110")
@pytest.mark.parametrize("available", [True, False])
def test_an_offering_may_bring_a_resource_of_its_own(available: bool) -> None:
    special = amounts({"fake.com/slots": "2"})
    types = [
        instance_type("plain", offerings=[offering(Z1, "on-demand", 1.0)]),
        instance_type(
            "slotted",
            offerings=[
                offering(Z1, "on-demand", 1.0),
                offering(Z2, "on-demand", 2.0, available, capacity_override=special),
            ],
        ),
    ]
    plan = World(types=types).solve(pod("web", requests={"fake.com/slots": "1"}))
    assert [node.instance_types for node in plan.new_nodes] == ([("slotted",)] if available else [])


@pytest.mark.spec("T-111")
def test_overrides_replace_what_they_name() -> None:
    override = Overhead(system_reserved=amounts(memory="3Gi"))
    made = instance_type(
        "t",
        16,
        "16Gi",
        overhead=Overhead(kube_reserved=amounts(memory="1Gi")),
        offerings=[offering(Z1, "spot", 1.0), offering(Z2, "spot", 1.0, overhead_override=override)],
    )
    base, other = made.allocatable_groups()
    assert [each.zone for each in base.offerings] == [Z1]
    assert (base.allocatable["memory"], other.allocatable["memory"]) == tuple(
        amounts(memory=text)["memory"] for text in ("15Gi", "13Gi")
    )


@pytest.mark.spec("T-112")
@pytest.mark.parametrize(("pages", "left"), [(("5Gi", "10Gi"), "4Gi"), (("15Gi", "10Gi"), "0")])
def test_huge_pages_are_taken_from_memory(pages: tuple[str, str], left: str) -> None:
    capacity = amounts({"hugepages-2Mi": pages[0], "hugepages-1Gi": pages[1]}, memory="20Gi")
    made = InstanceType(name="t", capacity=capacity, overhead=Overhead(kube_reserved=amounts(memory="1Gi")))
    assert made.allocatable()["memory"] == amounts(memory=left)["memory"]
    assert made.compute_nano_allocatable() == convert_to_nano(made.allocatable())


@pytest.mark.parametrize("pages", [{}, {"hugepages-2Mi": "5Gi"}])
def test_what_is_left_for_pods_is_the_same_in_billionths(pages: dict[str, str]) -> None:
    overhead = Overhead(
        kube_reserved=amounts(cpu="80m", memory="1Gi"),
        system_reserved=amounts({"fake.com/x": "1"}, cpu="1"),
        eviction_threshold=amounts(memory="100Mi"),
    )
    for capacity in (amounts(pages, cpu="4", memory="20Gi"), amounts(pages, cpu="1"), amounts(pages)):
        made = InstanceType(name="t", capacity=capacity, overhead=overhead)
        assert made.compute_nano_allocatable() == convert_to_nano(made.allocatable())


@pytest.mark.spec("T-113")
def test_pods_with_one_host_port_get_nodes_of_their_own() -> None:
    assert len(World().solve(*(tiny(f"w{i}", host_ports=[80]) for i in range(2))).new_nodes) == 2


@pytest.mark.spec("T-114")
def test_a_selector_beats_weight() -> None:
    world = World(nodepool("light", weight=1, labels={"team": "a"}), nodepool("heavy", weight=100))
    world.provision(
        tiny("by-name", node_selector={names.NODEPOOL: "light"}),
        tiny("by-label", node_selector={"team": "a"}),
    )
    assert world.labels_of("by-name")[names.NODEPOOL] == "light"
    assert world.labels_of("by-label")[names.NODEPOOL] == "light"


@pytest.mark.spec("T-115", "T-116")
@pytest.mark.parametrize(
    ("weights", "chosen"),
    [({"a": None, "b": 20, "c": 100, "d": None}, "c"), ({"a": 5, "b": 5}, "b"), ({"a": None, "z": 0}, "z")],
)
def test_the_weightiest_pool_is_used_then_the_later_name(weights: dict[str, int | None], chosen: str) -> None:
    world = World(*(nodepool(name, weight=weight) for name, weight in weights.items()))
    world.provision(tiny("web"))
    assert world.labels_of("web")[names.NODEPOOL] == chosen


def test_default_types_cost_what_the_fixtures_say() -> None:
    small = default_types()[1]
    assert small.offerings[0].price == pytest.approx(0.2 + 0.1 * 2 * 1024**3 / 1e9)
