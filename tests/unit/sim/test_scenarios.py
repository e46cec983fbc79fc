"""The scenarios that come along: each is read, each can be played, and the guide knows every field."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.errors import BadInput
from dovetail.play import play_scenario
from dovetail.sim.report import render_text
from dovetail.sim.scenario import (
    PoolDrift,
    ReplicaCurve,
    Scenario,
    ScenarioEvent,
    ScenarioObjective,
    ScenarioPool,
    ScenarioWorkload,
)
from dovetail.sim.scenario_file import read_scenario

ROOT = Path(__file__).parents[3]
SCENARIOS = sorted((ROOT / "examples" / "scenarios").glob("*.yaml"))
GUIDE = ROOT / "docs" / "guides" / "simulate.md"
REPORTS = ROOT / "docs" / "guides" / "scenarios.md"


def cut_down(story: Scenario) -> Scenario:
    """A hundredth of a scenario with thousands of nodes, so that its beginning is played in moments."""
    if all(pool.nodes < 1000 for pool in story.pools):
        return story
    pools = [msgspec.structs.replace(pool, nodes=pool.nodes // 100) for pool in story.pools]
    workloads = [
        msgspec.structs.replace(each, replicas=ReplicaCurve(value=each.replicas.value // 100))
        for each in story.workloads
    ]
    return msgspec.structs.replace(story, pools=pools, workloads=workloads)


def test_there_are_scenarios() -> None:
    assert "inflate.yaml" in {path.name for path in SCENARIOS}


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_is_read_with_pools_workloads_and_a_length(path: Path) -> None:
    story = read_scenario(path)
    assert story.length > timedelta(minutes=2)
    assert story.pools
    assert story.workloads


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_first_two_minutes_of_a_scenario_give_its_pods_nodes(path: Path) -> None:
    story = cut_down(read_scenario(path))
    wanted = sum(workload.replicas.build_curve(path.parent)(0.0) for workload in story.workloads)
    report = play_scenario(msgspec.structs.replace(story, duration="2m", step="10s"))
    assert report.hours == pytest.approx(2 / 60, abs=0.001)
    # A consolidation may move pods, which then start once more.
    assert report.pods_started >= wanted > 0
    assert report.pods_waiting == 0
    assert report.nodes_added > 0
    assert report.dollars > 0


def test_an_event_happens_at_its_moment() -> None:
    story = read_scenario(ROOT / "examples" / "scenarios" / "spot-reclaim.yaml")
    early = [msgspec.structs.replace(event, at="1m") for event in story.events[:1]]
    calm = play_scenario(msgspec.structs.replace(story, duration="5m", step="10s", events=[]))
    stormy = play_scenario(msgspec.structs.replace(story, duration="5m", step="10s", events=early))
    # A calm fleet may lose a node to consolidation; the storm takes a third of all.
    assert stormy.nodes_removed >= calm.nodes_removed + calm.nodes_most // 4


def test_a_pool_begins_with_nodes_as_if_they_had_been_bought() -> None:
    pool = ScenarioPool(nodes=6, consolidate_after="30m")
    web = ScenarioWorkload("web", cpu="500m", replicas=ReplicaCurve(value=6))
    story = Scenario("dovetail.sh/v1alpha1", "Scenario", duration="10m", pools=[pool], workloads=[web])
    report = play_scenario(story)
    assert (report.nodes_added, report.nodes_removed) == (6, 0)
    assert report.samples[0].nodes == 6
    assert report.samples[0].dollars > 0
    assert (report.pods_started, report.wait_most) == (6, 1.0)
    # They are out of date when their pool's template changes, as any other node is.
    drifted = play_scenario(
        msgspec.structs.replace(story, duration="30m", events=[ScenarioEvent("1m", drift=PoolDrift())])
    )
    assert drifted.nodes_removed == 6
    assert drifted.evictions == 6


def test_a_pool_that_nothing_meets_cannot_begin_with_nodes() -> None:
    cpu = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["3000"]}
    story = Scenario("dovetail.sh/v1alpha1", "Scenario", pools=[ScenarioPool(nodes=1, requirements=[cpu])])
    with pytest.raises(BadInput, match="no instance type meets its requirements"):
        play_scenario(story)


def test_a_misspelt_field_is_refused_with_its_place(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("apiVersion: dovetail.sh/v1alpha1\nkind: Scenario\npools: [{nmae: a}]\n")
    with pytest.raises(
        BadInput, match=r"wrong.yaml:3: error: pools.0..nmae: there is no such field; did you mean name"
    ):
        read_scenario(wrong)


def test_the_guide_lists_every_scenario() -> None:
    linked = set(re.findall(r"examples/scenarios/([a-z0-9-]+\.yaml)\)", GUIDE.read_text(encoding="utf-8")))
    assert linked == {path.name for path in SCENARIOS}


@pytest.mark.parametrize(
    "record", [Scenario, ScenarioPool, ScenarioWorkload, ReplicaCurve, ScenarioEvent, ScenarioObjective]
)
def test_the_guide_explains_every_field(record: type[msgspec.Struct]) -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    cells = " ".join(line.split("|")[1] for line in guide.splitlines() if line.startswith("| `"))
    fields: tuple[Any, ...] = msgspec.structs.fields(record)
    # `folder` is where the file lies: it is not written but found.
    assert [f.encode_name for f in fields if f"`{f.encode_name}`" not in cells] in ([], ["folder"])


def test_the_guide_and_the_page_of_reports_show_what_the_smallest_scenario_says() -> None:
    told = render_text(play_scenario(read_scenario(ROOT / "examples" / "scenarios" / "inflate.yaml")))
    assert told in GUIDE.read_text(encoding="utf-8")
    assert told in REPORTS.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_page_of_reports_shows_what_every_scenario_says(path: Path) -> None:
    story = read_scenario(path)
    _, _, rest = REPORTS.read_text(encoding="utf-8").partition(f"<!-- {path.stem} -->\n")
    hours = f"{round(story.length.total_seconds() / 3600, 4):g}"
    assert rest.startswith(f"```text\n{story.name}: {hours} simulated hours, seed {story.seed}\n  dollars ")
