"""Dashboards, rules and alerts before a real Prometheus that scrapes a cluster with something going on.

Four processes, as in production: an embedded cluster with its AWS, the controller with all its numbers
shown, the interruption router, and a shadow. Pods come and go, machines are reclaimed, drift and are saved,
a zone is shifted away. Then every query of every panel is asked.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.monitored_cluster import loaded
from support.prometheus import Prometheus, prometheus, promtool, tool

Json = dict[str, Any]
HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "deploy" / "observability"
BOARDS = sorted((FOLDER / "dashboards").glob("*.json"))
RULES = [FOLDER / name for name in ("rules.yaml", "alerts.yaml", "old-names.yaml")]
# A rate needs two looks at a counter that grew, and looks are five seconds apart.
PATIENCE = 120.0
# What is known after a day only.
LATER = {"shadow": ["Certainty"]}
VALUES = re.compile(r"label_values\((?P<metric>.+), (?P<label>\w+)\)")


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    """Said once and in a sentence, before anything is started."""
    try:
        for name in ("prometheus", "promtool"):
            tool(name)
    except FileNotFoundError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("observed")
    with loaded(folder) as cluster:
        jobs = {
            "karpenter": [cluster.ports["controller"]],
            "router": [cluster.ports["router"]],
            "shadow": [cluster.ports["shadow"]],
        }
        with prometheus(folder, jobs, RULES) as running:
            cluster.story()
            yield running


def board(path: Path) -> Json:
    found: Json = json.loads(path.read_text(encoding="utf-8"))
    return found


def choices(server: Prometheus, document: Json) -> dict[str, list[str]]:
    """What each variable of a dashboard can be; all values at once where Grafana would select all."""
    found = {}
    for variable in document["templating"]["list"]:
        if variable["type"] == "custom":
            found[variable["name"]] = variable["query"].split(",")
        elif variable["type"] == "query":
            asked = VALUES.fullmatch(variable["query"]["query"])
            assert asked is not None, variable["query"]
            values = server.label_values(asked["metric"], asked["label"])
            assert values, f"nothing to choose from for {variable['name']}"
            found[variable["name"]] = ["|".join(values)] if variable["multi"] else values
    return found


def asked(expression: str, chosen: dict[str, list[str]]) -> list[str]:
    """A query with its variables filled in, once for each choice."""
    filled = [expression]
    for name, values in chosen.items():
        if f"${name}" in expression:
            filled = [each.replace(f"${name}", value) for each in filled for value in values]
    return filled


def shown(server: Prometheus, expression: str, chosen: dict[str, list[str]]) -> bool:
    """Whether a panel would draw something for at least one choice; a NaN draws nothing."""
    return any(
        not math.isnan(float(each["value"][1]))
        for query in asked(expression, chosen)
        for each in server.ask(query)
    )


def empty(server: Prometheus, document: Json) -> list[str]:
    chosen = choices(server, document)
    return [
        panel["title"]
        for panel in document["panels"]
        if not [t for t in panel["targets"] if shown(server, t["expr"], chosen)]
    ]


@pytest.mark.spec("operations-18.6")
@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_no_panel_of_a_dashboard_is_empty(path: Path, server: Prometheus) -> None:
    document, end = board(path), time.monotonic() + PATIENCE

    while (missing := empty(server, document)) != LATER.get(path.stem, []) and time.monotonic() < end:
        time.sleep(5)
    assert missing == LATER.get(path.stem, [])


def test_a_table_has_every_column(server: Prometheus) -> None:
    document = board(FOLDER / "dashboards" / "capacity.json")
    chosen = choices(server, document)

    tables = [panel for panel in document["panels"] if panel["type"] == "table"]
    assert len(tables) == 2
    for panel in tables:
        columns = [t["legendFormat"] for t in panel["targets"] if not shown(server, t["expr"], chosen)]
        assert columns == [], panel["title"]


@pytest.mark.parametrize("dimension", ["arch", "capacity_type", "instance_type", "namespace", "node", "zone"])
def test_pods_can_be_told_apart_by_every_choice(dimension: str, server: Prometheus) -> None:
    found = server.ask(f'sum by ({dimension}) (karpenter_pods_state{{nodepool="default"}})')

    assert found
    assert all(each["metric"].get(dimension) for each in found)


def test_every_rule_and_alert_can_be_evaluated(server: Prometheus) -> None:
    rules = server.rules()

    assert len(rules) == sum(len(group["rules"]) for path in RULES for group in _groups(path))
    assert {each["name"]: each.get("lastError") for each in rules if each["health"] != "ok"} == {}


def heard_of(server: Prometheus) -> set[str]:
    return {each["name"] for each in server.rules() if each.get("state") in ("pending", "firing")}


def test_alerts_say_what_is_going_on_and_nothing_else(server: Prometheus) -> None:
    # A pod fits nowhere, a zone is away, and the router met a forger and strangers.
    wanted = {"DovetailPodsUnschedulable", "DovetailZonalShiftLong", "DovetailBusParked"}
    end = time.monotonic() + PATIENCE
    while not (heard := heard_of(server)) >= wanted and time.monotonic() < end:
        time.sleep(5)

    assert heard >= wanted
    assert not heard & {
        *("DovetailDown", "DovetailStateUnsynced", "DovetailNodePoolNearLimit", "DovetailTerminationSlow"),
        *("DovetailBusBulkLate", "DovetailBusCanaryLost", "DovetailZonalShiftPollStale"),
        *("DovetailZonalShiftForged", "DovetailZonalShiftContested"),
    }


@pytest.mark.parametrize("path", [RULES[0], RULES[2]], ids=lambda path: path.stem)
def test_what_is_recorded_is_there(path: Path, server: Prometheus) -> None:
    recorded = {rule["record"]: rule["expr"] for group in _groups(path) for rule in group["rules"]}

    # A source without a series yet, such as errors where none happened, has nothing to record.
    silent = {name for name, source in recorded.items() if not server.ask(source)}
    assert {name for name in recorded if not server.ask(name)} <= silent
    assert len(silent) <= len(recorded) / 5, sorted(silent)


def _groups(path: Path) -> list[Json]:
    found: list[Json] = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    return found


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_promtool_finds_nothing_wrong_with_the_rules(path: Path) -> None:
    assert "SUCCESS" in promtool("check", "rules", str(path))


def test_alerts_come_when_they_should_and_not_before() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(HERE / "alerts.test.yaml"))


def test_promtool_reads_the_scrape_job(tmp_path: Path) -> None:
    document = yaml.safe_load((FOLDER / "scrape.yaml").read_text(encoding="utf-8"))
    for job in document["scrape_configs"]:
        # Debian's build of Prometheus knows no Kubernetes; what it would find there is given instead.
        discovered = job.pop("kubernetes_sd_configs")
        assert discovered == [{"role": "endpoints", "namespaces": {"names": ["kube-system"]}}]
        labels = {"__meta_kubernetes_endpoints_name": job["job_name"]}
        job["static_configs"] = [{"targets": ["127.0.0.1:8080"], "labels": labels}]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")

    assert "SUCCESS" in promtool("check", "config", str(tmp_path / "prometheus.yaml"))
