"""What a cloud did by itself is read from looks: how long nodes booted, and which spot nodes it took back."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.api.core import Node
from dovetail.api.meta import Condition, ObjectMeta
from dovetail.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus
from dovetail.disruption.situation import Situation
from dovetail.history.supply import UNKNOWN_BOOT, BootTime, BootTimes, ReclaimReader, SpotPlace
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from support.builders import NOW

PLACE = SpotPlace("m5.large", "a")


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def spot(
    name: str,
    *,
    node: bool = True,
    ends: bool = False,
    reason: bool = False,
    expire: str = "Never",
    steps: tuple[float, ...] = (),
) -> StateNode:
    known = {
        labels.NODEPOOL: "default",
        labels.CAPACITY_TYPE: labels.SPOT,
        labels.INSTANCE_TYPE: PLACE.instance_type,
        labels.ZONE: PLACE.zone,
    }
    kinds = (conditions.LAUNCHED, conditions.REGISTERED, conditions.INITIALIZED)
    said = [
        Condition(type=kind, status="True", last_transition_time=after(at))
        for kind, at in zip(kinds, steps, strict=False)
    ]
    if reason:
        said.append(Condition(type=conditions.DISRUPTION_REASON, status="True"))
    claim = NodeClaim(
        metadata=ObjectMeta(
            name=name,
            uid=name,
            labels=known,
            creation_timestamp=NOW,
            deletion_timestamp=NOW if ends else None,
        ),
        spec=NodeClaimSpec(expire_after=expire),
        status=NodeClaimStatus(conditions=tuple(said)),
    )
    registered = {**known, labels.REGISTERED: "true"}
    made = Node(metadata=ObjectMeta(name=f"ip-{name}", labels=registered)) if node else None
    return StateNode(node=made, claim=claim)


def look(*nodes: StateNode) -> Situation:
    return Situation(snapshot=Snapshot(nodes=nodes))


def test_a_spot_node_that_goes_and_that_nobody_removed_was_taken_back() -> None:
    reader = ReclaimReader()
    assert reader.read_look(NOW, look(spot("a"), spot("b"), spot("c"))) == []
    (found,) = reader.read_look(after(3600), look(spot("a"), spot("b", ends=True)))
    assert (found.place, found.taken, found.among) == (PLACE, 2, 3)
    assert found.share == pytest.approx(2 / 3)
    assert reader.hazard == pytest.approx(2 / 3)
    assert reader.places == {PLACE}


@pytest.mark.parametrize(
    ("before", "then"),
    [
        (spot("a", reason=True), None),
        (spot("a"), spot("a", ends=True, reason=True)),
        (spot("a", expire="30m"), None),
        (spot("a", node=False), spot("a")),
    ],
    ids=["chosen", "chosen as it goes", "expired", "registered under its own name"],
)
def test_a_spot_node_that_was_removed_or_only_registers_was_not_taken_back(
    before: StateNode, then: StateNode | None
) -> None:
    reader = ReclaimReader()
    reader.read_look(NOW, look(before))
    assert reader.read_look(after(3600), look(*((then,) if then is not None else ()))) == []
    assert reader.hazard == 0


def test_boot_times_are_those_of_the_zone_then_of_the_pool_then_of_any() -> None:
    times = BootTimes()
    assert times.choose("default", "a", lambda _: 0) == BootTime(*UNKNOWN_BOOT)
    times.read_look(look(spot("a", steps=(0, 30)), spot("b", steps=(0, 25, 40))))
    times.read_look(look(spot("b", steps=(0, 25, 40))))
    assert times.known == {("default", "a"): [BootTime(25.0, 15.0)]}
    for pool, zone in (("default", "a"), ("default", "z"), ("other", "z")):
        assert times.choose(pool, zone, lambda count: count - 1) == BootTime(25.0, 15.0)


def test_nodes_of_other_capacity_types_are_nobodys_to_take() -> None:
    bought = spot("a")
    assert bought.claim is not None
    known = {**bought.claim.labels, labels.CAPACITY_TYPE: labels.ON_DEMAND}
    claim = replace(bought.claim, metadata=replace(bought.claim.metadata, labels=known))
    reader = ReclaimReader()
    reader.read_look(NOW, look(StateNode(claim=claim)))
    assert reader.read_look(after(60), look()) == []
    assert reader.places == set()
