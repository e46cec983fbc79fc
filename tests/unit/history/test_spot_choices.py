"""Which spot capacity a cloud prefers is read from what it launched while something cheaper was for sale."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.meta import ObjectMeta
from dovetail.api.nodeclaim import NodeClaim, NodeClaimSpec
from dovetail.api.nodepool import Requirement
from dovetail.disruption.situation import Situation
from dovetail.history.spot_choices import SpotChoices
from dovetail.history.supply import SpotPlace
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import Snapshot, SnapshotPool, StateNode
from support.builders import nodepool

SMALL, LARGE = "m5.large", "m5.xlarge"


def offering(zone: str, price: float, capacity_type: str = "spot", *, available: bool = True) -> Offering:
    known = {labels.ZONE: zone, labels.CAPACITY_TYPE: capacity_type}
    return Offering(requirements=Requirements.from_labels(known), price=price, available=available)


def sold(name: str, *offerings: Offering) -> InstanceType:
    return InstanceType(
        name=name, requirements=Requirements.from_labels({labels.INSTANCE_TYPE: name}), offerings=offerings
    )


CATALOGUE = (
    sold(SMALL, offering("a", 0.03), offering("b", 0.04), offering("c", 0.01, available=False)),
    sold(LARGE, offering("a", 0.02), offering("b", 0.09), offering("a", 0.005, "on-demand")),
)


def launch(name: str, kind: str, zone: str, *types: str) -> Situation:
    """A look at one spot instance; its NodeClaim allows these types."""
    known = {
        labels.NODEPOOL: "default",
        labels.CAPACITY_TYPE: "spot",
        labels.INSTANCE_TYPE: kind,
        labels.ZONE: zone,
    }
    wanted = Requirement(key=labels.INSTANCE_TYPE, operator="In", values=types)
    own = Requirement(key=labels.NODEPOOL, operator="In", values=("default",))
    claim = NodeClaim(
        metadata=ObjectMeta(name=name, uid=name, labels=known),
        spec=NodeClaimSpec(requirements=(own, wanted)),
    )
    pool = SnapshotPool(nodepool=nodepool("default"), catalog=0)
    return Situation(snapshot=Snapshot(nodes=(StateNode(claim=claim),), pools=(pool,), catalogs=(CATALOGUE,)))


def test_what_was_cheaper_and_passed_over_is_taken_for_a_little_dearer_than_what_was_launched() -> None:
    choices = SpotChoices()
    choices.read_look(launch("one", SMALL, "b", SMALL, LARGE))
    assert choices.factors == {
        SpotPlace(SMALL, "a"): pytest.approx(0.04 / 0.03, rel=1e-5),
        SpotPlace(LARGE, "a"): pytest.approx(0.04 / 0.02, rel=1e-5),
    }
    assert all(0.03 * each > 0.04 or 0.02 * each > 0.04 for each in choices.factors.values())


def test_what_a_nodeclaim_does_not_allow_was_not_passed_over() -> None:
    choices = SpotChoices()
    choices.read_look(launch("one", SMALL, "b", SMALL))
    assert list(choices.factors) == [SpotPlace(SMALL, "a")]
    choices.read_look(launch("two", LARGE, "a", LARGE))
    assert list(choices.factors) == [SpotPlace(SMALL, "a")]


def test_what_is_launched_again_is_worth_its_price_and_a_node_is_read_once() -> None:
    choices = SpotChoices()
    first = launch("one", SMALL, "b", SMALL)
    choices.read_look(first)
    choices.read_look(launch("two", SMALL, "a", SMALL))
    assert choices.factors == {}
    choices.read_look(first)
    assert choices.factors == {}


def test_nodes_that_were_there_before_say_nothing() -> None:
    choices = SpotChoices()
    start = launch("one", SMALL, "b", SMALL)
    choices.skip_nodes(start)
    choices.read_look(start)
    assert choices.factors == {}
    unknown = replace(start.snapshot, pools=())
    choices.read_look(replace(launch("two", SMALL, "b", SMALL), snapshot=unknown))
    assert choices.factors == {}
