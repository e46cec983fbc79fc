"""What `--with` tries changes the decisions one by one, and not only the twin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import codec
from dovetail.disruption.situation import Situation
from dovetail.errors import BadInput
from dovetail.history.difference import DifferenceKind, DifferenceReason
from dovetail.history.differences import DifferenceTracker
from dovetail.history.recording.reader import RecordedLook
from dovetail.history.recording.segment import FORMAT, SegmentHead
from dovetail.play.shadow_rules import TriedRules
from dovetail.play.shadow_twins import FoldConsumer, ShadowTwins, TwinConsumer
from support.builders import NOW, condition, pod
from support.disruption import LARGE, MEDIUM, SMALL, pool, scene, state

Json = dict[str, Any]


def head(**settings: str) -> SegmentHead:
    return SegmentHead(format=FORMAT, name="it", began=NOW, settings={"PROVIDER": "kwok", **settings})


def document(**about: Any) -> Json:
    made = codec.to_dict(pool(**about))
    made.pop("status", None)
    return made


def situation(**about: Any) -> Situation:
    return Situation(snapshot=scene(state("a", of=LARGE), **about).snapshot)


def test_without_anything_to_try_the_situation_is_the_very_same() -> None:
    rules, seen = TriedRules(), situation()
    rules.read_head(head())
    assert rules.decide_as(seen) is seen


def test_another_autoscalers_planner_does_not_decide_for_ours() -> None:
    rules = TriedRules()
    rules.read_head(head(PLANNER="one-by-one"))
    seen = situation()
    theirs = seen.with_snapshot(
        replace(seen.snapshot, options=replace(seen.snapshot.options, one_by_one=True))
    )
    assert rules.decide_as(theirs).snapshot.options.one_by_one is False


@pytest.mark.parametrize("how", ["as karpenter", "by a setting"])
def test_the_planner_that_is_tried_is_the_one_that_decides(how: str) -> None:
    tried = (("PLANNER", "one-by-one"),) if how == "by a setting" else ()
    rules = TriedRules(tried, as_karpenter=how == "as karpenter")
    rules.read_head(head())
    assert rules.decide_as(situation()).snapshot.options.one_by_one is True


def test_settings_that_are_tried_turn_the_knobs_of_every_pool() -> None:
    rules = TriedRules((("CONSOLIDATE_MANY", "true"),))
    rules.read_head(head())
    (found,) = rules.decide_as(situation()).snapshot.pools
    assert found.nodepool.annotations["disruption.dovetail.sh/consolidation"] == "many"


def test_the_same_pools_stay_the_same_from_look_to_look() -> None:
    rules, seen = TriedRules((("CONSOLIDATE_MANY", "true"),)), situation()
    rules.read_head(head())
    assert rules.decide_as(seen).snapshot.pools is rules.decide_as(seen).snapshot.pools


def test_a_pool_that_is_tried_replaces_its_namesake_and_decides() -> None:
    """A budget of 0 is why they take a node that we would leave; with another budget nobody differs."""
    held = pool(nodes="0")
    old = state("old", of=MEDIUM)
    assert old.claim is not None
    said = condition("DisruptionReason", reason="Empty")
    status = replace(old.claim.status, conditions=(*old.claim.status.conditions, said))
    going = replace(old, marked=True, claim=replace(old.claim, status=status))
    found = {}
    for name, manifests in (("as it is", ()), ("tried", (document(nodes="100%"),))):
        rules = TriedRules((), manifests)
        rules.read_head(head())
        tracker = DifferenceTracker(rules.decide_as)
        for seconds, each in ((0, old), (15, going)):
            at = NOW + timedelta(seconds=seconds)
            tracker.add_look(at, Situation(snapshot=scene(each, pools=(held,), now=at).snapshot))
        found[name] = [(each.kind, each.reason) for each in tracker.list_differences()]
    assert found["as it is"] == [(DifferenceKind.WENT, DifferenceReason.BUDGET)]
    assert found["tried"] == []


def test_a_pool_that_is_tried_and_new_buys_what_its_class_sells() -> None:
    rules = TriedRules((), (document(name="second", weight=50),))
    rules.read_head(head())
    first, second = rules.decide_as(situation()).snapshot.pools
    assert [first.name, second.name] == ["second", "default"]
    assert first.catalog == second.catalog >= 0


def test_workloads_that_are_tried_are_told_to_be_the_twins_alone() -> None:
    deployment = {"kind": "Deployment", "metadata": {"name": "web"}}
    consumer = FoldConsumer(ShadowTwins(manifests=(deployment,)))
    assert consumer.report().notes == (
        "--with Deployment: tried in the twin; the decisions one by one are about the workloads that there "
        "were",
    )


def test_a_pool_that_cannot_be_read_is_refused_in_a_sentence() -> None:
    with pytest.raises(BadInput, match="--with NodePool odd: it cannot be read"):
        TriedRules((), ({"kind": "NodePool", "metadata": {"name": "odd"}, "spec": {"weight": "heavy"}},))


def test_one_step_differences_follow_what_is_tried() -> None:
    """Their order was for a large machine; a pool that is tried sells nothing smaller, and nobody differs."""
    pods = tuple(pod(f"p{number}", cpu="500m", memory="100Mi") for number in range(3))
    only = document(requirements=(("node.kubernetes.io/instance-type", "In", "large"),))
    found = {}
    for name, manifests in (("as it is", ()), ("tried", (only,))):
        consumer = FoldConsumer(ShadowTwins(manifests=manifests))
        consumer.begin_segment(head())
        bought = state(
            "b", *pods, of=LARGE, claim={"created": NOW + timedelta(seconds=5)}, consolidatable=False
        )
        types = (SMALL, MEDIUM, LARGE)
        for at, seen in (
            (NOW, scene(pending=pods, types=types)),
            (NOW + timedelta(seconds=10), scene(bought, types=types)),
        ):
            consumer.add_look(RecordedLook(1, 1, at, Situation(snapshot=seen.snapshot)))
        found[name] = [
            each.rate for each in consumer.report().differences if each.kind is DifferenceKind.BOUGHT
        ]
    assert found == {"as it is": [7.0], "tried": []}


def test_the_planner_of_another_autoscaler_does_not_decide_for_the_twin() -> None:
    consumer = TwinConsumer("dovetail", ShadowTwins(settings=(("CONSOLIDATE_MANY", "true"),)))
    consumer.begin_segment(head(PLANNER="one-by-one", PREFERENCE_POLICY="Ignore"))
    variation = consumer._build_variation()
    assert variation.settings == {
        "PROVIDER": "kwok",
        "CONSOLIDATE_MANY": "true",
        "PREFERENCE_POLICY": "Ignore",
    }
    assert variation.recorded_settings["PLANNER"] == "one-by-one"
