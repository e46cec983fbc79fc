"""From snapshot to plan: the packing and the exact placer at one table."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api.labels import HOSTNAME, INSTANCE_TYPE, ZONE
from dovetail.api.nodepool import Requirement
from dovetail.api.pod import Pod
from dovetail.scheduling import solve, verify
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.packing.adapter import from_groups
from dovetail.scheduling.sequential.schedule import schedule_pods
from dovetail.scheduling.solve import QUICK, Effort, build_first_plan
from dovetail.scheduling.verify import verify_plan
from support.builders import NOW, nodepool, pod, taint
from support.peer_workloads import generated, snapshot_of
from support.worlds import Z1, Z2, World, apart, near, node_affinity, running, series, spread

SHORT = Effort(rounds=4, dives=2)
FAMILIES = ("web", "mix", "iid", "diverse", "batch", "pools", "spot", "arch", "prefer", "services", "daemons")


def peer(family: str, size: int = 120) -> Snapshot:
    return snapshot_of(generated(family, size, seed=5, subset="144"))


def pods(count: int, name: str = "web", **shape: Any) -> list[Pod]:
    return [pod(f"{name}-{i}", labels={"app": name}, **shape) for i in range(count)]


def packed(world: World, *waiting: Pod) -> Plan:
    snapshot = world.snapshot(*waiting)
    plan = build_first_plan(snapshot, SHORT)
    assert plan is not None
    assert verify_plan(snapshot, plan) == []
    return plan


def zones_of(plan: Plan) -> Counter[str]:
    return Counter({node.zone: 0 for node in plan.new_nodes}) + Counter(
        zone for node in plan.new_nodes for zone in [node.zone] * len(node.pods)
    )


@pytest.mark.parametrize("family", [*FAMILIES, "existing", "capped"])
def test_every_family_is_placed_in_full_and_keeps_every_rule(family: str) -> None:
    snapshot = peer(family)
    plan = solve.solve(snapshot, SHORT)

    assert verify_plan(snapshot, plan) == []
    assert not plan.unschedulable
    assert plan.price <= schedule_pods(snapshot).price + 1e-9
    assert 0 < plan.bound <= plan.bound_as_asked + 1e-9
    assert plan.bound <= plan.price + 1e-9


@pytest.mark.parametrize("family", ["diverse", "services", "prefer"])
def test_the_first_plan_is_valid_before_anybody_looks_at_it(family: str) -> None:
    snapshot = peer(family)
    plan = build_first_plan(snapshot, QUICK)

    assert plan is not None
    assert verify_plan(snapshot, plan) == []
    assert not plan.unschedulable


def test_a_spread_over_zones_ends_even_and_every_node_says_where_it_is() -> None:
    waiting = pods(11, topology_spread_constraints=(spread(ZONE),))
    plan = packed(World(types=series(6)), *waiting)
    counts = zones_of(plan)

    assert sorted(counts.values()) == [3, 4, 4]
    assert all(node.requirements[ZONE].only for node in plan.new_nodes)


def test_pods_that_must_be_apart_get_as_many_nodes() -> None:
    plan = packed(World(types=series(6)), *pods(7, affinity=apart(HOSTNAME, app="web")))

    assert len(plan.new_nodes) == 7


def test_pods_that_want_company_share_a_zone() -> None:
    plan = packed(World(types=series(3)), *pods(9, cpu="1", affinity=near(ZONE, app="web")))

    assert len(zones_of(plan)) == 1


def test_only_the_heaviest_pool_that_can_take_a_pod_is_used() -> None:
    world = World(nodepool("light", weight=1), nodepool("heavy", weight=9), types=series(6))

    assert {node.pool for node in packed(world, *pods(5)).new_nodes} == {"heavy"}


def test_a_pod_the_heavy_pool_cannot_hold_goes_to_the_light_one() -> None:
    types = {"light": series(6), "heavy": series(2)}
    world = World(nodepool("light", weight=1), nodepool("heavy", weight=9), types=types)
    plan = packed(world, *pods(3), pod("big", cpu="5"))

    home = next(node for node in plan.new_nodes if "default/big" in node.pods)
    assert home.pool == "light"


def test_a_limit_is_kept_and_those_left_out_waited_least() -> None:
    world = World(nodepool(limits={"cpu": "6"}), types=series(3))
    waiting = [
        replace(each, metadata=replace(each.metadata, creation_timestamp=NOW - timedelta(minutes=i)))
        for i, each in enumerate(pods(12, cpu="800m"))
    ]
    plan = packed(world, *waiting)
    left = {int(name.rsplit("-", 1)[1]) for name in plan.unschedulable}

    assert left
    assert left == set(range(len(left)))


def _behind_a_limit(limit: str, large: tuple[int, str], small: tuple[int, str]) -> Snapshot:
    pods = [pod(f"large-{i}", cpu=large[1]) for i in range(large[0])]
    pods += [pod(f"small-{i}", cpu=small[1]) for i in range(small[0])]
    return World(nodepool(limits={"cpu": limit})).snapshot(*pods)


def test_where_a_limit_leaves_pods_out_the_exact_placer_says_which() -> None:
    scene = _behind_a_limit("2", (1, "1500m"), (2, "300m"))
    counted = build_first_plan(scene, solve.THOROUGH)
    assert counted is not None
    assert counted.left_out == {"default/large-0", "default/small-1"}
    assert (
        solve.solve(scene).left_out == schedule_pods(scene).left_out == {"default/small-0", "default/small-1"}
    )


def test_where_a_limit_leaves_pods_out_more_pods_placed_come_first() -> None:
    scene = _behind_a_limit("4", (2, "1800m"), (2, "1"))
    assert len(schedule_pods(scene).left_out) == 2
    assert solve.solve(scene).left_out == {"default/large-1"}


def test_wishes_that_can_be_met_are_met_and_vain_ones_given_up() -> None:
    wanted = pods(4, name="zoned", affinity=node_affinity(preferred=[(1, [(ZONE, "In", Z2)])]))
    vain = pods(4, name="vain", affinity=node_affinity(preferred=[(1, [("disk", "In", "nvme")])]))
    plan = packed(World(types=series(6)), *wanted, *vain)

    assert not plan.unschedulable
    assert all(node.zone == Z2 for node in plan.new_nodes if any("zoned" in name for name in node.pods))


def test_odd_pods_are_finished_by_the_exact_placer_on_the_same_nodes() -> None:
    odd = [pod(f"port-{i}", cpu="100m", host_ports=[80]) for i in range(3)]
    plan = packed(World(types=series(8)), *pods(20, cpu="500m"), *odd)

    assert not plan.unschedulable
    hosts = [sum(1 for name in node.pods if "port" in name) for node in plan.new_nodes]
    assert max(hosts) == 1
    assert sum(hosts) == 3


def test_room_on_running_nodes_comes_first() -> None:
    world = World(
        types=series(6),
        nodes=[running("old", zone=Z1, allocatable={"cpu": "8", "memory": "16Gi", "pods": "20"})],
    )
    plan = packed(world, *pods(3, cpu="1"))

    assert plan.existing == {"old": tuple(sorted(f"default/web-{i}" for i in range(3)))}
    assert not plan.new_nodes


def test_a_pool_with_min_values_is_left_to_the_exact_placer() -> None:
    pool = nodepool(requirements=[Requirement(key=INSTANCE_TYPE, operator="Exists", min_values=3)])
    snapshot = World(pool, types=series(6)).snapshot(*pods(4))

    assert build_first_plan(snapshot, SHORT) is None
    assert not solve.solve(snapshot, SHORT).unschedulable


def test_taints_keep_pods_off_pools() -> None:
    tainted = nodepool("tainted", weight=9, taints=[taint("team", value="a")])
    world = World(tainted, nodepool("plain"), types=series(6))

    assert {node.pool for node in packed(world, *pods(4)).new_nodes} == {"plain"}


def test_nothing_to_place_and_nothing_to_buy_are_no_trouble() -> None:
    assert solve.solve(World(types=series(3)).snapshot()) == Plan()
    nowhere = solve.solve(World(types=()).snapshot(*pods(2)))

    assert len(nowhere.unschedulable) == 2


def test_with_no_time_left_the_pods_that_waited_longest_still_get_a_plan() -> None:
    snapshot = World(types=series(6)).snapshot(*pods(9), pod("port", host_ports=[80]))
    plan = build_first_plan(snapshot, SHORT, should_stop=lambda: True)

    assert plan is not None
    assert plan.timed_out
    assert sum(len(node.pods) for node in plan.new_nodes) == 9


def test_no_node_takes_more_pods_than_the_cap_for_one() -> None:
    snapshot = World(types=series(8)).snapshot(*pods(24, cpu="100m", memory="64Mi"))
    plan = build_first_plan(snapshot, Effort(rounds=2, dives=1, most_pods=6))

    assert plan is not None
    assert max(len(node.pods) for node in plan.new_nodes) <= 6


def test_a_plan_the_referee_objects_to_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = World(types=series(6)).snapshot(*pods(5))
    monkeypatch.setattr(verify, "verify_plan", lambda *_: ["no"])

    assert solve.solve(snapshot, SHORT) == schedule_pods(snapshot)


def test_a_plan_that_does_not_fit_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def overfull(*_: object) -> None:
        raise from_groups.PackedPlanInvalid("too small")

    snapshot = World(types=series(6)).snapshot(*pods(5))
    monkeypatch.setattr(solve, "apply_packed_plan", overfull)

    assert solve.solve(snapshot, SHORT) == schedule_pods(snapshot)


def test_every_planned_node_lists_all_types_that_hold_it_cheapest_first() -> None:
    plan = packed(World(types=series(6)), *pods(2, cpu="1"))
    (node,) = plan.new_nodes

    assert list(node.instance_types) == ["fake-it-2", "fake-it-3", "fake-it-4", "fake-it-5"]
    assert node.instance_type == node.instance_types[0]


def test_under_linear_prices_a_plan_is_as_dense_as_the_exact_placers() -> None:
    snapshot = World(types=series(16)).snapshot(*pods(40, cpu="900m", memory="1Gi"))
    plan = solve.solve(snapshot)

    assert plan.price <= schedule_pods(snapshot).price + 1e-9


SCRIPT = """
import sys
sys.path.insert(0, "tests")
from support.peer_workloads import generated, snapshot_of
from dovetail.scheduling.solve import Effort, solve
plan = solve(snapshot_of(generated("diverse", 60, 3, "144")), Effort(rounds=3, dives=1))
print([(n.pool, n.zone, n.instance_types[:3], n.pods) for n in plan.new_nodes])
"""


def test_the_plan_is_the_same_in_processes_that_hash_differently() -> None:
    shown = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]

    assert shown[0] == shown[1]
    assert "default/" in shown[0]
