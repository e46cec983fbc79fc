"""The chart's dashboards and rules: off by default, and the same files as in deploy/observability."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.helm import ChartError, by_name, rendered

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "observability"
MONITORING = ("monitoring.coreos.com/v1",)
Json = dict[str, Any]


def of_kind(objects: list[Json], kind: str) -> list[Json]:
    return [each for each in objects if each["kind"] == kind]


def groups(name: str) -> list[Json]:
    found: list[Json] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))["groups"]
    return found


def test_neither_is_there_unless_asked_for() -> None:
    objects = rendered(apis=MONITORING)

    assert not of_kind(objects, "ConfigMap")
    assert not of_kind(objects, "PrometheusRule")


def test_each_dashboard_is_a_config_map_that_grafanas_sidecar_finds() -> None:
    maps = of_kind(rendered({"dashboards": {"enabled": True}}), "ConfigMap")

    assert sorted(each["metadata"]["name"] for each in maps) == [
        "karpenter-dashboard-capacity",
        "karpenter-dashboard-cost",
        "karpenter-dashboard-interruption-bus",
        "karpenter-dashboard-performance",
        "karpenter-dashboard-shadow",
        "karpenter-dashboard-zonal-shift",
    ]
    for each in maps:
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["labels"]["app.kubernetes.io/name"] == "karpenter"
        ((name, text),) = each["data"].items()
        assert json.loads(text) == json.loads((FOLDER / "dashboards" / name).read_text(encoding="utf-8"))


def test_a_sidecar_with_another_label_folder_and_namespace_is_served_too() -> None:
    values = {
        "enabled": True,
        "namespace": "monitoring",
        "labels": {"dashboard": "yes"},
        "annotations": {"grafana_folder": "Karpenter"},
    }
    maps = of_kind(rendered({"dashboards": values}), "ConfigMap")

    for each in maps:
        assert each["metadata"]["namespace"] == "monitoring"
        assert each["metadata"]["labels"]["dashboard"] == "yes"
        assert each["metadata"]["annotations"]["grafana_folder"] == "Karpenter"
    assert len(maps) == len(list((FOLDER / "dashboards").glob("*.json"))) > 4


def test_rules_need_their_api() -> None:
    values = {"prometheusRule": {"enabled": True}}

    assert not of_kind(rendered(values), "PrometheusRule")
    rule = by_name(rendered(values, apis=MONITORING), "PrometheusRule", "karpenter")
    assert rule["spec"]["groups"] == [*groups("rules.yaml"), *groups("alerts.yaml")]


def test_old_names_come_when_asked_for() -> None:
    values = {"prometheusRule": {"enabled": True, "oldNames": True, "additionalLabels": {"release": "prom"}}}
    rule = by_name(rendered(values, apis=MONITORING), "PrometheusRule", "karpenter")

    assert rule["spec"]["groups"][2:] == groups("old-names.yaml")
    assert rule["metadata"]["labels"]["release"] == "prom"


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"dashboards": {"enabled": "yes"}}, "/dashboards/enabled"),
        ({"dashboards": {"on": True}}, "on"),
        ({"prometheusRule": {"oldNames": 1}}, "/prometheusRule/oldNames"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(values: Json, told: str) -> None:
    with pytest.raises(ChartError, match=told):
        rendered(values)
