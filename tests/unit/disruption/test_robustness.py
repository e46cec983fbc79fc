"""The scheduler places pods its own way: an exchange that only pays if it follows the plan is left alone."""

from __future__ import annotations

import pytest

from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.consolidation import choose_single_node
from dovetail.disruption.verdict import LEFT_OVER
from support.builders import owner, pod
from support.disruption import SMALL, machine, scene, state

RS = owner("ReplicaSet")


def world(price: float, *cpus: str, free: str = "2400m") -> DisruptionInput:
    """Node a could go for a small one, if b takes the first of its pods."""
    medium = machine("medium", 4, price)
    pods = [pod(f"p{i}", cpu=cpu, memory="100Mi", node="a", owned_by=RS) for i, cpu in enumerate(cpus)]
    taken = pod("taken", cpu=free, memory="100Mi", node="b", owned_by=RS)
    return scene(
        state("a", *pods, of=medium),
        state("b", taken, of=medium, consolidatable=False),
        types=(SMALL, medium),
    )


def stays(of: DisruptionInput) -> list[str]:
    choice = choose_single_node(of)
    assert choice.commands == []
    return [each.why for each in choice.blocked if each.name == "a"]


def test_a_pod_that_may_be_left_over_for_more_than_is_saved_keeps_the_node() -> None:
    # By the plan 1500m goes to b; the scheduler puts it on the new node, and one 900m fits nowhere.
    assert stays(world(1.9, "1500m", "900m", "900m")) == [LEFT_OVER]


def test_a_saving_that_pays_for_one_node_more_is_made() -> None:
    (command,) = choose_single_node(world(2.5, "1500m", "900m", "900m")).commands
    assert [node.instance_type for node in command.replacements] == ["small"]
    assert command.savings == pytest.approx(1.5)


def test_pods_that_fit_either_way_go() -> None:
    (command,) = choose_single_node(world(1.9, "1500m", "400m", "400m")).commands
    assert command.savings == pytest.approx(0.9)


def test_pods_that_all_go_to_the_new_node_need_no_second_thought() -> None:
    (command,) = choose_single_node(world(1.9, "900m", "900m", free="3900m")).commands
    assert command.savings == pytest.approx(0.9)
