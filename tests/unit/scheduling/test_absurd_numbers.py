"""Numbers without end, as an API server stores them, reach nobody but the object that holds them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import codec
from dovetail.api.core import Node, Taint
from dovetail.api.nodepool import Budget, NodePool
from dovetail.api.numbers import LARGEST, SMALLEST, clamp_integer, parse_integer
from dovetail.api.pod import Pod, Toleration
from dovetail.disruption.budgets import count_allowed_or_zero
from dovetail.disruption.methods.emptiness import choose_empty_nodes
from dovetail.scheduling.model.requirements import parse_values
from dovetail.scheduling.model.snapshot import (
    SchedulingOptions,
    Snapshot,
    StateNode,
    build_pools_and_catalogs,
)
from dovetail.scheduling.model.taints import tolerates_taint
from dovetail.scheduling.solve import solve
from support.builders import NOW, node, nodepool, pod
from support.disruption import SIZES, pool, scene, state
from support.worlds import FLAVOUR

DIGITS = "9" * 5_000
OTHERS = tuple(pod(f"other-{i}", cpu="500m") for i in range(3))


def read_pod(name: str, change: dict[str, Any]) -> Pod:
    """A pod as the wire brings it, with a part of its spec exchanged."""
    document = codec.to_dict(pod(name))
    document["spec"] |= change
    return codec.convert(Pod, document)


def read_node(name: str, memory: str) -> Node:
    document = codec.to_dict(node(name, nodepool=""))
    document["status"]["allocatable"]["memory"] = memory
    return codec.convert(Node, document)


def world(*pods: Pod, nodes: tuple[StateNode, ...] = ()) -> Snapshot:
    pools, catalogs = build_pools_and_catalogs([(nodepool(), SIZES)])
    return Snapshot(
        pools=pools,
        catalogs=catalogs,
        pods=pods,
        nodes=nodes,
        namespaces={"default": {}},
        options=SchedulingOptions(now=NOW, flavour=FLAVOUR),
    )


@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_a_preferred_affinity_of_five_thousand_digits_stops_nobody(operator: str) -> None:
    expression = {"key": "example.com/generation", "operator": operator, "values": [DIGITS]}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [expression]}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    absurd = read_pod("absurd", {"affinity": affinity})
    plan = solve(world(*OTHERS, absurd))
    placed = {name for each in plan.new_nodes for name in each.pods}
    assert placed >= {each.full_name for each in OTHERS}
    # It is a wish, and no node can meet it: the pod is placed without.
    assert absurd.full_name in placed


@pytest.mark.parametrize("memory", ["9" * 400, "1e400", DIGITS, "1e5000"])
def test_a_node_of_four_hundred_digits_of_memory_stops_nobody(memory: str) -> None:
    absurd = StateNode(node=read_node("absurd", memory))
    plan = solve(world(*OTHERS, nodes=(absurd,)))
    assert not plan.unschedulable


@pytest.mark.parametrize("cpu", ["1e30", "1e400", DIGITS, "1e5000"])
def test_a_pod_that_requests_cpu_without_end_is_told_so_and_the_others_are_placed(cpu: str) -> None:
    containers = [{"name": "app", "resources": {"requests": {"cpu": cpu}}}]
    absurd = read_pod("absurd", {"containers": containers})
    plan = solve(world(*OTHERS, absurd))
    assert list(plan.unschedulable) == [absurd.full_name]
    assert plan.new_nodes == solve(world(*OTHERS)).new_nodes


@pytest.mark.parametrize("nodes", [DIGITS, DIGITS + "%", "9" * 20])
def test_a_budget_of_five_thousand_digits_closes_its_own_pool_only(nodes: str) -> None:
    document = codec.to_dict(pool("absurd"))
    document["spec"]["disruption"]["budgets"] = [{"nodes": nodes}]
    absurd = replace(codec.convert(NodePool, document), status=pool("absurd").status)
    of = scene(state("a"), state("b", pool="absurd"), pools=[pool(), absurd])
    assert [each.name for each in choose_empty_nodes(of).commands[0].candidates] == ["a"]
    assert count_allowed_or_zero((Budget(nodes=nodes),), "Empty", NOW, 10) == 0


@pytest.mark.parametrize(
    ("text", "number", "clamped"),
    [
        ("7", 7, 7),
        ("-007", -7, -7),
        ("+0", 0, 0),
        (str(LARGEST), LARGEST, LARGEST),
        (str(SMALLEST), SMALLEST, SMALLEST),
        (str(LARGEST + 1), None, LARGEST),
        (str(SMALLEST - 1), None, SMALLEST),
        ("-" + DIGITS, None, SMALLEST),
        ("0" * 5_000 + "5", 5, 5),
        ("", None, None),
        ("+", None, None),
        (" 7", None, None),
        ("1_0", None, None),
        ("٣", None, None),
        ("1e3", None, None),
        ("0" * 1_000_000 + "x", None, None),
    ],
)
def test_integers_are_those_of_64_bits(text: str, number: int | None, clamped: int | None) -> None:
    assert parse_integer(text) == number
    assert clamp_integer(text) == clamped


def test_a_bound_without_end_is_the_last_of_64_bits() -> None:
    assert parse_values("Lt", [DIGITS]).at_most == LARGEST - 1
    assert parse_values("Gte", ["-" + DIGITS]).at_least == SMALLEST
    assert not parse_values("Gt", [DIGITS])


def test_a_toleration_without_end_tolerates_nothing() -> None:
    taint = Taint(key="level", value="5", effect="NoSchedule")
    assert not tolerates_taint(Toleration(key="level", operator="Lt", value=DIGITS), taint)
    assert not tolerates_taint(
        Toleration(key="level", operator="Gt", value="1"), replace(taint, value=DIGITS)
    )
