"""A report of replays claims no difference that is smaller than what is sure."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from dovetail.history.paid import PaidHour
from dovetail.play.replay_meter import ReplayBill
from dovetail.play.replay_page import render_replay_page
from dovetail.play.replay_report import (
    ReplayedVariation,
    ReplayReport,
    build_report,
    build_report_document,
    render_report,
)
from dovetail.play.replay_sections import RecordingSurvey
from dovetail.play.replaying import ReplayFacts, Variation
from support.builders import NOW

HOUR = timedelta(hours=1)


def bill(dollars: float, spot: float = 0.0) -> ReplayBill:
    return ReplayBill(
        since=NOW,
        until=NOW + HOUR,
        dollars=dollars,
        node_hours=10.0,
        unknown_spot_hours=spot,
        hours=(PaidHour(began=NOW, dollars=dollars, node_hours=10.0, watched_seconds=3600.0),),
    )


def played(name: str, *dollars: float, spot: float = 0.0) -> ReplayedVariation:
    bills = [bill(each, spot) for each in dollars]
    return ReplayedVariation(name, Variation(name), bills[0], dollars, tuple(b.sum_days() for b in bills))


def report(*variations: ReplayedVariation, paid: float = 100.0, hazard: float = 0.0) -> ReplayReport:
    survey = RecordingSurvey(bills=[bill(paid)], facts=ReplayFacts(hazard=hazard))
    return build_report(survey, variations, "as karpenter", 1, "observed")


def read_row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(name))


@pytest.mark.spec("RP-2")
@pytest.mark.parametrize(
    ("dollars", "told"),
    [
        ((98.0, 98.0), "−4.9 %"),  # the model is 3 % off
        ((101.0, 101.0), "none that can be told"),
        ((95.0, 101.0), "none that can be told"),  # chance alone does 6 %
        ((80.0, 81.0), "−21.8 %"),
        ((120.0, 121.0), "+17.0 %"),
    ],
)
def test_a_difference_below_what_is_sure_is_not_told(dollars: tuple[float, ...], told: str) -> None:
    found = report(played("as karpenter", 103.0, 103.0), played("dovetail", *dollars))
    row = read_row(render_report(found), "against as karpenter")
    assert row.endswith(told.replace(" %", "%"))
    (_, ours) = build_report_document(found)["variations"]
    assert ours["canBeTold"] is (told[0] in "−+")


def test_the_model_s_error_and_chance_are_told_together() -> None:
    found = report(played("as karpenter", 103.0, 103.0), played("dovetail", 98.0, 102.0))
    assert read_row(render_report(found), "sure to within").split()[-2:] == ["±3.0%", "±7.0%"]


def test_nothing_is_claimed_where_the_rules_in_force_were_not_replayed() -> None:
    found = report(played("dovetail", 40.0))
    assert "none that can be told" in read_row(render_report(found), "against as it was")
    assert "no difference is claimed" in render_report(found)


def test_spot_places_that_nobody_knows_make_it_less_sure() -> None:
    sure = report(played("as karpenter", 100.0), played("spot", 95.0, spot=5.0), hazard=0.2)
    assert sure.variations[1].certainty.within == pytest.approx(0.015 + 0.5 * 0.2)
    assert read_row(render_report(sure), "against as karpenter").endswith("none that can be told")
    assert any("50% of the node hours of spot" in each for each in sure.unknown)


def test_dollars_at_estimated_prices_are_marked_where_there_are_any() -> None:
    """A saving of half that stands on prices nobody knows must not look like one that does not."""
    plain = report(played("as karpenter", 100.0), played("spot", 50.0))
    assert "estimated" not in render_report(plain)
    guessed = replace(bill(50.0), estimated=40.0)
    found = report(
        played("as karpenter", 100.0), ReplayedVariation("spot", Variation("spot"), guessed, (50.0,))
    )
    assert read_row(render_report(found), "of it at estimated prices").split()[-3:] == ["0%", "0%", "80%"]
    assert "of it at estimated prices" in render_replay_page(found, "week")
    _, spot = build_report_document(found)["variations"]
    assert spot["dollarsAtEstimatedPrices"] == 40.0
    twice = guessed.add(guessed)
    assert (twice.estimated, twice.subtract(guessed).estimated) == (80.0, 40.0)
