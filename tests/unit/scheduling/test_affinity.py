"""Affinity and anti-affinity between pods, forwards and backwards."""

from __future__ import annotations

from datetime import datetime
from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.api.meta import LabelSelector
from dovetail.api.pod import Affinity, Pod, PodAffinity, PodAffinityTerm
from support.builders import NOW, nodepool, pod
from support.worlds import Z1, Z2, Z3, World, apart, near, running, spread

ZONE, HOST = names.ZONE, names.HOSTNAME
WEB, DB = {"app": "web"}, {"app": "db"}


def small(name: str, **more: Any) -> Pod:
    return pod(name, cpu="10m", memory="10M", **more)


@pytest.mark.spec("T-212")
def test_empty_rules_bind_nobody() -> None:
    empty = Affinity(pod_affinity=PodAffinity(), pod_anti_affinity=PodAffinity())
    assert not World().solve(small("web", affinity=empty)).unschedulable


@pytest.mark.spec("T-213")
def test_a_pod_joins_the_one_it_wants_to_be_near() -> None:
    lonely = [small(f"other-{i}", labels=WEB, affinity=apart(HOST, app="web")) for i in range(10)]
    target = small("target", labels=DB)
    world = World()
    world.provision(*lonely, target, pod("web", cpu="5m", memory="5M", affinity=near(HOST, app="db")))
    assert world.node_of("web") == world.node_of("target")


@pytest.mark.spec("T-214")
def test_near_by_arch_and_apart_by_host_can_both_hold() -> None:
    target = small("target", labels=DB, node_selector={names.ARCH: "arm64"})
    rule = spread(HOST, selector=LabelSelector(match_labels=DB))
    follower = pod(
        "web", cpu="5m", memory="5M", labels=DB, affinity=near(names.ARCH, app="db"),
        topology_spread_constraints=(rule,),
    )  # fmt: skip
    world = World()
    world.provision(target, follower)
    assert world.node_of("web") != world.node_of("target")
    assert world.labels_of("web")[names.ARCH] == "arm64"


@pytest.mark.spec("T-215")
def test_pods_that_want_to_be_together_share_one_node_while_it_has_room() -> None:
    def alike(count: int) -> list[Pod]:
        return [small(f"w{i}", labels=WEB, affinity=near(HOST, app="web")) for i in range(count)]

    assert len(World().solve(*alike(3)).new_nodes) == 1
    world = World()
    pods = alike(10)
    plan = world.provision(*pods)
    assert (world.scheduled(*pods), len(plan.unschedulable)) == (5, 5)
    left = [each for each in pods if world.node_of(each.full_name) is None]
    assert len(world.provision(*left).unschedulable) == 5


@pytest.mark.spec("T-216")
def test_affinity_counts_pods_wherever_they_are() -> None:
    world = World()
    world.provision(small("first", labels=WEB, affinity=near(HOST, app="web"), node_selector={ZONE: Z1}))
    rest = [
        small(f"w{i}", labels=WEB, affinity=near(HOST, app="web"), node_selector={ZONE: z})
        for i, z in enumerate((Z2, Z3) * 5)
    ]
    world.nodes = [replace(state, volume_limits={}) for state in world.nodes]
    assert len(world.solve(*rest).unschedulable) == 10


@pytest.mark.spec("T-217", "T-218")
def test_zones_can_be_shared_with_ones_own_kind() -> None:
    self_affine = {"labels": WEB, "affinity": near(ZONE, app="web")}
    assert len(World().solve(*(small(f"w{i}", **self_affine) for i in range(3))).new_nodes) == 1
    world = World()
    world.provision(*(small(f"w{i}", node_selector={ZONE: Z3}, **self_affine) for i in range(3)))
    assert {world.zone_of(f"w{i}") for i in range(3)} == {Z3}
    plan = World().solve(
        small("a", node_selector={ZONE: Z2}, **self_affine),
        small("b", node_selector={ZONE: Z3}, **self_affine),
    )
    assert (len(plan.new_nodes), len(plan.unschedulable)) == (2, 0)
    coming = World()
    coming.provision(small("one", **self_affine), bind=False)
    assert len(coming.solve(small("two", **self_affine)).existing) == 1


@pytest.mark.spec("T-219")
def test_nobody_can_be_near_a_pod_that_is_not_there() -> None:
    plan = World().solve(*(small(f"w{i}", affinity=near(HOST, app="nobody")) for i in range(10)))
    assert len(plan.unschedulable) == 10


@pytest.mark.spec("T-220")
def test_a_zone_must_be_known_before_it_can_be_shared() -> None:
    followers = [small(f"w{i}", affinity=near(ZONE, app="db")) for i in range(10)]
    world = World()
    plan = world.provision(pod("target", labels=DB), *followers)
    assert len(plan.unschedulable) == 10
    world.provision(*followers)
    assert {world.zone_of(f"w{i}") for i in range(10)} == {world.zone_of("target")}
    world = World()
    world.provision(pod("target", labels=DB, node_selector={ZONE: Z1}), *followers)
    assert {world.zone_of(name) for name in ("target", *(f"w{i}" for i in range(10)))} == {Z1}


@pytest.mark.spec("T-221")
@pytest.mark.parametrize("order", list(permutations(range(4)))[::5])
def test_a_chain_of_affinities_is_placed_in_one_pass(order: tuple[int, ...]) -> None:
    chain = [("db", None), ("web", "db"), ("cache", "web"), ("ui", "cache")]
    pods = []
    for place, i in enumerate(order):
        name, target = chain[i]
        affinity = near(HOST, app=target) if target else None
        pods.append(pod(name, cpu=f"{10 + place}m", memory="10M", labels={"app": name}, affinity=affinity))
    plan = World().solve(*pods)
    assert (len(plan.new_nodes), len(plan.unschedulable)) == (1, 0)


@pytest.mark.spec("T-222")
@pytest.mark.parametrize(
    ("where", "placed"),
    [
        ({}, False),
        ({"namespaces": ("other",)}, True),
        ({"namespace_selector": LabelSelector()}, True),
        ({"namespace_selector": LabelSelector(match_labels={"team": "a"})}, True),
        ({"namespace_selector": LabelSelector(match_labels={"team": "b"})}, False),
    ],
)
def test_affinity_looks_into_the_namespaces_it_names(where: dict[str, Any], placed: bool) -> None:
    term = PodAffinityTerm(topology_key=HOST, label_selector=LabelSelector(match_labels=DB), **where)
    target = small("target", namespace="other", labels=DB)
    web = pod("web", cpu="5m", memory="5M", affinity=Affinity(pod_affinity=PodAffinity(required=(term,))))
    plan = World(namespaces={"default": {}, "other": {"team": "a"}}).solve(target, web)
    assert ("default/web" not in plan.unschedulable) == placed
    assert len(plan.new_nodes) == 1


@pytest.mark.spec("T-223")
@pytest.mark.parametrize("first", [True, False])
def test_pods_that_avoid_each_other_get_nodes_of_their_own(first: bool) -> None:
    shy = pod("shy", cpu="20m" if first else "5m", memory="5M", affinity=apart(HOST, app="db"))
    assert len(World().solve(small("target", labels=DB), shy).new_nodes) == 2


def in_every_zone(cpu: str = "1500m", **more: Any) -> list[Pod]:
    return [pod(f"there-{i}", cpu=cpu, node_selector={ZONE: z}, **more) for i, z in enumerate((Z1, Z2, Z3))]


@pytest.mark.spec("T-224")
def test_a_pod_cannot_avoid_what_is_everywhere() -> None:
    plan = World().solve(*in_every_zone(labels=DB), small("web", affinity=apart(ZONE, app="db")))
    assert list(plan.unschedulable) == ["default/web"]


@pytest.mark.spec("T-225")
def test_a_pod_whose_zone_is_open_is_avoided_everywhere() -> None:
    plan = World().solve(pod("target", labels=DB), small("web", affinity=apart(ZONE, app="db")))
    assert list(plan.unschedulable) == ["default/web"]


@pytest.mark.spec("T-226")
def test_an_arch_can_be_avoided() -> None:
    world = World()
    world.provision(
        pod("target", labels=DB, node_selector={names.ARCH: "arm64"}),
        small("web", affinity=apart(names.ARCH, app="db")),
    )
    assert world.labels_of("web")[names.ARCH] == "amd64"


@pytest.mark.spec("T-227")
@pytest.mark.parametrize("running_already", [True, False])
@pytest.mark.parametrize("preferred", [True, False])
def test_a_pod_is_kept_away_from_those_that_avoid_it(running_already: bool, preferred: bool) -> None:
    avoiding = in_every_zone(affinity=apart(ZONE, preferred=preferred, app="db"))
    target = small("web", labels=DB)
    world = World()
    if running_already:
        world.provision(*avoiding)
        avoiding = []
    plan = world.solve(*avoiding, target)
    assert ("default/web" not in plan.unschedulable) == preferred


@pytest.mark.spec("T-228")
def test_a_pod_waits_until_the_one_that_avoids_it_has_landed() -> None:
    world = World()
    avoiding, target = pod("shy", affinity=apart(ZONE, app="db")), small("web", labels=DB)
    assert list(world.provision(avoiding, target).unschedulable) == ["default/web"]
    world.provision(target)
    assert world.zone_of("web") != world.zone_of("shy")


@pytest.mark.spec("T-229")
def test_pods_that_avoid_their_kind_take_one_zone_a_pass() -> None:
    world = World()
    pods = [small(f"w{i}", labels=WEB, affinity=apart(ZONE, app="web")) for i in range(4)]
    for placed in (1, 2, 3, 3):
        world.provision(*(each for each in pods if world.node_of(each.full_name) is None))
        assert world.scheduled(*pods) == placed
    assert world.skew(ZONE, app="web") == [1, 1, 1]


def test_a_running_pod_that_avoids_others_bars_its_domain_even_outside_the_pools() -> None:
    shy = pod("shy", cpu="1m", node="own", affinity=apart(ZONE, app="db"))
    held = running("own", shy, zone="own-zone")
    world = World(nodepool(ready=True, limits={"cpu": "0"}), nodes=[held])
    assert list(world.solve(small("web", labels=DB)).unschedulable) == ["default/web"]
    assert not world.solve(small("web", labels=WEB)).unschedulable


@pytest.mark.parametrize(
    ("phase", "deleted", "kept_away"),
    [
        ("Running", None, True),
        ("Running", NOW, True),  # terminating: the scheduler heeds it until it is gone
        ("Succeeded", None, False),
        ("Failed", NOW, False),
    ],
)
def test_others_keep_away_from_a_shy_pod_until_it_has_ended(
    phase: str, deleted: datetime | None, kept_away: bool
) -> None:
    shy = pod("shy", cpu="1m", node="own", deleted=deleted, affinity=apart(HOST, app="db"))
    shy = replace(shy, status=replace(shy.status, phase=phase))
    plan = World(nodes=[running("own", shy)]).solve(small("web", labels=DB))
    assert ("default/web" not in plan.existing.get("own", ())) == kept_away
