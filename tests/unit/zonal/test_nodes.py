"""Marks on nodes: what is ours is undone, what is somebody's stays."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.zonal.nodes import Marked, NodeLedger, Standing, protected, released

BARE = Standing("n")


def kept(marked: Marked) -> NodeLedger:
    return msgspec.json.decode(msgspec.json.encode(marked.ledger), type=NodeLedger)


def test_a_bare_node_gets_all_three_marks_and_loses_them_again() -> None:
    marked = protected(BARE, None, "z/1")

    assert marked.standing == Standing("n", "true", "true", True)
    assert kept(marked).set == {"label": None, "ann": None, "cordon": False}
    assert released(marked.standing, kept(marked), ["z/1"]) == Marked(BARE, None)


@pytest.mark.spec("zonal-E21")
@pytest.mark.parametrize(
    "before",
    [
        Standing("n", cordoned=True),
        Standing("n", annotation="4h"),
        Standing("n", label="false"),
        Standing("n", "true", "true", True),
    ],
)
def test_what_a_person_had_set_stays_as_it_was(before: Standing) -> None:
    marked = protected(before, None, "z/1")

    assert marked.standing.annotation == (before.annotation or "true")
    assert released(marked.standing, kept(marked), ["z/1"]).standing == before


@pytest.mark.spec("zonal-E21")
def test_a_node_that_is_uncordoned_during_the_shift_stays_so() -> None:
    marked = protected(BARE, None, "z/1")
    uncordoned = msgspec.structs.replace(marked.standing, cordoned=False)

    again = protected(uncordoned, kept(marked), "z/1")
    assert not again.standing.cordoned
    assert again.external == ("cordon",)
    assert not protected(again.standing, kept(again), "z/1").standing.cordoned
    assert released(again.standing, kept(again), ["z/1"]).standing == BARE
    assert protected(uncordoned, kept(marked), "z/1", enforce=True).standing.cordoned


@pytest.mark.spec("zonal-E1")
def test_marks_stay_until_the_last_shift_has_ended() -> None:
    one = protected(BARE, None, "z/1")
    two = protected(one.standing, kept(one), "z/2")

    after_one = released(two.standing, kept(two), ["z/1"])
    assert after_one.standing.cordoned
    assert kept(after_one).shifts == ("z/2",)
    assert released(after_one.standing, kept(after_one), ["z/2"]) == Marked(BARE, None)


@pytest.mark.spec("zonal-E4", "zonal-E12")
def test_protecting_twice_is_protecting_once() -> None:
    once = protected(BARE, None, "z/1")

    assert protected(once.standing, kept(once), "z/1") == once


@pytest.mark.spec("zonal-E22")
def test_a_node_made_anew_under_the_same_name_is_another_node() -> None:
    old = kept(protected(BARE, None, "z/1"))
    fresh: Any = Standing("other", cordoned=True)

    assert released(fresh, old, ["z/1"]).standing == fresh
    assert kept(protected(fresh, old, "z/1")).uid == "other"


def test_a_mark_somebody_changed_to_their_own_is_left_to_them() -> None:
    marked = protected(BARE, None, "z/1")
    theirs = msgspec.structs.replace(marked.standing, annotation="2h")

    after = released(theirs, kept(marked), ["z/1"])
    assert after.standing == Standing("n", None, "2h", False)
    assert after.external == ("ann",)
