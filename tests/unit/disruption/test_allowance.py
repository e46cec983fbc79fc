"""What budgets leave, counted over the nodes of a pool."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from dovetail.api import labels
from dovetail.api.nodepool import Budget
from dovetail.disruption import budgets
from dovetail.disruption.budgets import UNLIMITED, BadBudget, compute_allowances
from dovetail.disruption.candidates import compute_eviction_cost
from dovetail.scheduling.model.snapshot import StateNode
from support.builders import NOW, condition, node, pod
from support.disruption import pool, scene, state


def ten(*more: StateNode, changed: dict[int, StateNode] | None = None) -> tuple[StateNode, ...]:
    """Ten nodes, some of them otherwise, and some more."""
    listed = [state(f"n{i}") for i in range(10)]
    for i, each in (changed or {}).items():
        listed[i] = each
    return (*listed, *more)


def left(*states: StateNode, nodes: str = "100%", reason: str = "Empty") -> int:
    return compute_allowances(scene(*states, pools=[pool(nodes=nodes)]), reason).count_left("default")


def on(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.spec("disruption-32")
def test_pods_weigh_by_deletion_cost_and_priority() -> None:
    def cost(text: str) -> float:
        return compute_eviction_cost(pod(annotations={labels.POD_DELETION_COST: text}))

    assert compute_eviction_cost(pod()) == 1.0
    assert cost("100") > 1.0 > cost("-100")
    assert cost("101") > cost("100") > cost("99")
    assert compute_eviction_cost(pod(priority=1)) > 1.0 > compute_eviction_cost(pod(priority=-1))
    assert (cost("2147483647"), cost("-2147483647"), cost("-134217728")) == (10.0, -10.0, 0.0)


@pytest.mark.spec("disruption-36")
def test_a_budget_is_active_always_or_while_its_schedule_says_so() -> None:
    june = on("2026-06-15T12:00:00")
    assert budgets.is_active(Budget(nodes="10"), june)
    assert budgets.is_active(Budget(nodes="10", schedule="* * * * *", duration="1h"), june)
    yearly = Budget(nodes="10", schedule="@yearly", duration="1h")
    assert not budgets.is_active(yearly, june)
    assert budgets.count_allowed(yearly, june, 100) == UNLIMITED


@pytest.mark.spec("disruption-37")
def test_a_schedule_counts_from_its_last_hit_for_its_duration() -> None:
    new_year = on("2026-01-01T12:00:00")
    assert budgets.is_active(Budget(schedule="@yearly", duration="24h"), new_year)
    assert budgets.is_active(Budget(schedule="@daily", duration="48h"), new_year)
    sunday = on("2026-06-07T00:00:00")
    assert not budgets.is_active(Budget(schedule="30 6 * * SUN", duration="6h"), sunday)


@pytest.mark.spec("disruption-38")
def test_schedules_are_read_in_utc() -> None:
    local_midnight = datetime(2026, 6, 7, tzinfo=timezone(timedelta(hours=1)))
    assert not budgets.is_active(Budget(schedule="@daily", duration="30m"), local_midnight)
    assert budgets.is_active(Budget(schedule="@daily", duration="30m"), on("2026-06-07T00:10:00"))


@pytest.mark.spec("disruption-39")
def test_what_cannot_be_read_allows_nothing() -> None:
    for wrong in (Budget(nodes="10", schedule="@wrongly", duration="1h"), Budget(nodes="1000a%")):
        with pytest.raises(BadBudget):
            budgets.count_allowed(wrong, NOW, 100)
        assert budgets.count_allowed_or_zero([wrong], "Empty", NOW, 100) == 0
    with pytest.raises(BadBudget, match="runs backwards"):
        budgets.is_active(Budget(schedule="0 0 * * tue-mon", duration="1h"), NOW)


@pytest.mark.spec("disruption-40")
def test_the_smallest_budget_that_speaks_of_a_reason_counts() -> None:
    listed = [
        Budget(nodes="10"),
        Budget(nodes="15", reasons=("Drifted", "Underutilized")),
        Budget(nodes="5", reasons=("Drifted",)),
        Budget(nodes="1", reasons=("Empty",), schedule="@yearly", duration="1h"),
    ]
    found = {r: budgets.count_allowed_for(listed, r, NOW, 100) for r in ("Drifted", "Underutilized", "Empty")}
    assert found == {"Drifted": 5, "Underutilized": 10, "Empty": 10}


@pytest.mark.spec("disruption-41")
def test_a_budget_is_a_number_or_a_share() -> None:
    assert budgets.count_allowed(Budget(nodes="10"), NOW, 100) == 10
    assert budgets.count_allowed(Budget(nodes="100%"), NOW, 100) == 100
    assert [budgets.count_allowed(Budget(nodes=n), NOW, 10) for n in ("30%", "5%", "0")] == [3, 1, 0]


@pytest.mark.spec("disruption-42")
def test_only_nodes_that_are_up_and_ours_are_counted() -> None:
    ending = state("x", conditions=[condition("InstanceTerminating")])
    nobodys = StateNode(node=node("x", nodepool=""))
    for more in (nobodys, state("x", initialized=False), ending):
        assert left(*ten(more)) == 10


@pytest.mark.spec("disruption-43")
def test_an_overspent_budget_is_zero_and_never_less() -> None:
    gone = {i: state(f"n{i}", claim={"deleted": NOW}) for i in range(10)}
    assert left(*ten(changed=gone), nodes="10%") == 0


@pytest.mark.spec("disruption-44")
def test_nodes_that_go_or_are_not_ready_use_the_budget_up() -> None:
    going = {0: state("n0", claim={"deleted": NOW}), 1: state("n1", marked=True)}
    assert left(*ten(changed=going)) == 8
    down = {0: state("n0", ready=False), 1: state("n1", ready=False)}
    assert left(*ten(changed=down)) == 8


@pytest.mark.spec("disruption-133")
def test_what_is_allowed_and_what_is_consumed_are_told_apart() -> None:
    pools = [pool("a", nodes="30%"), pool("b", nodes="50%")]
    states = [state(f"a{i}", pool="a") for i in range(10)] + [state(f"b{i}", pool="b") for i in range(3)]
    found = compute_allowances(scene(*states, pools=pools), "Drifted")
    assert (dict(found.allowed), dict(found.consumed)) == ({"a": 3, "b": 2}, {"a": 0, "b": 0})


def test_a_node_in_the_queue_uses_the_budget_up_before_it_is_marked() -> None:
    world = scene(*ten(), pools=[pool()], queued=["kwok://n3"])
    assert compute_allowances(world, "Empty").count_left("default") == 9


def test_a_pool_that_may_lose_none_is_shut_only_if_it_has_nodes() -> None:
    pools = [pool("default", nodes="0"), pool("other", nodes="0")]
    assert list(compute_allowances(scene(state("a"), pools=pools), "Empty").shut) == ["default"]
