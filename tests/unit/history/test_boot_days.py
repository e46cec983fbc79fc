"""How long nodes really took to boot, beside what the model assumed before."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from dovetail.disruption.situation import Situation
from dovetail.history.boot_days import BootDays
from dovetail.scheduling.model.snapshot import StateNode
from support.builders import NOW, condition
from support.disruption import scene, state


def booted(name: str, launched: datetime, seconds: float) -> StateNode:
    steps = (("Launched", 0.0), ("Registered", seconds / 2), ("Initialized", seconds))
    said = tuple(condition(kind, since=launched + timedelta(seconds=after)) for kind, after in steps)
    made = state(name)
    assert made.claim is not None
    return replace(made, claim=replace(made.claim, status=replace(made.claim.status, conditions=said)))


def look(at: datetime, *states: StateNode) -> tuple[datetime, Situation]:
    return at, Situation(snapshot=scene(*states, now=at).snapshot)


def test_boots_that_take_as_long_as_assumed_are_nothing_to_tell() -> None:
    days = BootDays()
    days.begin(look(NOW)[1])
    days.read_look(*look(NOW + timedelta(minutes=5), booted("a", NOW, 55)))
    (found,) = days.list_days()
    assert (found.nodes, found.real, found.assumed, found.sentence) == (1, 55.0, 40.0, "")


@pytest.mark.spec("SH-6")
def test_twenty_minutes_instead_of_forty_seconds_are_told_with_the_assumption() -> None:
    days = BootDays()
    days.begin(look(NOW)[1])
    days.read_look(*look(NOW + timedelta(minutes=30), booted("a", NOW, 1200)))
    (found,) = days.list_days()
    assert found.sentence == (
        f"boot time: nodes took 20 min from launch to ready on {NOW:%Y-%m-%d}, and the model assumed 40 s"
    )


def test_what_the_model_has_learned_is_what_it_assumes_the_next_day() -> None:
    days, later = BootDays(), NOW + timedelta(days=1)
    days.begin(look(NOW)[1])
    slow = booted("a", NOW, 1200)
    days.read_look(*look(NOW + timedelta(minutes=30), slow))
    days.read_look(*look(later, slow, booted("b", later - timedelta(minutes=25), 1230)))
    assert [each.assumed for each in days.list_days()] == [40.0, 1200.0]
    assert days.list_days()[1].sentence == ""


def test_nodes_that_are_there_at_the_beginning_are_known_and_not_counted() -> None:
    days, old = BootDays(), booted("old", NOW - timedelta(hours=1), 300)
    days.begin(look(NOW, old)[1])
    days.read_look(*look(NOW + timedelta(minutes=10), old, booted("new", NOW, 310)))
    (found,) = days.list_days()
    assert (found.nodes, found.assumed) == (1, 300.0)
