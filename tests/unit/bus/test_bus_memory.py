"""What the router remembers: owners, deliveries, and how often it may ask."""

from __future__ import annotations

import builtins
import sys

import pytest

from dovetail.bus.destinations import BusCluster
from dovetail.bus.lane_worker import compute_window
from dovetail.bus.lookup import Ec2CallBudget
from dovetail.bus.owners import FOREIGN, OWNED, UNKNOWN, InstanceOwners, find_owners
from dovetail.bus.planning import DeliveredCopies
from dovetail.sim.clock import VirtualClock, run_virtual

MINE = (BusCluster("123456789012", "us-east-2", "prod"),)
HOUR = 3600.0


def state(cache: InstanceOwners, now: float, id: str = "i-1") -> str | None:
    known = cache.get(id, now)
    return known.state if known is not None else None


@pytest.mark.parametrize(
    ("tags", "clusters"),
    [
        ({"eks:eks-cluster-name": "a", "aws:eks:cluster-name": "b"}, ("a",)),
        ({"aws:eks:cluster-name": "b", "kubernetes.io/cluster/c": "owned"}, ("b",)),
        ({"kubernetes.io/cluster/c": "owned", "kubernetes.io/cluster/d": "shared"}, ("c",)),
        ({"kubernetes.io/cluster/d": "shared", "karpenter.sh/managed-by": "e"}, ("d",)),
        ({"karpenter.sh/managed-by": "e", "alpha.eksctl.io/cluster-name": "f"}, ("e",)),
        ({"alpha.eksctl.io/cluster-name": "f"}, ("f",)),
        ({"kubernetes.io/cluster/b": "owned", "kubernetes.io/cluster/a": "owned"}, ("a", "b")),
        (
            {
                "eks:eks-cluster-name": "c",
                "kubernetes.io/cluster/a": "owned",
                "kubernetes.io/cluster/c": "owned",
            },
            ("c", "a"),
        ),
        ({"eks:eks-cluster-name": ""}, ()),
        ({"kubernetes.io/cluster/": "owned", "kubernetes.io/cluster/x": "maybe"}, ()),
        ({"Name": "bastion"}, ()),
    ],
)
def test_tags_are_trusted_in_their_order(tags: dict[str, str], clusters: tuple[str, ...]) -> None:
    assert find_owners(tags) == clusters


def test_own_tag_keys_come_first() -> None:
    assert find_owners({"team/cluster": "x", "eks:eks-cluster-name": "a"}, ("team/cluster",)) == ("x",)


def test_an_owner_is_remembered_for_a_day_from_its_last_use() -> None:
    cache = InstanceOwners()
    cache.set_owned("i-1", MINE, 0.0)

    assert state(cache, 23 * HOUR) is OWNED
    assert state(cache, 46 * HOUR) is OWNED
    assert state(cache, 71 * HOUR) is None


def test_an_ended_instance_is_remembered_two_hours_more() -> None:
    cache = InstanceOwners()
    cache.set_owned("i-1", MINE, 0.0)
    cache.mark_ended("i-1", HOUR)

    assert state(cache, 2.9 * HOUR) is OWNED
    assert state(cache, 3.1 * HOUR) is None


@pytest.mark.parametrize(("age", "lasts"), [(None, 600.0), (3600.0, 600.0), (60.0, 30.0)])
def test_a_stranger_is_asked_about_again_sooner_when_it_is_young(age: float | None, lasts: float) -> None:
    cache = InstanceOwners()
    cache.set_foreign("i-1", 0.0, age)

    assert state(cache, lasts - 1) is FOREIGN
    assert state(cache, lasts + 1) is None


def test_what_ec2_does_not_know_is_asked_again_after_half_a_minute() -> None:
    cache = InstanceOwners()
    cache.set_unknown("i-1", 0.0)
    assert (state(cache, 29.0), state(cache, 31.0)) == (UNKNOWN, None)


def test_the_cache_is_bounded_and_forgets_the_unused_first() -> None:
    cache = InstanceOwners(size=3)
    for number in range(3):
        cache.set_owned(f"i-{number}", MINE, 0.0)
    cache.get("i-0", 2 * HOUR)  # used again
    cache.set_owned("i-3", MINE, 2 * HOUR)

    assert len(cache) == 3
    assert [state(cache, 2 * HOUR, f"i-{number}") for number in range(4)] == [OWNED, None, OWNED, OWNED]


def test_running_instances_grow_stale_after_six_hours() -> None:
    cache = InstanceOwners()
    cache.set_owned("i-1", MINE, 0.0)
    cache.set_owned("i-2", MINE, 5 * HOUR)
    assert cache.list_stale(7 * HOUR, 10) == [("i-1", MINE[0].place)]


def test_an_entry_costs_little_more_than_its_key() -> None:
    cache = InstanceOwners()
    clusters = [(BusCluster("123456789012", "us-east-2", f"c-{number}"),) for number in range(500)]
    ids = [f"i-0{number:016x}" for number in range(100_000)]
    for number, id in enumerate(ids):
        cache.set_owned(id, clusters[number % 500], 0.0)

    shared = set(map(builtins.id, cache._known.values()))
    per_entry = (sys.getsizeof(cache._known) + sum(map(sys.getsizeof, ids))) / len(ids)

    assert len(shared) == 500
    assert per_entry < 200


def test_a_delivery_is_remembered_for_the_window_and_no_more_than_there_is_room() -> None:
    delivered = DeliveredCopies(size=2, window=600.0)
    delivered.add(("a", "1"), 0.0)
    assert delivered.has_copy(("a", "1"), 599.0)
    assert not delivered.has_copy(("a", "1"), 600.0)

    for number in range(2, 5):
        delivered.add(("a", str(number)), 700.0)
    assert len(delivered) == 2
    assert not delivered.has_copy(("a", "2"), 700.0)

    delivered.forget_expired(1300.0)
    assert len(delivered) == 0


def test_a_budget_gives_a_burst_then_its_rate_and_halves_when_ec2_complains() -> None:
    async def story() -> tuple[float, float, float, float]:
        clock = VirtualClock()
        budget = Ec2CallBudget(5, 10, clock)
        for _ in range(10):
            await budget.take_token()
        burst = clock.monotonic()
        for _ in range(10):
            await budget.take_token()
        steady = clock.monotonic() - burst
        budget.slow_down()
        slowed = budget.rate
        for _ in range(100):
            budget.speed_up()
        return burst, steady, slowed, budget.rate

    burst, steady, slowed, recovered = run_virtual(story())

    assert burst == 0.0
    assert steady == pytest.approx(2.0, abs=0.1)
    assert (slowed, recovered) == (2.5, 5.0)


@pytest.mark.parametrize(
    ("rate", "destinations", "seconds"),
    [(0.0, 100, 5.0), (1000.0, 100, 1.0), (250.0, 100, 2.0), (100.0, 500, 10.0)],
)
def test_the_window_fits_the_traffic(rate: float, destinations: int, seconds: float) -> None:
    assert compute_window(5.0, rate, destinations) == seconds
