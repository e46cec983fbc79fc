"""Dashboards and rules on paper: they are current, complete, and speak of metrics that exist."""

from __future__ import annotations

import json
import re
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.helm import rendered

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "observability"
sys.path.insert(0, str(ROOT / "hack"))
import write_dashboards  # type: ignore[import-not-found]  # noqa: E402  # hack is not a package

Json = dict[str, Any]
BOARDS = sorted((FOLDER / "dashboards").glob("*.json"))
RULES = ("rules.yaml", "alerts.yaml", "old-names.yaml")
# Made by Prometheus itself.
OTHERS = {"up"}
NAME = re.compile(r"\b(?:karpenter|dovetail|controller_runtime|operator|workqueue|client_go)_\w+")
# operations.md §11.1 and §11.2, word for word.
CAPACITY = (
    "Nodes Created by nodepool",
    "Nodes Terminated by nodepool",
    'Nodes Eligible for Disruptions by "reason"',
    'Node Disruptions by "$distribution_filter"',
    'Disruption Actions performed by "type" and "decision"',
    'Pod Distribution by "$distribution_filter"',
    "Pod Phase",
    "Nodepool Summary",
    "Spot Node Percentage",
    "Node Summary",
)
PERFORMANCE = (
    "Node Termination Latency",
    "Pod Startup Latency",
    "Controller Reconciliation Latency [$controller]",
    "Controller Reconciliation Rate",
)


def board(name: str) -> Json:
    found: Json = json.loads((FOLDER / "dashboards" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def rules(name: str) -> list[Json]:
    document = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def series() -> set[str]:
    """Every series that the reference says there is."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    known = set(OTHERS)
    for name, kind in re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE):
        endings = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}
        known |= {name + ending for ending in endings.get(kind, ("",))}
    return known


def expressions() -> list[str]:
    asked = [
        target["expr"]
        for path in BOARDS
        for panel in board(path.stem)["panels"]
        for target in panel["targets"]
    ]
    asked += [v["query"]["query"] for path in BOARDS for v in variables(path.stem) if v["type"] == "query"]
    return asked + [rule["expr"] for name in RULES for rule in rules(name)]


def variables(name: str) -> list[Json]:
    found: list[Json] = board(name)["templating"]["list"]
    return found


def test_generated_dashboards_and_rules_are_current() -> None:
    for path, text in write_dashboards.files().items():
        assert (FOLDER / path).read_text(encoding="utf-8") == text, f"{path}: run make dashboards"


def test_every_metric_that_is_asked_for_exists() -> None:
    known = series()

    asked = {name for expression in expressions() for name in NAME.findall(expression)}
    assert len(asked) > 40
    assert asked <= known, sorted(asked - known)


def test_no_old_name_is_one_of_todays() -> None:
    old = [rule["record"] for rule in rules("old-names.yaml")]

    assert len(old) == len(set(old))
    assert not set(old) & series()


@pytest.mark.spec("operations-18.6")
@pytest.mark.parametrize(
    ("name", "title", "uid", "refresh", "panels"),
    [
        ("capacity", "Karpenter Capacity v1", "ta8I9Q67Z", "10s", CAPACITY),
        ("performance", "Karpenter Performance v1", "fdusq1f2alerke", "5s", PERFORMANCE),
    ],
)
def test_upstreams_dashboards_are_there_panel_by_panel(
    name: str, title: str, uid: str, refresh: str, panels: tuple[str, ...]
) -> None:
    found = board(name)

    assert (found["title"], found["uid"], found["refresh"]) == (title, uid, refresh)
    assert found["time"] == {"from": "now-3h", "to": "now"}
    assert tuple(panel["title"] for panel in found["panels"]) == panels


def test_the_variables_are_upstreams() -> None:
    capacity, performance = variables("capacity"), variables("performance")

    assert [each["name"] for each in capacity] == [
        *("datasource", "nodepool", "zone", "arch", "capacity_type", "instance_type", "distribution_filter")
    ]
    assert all(each["multi"] and each["includeAll"] for each in capacity if each["type"] == "query")
    chosen = capacity[-1]["query"].split(",")
    assert chosen == ["arch", "capacity_type", "instance_type", "namespace", "node", "nodepool", "zone"]
    assert [each["name"] for each in performance] == ["datasource", "controller"]


def test_kinds_of_panels_are_upstreams() -> None:
    capacity = {panel["title"]: panel for panel in board("capacity")["panels"]}

    assert {title for title, panel in capacity.items() if panel["type"] == "table"} == {
        "Nodepool Summary",
        "Node Summary",
    }
    assert capacity["Nodepool Summary"]["gridPos"]["w"] == 18
    assert capacity["Spot Node Percentage"]["gridPos"]["w"] == 6
    rate = board("performance")["panels"][-1]
    assert (rate["type"], rate["fieldConfig"]["defaults"]["unit"]) == ("bargauge", "reqps")


def test_dashboards_do_not_share_an_identity() -> None:
    found = [board(path.stem) for path in BOARDS]

    assert len(found) == 6
    for key in ("uid", "title"):
        assert len({each[key] for each in found}) == 6


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_panels_have_numbers_of_their_own_and_do_not_overlap(path: Path) -> None:
    panels = board(path.stem)["panels"]

    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [_cells(panel["gridPos"]) for panel in panels]
    assert all(not one & other for one, other in combinations(cells, 2))
    assert all(0 <= x < 24 for taken in cells for x, _ in taken)
    for panel in panels:
        references = [target["refId"] for target in panel["targets"]]
        assert references
        assert len(set(references)) == len(references)
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


def _cells(place: Json) -> set[tuple[int, int]]:
    rows = range(place["y"], place["y"] + place["h"])
    return {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in rows}


def test_every_alert_says_what_it_means_and_how_bad_it_is() -> None:
    alerts = rules("alerts.yaml")

    assert len({each["alert"] for each in alerts}) == len(alerts) > 20
    for each in alerts:
        assert each["labels"]["severity"] in ("warning", "critical")
        assert each["annotations"]["summary"].endswith((".", "?"))


def test_the_scrape_jobs_find_the_charts_services() -> None:
    jobs = yaml.safe_load((FOLDER / "scrape.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    parts = {"controller": {"enabled": False}, "zonalShift": {"standalone": {"enabled": True}}}
    router = {"router": {"enabled": True, "config": {"region": "us-east-2"}}}
    # operations.md §10: dashboards filter by these jobs, and the chart's Services have these names and port.
    served = {
        f"{each['metadata']['name']};{port['name']}"
        for objects in (rendered(), rendered({**parts, **router}))
        for each in objects
        if each["kind"] == "Service"
        for port in each["spec"]["ports"]
    }

    assert [job["job_name"] for job in jobs] == ["karpenter", "karpenter-router", "karpenter-zonal-shift"]
    assert {job["relabel_configs"][0]["regex"] for job in jobs} == served


def test_the_guide_lists_every_alert_and_dashboard() -> None:
    guide = (ROOT / "docs" / "guides" / "observability.md").read_text(encoding="utf-8")

    listed = re.findall(r"^\| `(Dovetail\w+)` \| (\w+) \|", guide, re.MULTILINE)
    assert listed == [(each["alert"], each["labels"]["severity"]) for each in rules("alerts.yaml")]
    files = re.findall(r"^\| `([\w-]+)\.json` \| ([^|]+) \|", guide, re.MULTILINE)
    assert {name: title.strip() for name, title in files} == {
        path.stem: board(path.stem)["title"] for path in BOARDS
    }
