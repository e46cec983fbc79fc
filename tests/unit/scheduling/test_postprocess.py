"""Plans that are still good later: halves that can be given back, and room for a pool that grows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api.labels import GROWTH, HOSTNAME
from dovetail.api.meta import OwnerReference
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.scheduling import postprocess
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.scheduling.sequential.schedule import schedule_pods
from dovetail.scheduling.solve import solve
from dovetail.scheduling.verify import verify_plan
from support.builders import NOW, nodepool, pod
from support.peer_workloads import generated, snapshot_of
from support.worlds import Z1, Z2, World, apart, instance_type, offering

SIZES = (1, 2, 4, 8, 16, 32)
OWNER = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="web-1", controller=True)


def sizes(kind: str = "spot") -> tuple[InstanceType, ...]:
    """Twice the room for twice the price; each node keeps a tenth of a cpu to itself."""
    return tuple(
        instance_type(
            f"c-{n:02}", n, f"{4 * n}Gi", 16 * n, offerings=[offering(z, kind, 0.02 * n) for z in (Z1, Z2)]
        )
        for n in SIZES
    )


def fleet(small: int = 8, **world: Any) -> World:
    """Small nodes, each with a pod that fills it."""
    made = World(**({"types": sizes()} | world))
    for i in range(small):
        made.provision(pod(f"small-{i}", cpu="1900m", memory="1Gi"))
    return made


def bought(plan: Plan) -> list[str]:
    return sorted(node.instance_type for node in plan.new_nodes)


def checked(world: World, *pods: Pod) -> Plan:
    snapshot = world.snapshot(*pods)
    plan = solve(snapshot)
    assert verify_plan(snapshot, plan) == []
    assert not plan.unschedulable
    return plan


def jobs(count: int) -> list[Pod]:
    return [pod(f"job-{i}", cpu="4", memory="8Gi") for i in range(count)]


def test_two_halves_are_bought_where_one_node_would_be_a_large_part_of_the_fleet() -> None:
    world = fleet()
    plan = checked(world, *jobs(6))
    plain = schedule_pods(world.snapshot(*jobs(6)))

    assert bought(plain) == ["c-32"]
    assert bought(plan) == ["c-16", "c-16"]
    assert plan.price == pytest.approx(plain.price)


def test_without_a_fleet_fewer_nodes_win() -> None:
    assert bought(checked(fleet(0), *jobs(6))) == ["c-32"]


def test_in_a_large_fleet_one_node_is_no_large_part() -> None:
    assert bought(checked(fleet(130), *jobs(6))) == ["c-32"]


def test_halves_that_cost_more_are_not_bought() -> None:
    # Seven fill the large node; halves hold three each.
    assert bought(checked(fleet(), *jobs(7))) == ["c-32"]


def test_halves_are_no_smaller_than_what_runs_already() -> None:
    world = World(types=sizes())
    world.provision(pod("large", cpu="15800m", memory="1Gi"))

    assert bought(checked(world, *(pod(f"web-{i}", cpu="900m") for i in range(2)))) == ["c-02"]


def test_many_pods_are_packed_for_their_own_sake() -> None:
    many = [pod(f"web-{i}", cpu="490m", memory="256Mi") for i in range(60)]
    plan = checked(fleet(), *many)

    assert len(plan.new_nodes) <= len(schedule_pods(fleet().snapshot(*many)).new_nodes)


@pytest.mark.parametrize("kind", ["pods", "moving", "virtual"])
def test_pods_are_many_whatever_brought_them(kind: str) -> None:
    """Fifty in all are few; one more, and the plan stays as it is without being asked for again."""
    snapshot = fleet().snapshot(*jobs(6))
    plan, asked = schedule_pods(snapshot), list[object]()

    def tried(more: int) -> int:
        others = tuple(pod(f"more-{i}", cpu="1m") for i in range(more))
        seen = replace(snapshot, **{kind: (*getattr(snapshot, kind), *others)})
        assert postprocess.split_large_nodes(seen, plan, asked.append) is plan
        return len(asked)

    assert tried(45) == 0
    assert tried(44) == 1


def test_a_plan_that_holds_up_only_if_everybody_sits_as_planned_is_not_preferred() -> None:
    """Of two nodes, the large pods need one each; small ones that come first would take that room."""
    snapshot = fleet().snapshot(
        *(pod(f"a-{i}", cpu="1", memory="1Gi", created=NOW - timedelta(minutes=1)) for i in range(6)),
        *(pod(f"b-{i}", cpu="6", memory="1Gi") for i in range(3)),
    )
    types = {each.name: each for each in snapshot.list_types(snapshot.pools[0])}
    large = next(n for n in schedule_pods(snapshot).new_nodes if len(n.pods) == 9)
    names = sorted(large.pods)
    small, big = names[:6], names[6:]
    parts = [replace(large, instance_type="c-08", pods=(*small[2 * i : 2 * i + 1], big[i])) for i in range(3)]
    rest = replace(large, instance_type="c-04", pods=(*small[1::2],))
    below = postprocess.NodeSizeLimit(snapshot)

    assert types[large.instance_type]
    assert postprocess._fits_default_placement(below, Plan(new_nodes=(large,)))
    assert not postprocess._fits_default_placement(below, Plan(new_nodes=(*parts, rest)))


# Room ahead


def web(number: int, minutes: int, **more: Any) -> Pod:
    shape: dict[str, Any] = {
        "cpu": "500m",
        "memory": "1Gi",
        "owned_by": OWNER,
        "created": NOW - timedelta(minutes=minutes),
    }
    return pod(f"web-{number}", **(shape | more))


def asking(**pool: Any) -> NodePool:
    made = nodepool(**pool)
    return replace(made, metadata=replace(made.metadata, annotations={GROWTH: "ahead"}))


def growing(minutes: tuple[int, ...], pool: NodePool | None = None, kind: str = "spot") -> World:
    """A pool that bought a node for one pod at each of these moments."""
    world = World(pool or asking(), types=sizes(kind))
    for number, ago in enumerate(minutes):
        world.provision(web(number, ago))
        world.nodes[-1] = aged(world.nodes[-1], ago)
    return world


def aged(state: StateNode, minutes: int) -> StateNode:
    assert state.claim is not None
    born = replace(state.claim.metadata, creation_timestamp=NOW - timedelta(minutes=minutes))
    return replace(state, claim=replace(state.claim, metadata=born))


HOUR = (5, 15, 25, 35, 45, 55)


def test_a_pool_that_grows_pod_by_pod_buys_room_for_as_many_again() -> None:
    plan = checked(growing(HOUR), web(9, 0))

    # Seven a node, for the one that waits and as many as came: 1.1 cents each instead of 2.
    assert bought(plan) == ["c-04"]
    assert plan.new_nodes[0].price == pytest.approx(0.08)
    assert "c-01" not in plan.new_nodes[0].instance_types
    assert "c-02" not in plan.new_nodes[0].instance_types


@pytest.mark.parametrize("option", ["consolidating", "one_by_one"])
def test_a_question_that_is_no_order_buys_no_room_ahead(option: str) -> None:
    """Consolidation compares prices, and room for those who are to come would make every node dear."""
    snapshot = growing(HOUR).snapshot(web(9, 0))
    asked = replace(snapshot, options=replace(snapshot.options, **{option: True}))

    assert bought(solve(asked)) == ["c-01"]
    assert solve(asked) == schedule_pods(asked)


@pytest.mark.parametrize(
    "came", [(), (5,), (130, 140, 150, 160, 170, 180)], ids=["never", "once", "long ago"]
)
def test_without_growth_the_cheapest_node_is_bought(came: tuple[int, ...]) -> None:
    assert bought(checked(growing(came), web(9, 0))) == ["c-01"]


def test_a_burst_is_not_growth() -> None:
    assert bought(checked(growing((20,) * 6), web(9, 0))) == ["c-01"]


def test_others_growth_is_not_ones_own() -> None:
    other = replace(OWNER, uid="other")
    assert bought(checked(growing(HOUR), web(9, 0, owned_by=other))) == ["c-01"]
    assert bought(checked(growing(HOUR), web(9, 0, owned_by=None))) == ["c-01"]


def test_only_a_pool_that_asks_for_it_gets_room() -> None:
    assert bought(checked(growing(HOUR, nodepool()), web(9, 0))) == ["c-01"]


def test_what_consolidation_would_exchange_at_once_is_not_bought() -> None:
    assert bought(checked(growing(HOUR, kind="on-demand"), web(9, 0))) == ["c-01"]


def test_a_node_that_is_kept_until_it_is_empty_may_be_bought_with_room() -> None:
    kept = asking(consolidation_policy="WhenEmpty")

    assert bought(checked(growing(HOUR, kept, kind="on-demand"), web(9, 0))) == ["c-04"]


def test_pods_that_want_a_node_of_their_own_get_no_more_room() -> None:
    alone = {"labels": {"app": "web"}, "affinity": apart(HOSTNAME, app="web")}
    assert bought(checked(growing(HOUR), web(9, 0, **alone))) == ["c-01"]


@pytest.mark.parametrize("family", ["existing", "mix", "web"])
@pytest.mark.parametrize("size", [6, 24, 48])
def test_a_few_pods_never_cost_more_than_one_by_one(family: str, size: int) -> None:
    snapshot = snapshot_of(generated(family, size, seed=7, subset="144"))
    plan = solve(snapshot)

    assert verify_plan(snapshot, plan) == []
    assert plan.price <= schedule_pods(snapshot).price + 1e-9


def test_pods_go_one_after_another_to_the_node_that_stays_freest() -> None:
    def room(cpu: int) -> postprocess.NodeRoom:
        size = {"cpu": 8 * 10**9, "memory": 32 * 2**30 * 10**9, "pods": 10 * 10**9}
        return postprocess.NodeRoom(size, {**size, "cpu": cpu * 10**9})

    first, second = pod("a", cpu="2"), pod("b", cpu="4", created=NOW + timedelta(minutes=1))
    # The older goes to the freer node, and leaves no room for the other; the tighter would have done for it.
    assert not postprocess.can_place_by_default([second, first], [room(2), room(5)])
    assert postprocess.can_place_by_default([second, first], [room(2), room(6)])
    assert postprocess.can_place_by_default(
        [second, first], [room(2), room(5)], lambda pod, at: at != 1 or pod is second
    )
