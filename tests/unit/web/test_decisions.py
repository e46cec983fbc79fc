"""Decisions as they are seen from the dashboard: told when they change, and not again."""

from __future__ import annotations

from dataclasses import replace

from dovetail.app.dashboard_watch import list_new_decisions
from support.builders import pod
from support.dashboard_snapshots import busy, disrupted, pictured


def test_the_first_look_tells_every_decision() -> None:
    picture = pictured(busy(pod("small", cpu="1"), pod("huge", cpu="9000")))

    told = list(list_new_decisions(None, picture))

    pods = {each.about: each for each in told if each.reason in ("schedulable", "unschedulable")}
    assert pods["default/huge"].warning
    assert pods["default/huge"].told == picture.sentences["default/huge"]
    assert not pods["default/small"].warning
    assert len(told) - len(pods) == len(picture.survey.commands) > 0


def test_what_stays_as_it_was_is_not_told_again() -> None:
    picture = pictured(busy(pod("small", cpu="1")))

    assert list(list_new_decisions(picture, picture)) == []


def test_only_what_changed_is_told() -> None:
    before = pictured(busy(pod("small", cpu="1"), pod("huge", cpu="9000")))
    after = replace(before, sentences={**before.sentences, "default/small": "default/small goes elsewhere"})

    (one,) = list_new_decisions(before, after)
    assert (one.about, one.told) == ("default/small", "default/small goes elsewhere")


def test_a_command_says_what_it_saves() -> None:
    told = [each for each in list_new_decisions(None, pictured(disrupted())) if each.reason == "Empty"]

    assert [(each.about, "saves $0.1086 an hour" in each.told) for each in told] == [("idle", True)]
