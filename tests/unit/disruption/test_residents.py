"""Where running pods are, kept from one snapshot to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

from dovetail.disruption.simulation.residents import ResidentIndex
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.scheduling.topology.tracker import TopologyFactsCache
from support.builders import pod
from support.disruption import state
from support.sweeps import random_state

Count = Counter[tuple[str, str, str]]


def count_pods(states: Iterable[StateNode], batch: frozenset[str] = frozenset()) -> Count:
    """Pods by namespace, label and node, counted one by one."""
    return Counter(
        (each.metadata.namespace, each.metadata.labels["app"], one.node.metadata.name)
        for one in states
        if one.node is not None
        for each in one.pods
        if f"{each.metadata.namespace}/{each.metadata.name}" not in batch
    )


def read_index(index: ResidentIndex) -> Count:
    found: Count = Counter()
    for kind in index.list_kinds():
        app = index.read_labels(kind)["app"]
        assert kind in index.list_with_label(kind[0], "app", app)
        for node, pods in index.list_nodes(kind):
            found[kind[0], app, node.name] += pods
    return found


def test_an_index_that_moves_counts_what_one_made_anew_counts() -> None:
    chance, index, facts = Random(3), ResidentIndex(), TopologyFactsCache()
    states = [random_state(chance, f"n{i}", ["default"]) for i in range(12)]
    for step in range(60):
        match chance.randrange(4):
            case 0:
                states.pop(chance.randrange(len(states)))
            case 1:
                states.insert(chance.randrange(len(states)), random_state(chance, f"m{step}", ["default"]))
            case _:
                place = chance.randrange(len(states))
                states[place] = random_state(chance, f"n{place}", ["default"])
        index.move_to(tuple(states), frozenset(), facts)
        assert read_index(index) == count_pods(states)
    apps = {app for _, app, _ in count_pods(states)}
    assert {app for app in ("web", "api", "db") if index.list_with_label("default", "app", app)} == apps


def test_pods_that_are_placed_anew_do_not_count_and_count_again_when_they_are_not() -> None:
    index, facts = ResidentIndex(), TopologyFactsCache()
    states = (
        state("a", pod("x", labels={"app": "web"}, node="a"), pod("y", labels={"app": "web"}, node="a")),
    )
    for batch in (frozenset[str](), frozenset({"default/x"}), frozenset({"default/y"}), frozenset[str]()):
        index.move_to(states, batch, facts)
        assert read_index(index) == count_pods(states, batch)


def test_an_index_goes_back_to_nodes_that_were_before() -> None:
    index, facts = ResidentIndex(), TopologyFactsCache()
    before = (state("a", pod("x", labels={"app": "web"}, node="a")), state("b"))
    after = (before[0], state("b", pod("y", labels={"app": "api"}, node="b")))
    for states in (before, after, before):
        index.move_to(states, frozenset(), facts)
        assert read_index(index) == count_pods(states)
