"""Which rules between pods the packing keeps by itself, and which send pods to the sequential scheduler."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api.labels import HOSTNAME, INSTANCE_TYPE, ZONE
from dovetail.api.meta import LabelSelector
from dovetail.api.pod import Pod
from dovetail.scheduling.packing.adapter.packable_constraints import (
    PackableConstraints,
    find_packable_constraints,
)
from dovetail.scheduling.sequential.scheduler import SequentialScheduler
from support.builders import pod
from support.worlds import Z1, Z2, Z3, World, apart, near, running, spread

ZONES = (Z1, Z2, Z3)


def found(*waiting: Pod, world: World | None = None) -> PackableConstraints:
    """What binds these pods, each of which is a shape of its own."""
    run = SequentialScheduler((world or World()).snapshot(*waiting))
    shapes = [run.shapes.find_shape(each) for each in waiting]
    assert len({id(each) for each in shapes}) == len(waiting)
    return find_packable_constraints(run.topology, shapes, set(), ZONES)


def two(key: str, first: dict[str, Any], second: dict[str, Any], **rule: Any) -> list[Pod]:
    """Two kinds of pods of one app under one spread."""
    wanted = (spread(key, **rule),)
    return [
        pod(name, cpu=cpu, labels={"app": "web"}, topology_spread_constraints=wanted, **more)
        for name, cpu, more in (("a", "1", first), ("b", "2", second))
    ]


def test_a_spread_over_zones_of_pods_that_may_go_to_the_same_zones_is_dealt() -> None:
    constraints = found(*two(ZONE, {}, {}))

    assert constraints.unpackable == set()
    (dealt,) = constraints.spreads
    assert (dealt.members, dealt.owners, dealt.skew, dealt.zones) == ((0, 1), (0, 1), 1, (True, True, True))


def test_a_spread_over_zones_that_not_all_its_pods_may_enter_is_not_dealt() -> None:
    elsewhere = {"node_selector": {ZONE: Z2}}
    constraints = found(*two(ZONE, {"node_selector": {ZONE: Z1}}, elsewhere, node_affinity_policy="Ignore"))

    assert constraints.unpackable == {0, 1}
    assert constraints.spreads == []


def test_a_spread_over_hosts_is_a_cap_whatever_zones_its_pods_may_enter() -> None:
    elsewhere = {"node_selector": {ZONE: Z2}}
    constraints = found(
        *two(HOSTNAME, {"node_selector": {ZONE: Z1}}, elsewhere, skew=2, node_affinity_policy="Ignore")
    )

    assert constraints.unpackable == set()
    (cap,) = constraints.hosts
    both = frozenset({0, 1})
    assert (cap.owners, cap.members, cap.limit, cap.apart) == (both, both, 2, False)


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param({"min_domains": 2}, id="so many domains at least"),
        pytest.param({"node_taints_policy": "Honor"}, id="nodes with taints not counted"),
    ],
)
def test_a_spread_with_further_terms_is_left_to_the_sequential_scheduler(rule: dict[str, Any]) -> None:
    assert found(*two(ZONE, {}, {}, **rule)).unpackable == {0, 1}


def test_a_spread_over_anything_but_hosts_and_zones_is_left_to_the_sequential_scheduler() -> None:
    assert found(*two(INSTANCE_TYPE, {}, {})).unpackable == {0, 1}


def test_a_spread_with_a_node_selector_is_dealt_only_where_it_counts_its_own_pods_alone() -> None:
    large = {"node_selector": {INSTANCE_TYPE: "large"}}
    counted = pod("c", labels={"app": "web"})
    alone = found(*two(ZONE, large, large))
    beside = found(*two(ZONE, large, large), counted)

    assert (alone.unpackable, len(alone.spreads)) == (set(), 1)
    assert (beside.unpackable, beside.spreads) == ({0, 1, 2}, [])


def test_pods_apart_on_hosts_are_a_rule_and_apart_in_zones_are_not() -> None:
    on_hosts = found(pod("a", labels={"app": "web"}, affinity=apart(HOSTNAME, app="web")))
    in_zones = found(pod("a", labels={"app": "web"}, affinity=apart(ZONE, app="web")))

    assert on_hosts.unpackable == set()
    assert [(each.owners, each.limit, each.apart) for each in on_hosts.hosts] == [(frozenset({0}), 1, True)]
    assert (in_zones.unpackable, in_zones.hosts) == ({0}, [])


def test_pods_near_each_other_in_a_zone_are_packed_and_on_a_host_are_not() -> None:
    in_zone = found(pod("a", labels={"app": "web"}, affinity=near(ZONE, app="web")))
    on_host = found(pod("a", labels={"app": "web"}, affinity=near(HOSTNAME, app="web")))

    assert in_zone.unpackable == set()
    assert [(each.members, each.zones) for each in in_zone.zone_affinities] == [((0,), ())]
    assert on_host.unpackable == {0}


def test_who_wants_to_be_near_others_waits_for_them_unless_they_run_already() -> None:
    wants, wanted = pod("a", affinity=near(ZONE, app="db")), pod("b", cpu="2", labels={"app": "db"})
    there = World(nodes=[running("n1", pod("db", labels={"app": "db"}), labels={ZONE: Z2})])
    first, later = found(wants, wanted), found(wants, wanted, world=there)

    assert first.unpackable == {0}
    assert later.unpackable == set()
    assert [(each.members, each.zones) for each in later.zone_affinities] == [((0,), (False, True, False))]


def test_a_rule_that_loses_one_of_its_pods_is_not_kept_for_the_others() -> None:
    counted = LabelSelector(match_labels={"tier": "front"})
    both = {"app": "web", "tier": "front"}
    lost = pod("a", labels=both, affinity=apart(ZONE, app="web"))
    tied = pod("b", labels={"tier": "front"}, topology_spread_constraints=(spread(ZONE, selector=counted),))
    others = LabelSelector(match_labels={"app": "other"})
    free = pod("c", labels={"app": "other"}, topology_spread_constraints=(spread(ZONE, selector=others),))

    constraints = found(lost, tied, free)
    assert constraints.unpackable == {0, 1}
    assert [each.owners for each in constraints.spreads] == [(2,)]
