"""What is said of unschedulable pods."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import labels as names
from dovetail.scheduling.model.reasons import Decision, NodeReason, Reason
from support.builders import nodepool, pod, taint
from support.worlds import Z1, Z2, Z3, World, apart, instance_type, offering, running, spread

NONE_LEFT = "nodepool requirements filtered out all available instance types"


@pytest.mark.spec("T-268")
@pytest.mark.parametrize(
    "asked",
    [
        [(names.INSTANCE_TYPE, "In", "missing")],
        [(names.ARCH, "In", "missing")],
        [(names.ZONE, "In", "missing")],
        [(names.ARCH, "In", "amd64"), (names.INSTANCE_TYPE, "In", "arm-instance-type")],
    ],
)
def test_a_pool_without_types_says_so_and_running_nodes_are_still_tried(asked: list[Any]) -> None:
    world = World(nodepool(requirements=asked), nodes=[running("own")])
    plan = world.solve(pod("fits", cpu="1"), pod("big", cpu="100"))
    assert plan.existing == {"own": ("default/fits",)}
    assert plan.unschedulable == {"default/big": NONE_LEFT}
    assert list(plan.pool_problems) == ["default"]


AMD = [
    instance_type("amd", 2, "4Gi", offerings=[offering(Z1, "spot", 1.0), offering(Z2, "spot", 1.0, False)])
]
SMALL_ARM = [*AMD, instance_type("arm", 1, "1Gi", arch="arm64")]


@pytest.mark.spec("T-269")
@pytest.mark.parametrize(
    ("types", "wishes", "stem"),
    [
        (AMD, {"cpu": "100"}, "no instance type has enough resources"),
        (
            AMD,
            {"node_selector": {names.ARCH: "arm64"}},
            "no instance type met all requirements",
        ),
        (
            AMD,
            {"node_selector": {names.ZONE: Z2}},
            "no instance type had enough resources or had a required offering",
        ),
        (
            AMD,
            {"node_selector": {names.ARCH: "arm64"}, "cpu": "100"},
            "no instance type met the scheduling requirements or had enough resources",
        ),
        (
            AMD,
            {"node_selector": {names.ZONE: Z3, names.ARCH: "arm64"}, "cpu": "100"},
            "no instance type met the scheduling requirements or had enough resources"
            " or had a required offering",
        ),
        (
            SMALL_ARM,
            {"node_selector": {names.ARCH: "arm64"}, "cpu": "1500m"},
            "no instance type which had enough resources and the required offering met"
            " the scheduling requirements",
        ),
    ],
)
def test_the_message_names_what_no_type_had(types: list[Any], wishes: dict[str, Any], stem: str) -> None:
    plan = World(types=types).solve(pod("web", **wishes))
    told = plan.unschedulable["default/web"]
    assert told.startswith(f"{stem}, requirements=")
    assert ', resources={"cpu":' in told


@pytest.mark.spec("T-270")
def test_a_million_cpus_are_probably_a_slip() -> None:
    plan = World().solve(pod("web", cpu="1M"))
    assert plan.unschedulable["default/web"].endswith(" (CPU request >= 1 Million, m vs M typo?)")


def test_several_pools_answer_in_order() -> None:
    world = World(nodepool("a", taints=[taint("k")]), nodepool("b", limits={"cpu": "0"}))
    told = world.solve(pod("web")).unschedulable["default/web"]
    assert told == (
        "all available instance types exceed limits for nodepool (NodePool=b); "
        "did not tolerate taint (taint=k:NoSchedule)"
    )


def test_every_place_turned_down_is_told_with_its_reason() -> None:
    held = [
        running("full", capacity={"cpu": "1", "memory": "1Gi", "pods": "0"}),
        running("closed", taints=[taint("k")]),
    ]
    world = World(nodepool(limits={"cpu": "0"}), nodes=held)
    (decision,) = world.solve(pod("web", cpu="2")).decisions
    assert [(each.place, each.reason) for each in decision.rejections] == [
        ("closed", Reason.TAINT),
        ("full", Reason.RESOURCES),
        ("default", Reason.LIMIT),
    ]
    assert "cpu: needs 2, has 1" in decision.rejections[1].detail
    assert str(decision).startswith("default/web fits none of 3 pools and nodes: 1 ")
    assert decision.nearest_miss == decision.rejections[1]


def test_a_placed_pod_is_told_in_one_sentence() -> None:
    (decision,) = World().solve(pod("web")).decisions
    assert str(decision) == "default/web will run on default/1"


def test_reasons_are_tallied_most_frequent_first() -> None:
    short = (NodeReason(name, Reason.RESOURCES) for name in "ab")
    turned_down = (*short, NodeReason("c", Reason.TAINT))
    decision = Decision("default/web-1", None, turned_down)
    assert str(decision) == (
        "default/web-1 fits none of 3 pools and nodes: 2 not enough resources, 1 a taint is not tolerated"
    )


def test_rules_between_pods_are_named() -> None:
    world = World(nodepool(requirements=[(names.ZONE, "In", Z1)]))
    labels = {"app": "web"}
    shy: dict[str, Any] = {"labels": labels, "affinity": apart(names.ZONE, app="web")}
    plan = world.solve(pod("a", **shy), pod("b", **shy))
    (failed,) = [each for each in plan.decisions if not each.place]
    assert failed.rejections[-1].reason is Reason.ANTI_AFFINITY
    assert failed.error.startswith("unsatisfiable topology constraint for pod anti-affinity")
    rule = spread("unknown")
    (lost,) = World().solve(pod("c", labels=labels, topology_spread_constraints=(rule,))).decisions
    assert lost.rejections[-1].reason is Reason.SPREAD
