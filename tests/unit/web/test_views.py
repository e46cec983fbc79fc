"""The dashboard's pages: from a picture alone, in the words of other commands, alike in both shapes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api.quantity import Quantity
from dovetail.api.zoneshift import ZoneShift, ZoneShiftSpec, ZoneShiftStatus
from dovetail.cli.views.pods import explain_pod
from dovetail.web import Moment, Picture, build_document, find_page
from dovetail.web.page import amount_cell
from dovetail.web.render import MENU as TITLES
from dovetail.web.render import PageFrame, render_page
from dovetail.web.views import MENU
from support.builders import pod
from support.commands import dovetail
from support.dashboard_snapshots import busy, disrupted, pictured
from support.seen_clusters import encode_world, see

EVIL = '<script>alert("x")</script>'
CLUSTER = "test.example"


@pytest.fixture(scope="module")
def picture() -> Picture:
    return pictured(
        busy(pod("small", cpu="1"), pod("huge", cpu="9000"), pod("picky", node_selector={"a": "b"}))
    )


def shown(picture: Picture, path: str) -> str:
    page = find_page(picture, path)
    assert page is not None, path
    return render_page(page, PageFrame(path, CLUSTER, "now", True, "1"))


def twin(picture: Picture, path: str) -> dict[str, Any]:
    page = find_page(picture, path)
    assert page is not None, path
    return build_document(page)


def paths(picture: Picture) -> Iterator[str]:
    yield from MENU
    yield from (f"nodes/{name}" for name in (*picture.blocked, *picture.candidates))
    yield from (f"pods/{each.full_name}" for each in picture.snapshot.pods)


def test_the_menu_and_the_views_are_the_same_pages() -> None:
    assert [path for path, _ in TITLES] == list(MENU)


def test_a_page_says_what_its_twin_says(picture: Picture) -> None:
    for path in paths(picture):
        page = find_page(picture, path)
        assert page is not None
        made, text = twin(picture, path), unescape(shown(picture, path))
        json.dumps(made)
        assert made["sentence"] in text
        for table in page.tables:
            rows = made[table.key]
            assert (
                len(rows)
                == len(table.rows)
                == text.split(f'id="{table.key}"')[1].split("</section>")[0].count('<th scope="row"')
            )
            for row in table.rows:
                assert all(cell.text in text for cell in row)
        for fact in page.facts:
            assert made["facts"][fact.key] == fact.cell.value
            assert fact.cell.text in text


def test_a_waiting_pod_is_told_what_explain_tells(picture: Picture) -> None:
    seen = see(picture.snapshot)
    for each in picture.snapshot.pods:
        assert picture.sentences[each.full_name] == explain_pod(seen, each.full_name).sentence
    found = twin(picture, "pods")
    states = {row["name"]: row["state"] for row in found["pods"]}
    assert states == {
        "default/huge": "unschedulable",
        "default/picky": "unschedulable",
        "default/small": "schedulable",
    }


def test_nodes_have_the_reasons_of_plan_disruption(tmp_path: Path) -> None:
    file = tmp_path / "world.json"
    file.write_bytes(encode_world(disrupted()))
    said = json.loads(dovetail("plan", "--disruption", "--snapshot", str(file), "-o", "json").out)
    picture = pictured(disrupted())

    found = twin(picture, "disruption")
    assert {each["node"]: each["why"] for each in said["staying"]} == {
        row["node"]: row["why"] for row in found["staying"]
    }
    assert found["facts"]["savings"] == pytest.approx(said["savingsHourly"])
    assert [row["nodes"] for row in found["commands"]] == [
        [node["name"] for node in each["nodes"]] for each in said["commands"]
    ]
    moved = {(row["pod"]) for row in found["moves"]}
    assert moved == {each["pod"] for command in said["commands"] for each in command["moves"]}
    nodes = twin(picture, "nodes")["nodes"]
    assert {row["name"]: row["state"] for row in nodes if row["state"] == "removable"}.keys() == {
        "idle",
        "roomy",
        "stale",
    }


def test_the_overview_adds_up(picture: Picture) -> None:
    facts = twin(picture, "")["facts"]
    nodes = twin(picture, "nodes")["nodes"]

    assert facts["nodes"] == len(nodes) == 6
    assert facts["price"] == pytest.approx(sum(row["price"] or 0 for row in nodes))
    assert facts["waiting"] == 3
    assert 0 < facts["cpu"] < 1
    problems = twin(picture, "overview")["problems"]
    assert {row["about"] for row in problems} >= {"pod default/huge", "pod default/picky"}


def test_the_plan_says_what_would_be_bought_and_how_good_that_is(picture: Picture) -> None:
    found = twin(picture, "plan")
    bought = sum(row["count"] for row in found["newNodes"])

    assert bought == found["facts"]["newNodes"] == len(picture.plan.new_nodes)
    assert found["facts"]["gap"] is None or found["facts"]["gap"] >= 0
    assert sum(len(row["pods"]) for row in found["existing"]) == found["facts"]["joined"]


def test_a_pool_shows_its_limits_and_budgets() -> None:
    world = disrupted()
    limits = {"cpu": Quantity.parse("400"), "nodes": Quantity.parse("6")}
    pools = tuple(
        replace(each, nodepool=replace(each.nodepool, spec=replace(each.nodepool.spec, limits=limits)))
        for each in world.pools
    )
    found = twin(pictured(replace(world, pools=pools)), "pools")

    rows = {row["resource"]: row for row in found["limits"]}
    assert (rows["nodes"]["used"], rows["nodes"]["limit"], rows["nodes"]["share"]) == ("6", "6", 1.0)
    assert 0 < rows["cpu"]["share"] < 1
    assert found["budgets"]
    assert [row["nodes"] for row in found["pools"]] == [6]


def test_shifts_and_events_are_told() -> None:
    at = datetime(2026, 2, 3, 10, 15, tzinfo=UTC)
    shift = ZoneShift(
        spec=ZoneShiftSpec(zone_id="use1-az1", kind="LOCAL"),
        status=ZoneShiftStatus(phase="Active", zone_name="us-east-1a", started_at=at),
    )
    signal = ZoneShift(spec=ZoneShiftSpec(zone_id="use1-az1", kind="SIGNAL"))
    said = Moment(at, "NodeClaim a", "Launched", "it came", times=2)
    base = pictured(disrupted(), live=True)
    told = Picture(
        base.cluster, True, base.snapshot, base.plan, base.survey, shifts=(shift, signal), moments=(said,)
    )

    (row,) = twin(told, "shifts")["shifts"]
    assert (row["zone"], row["phase"]) == ("use1-az1", "Active")
    assert "Shifted away from us-east-1a." in shown(told, "shifts")
    (event,) = twin(told, "events")["events"]
    assert (event["reason"], event["told"], event["times"]) == ("Launched", "it came", 2)


def test_what_comes_from_the_cluster_cannot_become_markup() -> None:
    base = pictured(busy(pod("web", cpu="1", labels={"a": EVIL})))
    said = Moment(datetime(2026, 2, 3, tzinfo=UTC), EVIL, EVIL, EVIL)
    sentences = dict.fromkeys(base.sentences, EVIL)
    evil = Picture(
        EVIL, True, base.snapshot, base.plan, base.survey, sentences, moments=(said,), problems=(EVIL,)
    )

    for path in (*MENU, "pods/default/web"):
        page = find_page(evil, path)
        assert page is not None
        text = render_page(page, PageFrame(path, EVIL, EVIL, True, "1"))
        assert EVIL not in text
        assert re.findall(r"<script[^>]*>", text) == [
            f'<script src="{"../" * path.count("/") or "./"}static/live.js" defer>'
        ]
        assert " style=" not in text
        assert not re.search(r"<[^>]+\son\w+=", text)
    assert "&lt;script&gt;" in shown(evil, "events")


def test_what_is_not_there_has_no_page(picture: Picture) -> None:
    for path in ("nope", "nodes/nope", "pods/default/nope", "plan/x", "nodes/"):
        page = find_page(picture, path)
        assert (page is None) == (path != "nodes/"), path


def test_every_page_can_be_heard_as_well_as_seen(picture: Picture) -> None:
    for path in paths(picture):
        text = shown(picture, path)
        assert text.count("<h1>") == 1
        assert '<html lang="en">' in text
        assert "<main id=" in text
        assert 'class="skip" href="#main"' in text
        tables, captions = text.count("<table>"), text.count("<caption")
        assert tables == captions
        for head in re.findall(r"<thead>.*?</thead>", text):
            assert head.count('scope="col"') == head.count("<th ")
        assert all(svg.count("<title>") == svg.count("<a ") for svg in re.findall(r"<svg.*?</svg>", text))


@pytest.mark.parametrize(
    ("resource", "size", "words"),
    [
        ("memory", 1000 * 2**30, "1,000 GiB"),
        ("memory", int(999.7 * 2**30), "1,000 GiB"),
        ("memory", 5000 * 2**40, "5,000 TiB"),
        ("memory", 1023 * 2**30, "1,023 GiB"),
        ("memory", 2**30, "1 GiB"),
        ("memory", int(1.5 * 2**40), "1.5 TiB"),
        ("cpu", 1500, "1,500"),
    ],
)
def test_amounts_are_written_as_people_say_them(resource: str, size: int, words: str) -> None:
    assert amount_cell(resource, size * 10**9).text == words
