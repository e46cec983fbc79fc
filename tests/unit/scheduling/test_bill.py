"""The bill of a cluster, and who has its nodes in use."""

from __future__ import annotations

from math import fsum, inf, nan
from random import Random

import pytest
from msgspec.structs import replace

from dovetail.scheduling import bill as bills
from dovetail.scheduling.bill import Bill, BillBook, PriceList, bill_nodes
from dovetail.scheduling.cost_split import IDLE, CostShare, split_bill
from dovetail.scheduling.model import state_node
from dovetail.scheduling.model.instance_types import Overhead
from dovetail.scheduling.model.snapshot import StateNode
from support.builders import amounts, pod
from support.disruption import MEDIUM, SMALL, machine, pool, scene, state
from support.worlds import RESERVATION, Z1, instance_type, offering


def test_a_node_costs_what_its_own_pool_pays() -> None:
    here, there = machine("small", 2, 1.0), machine("small", 2, 0.4)
    world = scene(
        state("a", of=here, pool="list"),
        state("b", of=there, pool="rebate"),
        pools=(pool("list"), pool("rebate")),
        types={"list": (here,), "rebate": (there,)},
    )
    found = bill_nodes(world.snapshot.nodes, PriceList.from_snapshot(world.snapshot))
    assert {line.node: line.listed for line in found.lines} == {"a": 1.0, "b": 0.4}
    assert found.sum_by("pool") == {"list": 1.0, "rebate": 0.4}


def test_a_node_whose_pool_is_gone_costs_what_any_other_pool_pays() -> None:
    world = scene(state("a", of=SMALL, pool="gone"), state("b", of=SMALL))
    found = bill_nodes(world.snapshot.nodes, PriceList.from_snapshot(world.snapshot))
    assert found.total == 2.0


@pytest.mark.spec("BL-2")
@pytest.mark.parametrize("price", [nan, inf])
def test_a_price_that_is_no_number_is_unknown_and_said(price: float) -> None:
    odd = machine("odd", 2, price)
    world = scene(state("a", of=odd), types=(odd,))
    assert bill_nodes(world.snapshot.nodes, PriceList.from_snapshot(world.snapshot)) == Bill(unpriced=("a",))


@pytest.mark.spec("BL-2")
@pytest.mark.parametrize("kind", ["spot", "on-demand", "reserved"])
def test_an_unknown_price_is_named_and_nothing_that_is_added_makes_it_known(kind: str) -> None:
    reservation = "cr-1" if kind == "reserved" else ""
    deal = offering(Z1, kind, 0.0, kind == "reserved", reservation, price_unknown=True)
    odd = instance_type("odd", 4, "16Gi", 110, offerings=[deal.change_parts(volumes=0.01, added=0.2)])
    world = scene(state("a", of=odd, kind=kind, labels={RESERVATION: reservation}), types=(odd,))
    assert bill_nodes(world.snapshot.nodes, PriceList.from_snapshot(world.snapshot)) == Bill(unpriced=("a",))


def test_of_two_reservations_a_node_costs_what_its_own_does() -> None:
    deals = [
        offering(Z1, "reserved", price, reservation=name) for name, price in (("cr-1", 0.1), ("cr-2", 0.2))
    ]
    sold = instance_type("sold", 4, "16Gi", 110, offerings=deals)
    world = scene(state("a", of=sold, kind="reserved", labels={RESERVATION: "cr-2"}), types=(sold,))
    assert bill_nodes(world.snapshot.nodes, PriceList.from_snapshot(world.snapshot)).total == 0.2


@pytest.mark.spec("BL-3")
def test_only_nodes_that_changed_are_priced_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    priced: list[str] = []
    original = bills._bill_node

    def count(each: StateNode, prices: PriceList) -> bills._BilledNode:
        priced.append(state_node.read_name(each))
        return original(each, prices)

    monkeypatch.setattr(bills, "_bill_node", count)
    world = scene(*(state(f"node-{number}", of=SMALL) for number in range(50))).snapshot
    book = BillBook()
    assert book.bill_snapshot(world).total == 50.0
    assert len(priced) == 50
    changed = (*world.nodes[:-1], replace(world.nodes[-1], marked=True))
    later = book.bill_snapshot(replace(world, nodes=changed))
    assert priced[50:] == ["node-49"]
    assert [line.node for line in later.lines if line.terminating] == ["node-49"]
    assert later == bill_nodes(changed, PriceList.from_snapshot(world))
    dearer = machine("small", 2, 3.0)
    assert book.bill_snapshot(replace(world, catalogs=((dearer,),))).total == 150.0


def _split(*states: StateNode) -> dict[str, CostShare]:
    world = scene(*states).snapshot
    found = bill_nodes(world.nodes, PriceList.from_snapshot(world))
    shares = split_bill(found, world.nodes, lambda each: each.namespace)
    assert fsum(share.total for share in shares) == pytest.approx(found.total, abs=1e-9)
    return {share.name: share for share in shares}


def test_namespaces_pay_for_what_they_request_and_idle_room_is_apart() -> None:
    # A dollar an hour for a node of which a web pod requests half the cores and no memory.
    room = {"cpu": "2", "memory": "32Gi"}
    whole = replace(SMALL, capacity=amounts(room), overhead=Overhead())
    found = _split(state("a", pod("web", cpu="1", memory="0", namespace="shop"), of=whole))
    core, gib = 0.031611, 0.004237
    cores = 2 * core / (2 * core + 32 * gib)
    assert found["shop"].cpu == pytest.approx(cores / 2)
    assert (found["shop"].memory, found["shop"].devices, found["shop"].pods) == (0, 0, 1)
    assert found[IDLE].cpu == pytest.approx(cores / 2)
    assert found[IDLE].memory == pytest.approx(1 - cores)
    assert list(found)[-1] == IDLE


def test_pods_that_finished_pay_nothing_and_more_than_there_is_costs_no_more() -> None:
    done = pod("done", cpu="1", namespace="old")
    done = replace(done, status=replace(done.status, phase="Succeeded"))
    crowd = [pod(f"big-{number}", cpu="2", memory="1Gi", namespace="big") for number in range(3)]
    found = _split(state("a", done, *crowd, of=SMALL))
    assert "old" not in found
    assert found["big"].pods == 3
    assert found[IDLE].cpu == 0.0


def test_whatever_runs_the_parts_are_the_bill() -> None:
    chance = Random(7)
    for _ in range(50):
        states = [
            state(
                f"node-{number}",
                *(
                    pod(
                        f"pod-{number}-{each}",
                        cpu=f"{chance.randint(0, 900)}m",
                        memory=f"{chance.randint(0, 9000)}Mi",
                        namespace=chance.choice(("a", "b", "c")),
                    )
                    for each in range(chance.randint(0, 5))
                ),
                of=SMALL,
            )
            for number in range(chance.randint(1, 6))
        ]
        assert all(share.total >= 0 for share in _split(*states).values())


@pytest.mark.spec("BL-3")
def test_the_price_list_is_asked_once_for_nodes_that_are_alike() -> None:
    """What makes 5,000 nodes cheap is counted, not timed: offerings are searched once a kind."""
    world = scene(*(state(f"node-{number}", of=SMALL) for number in range(100))).snapshot
    prices = PriceList.from_snapshot(world)
    assert bill_nodes(world.nodes, prices).total == 100.0
    assert len(prices._sold) == 1


def test_accelerators_are_paid_for_by_who_requests_them_and_network_interfaces_are_free() -> None:
    room = {"cpu": "2", "memory": "32Gi", "nvidia.com/gpu": "2", "vpc.amazonaws.com/pod-eni": "100"}
    dear = replace(SMALL, capacity=amounts(room), overhead=Overhead())
    wants = pod("train", requests={"nvidia.com/gpu": "1"}, cpu=None, memory=None, namespace="ml")
    found = _split(state("a", wants, of=dear))
    core, gib, gpu = 0.031611, 0.004237, 0.95
    devices = 2 * gpu / (2 * core + 32 * gib + 2 * gpu)
    assert found["ml"].devices == pytest.approx(devices / 2) == found[IDLE].devices


@pytest.mark.spec("BL-3")
@pytest.mark.parametrize("seed", range(20))
def test_a_book_says_what_a_bill_from_scratch_says_whatever_changed(seed: int) -> None:
    chance = Random(seed)
    made = [state(f"node-{number}", of=chance.choice((SMALL, MEDIUM))) for number in range(40)]
    plain = scene(*made).snapshot
    book, nodes = BillBook(), list(plain.nodes)
    for step in range(12):
        match chance.choice(("change", "remove", "add", "turn", "nothing", "price")):
            case "change":
                for at in chance.sample(range(len(nodes)), min(len(nodes), chance.choice((1, 3, 30)))):
                    nodes[at] = replace(nodes[at], marked=not nodes[at].marked)
            case "remove":
                del nodes[chance.randrange(len(nodes))]
            case "add":
                nodes.insert(chance.randrange(len(nodes)), state(f"new-{step}", of=SMALL))
                nodes.append(replace(state(f"alien-{step}", of=SMALL), claim=None))
            case "turn":
                chance.shuffle(nodes)
            case "price":
                dearer = (machine("small", 2, 1.0 + step), *plain.catalogs[0][1:])
                plain = replace(plain, catalogs=(dearer,))
        now = replace(plain, nodes=tuple(nodes))
        assert book.bill_snapshot(now) == bill_nodes(now.nodes, PriceList.from_snapshot(now))
