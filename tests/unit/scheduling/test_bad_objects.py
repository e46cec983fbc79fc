"""An object that makes a decision fail is set aside and named, and everybody else is served as without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import codec, labels
from dovetail.api.bad_items import SetAside, mark_set_aside, reason_of
from dovetail.api.core import PodDisruptionBudget
from dovetail.api.pod import Pod
from dovetail.api.quantity import Quantity
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.candidates import DisruptionClass, evaluate_node
from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.methods.consolidation import choose_multi_node, choose_single_node
from dovetail.disruption.methods.drift import choose_drift
from dovetail.disruption.methods.emptiness import choose_empty_nodes
from dovetail.disruption.methods.split import choose_split
from dovetail.scheduling.bad_objects import decide_without_bad_objects
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import (
    SchedulingOptions,
    Snapshot,
    StateNode,
    build_pools_and_catalogs,
)
from dovetail.scheduling.solve import solve
from support.builders import NOW, node, nodepool, owner, pod
from support.disruption import LARGE, SIZES, pdb, pool, scene, state
from support.worlds import FLAVOUR

POISON: Any = None
"""Where a record promises a list or an amount: whatever walks it raises, as a fault of ours would."""
PENDING = tuple(pod(f"pending-{i}", cpu="700m") for i in range(4))
RS = owner("ReplicaSet")


def world(*pods: Pod, **parts: Any) -> Snapshot:
    pools, catalogs = build_pools_and_catalogs([(each, SIZES) for each in parts.pop("pools", (nodepool(),))])
    options = SchedulingOptions(now=NOW, flavour=FLAVOUR)
    base = Snapshot(pools=pools, catalogs=catalogs, pods=pods, namespaces={"default": {}}, options=options)
    changed: Snapshot = replace(base, **parts)
    return changed


def poisoned_pod(name: str = "bad", **about: Any) -> Pod:
    return pod(name, containers=POISON, **about)


def poisoned_node(name: str = "bad") -> StateNode:
    """A machine whose Node cannot be counted with; its claim can."""
    made = state(name, pod(f"{name}-0", cpu="1", owned_by=RS))
    assert made.node is not None
    status = replace(made.node.status, allocatable={"cpu": Quantity(10**400)})
    return replace(made, node=replace(made.node, status=status))


def served(plan: Plan) -> tuple[object, ...]:
    """What a plan does for everybody but those set aside."""
    names = {f"{each.namespace}/{each.name}" for each in plan.set_aside}
    unschedulable = {pod: why for pod, why in plan.unschedulable.items() if pod not in names}
    return plan.new_nodes, plan.existing, unschedulable, plan.deferred, plan.ignored


def named(bad: tuple[SetAside, ...]) -> list[tuple[str, str]]:
    return [(each.kind, each.name) for each in bad]


@pytest.mark.contains_bugs
def test_a_pod_that_makes_solving_fail_is_told_so_and_the_others_are_planned_as_without_it() -> None:
    plan = solve(world(*PENDING, poisoned_pod()))
    assert served(plan) == served(solve(world(*PENDING)))
    assert named(plan.set_aside) == [("Pod", "bad")]
    assert "nothing can be decided with it (TypeError" in plan.unschedulable["default/bad"]
    assert [each.error for each in plan.decisions if each.pod == "default/bad"] == [
        plan.unschedulable["default/bad"]
    ]


@pytest.mark.contains_bugs
def test_many_bad_pods_among_many_are_all_found() -> None:
    bad = [poisoned_pod(f"bad-{i}", labels={"n": str(i)}) for i in range(5)]
    good = [pod(f"good-{i}", cpu="250m", labels={"n": str(i)}) for i in range(40)]
    mixed = [each for pair in zip(good[::8], bad, strict=True) for each in pair]
    plan = solve(world(*mixed, *(each for each in good if each not in mixed)))
    assert served(plan) == served(solve(world(*good)))
    assert sorted(each.name for each in plan.set_aside) == [f"bad-{i}" for i in range(5)]


@pytest.mark.contains_bugs
def test_a_pool_that_makes_solving_fail_buys_nothing_and_the_others_do() -> None:
    bad = nodepool("bad", weight=10)
    bad = replace(bad, spec=replace(bad.spec, limits=POISON))
    plan = solve(world(*PENDING, pools=(bad, nodepool("good"))))
    assert {each.pool for each in plan.new_nodes} == {"good"}
    assert named(plan.set_aside) == [("NodePool", "bad")]


@pytest.mark.contains_bugs
def test_an_instance_type_that_makes_solving_fail_is_not_bought() -> None:
    bad = replace(LARGE, name="bad", capacity=POISON)
    pools, catalogs = build_pools_and_catalogs([(nodepool(), (*SIZES, bad))])
    plan = solve(replace(world(*PENDING), pools=pools, catalogs=catalogs))
    assert served(plan) == served(solve(world(*PENDING)))
    assert named(plan.set_aside) == [("InstanceType", "bad")]


@pytest.mark.contains_bugs
def test_a_daemon_that_makes_solving_fail_is_not_counted() -> None:
    daemon = pod("daemon", cpu="100m")
    plan = solve(world(*PENDING, daemons=(daemon, poisoned_pod())))
    assert served(plan) == served(solve(world(*PENDING, daemons=(daemon,))))
    assert named(plan.set_aside) == [("Pod", "bad")]


def test_a_node_that_makes_solving_fail_is_what_its_claim_says_it_is() -> None:
    """Its pods are not bought another machine: the claim promised this one."""
    bad = poisoned_node()
    plan = solve(world(*PENDING, nodes=(bad,)))
    assert named(plan.set_aside) == [("Node", "bad")]
    assert not plan.new_nodes
    assert set(plan.existing) == {"bad"}


def test_a_node_without_a_claim_that_makes_solving_fail_takes_no_pods() -> None:
    bad = replace(node("bad", nodepool=""), status=poisoned_node().node.status)  # type: ignore[union-attr]
    plan = solve(world(*PENDING, nodes=(StateNode(node=bad),)))
    assert named(plan.set_aside) == [("Node", "bad")]
    assert not plan.existing
    assert served(plan)[0] == served(solve(world(*PENDING)))[0]


@pytest.mark.contains_bugs
def test_a_claim_that_makes_solving_fail_still_counts_against_its_pools_limits() -> None:
    made = state("bad")
    assert made.claim is not None
    claim = replace(made.claim, spec=replace(made.claim.spec, taints=POISON))
    bad = StateNode(
        claim=replace(claim, status=replace(claim.status, capacity={"cpu": Quantity.parse("16")}))
    )
    limited = nodepool(limits={"cpu": "16"})
    plan = solve(world(*PENDING, nodes=(bad,), pools=(limited,)))
    assert named(plan.set_aside) == [("NodeClaim", "bad")]
    assert not plan.new_nodes
    assert len(plan.unschedulable) == len(PENDING)


@pytest.mark.contains_bugs
def test_a_node_with_a_pod_that_cannot_be_read_takes_no_more_pods_and_is_not_disrupted() -> None:
    mixed = state("mixed", poisoned_pod(owned_by=RS), pod("good", cpu="1", owned_by=RS))
    plan = solve(world(*PENDING, nodes=(mixed,)))
    assert named(plan.set_aside) == [("Pod", "bad")]
    assert not plan.existing
    assert "default/bad" not in plan.unschedulable, "it runs; only what waits is told that it waits"
    choice = choose_single_node(scene(mixed, state("empty")))
    assert all(each.name != "mixed" for command in choice.commands for each in command.candidates)
    assert [each.blocked_reason for each in choice.blocked if each.name == "mixed"] == [
        BlockedReason.SET_ASIDE
    ]


@pytest.mark.parametrize(
    "method",
    [
        choose_empty_nodes,
        choose_drift,
        choose_multi_node,
        choose_single_node,
        choose_split,
    ],
)
def test_disruption_goes_on_beside_a_node_that_makes_it_fail(
    method: Callable[..., DisruptionChoice],
) -> None:
    others = (state("a", drifted=NOW), state("b", pod("b-0", cpu="100m", owned_by=RS)), state("c"))
    bad = poisoned_node()
    found, without = method(scene(*others, bad)), method(scene(*others))
    assert [each.candidates for each in found.commands] == [each.candidates for each in without.commands]
    assert [each.replacements for each in found.commands] == [each.replacements for each in without.commands]


def test_a_node_that_is_set_aside_is_neither_empty_nor_removable() -> None:
    made = state("bad", drifted=NOW)
    assert made.node is not None
    marked = replace(made, node=mark_set_aside(made.node, "its memory cannot be counted"))
    for method in (choose_empty_nodes, choose_drift, choose_single_node):
        assert not method(scene(marked)).commands
    found = evaluate_node(scene(marked), marked, DisruptionClass.EVENTUAL)
    assert "Node bad is set aside: its memory cannot be counted" in str(getattr(found, "why", ""))


def test_a_pool_that_is_set_aside_neither_grows_nor_is_disrupted() -> None:
    bad = mark_set_aside(pool("bad"), "its budgets cannot be read")
    of = scene(state("a", pool="bad"), state("b"), pools=[bad, pool()])
    assert [each.name for each in choose_empty_nodes(of).commands[0].candidates] == ["b"]
    assert {each.pool for each in solve(world(*PENDING, pools=(bad, nodepool("good")))).new_nodes} == {"good"}


@pytest.mark.parametrize("selected", [True, False], ids=["known pods", "unknown pods"])
def test_a_disruption_budget_that_is_set_aside_lets_none_of_its_pods_go(selected: bool) -> None:
    budget = pdb("bad", allowed=5)
    spec = budget.spec if selected else replace(budget.spec, selector=None)
    marked = mark_set_aside(replace(budget, spec=spec), "it cannot be read")
    web = state("a", pod("web", labels={"app": "web"}, owned_by=RS), drifted=NOW)
    other = state("b", pod("other", namespace="elsewhere", labels={"app": "web"}, owned_by=RS), drifted=NOW)
    choice = choose_drift(scene(web, other, pdbs=[marked]), at_once=None)
    gone = [candidate.name for each in choice.commands for candidate in each.candidates]
    assert gone == ["b"]


@pytest.mark.contains_bugs
def test_a_disruption_budget_that_makes_disruption_fail_lets_none_of_its_pods_go() -> None:
    budget: PodDisruptionBudget = replace(pdb("bad", allowed=5), status=POISON)
    web = state("a", pod("web", labels={"app": "web"}, owned_by=RS), drifted=NOW)
    other = state("b", pod("other", labels={"app": "other"}, owned_by=RS), drifted=NOW)
    choice = choose_drift(scene(web, other, pdbs=[budget]), at_once=None)
    assert [c.name for each in choice.commands for c in each.candidates] == ["b"]
    assert named(choice.set_aside) == [("PodDisruptionBudget", "bad")]


def test_a_bad_item_is_searched_for_once_while_it_stays_the_same_object() -> None:
    asked: list[Snapshot] = []

    def decide(seen: Snapshot) -> int:
        asked.append(seen)
        if any(each.name == "bad" for each in seen.pods):
            raise OverflowError("too large")
        return len(seen.pods)

    snapshot, cache = world(*PENDING, poisoned_pod()), DecisionCache()
    assert decide_without_bad_objects(snapshot, decide, cache)[0] == len(PENDING)
    first = len(asked)
    count, found = decide_without_bad_objects(snapshot, decide, cache)
    assert (count, named(found)) == (len(PENDING), [("Pod", "bad")])
    assert len(asked) == first + 1
    assert decide_without_bad_objects(snapshot, decide, DecisionCache()) == (count, found)
    assert len(asked) == 2 * first + 1


def test_a_search_asks_a_number_of_times_that_grows_with_the_bad_and_not_with_all() -> None:
    asked = 0

    def decide(seen: Snapshot) -> None:
        nonlocal asked
        asked += 1
        if any(each.name == "bad-at-scale" for each in seen.pods):
            raise ValueError("no")

    many = [pod(f"p{i}", labels={"n": str(i)}) for i in range(1_000)]
    decide_without_bad_objects(world(*many, poisoned_pod("bad-at-scale")), decide, DecisionCache())
    assert asked < 40


def test_a_decision_that_fails_with_nothing_in_the_world_is_a_fault_of_ours_and_says_so() -> None:
    def decide(seen: Snapshot) -> None:
        raise ZeroDivisionError("a fault of ours")

    with pytest.raises(ZeroDivisionError):
        decide_without_bad_objects(world(*PENDING), decide, DecisionCache())


def test_whoever_fails_only_together_is_blamed_where_that_leaves_out_fewer() -> None:
    """A node that only fails beside pods: the node is left out and not every pod."""

    def decide(seen: Snapshot) -> None:
        if seen.pods and any(views.read_name(each) == "lonely" for each in seen.nodes):
            raise ValueError("not together")

    nodes = (state("lonely"), state("other"))
    pods = [pod(f"q{i}", labels={"n": str(i)}) for i in range(6)]
    lonely = replace(nodes[0], claim=None)
    _, found = decide_without_bad_objects(world(*pods, nodes=(lonely, nodes[1])), decide, DecisionCache())
    assert named(found) == [("Node", "lonely")]


def test_marks_are_for_memory_and_not_for_the_cluster() -> None:
    before = mark_set_aside(nodepool(), "it cannot be read")
    after = replace(before, metadata=replace(before.metadata, labels={labels.NODEPOOL: "x"}))
    assert reason_of(after)
    assert codec.merge_patch(before, after) == {"metadata": {"labels": {labels.NODEPOOL: "x"}}}
