"""Each decision of another autoscaler beside ours: what was bought, what went, and what stayed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api.pod import Pod
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.history.difference import Difference, DifferenceKind, DifferenceReason, sum_differences
from dovetail.history.differences import DifferenceTracker
from dovetail.scheduling.model.snapshot import StateNode
from support.builders import NOW, condition, pod, requirement
from support.disruption import LARGE, MEDIUM, SMALL, machine, pool, scene, state

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
OPEN = {"default": (SMALL, MEDIUM, LARGE)}


class Story:
    """Looks at a cluster, one after another."""

    def __init__(self, **about: Any) -> None:
        self.tracker = DifferenceTracker()
        self.about = about

    def look(self, seconds: float, *states: StateNode, pending: tuple[Pod, ...] = (), **about: Any) -> None:
        at = NOW + seconds * SECOND
        seen = scene(*states, pending=pending, now=at, **(self.about | about))
        marked = frozenset(each.claim.status.provider_id for each in states if each.marked and each.claim)
        self.tracker.add_look(at, Situation(snapshot=seen.snapshot, queued=marked))

    def find(self, kind: DifferenceKind, seconds: float | None = None) -> list[Difference]:
        at = None if seconds is None else NOW + seconds * SECOND
        return [each for each in self.tracker.list_differences(at) if each.kind is kind]


def bought(name: str, seconds: float, *pods: Pod, types: tuple[str, ...] = (), **about: Any) -> StateNode:
    asked = [requirement("node.kubernetes.io/instance-type", "In", *types)] if types else []
    claim = {"created": NOW + seconds * SECOND, "requirements": asked}
    return state(name, *pods, claim=claim, consolidatable=False, **about)


def waiting(count: int = 3) -> tuple[Pod, ...]:
    return tuple(pod(f"p{number}", cpu="500m", memory="100Mi") for number in range(count))


def test_the_same_purchase_is_no_difference() -> None:
    story = Story()
    story.look(0, pending=waiting())
    story.look(10, bought("a", 5, *waiting(), of=SMALL))
    assert story.tracker.purchases.compared == 1
    assert story.tracker.list_differences() == []


@pytest.mark.spec("SH-3")
def test_the_sum_of_purchases_is_what_was_launched_less_what_we_plan() -> None:
    story, batches = Story(), ((LARGE, 3), (MEDIUM, 2), (SMALL, 3))
    nodes: list[StateNode] = []
    expected = 0.0
    for number, (kind, count) in enumerate(batches):
        pods = tuple(
            replace(
                each,
                metadata=replace(each.metadata, name=f"b{number}-{each.name}", uid=f"b{number}-{each.name}"),
            )
            for each in waiting(count)
        )
        story.look(number * 100, *nodes, pending=pods)
        full = pod(f"filler-{number}", cpu=str(int(kind.allocatable()["cpu"].value) - 2), memory="1Mi")
        plan = decide_plan(Situation(snapshot=scene(*nodes, pending=pods).snapshot))
        made = bought(f"n{number}", number * 100 + 5, *pods, of=kind)
        expected += {"large": 8.0, "medium": 2.0, "small": 1.0}[kind.name] - plan.price
        story.look(number * 100 + 10, *nodes, made)
        nodes.append(replace(made, pods=(*made.pods, replace(full, node_name=f"n{number}"))))
    found = story.find(DifferenceKind.BOUGHT)
    assert round(sum(each.rate for each in found), 2) == round(expected, 2) != 0
    assert {each.reason for each in found} <= {
        DifferenceReason.LAUNCH,
        DifferenceReason.TYPES,
        DifferenceReason.PACKING,
    }


def test_a_purchase_counts_for_as_long_as_its_nodes_are_there() -> None:
    story = Story()
    story.look(0, pending=waiting())
    dear = bought("a", 0, *waiting(), of=LARGE)
    story.look(10, dear)
    story.look(1800, dear)
    story.look(3600)
    (found,) = story.find(DifferenceKind.BOUGHT, 9999)
    assert (found.their_price, found.our_price, found.rate) == (8.0, 1.0, 7.0)
    assert found.hours == pytest.approx(1.0)
    assert found.dollars == pytest.approx(7.0)
    assert found.ended == "its nodes are gone"
    assert found.theirs == "1 × large on-demand for 3 pods, $8.0000/h"
    assert found.ours == "1 × small on-demand, $1.0000/h"
    assert sum_differences([found])["bought"].dollars == pytest.approx(7.0)


def test_pods_that_were_bound_between_two_looks_had_waited() -> None:
    """A look before the purchase has none of the pods yet; the purchase is undone to see what was decided."""
    story = Story()
    story.look(0)
    born = tuple(
        replace(each, metadata=replace(each.metadata, creation_timestamp=NOW + 2 * SECOND))
        for each in waiting()
    )
    story.look(10, bought("a", 5, *born, of=LARGE))
    (found,) = story.find(DifferenceKind.BOUGHT)
    assert (found.pods, found.rate) == (3, 7.0)


def test_orders_that_allow_less_than_the_pool_are_the_reason() -> None:
    story = Story()
    story.look(0, pending=waiting())
    story.look(10, bought("a", 5, *waiting(), of=LARGE, types=("large", "medium")))
    (found,) = story.find(DifferenceKind.BOUGHT)
    assert found.reason is DifferenceReason.TYPES
    assert found.why == "their orders do not allow small, which the NodePool does"


def test_another_packing_is_the_reason() -> None:
    story = Story()
    pods = waiting(4)
    story.look(0, pending=pods)
    story.look(
        10,
        bought("a", 5, pods[0], of=SMALL),
        bought("b", 5, *pods[1:3], of=SMALL),
        bought("c", 5, pods[3], of=SMALL),
    )
    (found,) = story.find(DifferenceKind.BOUGHT)
    assert found.reason is DifferenceReason.PACKING
    assert found.rate == pytest.approx(1.0)


def test_spot_is_the_reason() -> None:
    cheap = machine("cheap", 2, 0.3, ("spot",))
    story = Story(types=(SMALL, cheap))
    story.look(0, pending=waiting())
    story.look(10, bought("a", 5, *waiting(), of=SMALL))
    (found,) = story.find(DifferenceKind.BOUGHT)
    assert found.reason is DifferenceReason.SPOT
    assert sum_differences([found])["spot"].count == 1


def test_their_events_say_which_pods_a_purchase_was_made_for() -> None:
    """Two of three pods were nominated to what was bought; the third is bought for later."""
    story, pods = Story(), waiting()
    story.look(0, pending=pods)
    dear = bought("a", 5, of=LARGE)
    story.look(10, dear, pending=pods)
    for each in pods[:2]:
        story.tracker.note_nomination(each.full_name, ["a"], NOW + 6 * SECOND)
    story.tracker.note_nomination(pods[2].full_name, ["b"], NOW + 16 * SECOND)
    later = bought("b", 15, of=SMALL)
    story.look(20, dear, later, pending=pods)
    story.look(30, replace(dear, pods=tuple(replace(each, node_name="a") for each in pods)), later)
    first, *others = story.find(DifferenceKind.BOUGHT)
    assert (first.about, first.pods, first.attributed_by) == (("a",), 2, "event")
    assert all(each.about == ("b",) for each in others)


def test_without_an_event_the_binding_says_which_pods_a_purchase_was_made_for() -> None:
    story = Story()
    story.look(0, pending=waiting())
    story.look(10, bought("a", 5, *waiting(), of=LARGE))
    (found,) = story.find(DifferenceKind.BOUGHT)
    assert (found.pods, found.attributed_by) == (3, "binding")


def test_an_event_is_believed_over_a_binding() -> None:
    """The scheduler bound the pods elsewhere in the meantime; the decision was made for them all the same."""
    story, pods = Story(), waiting()
    other = state("other", of=SMALL)
    story.look(0, other, pending=pods)
    dear = bought("a", 5, of=LARGE)
    story.look(10, dear, other, pending=pods)
    for each in pods:
        story.tracker.note_nomination(each.full_name, ["a"], NOW + 6 * SECOND)
    story.look(20, dear, replace(other, pods=tuple(replace(each, node_name="other") for each in pods)))
    (found,) = story.find(DifferenceKind.BOUGHT)
    assert (found.about, found.pods, found.attributed_by) == (("a",), 3, "event")
    assert found.their_reason.startswith("a for 3 pods: ")


def test_a_replacement_is_not_a_purchase() -> None:
    story = Story()
    old = state("old", *waiting(), of=LARGE)
    story.look(0, old)
    going = replace(old, marked=True, claim=mark(old))
    story.look(10, going, bought("new", 8, of=SMALL))
    story.look(900, going, bought("new", 8, of=SMALL))
    assert story.find(DifferenceKind.BOUGHT) == []


def mark(of: StateNode, reason: str = "Underutilized") -> Any:
    assert of.claim is not None
    said = condition("DisruptionReason", reason=reason)
    status = replace(of.claim.status, conditions=(*of.claim.status.conditions, said))
    return replace(of.claim, status=status)


@pytest.mark.spec("SH-4")
def test_a_node_they_take_eleven_minutes_later_counts_eleven_minutes_once() -> None:
    story, empty = Story(), state("idle", of=LARGE)
    busy = state("busy", *waiting(), of=SMALL)
    story.look(0, empty, busy)
    for seconds in range(15, 11 * 60 + 16, 15):
        story.look(seconds, empty, busy)
    gone = replace(empty, marked=True, claim=mark(empty, "Empty"))
    story.look(11 * 60 + 15, gone, busy)
    for seconds in range(11 * 60 + 30, 15 * 60, 15):
        story.look(seconds, busy)
    (found,) = story.find(DifferenceKind.STAYED)
    assert found.dollars == pytest.approx(8.0 * 11 / 60)
    assert found.hours == pytest.approx(11 / 60)
    assert found.reason is DifferenceReason.TIMING
    assert found.ended == "they took it 11 min later"
    assert story.find(DifferenceKind.WENT) == []


def test_a_node_that_stays_for_good_counts_until_now() -> None:
    story, empty = Story(), state("idle", of=LARGE)
    for seconds in range(0, 3600, 15):
        story.look(seconds, empty)
    (found,) = story.find(DifferenceKind.STAYED)
    assert found.dollars == pytest.approx(8.0 * (3585 - 15) / 3600)
    assert found.reason is DifferenceReason.CONSOLIDATION
    assert (found.until, found.ended) == (None, "")


def test_a_verdict_that_ends_before_it_is_looked_at_twice_is_nothing() -> None:
    story, empty = Story(), state("idle", of=LARGE)
    story.look(0, empty)
    story.look(15, replace(empty, pods=tuple(replace(each, node_name="idle") for each in big())))
    story.look(30, replace(empty, pods=tuple(replace(each, node_name="idle") for each in big())))
    assert story.find(DifferenceKind.STAYED) == []


def test_a_verdict_that_ends_counts_until_then() -> None:
    story, empty = Story(), state("idle", of=LARGE)
    for seconds in range(0, 75, 15):
        story.look(seconds, empty)
    for seconds in range(75, 600, 15):
        story.look(seconds, replace(empty, pods=tuple(replace(each, node_name="idle") for each in big())))
    (found,) = story.find(DifferenceKind.STAYED)
    assert found.dollars == pytest.approx(8.0 * (75 - 15) / 3600)
    assert found.ended == "our verdict ended"


def test_what_would_come_in_a_second_turn_counts_from_then() -> None:
    """The empty node goes first, and a controller looks twice for each turn."""
    story = Story()
    seen = state("idle", of=LARGE), state("half", *waiting(), of=LARGE)
    for seconds in range(0, 120, 15):
        story.look(seconds, *seen)
    began = {each.about[0]: (each.at - NOW).total_seconds() for each in story.find(DifferenceKind.STAYED)}
    assert began == {"idle": 15.0, "half": 30.0}


def test_a_node_that_became_empty_and_went_between_two_looks_is_asked_about_as_it_was_then() -> None:
    story, full = Story(), state("full", *big(), of=LARGE)
    story.look(0, full)
    empty = replace(full, pods=())
    story.look(15, replace(empty, marked=True, claim=mark(empty, "Empty")))
    assert story.tracker.list_differences() == []
    assert story.tracker.consolidations.agreed == 1


def big() -> tuple[Pod, ...]:
    return (pod("big", cpu="15", memory="1Gi"),)


def test_what_both_take_within_a_minute_is_one_decision() -> None:
    story, empty = Story(), state("idle", of=LARGE)
    for seconds in (0, 15, 30, 45):
        story.look(seconds, empty)
    story.look(60, replace(empty, marked=True, claim=mark(empty, "Empty")))
    assert story.tracker.list_differences() == []
    assert story.tracker.consolidations.agreed == 1


def test_a_node_that_we_leave_is_told_with_what_blocks_it() -> None:
    held = pool(nodes="0")
    story, old = Story(pools=(held,)), state("old", of=MEDIUM)
    story.look(0, old)
    story.look(15, replace(old, marked=True, claim=mark(old, "Empty")))
    (found,) = story.find(DifferenceKind.WENT, 15 + 3600)
    assert found.reason is DifferenceReason.BUDGET
    assert 'budget "0"' in found.why
    assert found.rate == pytest.approx(-2.0)
    assert found.dollars == pytest.approx(-1.0)  # for half an hour
    assert found.about == ("old",)


def test_nodes_that_are_deleted_by_nobodys_choice_are_no_difference() -> None:
    busy = state("busy", *big(), of=LARGE)
    story = Story()
    story.look(0, busy)
    assert busy.claim is not None
    deleted = replace(busy.claim, metadata=replace(busy.claim.metadata, deletion_timestamp=NOW))
    story.look(15, replace(busy, claim=deleted))
    story.look(30)
    assert story.tracker.list_differences() == []


def test_nothing_is_concluded_over_a_gap() -> None:
    story, empty = Story(), state("idle", of=LARGE)
    for seconds in (0, 15, 30):
        story.look(seconds, empty)
    story.tracker.skip_gap()
    story.look(7200, bought("a", 3600, *waiting(), of=LARGE))
    assert story.find(DifferenceKind.BOUGHT) == []
    (found,) = story.find(DifferenceKind.STAYED)
    assert found.dollars == pytest.approx(8.0 * 15 / 3600)
