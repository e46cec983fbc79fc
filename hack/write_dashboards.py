"""Grafana dashboards and Prometheus rules, from short tables. `make dashboards` writes deploy/observability.

Where a panel stands follows from its order and width.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))
from dashboards import DASHBOARDS, FULL, Dashboard, Panel
from prometheus_rules import SCRAPE, rules

ROOT = Path(__file__).resolve().parent.parent / "deploy" / "observability"
Json = dict[str, Any]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def grafana(board: Dashboard) -> Json:
    """A dashboard as Grafana imports it."""
    return {
        "annotations": {"list": []},
        "editable": True,
        "graphTooltip": 1,
        "panels": _placed(board.panels),
        "refresh": board.refresh,
        "schemaVersion": 39,
        "tags": list(board.tags),
        "templating": {"list": _variables(board)},
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "title": board.title,
        "uid": board.uid,
        "version": 1,
    }


def _variables(board: Dashboard) -> list[Json]:
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    asked = [
        {
            "name": name,
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "multi": multi,
            "includeAll": multi,
            "current": {"text": "All", "value": "$__all"} if multi else {},
            "sort": 1,
        }
        for name, query, multi in board.variables
    ]
    given = [
        {
            "name": name,
            "type": "custom",
            "query": ",".join(values),
            "options": [{"text": v, "value": v, "selected": v == values[0]} for v in values],
            "current": {"text": values[0], "value": values[0]},
        }
        for name, values in board.choices
    ]
    return [source, *asked, *given]


def _placed(panels: tuple[Panel, ...]) -> list[Json]:
    """Panels from left to right, and a new row where one does not fit any more."""
    found, x, y, tallest = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > FULL:
            x, y, tallest = 0, y + tallest, 0
        place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        found.append(_panel(number, panel, place))
        x, tallest = x + panel.width, max(tallest, panel.height)
    return found


def _panel(number: int, panel: Panel, place: Json) -> Json:
    table = panel.kind == "table"
    targets = [
        {
            "datasource": SOURCE,
            "editorMode": "code",
            "expr": expression,
            "legendFormat": legend,
            "refId": chr(ord("A") + n),
            **({"format": "table", "instant": True} if table else {}),
        }
        for n, (expression, legend) in enumerate(panel.queries)
    ]
    shown: Json = {
        "id": number,
        "title": panel.title,
        "type": panel.kind,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": targets,
    }
    if panel.about:
        shown["description"] = panel.about
    if table:
        shown |= _joined(panel)
    return shown


def _joined(panel: Panel) -> Json:
    names = {f"Value #{chr(ord('A') + n)}": legend for n, (_, legend) in enumerate(panel.queries)}
    gauges = [name for name in names.values() if "Utilization" in name]
    return {
        "transformations": [
            {"id": "joinByField", "options": {"byField": panel.join, "mode": "outer"}},
            {
                "id": "organize",
                "options": {"excludeByName": {"Time": True}, "renameByName": names},
            },
        ],
        "fieldConfig": {
            "defaults": {"unit": panel.unit},
            "overrides": [
                {
                    "matcher": {"id": "byName", "options": name},
                    "properties": [
                        {"id": "unit", "value": "percentunit"},
                        {"id": "min", "value": 0},
                        {"id": "max", "value": 1},
                        {"id": "custom.cellOptions", "value": {"type": "gauge"}},
                    ],
                }
                for name in gauges
            ],
        },
    }


def files() -> dict[str, str]:
    """Every file's text, by its path below deploy/observability."""
    head = "# Written by `make dashboards` from hack/write_dashboards.py; do not edit.\n"
    found = {f"dashboards/{b.name}.json": json.dumps(grafana(b), indent=2) + "\n" for b in DASHBOARDS}
    found["scrape.yaml"] = head + yaml.safe_dump(SCRAPE, sort_keys=False, width=110)
    for name, content in rules().items():
        found[name] = head + yaml.safe_dump(content, sort_keys=False, width=110)
    return found


def main() -> None:
    for path, text in files().items():
        target = ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    print(f"wrote {len(files())} files below deploy/observability")


if __name__ == "__main__":
    main()
