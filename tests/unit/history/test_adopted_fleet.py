"""Nodes that no NodePool made, as if given NodePools had."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from dovetail.disruption.situation import Situation
from dovetail.history.adopted_fleet import ADOPTED, FleetAdopter, is_adopted
from dovetail.history.paid import PaidMeter
from dovetail.history.recording.reader import RecordedLook
from dovetail.history.shadow import ShadowFold
from dovetail.history.supply import BootTimes
from dovetail.scheduling.model.snapshot import StateNode
from support.builders import NOW, node
from support.disruption import LARGE, SMALL, pool, scene, state
from support.worlds import Z1


def grown(name: str, kind: str = "large", **labels: str) -> StateNode:
    """A node of a node group: it says its type, and its way of being bought as EKS does."""
    made = node(name, nodepool="", created=NOW)
    about = {"node.kubernetes.io/instance-type": kind, "topology.kubernetes.io/zone": Z1, **labels}
    return StateNode(node=replace(made, metadata=replace(made.metadata, labels=about)))


def adopt(*states: StateNode, **about: object) -> tuple[FleetAdopter, Situation]:
    adopter = FleetAdopter()
    return adopter, adopter.adopt(Situation(snapshot=scene(*states, **about).snapshot))  # type: ignore[arg-type]


def test_a_node_of_a_node_group_gets_a_nodeclaim_of_the_given_pool() -> None:
    adopter, situation = adopt(grown("a"))
    (found,) = situation.snapshot.nodes
    assert found.claim is not None
    assert found.node is not None
    assert found.claim.labels["karpenter.sh/nodepool"] == "default"
    assert found.claim.labels["karpenter.sh/capacity-type"] == "on-demand"
    assert found.claim.labels[ADOPTED] == "true"
    assert found.node.labels["karpenter.sh/nodepool"] == "default"
    assert (adopter.left_out, is_adopted(situation)) == ({}, True)


def test_how_a_node_group_says_that_it_is_spot_is_understood() -> None:
    for label, word in (("eks.amazonaws.com/capacityType", "SPOT"), ("node.kubernetes.io/lifecycle", "spot")):
        _, situation = adopt(grown("a", **{label: word}))
        claim = situation.snapshot.nodes[0].claim
        assert claim is not None
        assert claim.labels["karpenter.sh/capacity-type"] == "spot"


def test_the_pool_that_allows_the_node_is_preferred() -> None:
    strict = pool("strict", weight=10, requirements=(("node.kubernetes.io/instance-type", "In", "small"),))
    _, situation = adopt(grown("a", "large"), grown("b", "small"), pools=(strict, pool("open")))
    pools = [state.claim.labels["karpenter.sh/nodepool"] for state in situation.snapshot.nodes if state.claim]
    assert pools == ["open", "strict"]


def test_a_type_that_no_given_pool_sells_is_left_out_and_told() -> None:
    adopter, situation = adopt(grown("a", "mainframe"), grown("b"))
    assert adopter.left_out == {"a": "mainframe"}
    assert situation.snapshot.nodes[0].claim is None
    fold = ShadowFold()
    fold.add_look(RecordedLook(1, 1, NOW, situation))
    assert "no given NodePool sells mainframe" in fold.build_report().notes[1]


def test_the_same_node_is_the_very_same_at_every_look() -> None:
    adopter, states = FleetAdopter(), (grown("a"), grown("b"))
    first, second = (adopter.adopt(Situation(snapshot=scene(*states).snapshot)) for _ in range(2))
    assert all(a is b for a, b in zip(first.snapshot.nodes, second.snapshot.nodes, strict=True))


def test_what_an_adopted_fleet_costs_is_counted_and_teaches_no_boot_times() -> None:
    _, situation = adopt(grown("a"), grown("b", "small"))
    meter, boots = PaidMeter(), BootTimes()
    meter.add_look(NOW, situation)
    meter.charge_until(NOW + timedelta(hours=1))
    assert meter.rate == 9.0
    assert meter.bill().dollars == pytest.approx(9.0)
    boots.read_look(situation)
    assert {(each.registers, each.ready) for found in boots.known.values() for each in found} == {
        (30.0, 10.0)
    }


def test_of_an_adopted_fleet_no_decisions_are_compared() -> None:
    _, situation = adopt(grown("a"))
    fold = ShadowFold()
    for number in range(40):  # an idle node that any survey would take
        fold.add_look(RecordedLook(1, number, NOW + timedelta(seconds=15 * number), situation))
    report = fold.build_report()
    assert (report.whole_fleets, report.differences, report.compared) == (True, (), 0)
    assert "whole fleets are compared" in report.notes[0]


def test_nodes_that_have_a_nodeclaim_keep_it() -> None:
    own = state("own", of=LARGE)
    _, situation = adopt(own, grown("a", SMALL.name))
    assert situation.snapshot.nodes[0] is own or situation.snapshot.nodes[1] is own
