"""Nodes of a zone that is shifted away are cordoned in a replay as those of the recording were."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.api.core import Node, NodeSpec
from dovetail.api.meta import ObjectMeta
from dovetail.disruption.situation import Situation
from dovetail.history.recording.reader import RecordedLook
from dovetail.play.replaying import ReplayRun, Variation
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from support.builders import NOW

ZONE = "topology.kubernetes.io/zone"
MINUTE = timedelta(minutes=1)


def see(cordoned: int, *closed: str) -> Situation:
    """Four nodes of zone a, so many of them cordoned, and one of zone b that a person has cordoned."""
    about = [(f"a{number}", "a", number < cordoned) for number in range(4)] + [("b0", "b", True)]
    nodes = tuple(
        StateNode(
            node=Node(
                metadata=ObjectMeta(name=name, uid=name, labels={ZONE: zone}),
                spec=NodeSpec(unschedulable=off),
            )
        )
        for name, zone, off in about
    )
    return Situation(snapshot=Snapshot(nodes=nodes), closed_zones={f"id-{zone}": zone for zone in closed})


@pytest.mark.spec("SH-9")
def test_the_same_share_of_a_zone_is_cordoned_and_released_again() -> None:
    """At once when the zone is shifted away, and one after another when it is back."""
    looks = [see(0), see(4, "a"), see(3), see(1), see(0), see(2)]
    run = ReplayRun(RecordedLook(1, 1, NOW, looks[0]), Variation(), seed=1)
    found = []
    try:
        for number, situation in enumerate(looks):
            at = NOW + number * MINUTE
            if number:
                run.feed(RecordedLook(1, number + 1, at, situation))
            run.advance_to(at)
            cordoned = [node for node in run.world.api.list("nodes") if node["spec"].get("unschedulable")]
            found.append(sorted(node["metadata"]["name"] for node in cordoned))
    finally:
        run.close()
    everyone = ["a0", "a1", "a2", "a3"]
    # In the end a person has cordoned two: no zone is away, and that is theirs.
    assert found == [[], everyone, everyone[1:], everyone[3:], [], []]


@pytest.mark.spec("SH-9")
def test_a_replay_that_begins_during_a_shift_begins_with_its_cordons() -> None:
    run = ReplayRun(RecordedLook(1, 1, NOW, see(4, "a")), Variation(), seed=1)
    try:
        cordoned = {
            node["metadata"]["name"]: node["spec"].get("unschedulable", False)
            for node in run.world.api.list("nodes")
        }
    finally:
        run.close()
    assert cordoned == {"a0": True, "a1": True, "a2": True, "a3": True, "b0": False}
