"""Empty nodes: all of them at once, as far as budgets go."""

from __future__ import annotations

import pytest

from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.candidates import UNCONSOLIDATABLE
from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.command import EMPTY
from dovetail.disruption.methods.emptiness import choose_empty_nodes
from dovetail.disruption.validate import BUDGET, CHURN, validate_empty_nodes
from dovetail.scheduling.model.snapshot import StateNode
from support.builders import NOW, condition, owner, pod
from support.disruption import pool, scene, state


def gone(choice: DisruptionChoice) -> list[str]:
    return sorted(candidate.name for command in choice.commands for candidate in command.candidates)


def lot(count: int, of: str = "default") -> list[StateNode]:
    return [state(f"{of}-{i}", pool=of) for i in range(count)]


@pytest.mark.spec("disruption-46", "disruption-47")
def test_empty_nodes_go_in_one_command() -> None:
    for count in (1, 2):
        (command,) = choose_empty_nodes(scene(*lot(count))).commands
        assert len(command.candidates) == count
        assert (command.decision, command.method) == ("delete", EMPTY)
        assert command.savings == 8.0 * count


@pytest.mark.spec("disruption-48", "disruption-103")
@pytest.mark.parametrize(("nodes", "count"), [("30%", 3), ("100%", 10), ("0", 0)])
def test_no_more_than_the_budget_go(nodes: str, count: int) -> None:
    choice = choose_empty_nodes(scene(*lot(10), pools=[pool(nodes=nodes)]))
    assert len(gone(choice)) == count


@pytest.mark.spec("disruption-48")
@pytest.mark.parametrize(("nodes", "each"), [("50%", 2), ("100%", 3), ("0%", 0)])
def test_every_pool_has_a_budget_of_its_own(nodes: str, each: int) -> None:
    pools = [pool(f"p{i}", nodes=nodes) for i in range(10)]
    choice = choose_empty_nodes(scene(*(s for p in pools for s in lot(3, p.name)), pools=pools))
    taken = [name.split("-")[0] for name in gone(choice)]
    assert [taken.count(p.name) for p in pools] == [each] * 10


@pytest.mark.spec("disruption-49")
def test_only_consolidatable_nodes_go() -> None:
    no = state("a", consolidatable=False)
    false = state("b", consolidatable=False, conditions=[condition("Consolidatable", "False")])
    assert gone(choose_empty_nodes(scene(no, false, state("c")))) == ["c"]


@pytest.mark.spec("disruption-50")
def test_a_pod_keeps_its_node_and_a_daemon_does_not() -> None:
    daemon = pod("d", node="b", owned_by=owner("DaemonSet"))
    assert gone(choose_empty_nodes(scene(state("a", pod("p", node="a")), state("b", daemon)))) == ["b"]


@pytest.mark.spec("disruption-51")
def test_a_pod_on_its_way_out_keeps_its_node_only_if_it_comes_back_under_its_name() -> None:
    leaving = pod("r", node="a", owned_by=owner("ReplicaSet"), deleted=NOW)
    returning = pod("s", node="b", owned_by=owner("StatefulSet"), deleted=NOW)
    assert gone(choose_empty_nodes(scene(state("a", leaving), state("b", returning)))) == ["a"]


@pytest.mark.spec("disruption-52", "disruption-59")
def test_every_policy_lets_empty_nodes_go_unless_consolidation_is_off() -> None:
    for policy in ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"):
        choice = choose_empty_nodes(scene(state("a"), pools=[pool(consolidation_policy=policy)]))
        assert gone(choice) == ["a"]
        assert choice.blocked == []
    off = choose_empty_nodes(scene(state("a"), pools=[pool(consolidate_after="Never")]))
    assert gone(off) == []
    assert [(s.why, s.event) for s in off.blocked] == [
        ('NodePool "default" has consolidation disabled', UNCONSOLIDATABLE)
    ]


@pytest.mark.spec("disruption-53")
def test_a_pod_that_waits_does_not_turn_deletion_into_replacement() -> None:
    (command,) = choose_empty_nodes(scene(state("a"), pending=[pod("too-big", cpu="99")])).commands
    assert command.replacements == ()


def test_an_empty_node_that_a_waiting_pod_will_land_on_stays() -> None:
    choice = choose_empty_nodes(scene(state("a"), state("b"), pending=[pod("big", cpu="15")]))

    assert len(gone(choice)) == 1
    assert [(s.blocked_reason, s.name in gone(choice)) for s in choice.blocked] == [
        (BlockedReason.AWAITED, False)
    ]


@pytest.mark.spec("disruption-54")
def test_room_kept_for_buffers_keeps_its_node_and_no_other() -> None:
    choice = choose_empty_nodes(scene(state("a"), state("b"), buffered=["a"]))
    assert gone(choice) == ["b"]
    assert [s.why for s in choice.blocked] == ['Node "a" has buffer pods']
    assert gone(choose_empty_nodes(scene(state("a"), state("b")))) == ["a", "b"]
    assert gone(choose_empty_nodes(scene(state("a", pod("p", node="a")), buffered=["a"]))) == []


def test_room_that_a_buffer_will_need_keeps_a_node_that_no_pass_has_seen_yet() -> None:
    held = choose_empty_nodes(scene(state("a"), state("b"), snapshot={"virtual": (pod("room", cpu="15"),)}))
    assert len(gone(held)) == 1
    assert [each.blocked_reason for each in held.blocked] == [BlockedReason.AWAITED]


@pytest.mark.spec("disruption-55")
def test_nodes_of_static_pools_stay() -> None:
    choice = choose_empty_nodes(scene(state("a"), pools=[pool(replicas=1)]))
    assert (gone(choice), choice.blocked) == ([], [])


@pytest.mark.spec("disruption-57")
def test_what_changed_meanwhile_is_left_out_and_counted() -> None:
    (command,) = choose_empty_nodes(scene(state("a"), state("b"))).commands
    bound, nothing = validate_empty_nodes(scene(state("a", pod("p", node="a")), state("b")), command)
    assert bound is not None
    assert [c.name for c in bound.candidates] == ["b"]
    assert nothing is None
    shut = validate_empty_nodes(scene(state("a"), state("b"), pools=[pool(nodes="0")]), command)
    assert shut[0] is None
    assert shut[1] is not None
    assert (shut[1].kind, shut[1].count) == (BUDGET, 2)
    churned = validate_empty_nodes(scene(state("a", pod("p", node="a"))), command)
    assert churned[1] is not None
    assert (churned[0], churned[1].kind) == (None, CHURN)
    wanted = validate_empty_nodes(scene(state("a", nominated=True), state("b")), command)
    assert wanted[0] is not None
    assert wanted[1] is not None
    assert ([c.name for c in wanted[0].candidates], wanted[1].count) == (["b"], 1)


@pytest.mark.spec("disruption-58")
def test_a_search_held_back_by_a_budget_is_not_settled() -> None:
    one = choose_empty_nodes(scene(*lot(10), pools=[pool(nodes="0")]))
    many = choose_empty_nodes(
        scene(*lot(3, "a"), *lot(3, "b"), pools=[pool("a", nodes="0"), pool("b", nodes="0")])
    )
    assert [choice.settled for choice in (one, many)] == [False, False]
    assert choose_empty_nodes(scene(state("a", pod("p", node="a")))).settled


@pytest.mark.spec("disruption-114")
def test_a_budget_of_one_goes_to_the_empty_node() -> None:
    balanced = pool(nodes="1", consolidation_policy="Balanced")
    choice = choose_empty_nodes(
        scene(state("a", pod("p", cpu="100m", node="a")), state("b"), pools=[balanced])
    )
    assert gone(choice) == ["b"]
    none = pool(nodes="0%", consolidation_policy="Balanced")
    assert gone(choose_empty_nodes(scene(state("b"), pools=[none]))) == []


@pytest.mark.spec("disruption-61")
def test_how_many_could_be_chosen_from_is_told() -> None:
    choice = choose_empty_nodes(scene(*lot(4), state("busy", pod("p", node="busy")), pools=[pool(nodes="1")]))
    assert (choice.eligible, len(gone(choice))) == (4, 1)
