"""Pods of nodes that go are placed anew, if they will come back at all."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.api.core import PodDisruptionBudget, PodDisruptionBudgetSpec
from dovetail.api.meta import Condition, LabelSelector, ObjectMeta
from dovetail.api.pod import PersistentVolumeClaimSource, Pod, Volume
from support.builders import NOW, owner, pod
from support.worlds import World, running

WEB = {"app": "web"}


def replaced(moving: Pod, *budgets: PodDisruptionBudget) -> bool:
    world = World(nodes=[running("old", moving, marked=True)])
    world.more["budgets"] = budgets
    return len(world.solve().new_nodes) == 1


def on_node(**more: Any) -> Pod:
    return pod("web", node="old", labels=WEB, **more)


@pytest.mark.spec("T-248")
def test_a_pod_of_a_node_that_goes_gets_a_node_of_the_same_size() -> None:
    world = World(nodes=[running("old", on_node(cpu="3"), marked=True)])
    (node,) = world.solve().new_nodes
    assert node.instance_type == "default-instance-type"


@pytest.mark.spec("T-249")
@pytest.mark.parametrize(
    ("kind", "comes_back"),
    [(None, False), ("ReplicaSet", False), ("DaemonSet", False), ("StatefulSet", True)],
)
def test_only_a_statefulset_brings_back_a_terminating_pod(kind: str | None, comes_back: bool) -> None:
    assert replaced(on_node(owned_by=owner(kind) if kind else None, deleted=NOW)) == comes_back


def budget(name: str = "pdb", **spec: Any) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels=WEB), **spec),
    )


@pytest.mark.spec("T-250")
@pytest.mark.parametrize(
    ("budgets", "moves"),
    [
        ([], True),
        ([budget(max_unavailable=0)], False),
        ([budget(max_unavailable="0%")], False),
        ([budget(min_available="100%")], False),
        ([budget(max_unavailable=1)], True),
        ([budget(min_available=1)], True),
        ([budget("a", max_unavailable=1), budget("b", max_unavailable=1)], False),
    ],
)
def test_pods_that_can_never_be_evicted_are_not_placed_anew(
    budgets: list[PodDisruptionBudget], moves: bool
) -> None:
    assert replaced(on_node(), *budgets) == moves


@pytest.mark.spec("T-250")
def test_a_sick_pod_may_go_where_the_budget_says_so() -> None:
    sick = on_node()
    sick = replace(sick, status=replace(sick.status, conditions=(Condition(type="Ready", status="False"),)))
    assert replaced(sick, budget(max_unavailable=0, unhealthy_pod_eviction_policy="AlwaysAllow"))
    assert not replaced(on_node(), budget(max_unavailable=0, unhealthy_pod_eviction_policy="AlwaysAllow"))


@pytest.mark.spec("T-250")
def test_a_pod_that_must_not_be_disturbed_stays() -> None:
    assert not replaced(on_node(annotations={names.DO_NOT_DISRUPT: "true"}))
    assert replaced(on_node(annotations={names.DO_NOT_DISRUPT: "nonsense"}))


def test_a_pod_whose_claim_is_lost_is_not_placed_anew() -> None:
    lost = Volume(name="v", persistent_volume_claim=PersistentVolumeClaimSource(claim_name="gone"))
    world = World(nodes=[running("old", on_node(volumes=(lost,)), marked=True)])
    assert world.solve().ignored == {"default/web": "failed to get pvc default/gone"}
