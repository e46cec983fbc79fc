"""Which pods may share a host."""

from __future__ import annotations

from dovetail.scheduling.packing.hosts import HostRule, Hosts
from dovetail.scheduling.packing.realise import Members


def rule(owners: set[int], members: set[int], limit: int = 1, apart: bool = False) -> HostRule:
    return HostRule(frozenset(owners), frozenset(members), limit, apart)


def test_a_rule_of_one_group_on_itself_is_a_cap_for_that_group() -> None:
    hosts = Hosts(2, [rule({0}, {0}, limit=2)])
    state = hosts.state()

    assert hosts.twin_limit[0] == 2
    assert hosts.family.tolist() == [-1, -1]
    for _ in range(2):
        assert state.allows(0)
        state.add(0)
    assert not state.allows(0)
    assert state.allows(1)


def test_a_rule_of_many_groups_on_each_other_makes_them_a_family() -> None:
    hosts = Hosts(3, [rule({0, 1}, {0, 1}, apart=True)])
    state = hosts.state()
    state.add(0)

    assert hosts.family.tolist() == [0, 0, -1]
    assert not state.allows(0)
    assert not state.allows(1)
    assert state.allows(2)


def test_a_spread_counts_matching_pods_where_its_owner_is_whoever_came_first() -> None:
    crossed = [rule({0}, {1}, limit=1)]
    owner_first, member_first = Hosts(2, crossed).state(), Hosts(2, crossed).state()
    owner_first.add(0)
    owner_first.add(1)
    member_first.add(1)
    member_first.add(1)

    assert not owner_first.allows(1)
    assert not member_first.allows(0)


def test_an_owner_that_is_not_counted_may_join_as_many_as_the_limit() -> None:
    state = Hosts(2, [rule({0}, {1}, limit=2)]).state()
    state.add(1)
    state.add(1)

    assert state.allows(0)
    state.add(0)
    assert not state.allows(1)


def test_anti_affinity_keeps_both_sides_apart() -> None:
    one_way = [rule({0}, {1}, apart=True)]
    owner, member = Hosts(2, one_way).state(), Hosts(2, one_way).state()
    owner.add(0)
    member.add(1)

    assert not owner.allows(1)
    assert owner.allows(0)
    assert not member.allows(0)
    assert member.allows(1)


def test_pods_that_run_on_a_host_are_counted_from_the_start() -> None:
    hosts = Hosts(2, [rule({0}, {0}, limit=2), rule(set(), {1}, apart=True), rule({1}, {0}, limit=1)])
    busy = hosts.state(counted=[(0, 1), (2, 2)], owned=[1])

    assert busy.allows(0)
    assert not busy.allows(1)
    busy.add(0)
    assert not busy.allows(0)


def test_pods_are_taken_from_the_fullest_group_that_is_let_in() -> None:
    hosts = Hosts(3, [rule({g}, {g}) for g in range(3)])
    members = Members([[0, 1, 2]], {0: 1, 1: 3, 2: 2})
    first = dict(members.take(0, 2, hosts.state()))
    second = dict(members.take(0, 3, hosts.state()))
    third = dict(members.take(0, 2, hosts.state()))

    assert first == {1: 1, 2: 1}
    assert second == {0: 1, 1: 1, 2: 1}
    assert third == {1: 1}
    assert not any(members.left.values())


def test_groups_nobody_minds_are_emptied_one_after_another() -> None:
    members = Members([[0, 1]], {0: 3, 1: 2})

    assert members.take(0, 4, None) == [(1, 2), (0, 2)]
    assert members.take(0, 4, None) == [(0, 1)]
