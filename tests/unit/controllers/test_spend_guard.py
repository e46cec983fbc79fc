"""The last look before a node is ordered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.api.meta import ObjectMeta
from dovetail.api.spend_limit import SpendLimit, SpendLimitSpec
from dovetail.controllers.spend_guard import SpendGuard
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.errors import Refused
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.model.requirements import Requirements
from dovetail.sim.clock import VirtualClock
from dovetail.state.cluster import Cluster
from support.builders import nodepool, pod
from support.worlds import World, instance_type


class Listed:
    """Objects that are simply there."""

    def __init__(self, *objects: Any) -> None:
        self._objects = objects

    def __iter__(self) -> Iterator[Any]:
        return iter(self._objects)

    def get(self, name: str, namespace: str = "") -> Any:
        return next((each for each in self._objects if each.name == name), None)

    def by(self, index: str, value: str) -> tuple[Any, ...]:
        return ()


TYPES = (instance_type("c2", 2, "8Gi", 110, price=2.0), instance_type("c32", 32, "64Gi", 110, price=30.0))


def build(**spec: Any) -> tuple[SpendGuard, PlannedNode]:
    """A guard over an empty cluster, and a node of two dollars that was planned for it."""
    clock, world = VirtualClock(), World(nodepool(), types=TYPES[:1])
    limit = SpendLimit(metadata=ObjectMeta(name="development"), spec=SpendLimitSpec(**spec))
    guard = SpendGuard(Listed(limit), Listed(*world.pools), Cluster(clock, manages=lambda claim: True), clock)
    guard.note_offers([(world.pools[0], TYPES)], world.options)
    (node,) = decide_plan(Situation(snapshot=world.snapshot(pod("a", cpu="1")))).new_nodes
    return guard, node


@pytest.mark.spec("SL-1")
def test_orders_under_way_count_before_the_cluster_knows_of_them() -> None:
    guard, node = build(hourly="4.00")
    told = r"allows \$4.00 an hour, \$4.00 are spent or ordered"
    with guard.reserve_node(node), guard.reserve_node(node), pytest.raises(Refused, match=told):
        guard.reserve_node(node).__enter__()
    with guard.reserve_node(node):
        pass  # what is done no longer counts here


def test_replacements_count_and_are_not_asked() -> None:
    guard, node = build(hourly="2.00")
    with guard.reserve_node(node, ask=False), guard.reserve_node(node, ask=False), pytest.raises(Refused):
        guard.reserve_node(node).__enter__()


def test_a_priority_that_the_limit_lets_pass_is_let_pass() -> None:
    guard, node = build(hourly="0.10", priority_at_least=100)
    with guard.reserve_node(node, 100.0):
        pass
    with pytest.raises(Refused):
        guard.reserve_node(node, 99.0).__enter__()


def test_a_limit_that_warns_refuses_nothing() -> None:
    guard, node = build(hourly="0.10", mode="Warn")
    with guard.reserve_node(node):
        pass


def test_a_static_node_is_not_ordered_as_what_is_far_too_dear() -> None:
    guard, _ = build(hourly="40.00")
    many = tuple(instance_type(f"t{number:02d}", 2, "8Gi", 110, price=2.0) for number in range(15))
    guard.note_offers([(nodepool(), (*many, TYPES[1]))], World().options)
    static = PlannedNode(
        name="", pool="default", requirements=Requirements(), instance_types=(), pods=(), requests={}
    )
    allowed = guard.narrow_static_node(static).requirements["node.kubernetes.io/instance-type"]
    assert "t00" in allowed
    assert "c32" not in allowed
    free, _ = build(nodes=3, mode="Warn")
    assert free.narrow_static_node(static) is static
