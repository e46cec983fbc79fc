"""The dashboard's page of money: what is committed, who uses it, what is lost, and what one more costs."""

from __future__ import annotations

import dataclasses
import re
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api.commitment import Commitment, CommitmentStatus
from dovetail.api.meta import Condition
from dovetail.app.cluster_source import SeenCluster
from dovetail.app.dashboard_watch import build_picture
from dovetail.disruption.situation import Situation
from dovetail.web import Picture, build_document, find_page
from dovetail.web.render import PageFrame, render_page
from dovetail.web.views import has_money
from support.builders import NOW, pod
from support.committed_worlds import CommittedWorld, plan_of

EVIL = '<script>alert("x")</script>'


def picture_of(*commitments: Commitment, count: int = 12, known: bool = True) -> Picture:
    """A cluster with so many pods on nodes that were bought by these commitments."""
    world = CommittedWorld(*commitments)
    world.provision(*(pod(f"web-{number}", cpu="1500m") for number in range(count)))
    seen = SeenCluster(Situation(snapshot=world.snapshot()))
    picture = build_picture(seen, "test", live=known)
    return dataclasses.replace(picture, commitments=tuple(world.commitments) if known else ())


def read(picture: Picture) -> dict[str, Any]:
    page = find_page(picture, "money")
    assert page is not None
    assert "<h1>Money</h1>" in render_page(page, PageFrame("money", "test", "now", True, "1"))
    return build_document(page)


def test_without_a_commitment_the_page_says_so_and_is_not_in_the_menu() -> None:
    picture = picture_of()
    found = read(picture)
    assert found["sentence"] == "Nothing is committed: every node costs what the price list says."
    assert found["commitments"] == []
    assert not has_money(picture)
    page = find_page(picture, "overview")
    assert page is not None
    assert ">Money<" not in render_page(page, PageFrame("overview", "test", "now", True, "1"))
    assert ">Money<" in render_page(page, PageFrame("overview", "test", "now", True, "1", committed=True))


@pytest.mark.parametrize("known", [True, False])
def test_an_open_plan_pays_for_one_more_and_a_full_one_does_not(known: bool) -> None:
    picture = picture_of(plan_of("wide", hourly="100.00"), known=known)
    found = read(picture)
    bill = picture.bill
    assert has_money(picture)
    assert found["facts"]["committed"] == 100.0
    assert found["facts"]["unused"] == pytest.approx(100 - 0.7 * bill.listed)
    assert found["facts"]["effective"] == pytest.approx(0.0)
    assert found["sentence"].startswith("$100.00 an hour is committed; nodes use $")
    (row,) = found["commitments"]
    assert (row["name"], row["kind"], row["state"], row["covers"]) == (
        "wide",
        "ComputePlan",
        "open",
        "every type",
    )
    assert row["used"] == pytest.approx(0.7 * bill.listed / 100, abs=1e-3)
    (user,) = found["users"]
    assert (user["commitment"], user["pool"], user["nodes"]) == ("wide", "default", len(bill.lines))
    assert user["paid"] == pytest.approx(bill.listed)
    (pool,) = found["coverage"]
    assert (pool["pool"], pool["coverage"]) == ("default", 1.0)
    assert found["next"]
    for more in found["next"]:
        assert (more["now"], more["paidBy"]) == (pytest.approx(0.0, abs=1e-9), "wide")
        assert more["listed"] > 0


def test_what_is_full_leaves_the_listed_price_for_the_next_node() -> None:
    picture = picture_of(plan_of("narrow", hourly="3.00"), count=200)
    found = read(picture)
    (row,) = found["commitments"]
    assert row["state"] in ("full", "open")
    assert row["used"] > 0.8
    assert found["next"]
    cheapest = min(found["next"], key=lambda each: each["listed"])
    assert cheapest["now"] > 0.5 * cheapest["listed"]
    assert found["facts"]["effective"] > 0


def test_what_is_not_counted_says_why_and_when_the_rest_ends() -> None:
    told = Condition(type="Current", status="False", reason="Denied", message="AWS denies what it needs")
    denied = replace(plan_of("denied", hourly="5.00"), status=CommitmentStatus(conditions=(told,)))
    ends = NOW + timedelta(days=30)
    kept = plan_of("kept", kind="Reserved", instance_type="m6i.large", family="m6i", count=3, ends=ends)
    found = read(dataclasses.replace(picture_of(kept), commitments=(denied, kept)))
    rows = {row["name"]: row for row in found["commitments"]}
    assert (rows["denied"]["state"], rows["denied"]["why"]) == ("not counted", "AWS denies what it needs")
    assert rows["denied"]["hourly"] is None
    assert rows["kept"]["ends"] == ends.isoformat()
    assert rows["kept"]["covers"] == "3 × m6i.large in every region, all sizes of it"
    assert "Fargate" in found["remarks"][0]


def test_words_of_others_are_words_and_nothing_else() -> None:
    said = Condition(type="Current", status="False", reason=EVIL, message=EVIL)
    evil = replace(
        plan_of(EVIL, hourly="5.00", family=EVIL, region=EVIL), status=CommitmentStatus(conditions=(said,))
    )
    picture = dataclasses.replace(picture_of(plan_of("good", hourly="1.00")), commitments=(evil,))
    page = find_page(picture, "money")
    assert page is not None
    text = render_page(page, PageFrame("money", EVIL, EVIL, True, "1", committed=True))
    assert EVIL not in text
    assert "&lt;script&gt;" in text
    assert re.findall(r"<script[^>]*>", text) == ['<script src="./static/live.js" defer>']
    assert " style=" not in text
    assert not re.search(r"<[^>]+\son\w+=", text)
