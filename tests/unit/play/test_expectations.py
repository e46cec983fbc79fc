"""What is expected of worlds: kept, broken, or proven impossible."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from dovetail.disruption.situation import Situation
from dovetail.errors import BadInput
from dovetail.play.expectations import Judgement, judge_expectations
from dovetail.play.expectations_file import parse_expectations
from dovetail.play.expected_worlds import GivenWorld, VerifiedWorld, build_worlds
from dovetail.providers.kwok.catalog import read_instance_types
from dovetail.scheduling.model.snapshot import SchedulingOptions, Snapshot, build_pools_and_catalogs
from dovetail.state.changes import apply_change
from dovetail.state.offline import OfflineCluster
from dovetail.zonal.model.rehearsal import rehearse
from support.builders import NOW, nodepool, pod
from support.random_changes import ZONES, build_world, claimed_node, deployment, pool, running_pod
from support.worlds import FLAVOUR, instance_type, offering

SEEDS = int(os.environ.get("DOVETAIL_ORACLE", "25"))
HEAD = {"apiVersion": "dovetail.sh/v1alpha1", "kind": "Expectations"}
TYPES = tuple(each for each in read_instance_types() if "amd64-linux" in each.name)


def read(*documents: dict[str, Any]) -> OfflineCluster:
    found = OfflineCluster()
    for each in documents:
        found.add(each["apiVersion"], each["kind"], each)
    return found


def see(*documents: dict[str, Any]) -> Situation:
    options = SchedulingOptions(now=NOW, flavour=FLAVOUR)
    return Situation(read(*documents).build_snapshot(lambda pool: TYPES, options))


def shop(bought: str = "on-demand") -> Situation:
    """A node in each of two zones, with two pods of web on each."""
    nodes = [each for n in range(2) for each in claimed_node(f"node-{n}", "general", "2", ZONES[n], bought)]
    pods = [running_pod(f"web-5d9c-{n}", "web", f"node-{n % 2}", 500, 512) for n in range(4)]
    return see(pool("general", ("spot", "on-demand")), *nodes, *pods)


def judge(
    situation: Situation, *expect: dict[str, Any], worlds: Sequence[dict[str, Any]] = (), change: Any = None
) -> list[Judgement]:
    found = parse_expectations(
        {**HEAD, "expect": list(expect), **({"worlds": list(worlds)} if worlds else {})}, "{}: {}".format
    )
    given = GivenWorld(situation)
    if change is not None:
        applied = apply_change(situation.snapshot, change)
        given = GivenWorld(situation.with_snapshot(applied.after), applied)
    return judge_expectations(found, build_worlds(found, given))


def test_a_cluster_that_keeps_everything() -> None:
    found = judge(
        shop(),
        {"everyPodPlaced": True},
        {"hourlyAtMost": "1.00"},
        {"evictionsAtMost": 0},
        {"replacedAtMost": "0%"},
        {"zoneShareAtMost": "50%"},
        {"spotPoolShareAtMost": "0%"},
        {"readyWithin": "1s"},
    )
    assert [each.kept for each in found] == [True] * 7, found


def test_shares_are_of_pods_in_one_zone_and_in_one_spot_pool() -> None:
    zone, spot = judge(shop("spot"), {"zoneShareAtMost": "49%"}, {"spotPoolShareAtMost": "40%"})
    assert (zone.kept, zone.found) == (False, "50% of 4 pods in test-zone-a")
    assert (spot.kept, spot.found) == (False, "50% of 4 pods in c-2x-amd64-linux in test-zone-a")


def test_a_bill_above_the_floor_is_no_proof_and_one_below_it_is() -> None:
    tight, impossible = judge(shop(), {"hourlyAtMost": "0.10"}, {"hourlyAtMost": "0.01"})
    assert (tight.kept, tight.certified) == (False, False)
    assert tight.found.startswith("not kept by the plan found ($0.11 an hour; the floor is $0.0")
    assert (impossible.kept, impossible.certified) == (False, True)
    assert impossible.found.startswith(
        "cannot be kept by any plan: no fleet for these pods costs less than $0.0"
    )


def test_an_expectation_of_one_world_is_judged_in_that_world_alone() -> None:
    worlds: list[dict[str, Any]] = [
        {"name": "now"},
        {"name": "more", "scale": {"factor": 2.5, "workloads": ["shop/*"]}},
    ]
    found = judge(shop(), {"hourlyAtMost": "1.00", "world": "more"}, {"everyPodPlaced": True}, worlds=worlds)
    assert [(each.number, each.world) for each in found] == [(0, "more"), (1, "now"), (1, "more")]


def test_pods_that_have_no_place_do_not_raise_the_floor() -> None:
    """Nothing is bought for them, so that a proof must not count them: not even what the plan costs holds."""
    nodes = claimed_node("node-0", "general", "2", ZONES[0])
    limited = see(pool("general", limits={"cpu": "4"}), *nodes)
    grown = apply_change(limited.snapshot, read(deployment("web", 12, 900, 512)).build_change())
    changed = limited.with_snapshot(grown.after)
    world = VerifiedWorld("now", "now", GivenWorld(changed, grown), changed)
    assert world.left_out
    assert 0 < world.floor <= world.hourly + 1e-9


def test_pods_without_a_place_are_named_with_the_nearest_miss_unless_excepted() -> None:
    change = read(deployment("web", 4, 500, 512, nodeSelector={"disk": "fast"})).build_change()
    broken, excepted = judge(
        shop(), {"everyPodPlaced": True}, {"everyPodPlaced": True, "except": ["shop/web*"]}, change=change
    )
    assert not broken.kept
    assert "shop/web-0, shop/web-1, shop/web-2 and 1 more have no place: would fit" in broken.found
    assert "but for its node selector: disk In [fast]" in broken.found
    assert excepted.kept


def test_what_a_change_replaces_and_evicts_is_counted() -> None:
    change = read(pool("general", ("spot", "on-demand"), labels={"tier": "x"})).build_change()
    replaced, some, evictions = judge(
        shop(),
        {"replacedAtMost": "20%", "pool": "general"},
        {"replacedAtMost": 2},
        {"evictionsAtMost": 3},
        change=change,
    )
    assert (replaced.kept, replaced.found) == (False, "2 of 2 nodes")
    assert some.kept
    assert (evictions.kept, evictions.found) == (False, "4 evictions")


def test_more_pods_need_more_nodes_and_time() -> None:
    worlds = [{"name": "black friday", "scale": {"factor": 2.5, "workloads": ["shop/*"]}}]
    quick, slow, cost = judge(
        shop(), {"readyWithin": "1m"}, {"readyWithin": "10m"}, {"hourlyAtMost": "0.11"}, worlds=worlds
    )
    assert (quick.kept, slow.kept, cost.kept) == (False, True, False)
    assert quick.world == "black friday"


def test_a_spot_storm_takes_a_share_of_spot_nodes_and_what_they_were() -> None:
    worlds = [{"name": "storm", "reclaim": {"share": 0.5}}, {"name": "all", "reclaim": {"share": 1}}]
    found = list(
        build_worlds(
            parse_expectations({**HEAD, "worlds": worlds, "expect": [{"everyPodPlaced": True}]}, "{}".format),
            GivenWorld(shop("spot")),
        )
    )
    assert [len(world.situation.snapshot.nodes) for world in found] == [1, 0]
    assert [len(world.situation.snapshot.moving) for world in found] == [2, 4]
    bought = {(node.instance_type, node.zone, node.capacity_type) for node in found[1].plan.new_nodes}
    assert bought.isdisjoint({("c-2x-amd64-linux", zone, "spot") for zone in ZONES})


@pytest.mark.spec("VF-4")
@pytest.mark.parametrize("seed", range(4))
def test_losing_each_zone_leaves_the_pods_homeless_that_a_rehearsal_does(seed: int) -> None:
    documents = build_world(seed)["items"]
    limited = pool("general", limits={"cpu": "6"})
    documents = [limited if each["metadata"]["name"] == "general" else each for each in documents]
    extra = [each for n, zone in enumerate(ZONES) for each in claimed_node(f"more-{n}", "general", "2", zone)]
    bound = running_pod(
        "bound", "bound", "more-0", 300, 64, nodeSelector={"topology.kubernetes.io/zone": ZONES[0]}
    )
    situation = see(*documents, *extra, bound)
    for found in judge(situation, {"everyPodPlaced": True}, worlds=[{"name": "z", "loseZone": "each"}]):
        zone = found.world.removeprefix("z: ")
        assert set(found.pods) == set(rehearse(situation.snapshot, zone).homeless)
    assert any(rehearse(situation.snapshot, zone).homeless for zone in ZONES)


@pytest.mark.parametrize(
    ("worlds", "said"),
    [
        (
            [{"name": "w", "loseZone": "each"}],
            "has nodes in test-zone-a alone, so that it cannot lose a zone",
        ),
        (
            [{"name": "w", "scale": {"factor": 2, "workloads": ["shop/wob"]}}],
            "no workload here matches shop/wob",
        ),
        (
            [{"name": "w", "recording": {"sample": 3}}],
            "is a sample of a recording; give one with --recording",
        ),
    ],
)
def test_a_world_that_cannot_be_built_is_a_complaint(worlds: list[dict[str, Any]], said: str) -> None:
    lonely = see(
        pool("general"),
        *claimed_node("n", "general", "2", ZONES[0]),
        running_pod("web-1-1", "web", "n", 1, 1),
    )
    with pytest.raises(BadInput, match=said):
        judge(lonely, {"everyPodPlaced": True}, worlds=worlds)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            {"expect": [{"hourlyAtMots": "1"}]},
            "expect[0].hourlyAtMots: there is no such field; did you mean hourlyAtMost?",
        ),
        (
            {"expect": [{"hourlyAtMost": "1$"}]},
            'expect[0].hourlyAtMost: write dollars as a text, such as "95.00"',
        ),
        ({"expect": [{"hourlyAtMost": 95}]}, "expect[0].hourlyAtMost: Expected str | null, got int"),
        ({"expect": [{"zoneShareAtMost": "0.6"}]}, "expect[0].zoneShareAtMost: write a share such as 60%"),
        ({"expect": [{"zoneShareAtMost": "160%"}]}, "expect[0].zoneShareAtMost: write a share such as 60%"),
        ({"expect": [{"readyWithin": "soon"}]}, "expect[0].readyWithin: write a duration such as 10m"),
        ({"expect": [{"evictionsAtMost": -1}]}, "expect[0].evictionsAtMost: write 0 or more"),
        (
            {"expect": [{"replacedAtMost": "x"}]},
            "expect[0].replacedAtMost: write a number of nodes, or a share",
        ),
        ({"expect": [{"everyPodPlaced": False}]}, "expect[0].everyPodPlaced: write true"),
        ({"expect": [{"world": "now"}]}, "expect[0]: it promises nothing; write one of everyPodPlaced"),
        (
            {"expect": [{"everyPodPlaced": True, "readyWithin": "1m"}]},
            "expect[0]: it has everyPodPlaced and readyWithin",
        ),
        (
            {"expect": [{"everyPodPlaced": True, "world": "nov"}]},
            "expect[0].world: there is no world nov; did you mean now?",
        ),
        ({"expect": []}, "expect: nothing is expected"),
        (
            {"expect": [{"everyPodPlaced": True}], "kind": "Hopes"},
            "kind: write apiVersion dovetail.sh/v1alpha1 and kind",
        ),
        (
            {"expect": [{"everyPodPlaced": True}], "worlds": [{"name": "a"}, {"name": "a"}]},
            "worlds[1].name: a is there twice",
        ),
        (
            {"expect": [{"everyPodPlaced": True}], "worlds": [{"name": "a", "reclaim": {"share": 2}}]},
            "worlds[0].reclaim.share: write a share above 0 and up to 1",
        ),
        (
            {
                "expect": [{"everyPodPlaced": True}],
                "worlds": [{"name": "a", "loseZone": "x", "scale": {"factor": 2}}],
            },
            "worlds[0]: it has loseZone and scale; make a world of each",
        ),
    ],
)
def test_bad_expectations_are_told_with_their_place(part: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as found:
        parse_expectations({**HEAD, **part}, "{}: {}".format)
    assert said in str(found.value)


# ------------------------------------------------------------------ the floor, held against an exact search


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    """Every way to put items on nodes."""
    if not items:
        yield []
        return
    first, *rest = items
    for found in partitions(rest):
        for at in range(len(found)):
            yield [*found[:at], [first, *found[at]], *found[at + 1 :]]
        yield [[first], *found]


def cheapest_fleet(pods: list[tuple[int, int]], machines: list[tuple[int, int, int, float]]) -> float:
    """The least that any fleet for the pods costs: milli-CPU, MiB, pods and dollars of each machine."""
    best = float("inf")
    for groups in partitions(list(range(len(pods)))):
        cost = 0.0
        for group in groups:
            cpu, memory = (sum(pods[one][part] for one in group) for part in (0, 1))
            fitting = [
                each[3] for each in machines if each[0] >= cpu and each[1] >= memory and each[2] >= len(group)
            ]
            cost += min(fitting, default=float("inf"))
        best = min(best, cost)
    return best


Machine = tuple[int, int, int, float]


def draw_shop(chance: Random) -> tuple[list[Machine], list[tuple[int, int]]]:
    """CPUs, GiB, pods and dollars of four machines, and milli-CPU and MiB of pods that have room on some."""
    while True:
        sizes = [
            (chance.choice([1, 2, 4, 8]), chance.choice([2, 4, 8, 16]), chance.choice([3, 5]))
            for _ in range(4)
        ]
        machines = [(*size, round(chance.uniform(0.02, 0.1) * size[0] + 0.01 * size[1], 3)) for size in sizes]
        wanted = [
            (chance.choice([200, 700, 900, 1800]), chance.choice([256, 900, 1700]))
            for _ in range(chance.choice([3, 5, 6]))
        ]
        if cheapest_fleet(wanted, [room_of(each) for each in machines]) < float("inf"):
            return machines, wanted


def room_of(machine: Machine) -> Machine:
    """What pods can have of it: milli-CPU, MiB and pods, for its dollars."""
    cpu, memory, most, price = machine
    return cpu * 1000 - 100, memory * 1024 - 10, most, price


@pytest.mark.spec("VF-3")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_called_impossible_is_kept_by_no_fleet_at_all(seed: int) -> None:
    machines, wanted = draw_shop(Random(f"oracle {seed}"))
    least = cheapest_fleet(wanted, [room_of(each) for each in machines])
    types = tuple(
        instance_type(
            f"t{n}", cpu, f"{memory}Gi", most, offerings=[offering("test-zone-1", "on-demand", price)]
        )
        for n, (cpu, memory, most, price) in enumerate(machines)
    )
    pods = tuple(pod(f"p{n}", cpu=f"{cpu}m", memory=f"{memory}Mi") for n, (cpu, memory) in enumerate(wanted))
    pools, catalogs = build_pools_and_catalogs([(nodepool("default"), types)])
    options = SchedulingOptions(now=NOW, flavour=FLAVOUR)
    situation = Situation(Snapshot(pools=pools, catalogs=catalogs, pods=pods, options=options))
    world = VerifiedWorld("now", "now", GivenWorld(situation), situation)
    assert world.floor <= least + 1e-9
    assert world.hourly >= least - 1e-9
    certified = 0
    for share in (0.5, 0.8, 0.95, 0.999, 1.0):
        limit = f"{least * share:.6f}"
        (found,) = judge(situation, {"hourlyAtMost": limit})
        assert not (found.certified and least <= float(limit) + 1e-9)
        certified += found.certified
        if found.certified:
            told = float(found.found.rpartition("$")[2].removesuffix(" an hour"))
            assert told <= world.floor + 1e-9, "no more is told than was proven"
    assert certified, "a bill of half the least is proven impossible"
