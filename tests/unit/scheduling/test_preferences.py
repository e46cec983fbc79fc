"""Preferences count as if they had to hold, and are given up one by one."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import labels as names
from dovetail.api.pod import Affinity
from dovetail.scheduling.model.preferences import drop_preferences, relax_spec
from support.builders import nodepool, pod, taint
from support.worlds import Z1, Z2, Z3, World, apart, near, node_affinity, running, spread

ZONE, HOST = names.ZONE, names.HOSTNAME
BAD = [(ZONE, "In", "nowhere")]


def small(name: str, **more: Any) -> Any:
    return pod(name, cpu="10m", memory="10M", **more)


@pytest.mark.spec("T-074", "T-075", "T-076", "T-077", "T-078", "T-079", "T-080")
@pytest.mark.parametrize(
    ("affinity", "zone"),
    [
        pytest.param(node_affinity(BAD), None, id="T-074 one impossible alternative"),
        pytest.param(
            node_affinity(BAD, BAD, [(ZONE, "In", Z1)], [(ZONE, "In", Z2)]), Z1, id="T-075 the third of four"
        ),
        pytest.param(node_affinity(preferred=[(1, BAD), (9, BAD)]), "any", id="T-076 impossible wishes"),
        pytest.param(
            node_affinity(preferred=[(100, BAD), (50, [(ZONE, "In", Z2)]), (1, [(ZONE, "In", Z1)])]),
            Z2,
            id="T-077 the heaviest that is possible",
        ),
        pytest.param(
            node_affinity([(ZONE, "In", Z3)], preferred=[(1, [(ZONE, "NotIn", Z3)])]),
            Z3,
            id="T-078 against it",
        ),
        pytest.param(
            node_affinity(preferred=[(1, [(ZONE, "In", "x"), (ZONE, "DoesNotExist")])]), "any", id="T-079"
        ),
        pytest.param(
            node_affinity([(ZONE, "In", Z1, Z2, Z3)], preferred=[(1, [(ZONE, "In", Z2, "unknown")])]),
            Z2,
            id="T-080 within",
        ),
        pytest.param(node_affinity(preferred=[(1, [(ZONE, "NotIn", Z1, Z3)])]), Z2, id="T-080 all but"),
        pytest.param(
            node_affinity(BAD, [(ZONE, "Exists")], preferred=[(1, [(ZONE, "In", Z2)])]),
            Z2,
            id="a wish outlives an impossible alternative",
        ),
    ],
)
def test_the_best_wish_that_can_be_met_is_met(affinity: Affinity, zone: str | None) -> None:
    world = World()
    world.provision(small("web", affinity=affinity))
    assert (world.node_of("web") is None) == (zone is None)
    if zone not in (None, "any"):
        assert world.zone_of("web") == zone


@pytest.mark.spec("T-081")
@pytest.mark.parametrize("key", [HOST, ZONE])
def test_an_impossible_wish_does_not_cost_a_node(key: str) -> None:
    world = World()
    plan = world.provision(
        pod("other"), small("web", affinity=node_affinity(preferred=[(1, [(key, "In", "nowhere")])]))
    )
    assert len(plan.new_nodes) == 1
    assert {d.pod: d.relaxed for d in plan.decisions}["default/web"] == ("a preferred node affinity",)


@pytest.mark.spec("T-082")
def test_soft_taints_are_the_last_thing_given_in_to() -> None:
    soft = taint("soft", "PreferNoSchedule")
    world = World(nodepool(taints=[soft]))
    plan = world.provision(small("web", affinity=node_affinity(preferred=[(1, BAD)])))
    (decision,) = plan.decisions
    assert decision.relaxed == ("a preferred node affinity", "staying off soft taints")
    state = world.node_of("web")
    assert state is not None
    assert state.node is not None
    assert soft in state.node.spec.taints


@pytest.mark.spec("T-083")
def test_a_pool_without_a_soft_taint_is_preferred() -> None:
    world = World(
        nodepool("tainted", weight=100, taints=[taint("soft", "PreferNoSchedule")]), nodepool("plain")
    )
    world.provision(small("web"))
    assert world.labels_of("web")[names.NODEPOOL] == "plain"


@pytest.mark.spec("T-084")
def test_wishing_to_be_near_nobody_is_given_up() -> None:
    world = World()
    world.provision(small("web", affinity=near(HOST, preferred=True, app="nobody")))
    assert world.node_of("web") is not None


@pytest.mark.spec("T-085")
def test_wishing_to_be_away_from_pods_everywhere_is_given_up() -> None:
    world = World()
    held = [
        pod(f"there-{i}", labels={"app": "db"}, node_selector={ZONE: z}) for i, z in enumerate((Z1, Z2, Z3))
    ]
    world.provision(*held)
    world.provision(small("web", affinity=apart(ZONE, preferred=True, app="db")))
    assert world.node_of("web") is not None


@pytest.mark.spec("T-086")
def test_a_hard_spread_wins_over_a_wish_to_be_near() -> None:
    world = World()
    labels = {"app": "web"}
    rule = spread(HOST)
    plan = world.provision(
        small("target", labels={"app": "db"}),
        *(
            small(
                f"web-{i}",
                labels=labels,
                affinity=near(HOST, preferred=True, app="db"),
                topology_spread_constraints=(rule,),
            )
            for i in range(3)
        ),
    )
    assert not plan.unschedulable
    assert world.skew(HOST, app="web") == [1, 1, 1]


@pytest.mark.spec("T-087", "T-088")
@pytest.mark.parametrize("key", [ZONE, HOST])
@pytest.mark.parametrize("kind", ["spread", "anti-affinity"])
def test_ignored_preferences_keep_pods_together(kind: str, key: str) -> None:
    wishes: dict[str, Any] = (
        {"topology_spread_constraints": (spread(key, soft=True),)}
        if kind == "spread"
        else {"affinity": apart(key, preferred=True, app="web")}
    )
    pods = [small(f"web-{i}", labels={"app": "web"}, **wishes) for i in range(5)]
    assert len(World(preferences="Ignore").solve(*pods).new_nodes) == 1
    respected = World().solve(*pods).new_nodes
    # A first pod that may be in any zone is in all of them, to those who would keep away from it.
    assert (len(respected) > 1) == (kind == "spread" or key == HOST)


@pytest.mark.spec("T-089")
def test_with_preferences_ignored_a_pod_joins_the_emptier_node() -> None:
    def pods() -> list[Any]:
        one = small("one", node_selector={ZONE: Z1})
        two = [small(f"two-{i}", node_selector={ZONE: Z2}, labels={"app": "db"}) for i in range(2)]
        wish = node_affinity(preferred=[(1, [(ZONE, "In", Z2)])])
        return [one, *two, pod("web", cpu="5m", memory="5M", affinity=wish)]

    ignoring, respecting = World(preferences="Ignore"), World()
    ignoring.provision(*pods())
    respecting.provision(*pods())
    assert (ignoring.zone_of("web"), respecting.zone_of("web")) == (Z1, Z2)


@pytest.mark.spec("T-090")
def test_a_soft_spread_over_capacity_types_gives_way_to_what_can_be_bought() -> None:
    labels = {"app": "web"}
    there = running("there", pod("old", labels=labels, node="there"), labels={names.CAPACITY_TYPE: "spot"})
    pool = nodepool(requirements=[(names.CAPACITY_TYPE, "In", "on-demand")])
    rule = spread(names.CAPACITY_TYPE, soft=True)
    world = World(pool, nodes=[there])
    world.provision(
        *(pod(f"web-{i}", cpu="1500m", labels=labels, topology_spread_constraints=(rule,)) for i in range(5)),
    )
    on_spot = sum(1 for i in range(5) if world.labels_of(f"web-{i}")[names.CAPACITY_TYPE] == "spot")
    assert world.skew(names.CAPACITY_TYPE, app="web") == [5 - on_spot, 1 + on_spot]
    assert not world.plan.unschedulable


def test_a_soft_spread_is_given_up_and_a_hard_one_never() -> None:
    rules = (spread(HOST), spread(ZONE, soft=True), spread(ZONE))
    given = relax_spec(pod(topology_spread_constraints=rules).spec, soft_taints=False)
    assert given is not None
    assert given.gave_up == "a soft topology spread"
    assert given.spec.topology_spread_constraints == (rules[0], rules[2])
    assert relax_spec(given.spec, soft_taints=False) is None


def test_of_two_soft_spreads_the_first_goes_first_and_the_last_takes_its_place() -> None:
    rules = (spread(ZONE, soft=True), spread(HOST), spread(names.ARCH, soft=True))
    first = relax_spec(pod(topology_spread_constraints=rules).spec, soft_taints=False)
    assert first is not None
    assert first.spec.topology_spread_constraints == (rules[2], rules[1])
    second = relax_spec(first.spec, soft_taints=False)
    assert second is not None
    assert second.spec.topology_spread_constraints == (rules[1],)


def test_what_must_hold_is_left_when_all_wishes_are_given_up_at_once() -> None:
    rules = (spread(HOST), spread(ZONE, soft=True))
    assert drop_preferences(
        pod(topology_spread_constraints=rules).spec, False
    ).topology_spread_constraints == (rules[0],)


def test_a_pod_whose_hard_spread_cannot_hold_waits_whatever_soft_ones_it_has() -> None:
    rules = (spread("unknown"), spread(ZONE, soft=True))
    plan = World().solve(small("web", labels={"app": "web"}, topology_spread_constraints=rules))
    assert list(plan.unschedulable) == ["default/web"]


def test_a_wish_against_what_must_hold_does_not_make_a_node_the_pod_can_never_use() -> None:
    """Both together would read as "no such label", which any node of the pool fulfils."""
    torn = node_affinity([("team", "In", "red")], preferred=[(1, [("team", "In", "blue")])])
    plan = World().solve(small("web", affinity=torn))
    assert (plan.new_nodes, list(plan.unschedulable)) == ((), ["default/web"])
    assert len(World(nodepool(labels={"team": "red"})).solve(small("web", affinity=torn)).new_nodes) == 1
