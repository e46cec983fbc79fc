"""The dashboard's page of spend limits: bars, hours of windows, months, and who is held."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail.api.meta import ObjectMeta
from dovetail.api.spend_limit import (
    MonthSpend,
    SpendLimit,
    SpendLimitSpec,
    SpendLimitStatus,
    SpendWindow,
)
from dovetail.app.cluster_source import SeenCluster
from dovetail.app.dashboard_history import SpendCurves
from dovetail.app.dashboard_watch import build_picture
from dovetail.disruption.situation import Situation
from dovetail.scheduling.spend_caps import build_caps
from dovetail.web import Picture, build_document, find_page
from dovetail.web.render import PageFrame, render_page
from support.builders import NOW, nodepool, pod
from support.worlds import World, instance_type

NIGHT = SpendWindow(schedule="0 19 * * *", duration="12h", hourly="1.00")


def build_limit(name: str, month: MonthSpend | None = None, **spec: Any) -> SpendLimit:
    meta = ObjectMeta(name=name, creation_timestamp=NOW - timedelta(days=40))
    return SpendLimit(metadata=meta, spec=SpendLimitSpec(**spec), status=SpendLimitStatus(month=month))


def show(*limits: SpendLimit, known: bool = True, waiting: int = 4) -> Picture:
    world = World(nodepool(), types=(instance_type("c2", 2, "8Gi", 110, price=2.0),))
    snapshot = world.snapshot(*(pod(f"web-{number}", cpu="1500m") for number in range(waiting)))
    caps = build_caps(limits, world.pools, NOW)
    seen = SeenCluster(Situation(snapshot=snapshot, spend_caps=caps), spend_limits=limits if known else ())
    return build_picture(seen, "test", live=known)


def read(picture: Picture) -> dict[str, Any]:
    page = find_page(picture, "spend")
    assert page is not None
    assert "<h1>Spend limits</h1>" in render_page(page, PageFrame("spend", "test", "now", True, "1"))
    return build_document(page)


MONTH = MonthSpend(of="2026-06", spent="600.0000", projected="1200.00", until=NOW, rate="2.0000")


def test_without_a_limit_the_page_says_so() -> None:
    assert read(show())["sentence"].startswith("There is no SpendLimit here")


def test_each_limit_has_its_share_its_month_and_who_is_held() -> None:
    found = read(
        show(
            build_limit("tight", MONTH, hourly="4.00", monthly="1000"),
            build_limit("wide", hourly="400", mode="Warn"),
            build_limit("watching", nodes=1, mode="Warn"),
        )
    )
    assert found["sentence"] == "tight: 2 pods held."
    rows = {row["limit"]: row for row in found["limits"]}
    tight = rows["tight"]
    assert (tight["share"], tight["hourly"], tight["held"], tight["state"]) == (0.0, 4.0, 2, "holds")
    assert (tight["month"], tight["monthSpent"], tight["projected"]) == ("2026-06", 600.0, 1200.0)
    assert (tight["monthShare"], tight["monthly"]) == (0.6, 1000.0)
    assert (rows["wide"]["held"], rows["wide"]["state"]) == (0, "has room")
    assert (rows["watching"]["held"], rows["watching"]["state"]) == (1, "would hold")
    held = [row for row in found["held"] if row["limit"] == "tight"]
    assert len(held) == 2
    assert all("SpendLimit tight allows $4.00 an hour" in row["why"] for row in held)
    (warned,) = (row["why"] for row in found["held"] if row["limit"] == "watching")
    assert warned == "would be held by SpendLimit watching, which only warns"


def test_a_day_shows_when_windows_open_and_close_on_the_clocks_of_the_limit() -> None:
    limit = build_limit("night", hourly="40.00", windows=(NIGHT,), time_zone="America/New_York")
    day = read(show(limit))["day-night"]
    allowed = {point["at"][11:16]: point["value"] for point in day["allowed"]}
    assert {allowed["00:00"], allowed["06:45"], allowed["19:00"], allowed["23:45"]} == {1.0}
    assert {allowed["07:00"], allowed["12:00"], allowed["18:45"]} == {40.0}
    assert {point["value"] for point in day["spent and ordered now"]} == {0.0}


def test_a_month_is_a_curve_of_what_was_seen_with_its_projection_and_its_limit() -> None:
    limit = build_limit("monthly", MONTH, monthly="1000")
    picture = show(limit)
    begins = datetime(2026, 6, 1, tzinfo=UTC)
    points = {"monthly": ((NOW - timedelta(days=31), 5.0), (NOW - timedelta(hours=1), 590.0))}
    picture = dataclasses.replace(picture, spend=dataclasses.replace(picture.spend, points=points))
    month = read(picture)["month-monthly"]
    assert [(point["at"], point["value"]) for point in month["spent"]] == [
        (begins.isoformat(), 0.0),
        ((NOW - timedelta(hours=1)).isoformat(), 590.0),
        (NOW.isoformat(), 600.0),
    ]
    assert [point["value"] for point in month["projected"]] == [600.0, 1200.0]
    assert [point["at"] for point in month["allowed"]] == [
        begins.isoformat(),
        datetime(2026, 7, 1, tzinfo=UTC).isoformat(),
    ]


def test_curves_grow_with_what_is_seen_and_forget_limits_that_are_gone() -> None:
    curves = SpendCurves()
    for number in range(3):
        month = MonthSpend(of="2026-06", spent=f"{number}.5", until=NOW + timedelta(minutes=5 * number))
        found = curves.note_limits([build_limit("a", month), build_limit("b")])
    assert [dollars for _, dollars in found["a"]] == [0.5, 1.5, 2.5]
    assert found["b"] == ()
    assert list(curves.note_limits([build_limit("b")])) == ["b"]


@pytest.mark.parametrize("known", [True, False])
def test_what_cannot_be_read_or_is_not_known_does_not_break_the_page(known: bool) -> None:
    bad = build_limit("bad", hourly="4", time_zone="Nowhere/Land", windows=(NIGHT,))
    odd = build_limit("odd", MonthSpend(of="2026-06", spent="much", until=NOW), hourly="4")
    assert SpendCurves().note_limits([odd]) == {"odd": ()}
    found = read(show(bad, odd, known=known))
    rows = {row["limit"]: row for row in found["limits"]}
    assert rows["bad"]["state"].startswith("cannot be read: spec.timeZone: there is no time zone")
    assert rows["odd"]["monthSpent"] is None
    assert bool(found["remarks"]) is not known
