"""A Situation is everything a decision depends on; its digest tells it from others in every process."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar

import pytest
from msgspec.structs import replace

from dovetail.api.meta import Object
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.drift import choose_drift
from dovetail.disruption.methods.emptiness import choose_empty_nodes
from dovetail.disruption.report import build_report
from dovetail.disruption.situation import DisruptionHold, Situation, decide_plan, digest_situation
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.solve import solve
from support.builders import NOW, owner, pod
from support.disruption import pool, scene, state

ZONE = "topology.kubernetes.io/zone"
O = TypeVar("O", bound=Object)  # noqa: E741 - O for object
HOLD = DisruptionHold(blocked_reason=BlockedReason.PAUSED, why="nobody may go today")


def drifted() -> Situation:
    names = ("a", "b")
    states = [
        state(n, pod(f"p-{n}", node=n, owned_by=owner("ReplicaSet")), drifted=NOW - timedelta(hours=1))
        for n in names
    ]
    return Situation(snapshot=scene(*states, state("empty"), pools=[pool(nodes="3")]).snapshot)


def test_a_hold_keeps_nodes_and_is_the_reason_that_is_told() -> None:
    free, held = drifted(), replace(drifted(), holds=(HOLD,))
    assert len(choose_drift(DisruptionInput.from_situation(free), at_once=None).commands) == 2
    report = build_report(DisruptionInput.from_situation(held))
    assert report.commands == ()
    assert {each.main.blocked_reason for each in report.blocked_nodes} == {BlockedReason.PAUSED}


@pytest.mark.parametrize(
    ("hold", "drift", "empty"),
    [
        (replace(HOLD, reason="Drifted"), 0, 1),
        (replace(HOLD, reason="Empty"), 2, 0),
        (replace(HOLD, reason="Drifted", most=1), 1, 1),
        (replace(HOLD, pool="another"), 2, 1),
    ],
)
def test_a_hold_is_no_wider_than_it_says(hold: DisruptionHold, drift: int, empty: int) -> None:
    inputs = DisruptionInput.from_situation(replace(drifted(), holds=(hold,)))
    found = choose_drift(inputs, at_once=None).commands
    assert len(found) == drift
    assert sum(len(command.candidates) for command in choose_empty_nodes(inputs).commands) == empty


def test_pods_that_wait_for_a_closed_zone_are_deferred_for_everybody() -> None:
    snapshot = replace(
        drifted().snapshot, pods=(pod("tied", node_selector={ZONE: "test-zone-1"}), pod("free"))
    )
    open_, closed = (
        Situation(snapshot=snapshot),
        Situation(snapshot=snapshot, closed_zones={"z1": "test-zone-1"}),
    )
    assert decide_plan(open_) == solve(snapshot)
    plan = decide_plan(closed)
    assert list(plan.deferred) == ["default/tied"]
    assert "default/free" not in plan.left_out


def stamp_version(obj: O | None, number: str) -> O:
    assert obj is not None
    return replace(obj, metadata=replace(obj.metadata, uid=f"uid-{number}", resource_version="7"))


def versioned(situation: Situation) -> Situation:
    """As an API server gives them: every object with a uid and a version."""

    nodes = tuple(
        replace(each, node=stamp_version(each.node, f"n{i}"), claim=stamp_version(each.claim, f"c{i}"))
        for i, each in enumerate(situation.snapshot.nodes)
    )
    return situation.with_snapshot(replace(situation.snapshot, nodes=nodes))


def test_a_digest_is_the_same_for_the_same_and_another_for_anything_else() -> None:
    one, cache = versioned(drifted()), DecisionCache()
    known = digest_situation(one, cache)
    assert len(known) == 32
    # With a cache and without, again and in another object.
    assert known == digest_situation(one, cache) == digest_situation(versioned(drifted()))
    snapshot = one.snapshot
    first = snapshot.nodes[0]
    assert first.node is not None
    newer = replace(first.node, metadata=replace(first.node.metadata, resource_version="8"))
    others = [
        replace(one, queued=frozenset(("a",))),
        replace(one, buffered=frozenset(("a",))),
        replace(one, nominated=frozenset(("a",))),
        replace(one, excluded_zones=frozenset(("a",))),
        replace(one, closed_zones={"a": "b"}),
        replace(one, returned_zones=frozenset(("a",))),
        replace(one, unseen=frozenset(("a",))),
        replace(one, spot_to_spot=True),
        replace(one, holds=(HOLD,)),
        one.with_snapshot(replace(snapshot, pods=(pod("one"),))),
        one.with_snapshot(replace(snapshot, moving=(pod("one"),))),
        one.with_snapshot(replace(snapshot, virtual=(pod("one"),))),
        one.with_snapshot(replace(snapshot, daemons=(pod("one"),))),
        one.with_snapshot(replace(snapshot, catalogs=())),
        one.with_snapshot(replace(snapshot, pools=())),
        one.with_snapshot(replace(snapshot, namespaces={"a": {}})),
        one.with_snapshot(replace(snapshot, nodes=snapshot.nodes[1:])),
        one.with_snapshot(replace(snapshot, nodes=(replace(first, node=newer), *snapshot.nodes[1:]))),
        one.with_snapshot(replace(snapshot, nodes=(replace(first, marked=True), *snapshot.nodes[1:]))),
        one.with_snapshot(replace(snapshot, nodes=(replace(first, pods=()), *snapshot.nodes[1:]))),
        one.with_snapshot(replace(snapshot, options=replace(snapshot.options, seed=3))),
    ]
    digests = [digest_situation(each, cache) for each in others]
    assert len({known, *digests}) == len(others) + 1
    assert digests == [digest_situation(each) for each in others]
    assert digest_situation(one, cache) == known
