"""Which pods may share a host."""

from __future__ import annotations

from dovetail.scheduling.packing.host_rules import HostRule, HostRules
from dovetail.scheduling.packing.pod_assignment import ClassMembers


def rule(owners: set[int], members: set[int], limit: int = 1, apart: bool = False) -> HostRule:
    return HostRule(frozenset(owners), frozenset(members), limit, apart)


def test_a_rule_of_one_group_on_itself_is_a_cap_for_that_group() -> None:
    hosts = HostRules(2, [rule({0}, {0}, limit=2)])
    state = hosts.build_state()

    assert hosts.twin_limit[0] == 2
    assert hosts.family.tolist() == [-1, -1]
    for _ in range(2):
        assert state.allows_group(0)
        state.add(0)
    assert not state.allows_group(0)
    assert state.allows_group(1)


def test_a_rule_of_many_groups_on_each_other_makes_them_a_family() -> None:
    hosts = HostRules(3, [rule({0, 1}, {0, 1}, apart=True)])
    state = hosts.build_state()
    state.add(0)

    assert hosts.family.tolist() == [0, 0, -1]
    assert not state.allows_group(0)
    assert not state.allows_group(1)
    assert state.allows_group(2)


def test_a_spread_counts_matching_pods_where_its_owner_is_whoever_came_first() -> None:
    crossed = [rule({0}, {1}, limit=1)]
    owner_first, member_first = HostRules(2, crossed).build_state(), HostRules(2, crossed).build_state()
    owner_first.add(0)
    owner_first.add(1)
    member_first.add(1)
    member_first.add(1)

    assert not owner_first.allows_group(1)
    assert not member_first.allows_group(0)


def test_an_owner_that_is_not_counted_may_join_as_many_as_the_limit() -> None:
    state = HostRules(2, [rule({0}, {1}, limit=2)]).build_state()
    state.add(1)
    state.add(1)

    assert state.allows_group(0)
    state.add(0)
    assert not state.allows_group(1)


def test_anti_affinity_keeps_both_sides_apart() -> None:
    one_way = [rule({0}, {1}, apart=True)]
    owner, member = HostRules(2, one_way).build_state(), HostRules(2, one_way).build_state()
    owner.add(0)
    member.add(1)

    assert not owner.allows_group(1)
    assert owner.allows_group(0)
    assert not member.allows_group(0)
    assert member.allows_group(1)


def test_pods_that_run_on_a_host_are_counted_from_the_start() -> None:
    hosts = HostRules(2, [rule({0}, {0}, limit=2), rule(set(), {1}, apart=True), rule({1}, {0}, limit=1)])
    busy = hosts.build_state(counted=[(0, 1), (2, 2)], owned=[1])

    assert busy.allows_group(0)
    assert not busy.allows_group(1)
    busy.add(0)
    assert not busy.allows_group(0)


def test_pods_are_taken_from_the_fullest_group_that_is_let_in() -> None:
    hosts = HostRules(3, [rule({g}, {g}) for g in range(3)])
    members = ClassMembers([[0, 1, 2]], {0: 1, 1: 3, 2: 2})
    first = dict(members.take(0, 2, hosts.build_state()))
    second = dict(members.take(0, 3, hosts.build_state()))
    third = dict(members.take(0, 2, hosts.build_state()))

    assert first == {1: 1, 2: 1}
    assert second == {0: 1, 1: 1, 2: 1}
    assert third == {1: 1}
    assert not any(members.left.values())


def test_groups_nobody_minds_are_emptied_one_after_another() -> None:
    members = ClassMembers([[0, 1]], {0: 3, 1: 2})

    assert members.take(0, 4, None) == [(1, 2), (0, 2)]
    assert members.take(0, 4, None) == [(0, 1)]


def test_the_first_rule_that_a_running_pod_carries_holds_as_any_other() -> None:
    hosts = HostRules(2, [rule({0}, {1}, apart=True), rule({1}, {0}, limit=1)])
    carried = hosts.build_state(owned=[0])
    counted = hosts.build_state(counted=[(0, 1)])

    assert not carried.allows_group(1)
    assert carried.allows_group(0)
    assert not counted.allows_group(0)
    assert counted.allows_group(1)
