"""Marks on nodes: what is ours is undone, what is somebody's stays."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.zonal.model.nodes import MarkedNode, NodeLedger, NodeMarks, protect_node, release_node

BARE = NodeMarks("n")


def kept(marked: MarkedNode) -> NodeLedger:
    return msgspec.json.decode(msgspec.json.encode(marked.ledger), type=NodeLedger)


def test_a_bare_node_gets_all_three_marks_and_loses_them_again() -> None:
    marked = protect_node(BARE, None, "z/1")

    assert marked.standing == NodeMarks("n", "true", "true", True)
    assert kept(marked).set == {"label": None, "ann": None, "cordon": False}
    assert release_node(marked.standing, kept(marked), ["z/1"]) == MarkedNode(BARE, None)


@pytest.mark.spec("zonal-E21")
@pytest.mark.parametrize(
    "before",
    [
        NodeMarks("n", cordoned=True),
        NodeMarks("n", annotation="4h"),
        NodeMarks("n", label="false"),
        NodeMarks("n", "true", "true", True),
    ],
)
def test_what_a_person_had_set_stays_as_it_was(before: NodeMarks) -> None:
    marked = protect_node(before, None, "z/1")

    assert marked.standing.annotation == (before.annotation or "true")
    assert release_node(marked.standing, kept(marked), ["z/1"]).standing == before


@pytest.mark.spec("zonal-E21")
def test_a_node_that_is_uncordoned_during_the_shift_stays_so() -> None:
    marked = protect_node(BARE, None, "z/1")
    uncordoned = msgspec.structs.replace(marked.standing, cordoned=False)

    again = protect_node(uncordoned, kept(marked), "z/1")
    assert not again.standing.cordoned
    assert again.external == ("cordon",)
    assert not protect_node(again.standing, kept(again), "z/1").standing.cordoned
    assert release_node(again.standing, kept(again), ["z/1"]).standing == BARE
    assert protect_node(uncordoned, kept(marked), "z/1", enforce=True).standing.cordoned


@pytest.mark.spec("zonal-E1")
def test_marks_stay_until_the_last_shift_has_ended() -> None:
    one = protect_node(BARE, None, "z/1")
    two = protect_node(one.standing, kept(one), "z/2")

    after_one = release_node(two.standing, kept(two), ["z/1"])
    assert after_one.standing.cordoned
    assert kept(after_one).shifts == ("z/2",)
    assert release_node(after_one.standing, kept(after_one), ["z/2"]) == MarkedNode(BARE, None)


@pytest.mark.spec("zonal-E4", "zonal-E12")
def test_protecting_twice_is_protecting_once() -> None:
    once = protect_node(BARE, None, "z/1")

    assert protect_node(once.standing, kept(once), "z/1") == once


@pytest.mark.spec("zonal-E22")
def test_a_node_made_anew_under_the_same_name_is_another_node() -> None:
    old = kept(protect_node(BARE, None, "z/1"))
    fresh: Any = NodeMarks("other", cordoned=True)

    assert release_node(fresh, old, ["z/1"]).standing == fresh
    assert kept(protect_node(fresh, old, "z/1")).uid == "other"


def test_a_mark_somebody_changed_to_their_own_is_left_to_them() -> None:
    marked = protect_node(BARE, None, "z/1")
    theirs = msgspec.structs.replace(marked.standing, annotation="2h")

    after = release_node(theirs, kept(marked), ["z/1"])
    assert after.standing == NodeMarks("n", None, "2h", False)
    assert after.external == ("ann",)
