"""The bill of 5,000 nodes: all of it at once, and again after one node changed."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from dovetail.scheduling.bill import BillBook, PriceList, bill_nodes
from support.disruption import LARGE, MEDIUM, SMALL, scene, state

from .registry import Figure, best_of, scenario

NODES = 5_000
KINDS = (SMALL, MEDIUM, LARGE)


@scenario("bill: 5,000 nodes")
def bill_of_many() -> Iterator[Figure]:
    nodes = tuple(state(f"node-{number:04}", of=KINDS[number % len(KINDS)]) for number in range(NODES))
    snapshot = scene(*nodes).snapshot
    prices = PriceList.from_snapshot(snapshot)
    assert len(bill_nodes(snapshot.nodes, prices).lines) == NODES
    yield Figure("every node", best_of(10, lambda: bill_nodes(snapshot.nodes, prices)), "s", 0.015)
    book = BillBook()
    before = book.bill_snapshot(snapshot)
    worlds = [snapshot]

    def bill_again() -> None:
        """One node is another; all others are the very same."""
        last = worlds[-1]
        changed = replace(last.nodes[0], marked=not last.nodes[0].marked)
        worlds.append(replace(last, nodes=(changed, *last.nodes[1:])))
        assert len(book.bill_snapshot(worlds[-1]).lines) == NODES

    yield Figure("after one node changed", best_of(10, bill_again), "s", 0.001)
    assert book.bill_snapshot(worlds[-1]).total == before.total
