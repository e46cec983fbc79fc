"""A what-if takes the better of two runs: the cheapest domain for each pod, and the first."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import labels as names
from dovetail.api.pod import Pod
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.simulation.simulate import run_what_if
from dovetail.disruption.simulation.what_if import WhatIfScheduler
from support.builders import owner, pod
from support.disruption import going, scene, state
from support.worlds import Z1, Z2, instance_type, offering, spread

MOVED: dict[str, Any] = {"node": "n", "owned_by": owner("ReplicaSet")}
# The first zone is dear, the second cheap.
TYPE = instance_type("t", 4, offerings=[offering(Z1, "on-demand", 3.0), offering(Z2, "on-demand", 1.0)])


def spread_pod() -> Pod:
    """It may run in either zone, and its rule lets it choose."""
    rule = spread(names.ZONE)
    return pod("web", cpu="2", labels={"app": "web"}, topology_spread_constraints=(rule,), **MOVED)


def pinned(name: str, zone: str) -> Pod:
    return pod(name, cpu="100m", node_selector={names.ZONE: zone}, **MOVED)


def world(*pods: Pod) -> DisruptionInput:
    return scene(state("n", *pods, of=TYPE, zone=Z1), types=[TYPE])


def asked(*pods: Pod, most: int | None = None) -> tuple[WhatIfScheduler, list[WhatIfScheduler]]:
    """The what-if that is taken when the one node goes, and all there were."""
    inputs, seen = world(*pods), list[WhatIfScheduler]()
    return run_what_if(inputs, going(inputs), consolidating=True, seen=seen, most=most), seen


def test_one_run_is_enough_where_no_domain_was_chosen_for_its_price() -> None:
    taken, seen = asked(pinned("a", Z1))
    assert seen == [taken]
    assert taken.plan.price == 3.0


def test_the_cheapest_domain_for_each_is_taken_where_that_is_cheaper_for_all() -> None:
    taken, seen = asked(spread_pod())
    assert [each.thrifty for each in seen] == [True, False]
    assert [each.plan.price for each in seen] == [1.0, 3.0]
    assert taken is seen[0]


def test_the_first_domain_is_taken_where_the_pods_that_follow_make_it_cheaper() -> None:
    taken, seen = asked(spread_pod(), pinned("a", Z1))
    assert [each.plan.price for each in seen] == [4.0, 3.0]
    assert taken is seen[1]


@pytest.mark.parametrize(("zone", "whole"), [(Z1, 1), (Z2, 0)])
def test_a_run_that_opens_too_many_nodes_is_not_finished_and_not_taken(zone: str, whole: int) -> None:
    """Of the two runs one opens a node for the pods that are bound to a zone, beside the first."""
    taken, seen = asked(spread_pod(), pinned("a", zone), pinned("b", zone), most=1)
    assert [each.timed_out for each in seen] == [whole == 1, whole == 0]
    assert taken is seen[whole]


def test_where_no_run_could_be_finished_the_first_says_so() -> None:
    taken, seen = asked(spread_pod(), pinned("a", Z1), pinned("b", Z2), pinned("c", Z1), most=0)
    assert taken is seen[0]
    assert taken.timed_out
