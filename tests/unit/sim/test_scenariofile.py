"""A scenario's file: what is wrong with it is told with its line, and nothing wrong with it ends in a bug."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import BadInput, DovetailError
from dovetail.play import play_scenario
from dovetail.sim.scenario_file import parse_scenario, read_scenario

HEAD = "apiVersion: dovetail.sh/v1alpha1\nkind: Scenario\nduration: 2m\n"
SHORT: dict[str, Any] = {"apiVersion": "dovetail.sh/v1alpha1", "kind": "Scenario", "duration": "2m"}


def told(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "s.yaml"
    file.write_text(HEAD + text)
    with pytest.raises(BadInput) as wrong:
        read_scenario(file)
    return [line.removeprefix(f"{file}:") for line in str(wrong.value).splitlines()]


def test_every_misspelt_name_is_told_with_its_line_and_the_nearest_one(tmp_path: Path) -> None:
    text = """
sede: 3
workloads:
  - name: web
    replcas: {value: 3}
    replicas: {hihg: 3}
events:
  - at: 1m
    reclaim: {shrae: 0.5}
"""
    assert told(tmp_path, text) == [
        "5: error: sede: there is no such field; did you mean seed?",
        "8: error: workloads[0].replcas: there is no such field; did you mean replicas?",
        "9: error: workloads[0].replicas.hihg: there is no such field; did you mean high?",
        "12: error: events[0].reclaim.shrae: there is no such field; did you mean share?",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("step: 0s", "4: step: 0s must be more than 0s"),
        ("step: -1s", "4: step: -1s must be more than 0s"),
        ("floorEvery: soon", "4: floorEvery: 'soon' is no duration, such as 90s or 1h30m"),
        ("start: 9999-12-31T23:59:59Z", "4: start: must be a year from 1970 to 2200"),
        ("start: '2026-01-05T00:00:00'", "4: start: Expected datetime with a timezone component"),
        (
            "settings: {BATCH_IDLE_DURATOIN: 1s}",
            "4: settings.BATCH_IDLE_DURATOIN: there is no such setting; did you mean BATCH_IDLE_DURATION",
        ),
        ("pools: [{name: a}, {name: a}]", "4: pools: a is there 2 times; give each a name of its own"),
        ("pools: [{nodes: 1000000000}]", "4: pools[0].nodes: Expected int <= 20000"),
        ("workloads: [{cpu: '1'}]", "4: workloads[0]: Object missing required field name"),
        (
            "workloads: [{name: w, replicas: {curve: wavy}}]",
            "4: workloads[0].replicas.curve: Invalid enum value 'wavy'",
        ),
        (
            "workloads: [{name: w, replicas: {curve: bursty, every: 0s}}]",
            "4: workloads[0].replicas.every: 0s must be more than 0s",
        ),
        (
            "workloads: [{name: w, replicas: {curve: trace}}]",
            "4: workloads[0].replicas: a trace needs a file",
        ),
        ("events: [{at: 1m}]", "4: events[0]: it does not say what happens; add one of reclaim, zoneLoss"),
        ("events: [{at: 1m, zoneLoss: {}}]", "4: events[0].zoneLoss: Object missing required field zone"),
        ("events: [{at: 1m, price: {factor: .inf}}]", "4:35: .inf has no counterpart in JSON"),
        ("events: [{at: 1m, reclaim: {share: 2}}]", "4: events[0].reclaim.share: Expected float <= 1"),
        (
            "workloads: [{name: web}]\nevents: [{at: 1m, rollout: {workload: wbe}}]",
            "5: events[0].rollout.workload: there is no wbe; did you mean web?",
        ),
        ("events: [{at: 1m, apply: [{kind: Pod}]}]", "4: events[0].apply[0]: a manifest needs apiVersion"),
        ("manifests: [{apiVersion: v1, kind: Pod}]", "4: manifests[0]: a manifest needs metadata.name"),
        (
            "manifests: [{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: 7}}]",
            "4: manifests[0].spec.containers: Pod p would be set aside: ",
        ),
        (
            "manifests: [{apiVersion: v1, kind: Node, metadata: {name: big}, "
            f"status: {{allocatable: {{memory: '{'9' * 400}'}}}}}}]",
            "4: manifests[0]: Node big would be set aside: status.allocatable[memory] is more than any",
        ),
    ],
)
def test_what_could_not_happen_is_told_before_the_run(tmp_path: Path, text: str, complaint: str) -> None:
    assert told(tmp_path, text)[0].replace(" error:", "").startswith(complaint)


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ({"pools": [{"policy": "Sometimes"}]}, "the scenario's NodePool default is refused: "),
        ({"workloads": [{"name": "Not A Name"}]}, "the scenario's Deployment Not A Name is refused: "),
        ({"workloads": [{"name": "w", "cpu": "much"}]}, "the scenario's Deployment w is refused: "),
        (
            {"workloads": [{"name": "w", "maxUnavailable": "some"}]},
            "the scenario's PodDisruptionBudget w is refused: ",
        ),
        (
            {"manifests": [{"apiVersion": "v1", "kind": "Pdo", "metadata": {"name": "x"}}]},
            "the scenario's Pdo x is refused: ",
        ),
    ],
)
def test_what_the_api_server_does_not_take_is_told_in_its_words(more: dict[str, Any], refused: str) -> None:
    story = parse_scenario({**SHORT, **more}, Path("s.yaml"))
    with pytest.raises(BadInput, match=refused):
        play_scenario(story)


@pytest.mark.parametrize("cell", ["", "inf", "nan", "1e300", "-", "many"])
def test_a_trace_with_something_else_than_numbers_is_one_sentence(tmp_path: Path, cell: str) -> None:
    (tmp_path / "t.csv").write_text(f"seconds,replicas\n0,1\n60{',' if cell else ''}{cell}\n")
    curve = {"curve": "trace", "file": "t.csv"}
    story = parse_scenario({**SHORT, "workloads": [{"name": "w", "replicas": curve}]}, tmp_path / "s.yaml")
    with pytest.raises(BadInput, match="needs the columns seconds and replicas"):
        play_scenario(story)


def test_a_pod_that_asks_for_more_than_there_is_of_anything_waits_and_ends_nothing() -> None:
    monster = {"name": "monster", "cpu": "1e30", "memory": "1e30", "replicas": {"value": 1}}
    web = {"name": "web", "replicas": {"value": 2}}
    report = play_scenario(parse_scenario({**SHORT, "workloads": [monster, web]}, Path("s.yaml")))
    assert (report.pods_started, report.pods_waiting) == (2, 1)


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [0, -1, 10**30, 1e308, float("inf"), "", "0s", "-5m", "1e30", "\x1b[31m", "2026-01-01", "\0"]
    ),
    st.just([]),
    st.just({}),
    st.just([{}]),
    st.just({"a": {"b": [1]}}),
)
STORY: dict[str, Any] = {
    **SHORT,
    "step": "1m",
    "settings": {"BATCH_IDLE_DURATION": "1s"},
    "pools": [{"name": "default", "nodes": 1, "spec": {}, "budgets": [{"nodes": "10%"}]}],
    "workloads": [{"name": "web", "cpu": "1", "replicas": {"value": 1}, "spec": {}, "labels": {"a": "b"}}],
    "manifests": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}],
    "events": [{"at": "1m", "reclaim": {"share": 0.5}, "failure": {"count": 1}, "drift": {}}],
    "objectives": [{"pendingWithin": "1m", "available": 0.9, "share": 1.0}],
}


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in the story at which something else could stand."""
    steps: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        steps = list(value.items())
    if isinstance(value, list):
        steps = list(enumerate(value))
    return [place for step, inner in steps for place in ((*path, step), *_paths(inner, (*path, step)))]


def _with(value: Any, path: tuple[str | int, ...], odd: Any) -> Any:
    if not path:
        return odd
    changed: Any = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = _with(value[path[0]], path[1:], odd)
    return changed


@given(st.sampled_from(_paths(STORY)), ODD)
def test_whatever_stands_in_a_field_the_story_is_played_or_refused_in_words(
    path: tuple[str | int, ...], odd: Any
) -> None:
    document = _with(STORY, path, odd)
    try:
        story = parse_scenario(document, Path("s.yaml"))
        play_scenario(story, lambda share, moment: share > 0.5)
    except DovetailError as refused:
        said = str(refused)
    else:
        said = "played"
    assert said
