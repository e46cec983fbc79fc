"""The metrics of a scripted run against the table: every name, its type, its labels and its bounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.api import labels
from dovetail.controllers.observing.series import label_name
from support.worlds import FLAVOUR

Json = dict[str, Any]
TESTS = Path(__file__).parents[1]
TABLE: Json = yaml.safe_load((Path(__file__).parent / "metrics.yaml").read_text(encoding="utf-8"))
OURS = {"CLASS": ["karpenter_kwok_sh_kwoknodeclass"], "nodeclass": "kwoknodeclass"}
NODE = sorted({label_name(key) for key in FLAVOUR.well_known} | {"node_name", "phase", "managed"})


def observed(*arguments: str) -> Json:
    done = subprocess.run(
        [sys.executable, "-m", "support.metrics_run", *arguments],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: Json = json.loads(done.stdout)
    return found


@cache
def story() -> Json:
    return observed("story")


def expected() -> Iterator[tuple[str, Json]]:
    """Every metric by its whole name."""
    yield from TABLE["metrics"].items()
    for kind, about in TABLE["kinds"].items():
        name = OURS["nodeclass"] if kind == "nodeclass" else kind
        for what, each in TABLE["of_kinds"].items():
            whole = each | {"labels": [*each["labels"], *about["extras"]], "bounds": about["bounds"]}
            yield f"operator_{name}_{what}", whole
    for what, each in TABLE["of_kinds"].items():
        bounds = TABLE["older_form"]["bounds"]
        yield f"operator_{what}", each | {"labels": [*each["labels"], "group", "kind"], "bounds": bounds}


def spelled_out(names: list[str]) -> list[str]:
    places = {"NODE": NODE, "CLASS": OURS["CLASS"]}
    return sorted(found for name in names for found in places.get(name, [name]))


@pytest.mark.spec("operations-18.6")
@pytest.mark.parametrize(("name", "about"), [pytest.param(n, a, id=n) for n, a in expected()])
def test_a_scripted_run_shows_every_metric_as_the_table_has_it(name: str, about: Json) -> None:
    seen = story().get(name)
    assert seen is not None, f"{name} was never shown"
    assert seen["type"] == about["type"]
    assert seen["labels"] == [spelled_out(about["labels"])], "nothing was counted, or by other labels"
    if about["type"] == "histogram":
        bounds = [*TABLE["bounds"][about["bounds"]], float("inf")]
        assert sorted(map(float, seen["bounds"])) == pytest.approx(bounds)
    if about["type"] == "summary":
        assert sorted(map(float, seen["quantiles"])) == TABLE["quantiles"]


@pytest.mark.parametrize("what", TABLE["of_kinds"])
def test_the_older_form_speaks_of_every_kind_but_nodes(what: str) -> None:
    assert sorted(story()[f"operator_{what}"]["kinds"]) == sorted(TABLE["older_form"]["kinds"])


def test_nodes_on_aws_are_told_apart_by_the_labels_of_the_table() -> None:
    ours = {label_name(key) for key in labels.AWS.well_known} | {"node_name", "phase", "managed"}
    assert ours == set(TABLE["node"])


def test_five_hundred_nodes_make_under_two_thousand_series_unless_all_are_asked_for() -> None:
    found = observed("nodes", "530")
    assert found["nodes"] >= 500
    assert sum(found["series"].values()) <= 2000, found["series"]
