"""What is left of many limits over many NodePools, against adding it all up by hand."""

from __future__ import annotations

from math import inf
from random import Random

from msgspec.structs import replace

from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.model.requirements import Requirements, Values
from dovetail.scheduling.spend import PoolSpend, compute_spend, sum_dollars, sum_spend
from dovetail.scheduling.spend_caps import SpendCap
from dovetail.scheduling.spend_prices import PlannedPrices, PricedNode, price_node
from dovetail.scheduling.spend_room import SpendRoom
from support.builders import nodepool, pod
from support.worlds import Z1, Z2, World, instance_type, offering

POOLS = ("a", "b", "c", "d")


def planned(pool: str, zone: str = Z1) -> PlannedNode:
    wanted = Requirements({"topology.kubernetes.io/zone": Values(frozenset((zone,)))})
    return PlannedNode(
        name=f"{pool}/1",
        pool=pool,
        requirements=wanted,
        instance_types=("c2",),
        capacity_types=("spot",),
        pods=(),
        requests={},
        price=1.0,
    )


def draw_caps(chance: Random) -> list[SpendCap]:
    found = []
    for number in range(chance.randrange(1, 6)):
        every = chance.random() < 0.3
        found.append(
            SpendCap(
                limit=f"limit-{number}",
                every=every,
                pools=() if every else tuple(sorted(chance.sample(POOLS, chance.randrange(1, 4)))),
                hourly=float(chance.randrange(1, 12)) if chance.random() < 0.8 else None,
                nodes=chance.randrange(1, 9) if chance.random() < 0.4 else None,
                resources={"cpu": chance.randrange(1, 9) * 10**9} if chance.random() < 0.4 else {},
                listed=chance.random() < 0.3,
                unmanaged=chance.random() < 0.3,
            )
        )
    return found


def draw_spent(chance: Random) -> dict[str, PoolSpend]:
    return {
        pool: PoolSpend(
            listed=chance.randrange(4) * 1.0,
            effective=chance.randrange(3) * 1.0,
            effective_in_flight=chance.randrange(2) * 0.5,
            nodes=chance.randrange(4),
            capacity={"cpu": chance.randrange(4) * 10**9},
        )
        for pool in ("", *POOLS)
        if chance.random() < 0.8
    }


def is_allowed(caps: list[SpendCap], spent: dict[str, PoolSpend], taken: list[PricedNode]) -> str:
    """By hand: the first limit that the last of these nodes exceeds, all of them added up anew."""
    *before, last = taken
    for cap in caps:
        if not cap.covers(last.node.pool):
            continue
        mine = [each for each in before if cap.covers(each.node.pool)]
        used = sum_spend(cap, spent)
        dollars = sum_dollars(cap, used) + sum(each.price for each in mine) + last.price
        cpu = used.capacity.get("cpu", 0) + sum(each.capacity["cpu"] for each in (*mine, last))
        if cap.hourly is not None and dollars > cap.hourly + 1e-9:
            return cap.limit
        if cap.nodes is not None and used.nodes + len(mine) + 1 > cap.nodes:
            return cap.limit
        if "cpu" in cap.resources and cpu > cap.resources["cpu"]:
            return cap.limit
    return ""


def test_room_is_what_adding_up_says_for_every_node_and_limit() -> None:
    refused = 0
    for seed in range(300):
        chance = Random(seed)
        caps, spent, taken = draw_caps(chance), draw_spent(chance), list[PricedNode]()
        room = SpendRoom(caps, spent)
        for _ in range(2):
            for _ in range(12):
                node = PricedNode(planned(chance.choice(POOLS)), chance.randrange(1, 4) * 0.5, {"cpu": 10**9})
                excess = room.find_excess(node)
                assert (excess.limit if excess is not None else "") == is_allowed(caps, spent, [*taken, node])
                if excess is None:
                    room.charge_node(node)
                    taken.append(node)
                refused += excess is not None
            room.forget_charges()
            taken = []
    assert refused > 300


def test_what_nodes_cost_is_added_up_again_when_one_changed() -> None:
    world = World(nodepool("a"), types=(instance_type("c2", 2, "8Gi", 110, price=2.0),))
    world.provision(pod("one", cpu="1500m"), pod("two", cpu="1500m"))
    cache = DecisionCache()
    first = compute_spend(world.snapshot(), cache)
    assert compute_spend(world.snapshot(), cache) == first
    assert first["a"].effective == 4.0
    world.nodes[0] = replace(world.nodes[0], marked=True)
    second = compute_spend(world.snapshot(), cache)
    assert (second["a"].effective, second["a"].terminating) == (2.0, 2.0)
    world.nodes = []
    assert compute_spend(world.snapshot(), cache) == {}


def test_nodes_that_are_bought_alike_are_priced_alike_and_no_others() -> None:
    deals = [offering(Z1, "spot", 1.0), offering(Z2, "spot", 3.0)]
    types = (instance_type("c2", 2, "8Gi", 110, offerings=deals),)
    other = (instance_type("c2", 2, "8Gi", 110, offerings=[offering(Z1, "spot", 7.0)]),)
    world = World(nodepool("a"), nodepool("b"), nodepool("c"), types={"a": types, "b": types, "c": other})
    snapshot = world.snapshot()
    prices = PlannedPrices(snapshot, DecisionCache())
    for pool, zone, price in (("a", Z1, 1.0), ("b", Z1, 1.0), ("a", Z2, 3.0), ("b", Z2, 3.0), ("c", Z1, 7.0)):
        node = planned(pool, zone)
        assert prices.price_node(node).price == price_node(snapshot, node).price == price
        assert prices.price_node(node).node is node
    assert prices.price_node(planned("c", Z2)).price == inf
