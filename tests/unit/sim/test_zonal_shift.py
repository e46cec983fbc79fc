"""A zone is shifted away in a scenario: the controllers follow, and the report tells what became of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dovetail.app.controller import Dovetail
from dovetail.errors import BadInput
from dovetail.play import play_scenario, scenario_run
from dovetail.settings import Settings
from dovetail.sim.report import ShiftResult, build_document, render_shift, render_text
from dovetail.sim.scenario import (
    ReplicaCurve,
    Scenario,
    ScenarioEvent,
    ScenarioPool,
    ScenarioShift,
    ScenarioWorkload,
    ZoneLoss,
)
from dovetail.sim.scenario_file import parse_scenario

ZONE = "topology.kubernetes.io/zone"
A = "test-zone-a"
SMALL = [{"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]}]
SPREAD: dict[str, Any] = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
# Grows fivefold while the zone is away.
GROWS = ReplicaCurve(curve="bursty", base=12, burst=60, every="1h", lasts="35m")


def story(*events: ScenarioEvent, zone: str = A, **about: Any) -> Scenario:
    web = ScenarioWorkload("web", cpu="1", replicas=GROWS, spec={"topologySpreadConstraints": [SPREAD]})
    shift = ScenarioEvent("55m", zonal_shift=ScenarioShift(zone, lasts="12m"))
    settings = {"ENABLE_DO_NOT_DISRUPT": "true", "ZONAL_SHIFT_MIN_HOLD": "1m"}
    given: dict[str, Any] = {
        "duration": "100m",
        "step": "15s",
        "pools": [ScenarioPool(requirements=SMALL, consolidate_after="1m")],
        "workloads": [web],
        "events": [shift, *events],
        "settings": settings,
        **about,
    }
    return Scenario("dovetail.sh/v1alpha1", "Scenario", **given)


def test_nothing_is_bought_in_the_zone_while_the_load_grows_and_all_is_undone() -> None:
    report = play_scenario(story())
    (told,) = report.shifts
    assert (told.zone, told.nodes_bought, told.nodes_gone, told.pods_gone) == (A, 0, 0, 0)
    assert told.began == pytest.approx(55 * 60, abs=20)
    assert told.active is not None
    assert told.active - told.began < 30
    assert told.restored is not None
    assert told.restoring is not None
    assert told.began + 12 * 60 - 1 <= told.restoring < told.restored
    assert int(told.impact["pods"]) > 0
    assert report.pods_waiting == 0
    assert f"  {render_shift(told)}\n" in render_text(report)
    documents: Any = build_document(report)["shifts"]
    assert documents[0]["nodes_bought"] == 0


def test_without_the_shift_the_zone_would_have_been_bought_in() -> None:
    unheeded = play_scenario(story(settings={"ENABLE_ZONAL_SHIFT": "false"}))
    (told,) = unheeded.shifts
    assert told.active is None
    assert told.nodes_bought > 0


def test_pods_that_a_lost_zone_takes_along_are_counted() -> None:
    report = play_scenario(story(ScenarioEvent("58m", zone_loss=ZoneLoss(A, lasts="5m"))))
    assert report.shifts[0].pods_gone > 0
    assert report.shifts[0].nodes_bought == 0


def test_a_zone_nobody_knows_is_refused_and_the_report_says_so() -> None:
    report = play_scenario(story(zone="mars-a", duration="65m"))
    assert report.shifts[0].refused
    assert "mars-a was not shifted away" in render_text(report)


def test_a_shift_is_read_by_its_words_and_a_wrong_one_refused(tmp_path: Any) -> None:
    head = {"apiVersion": "dovetail.sh/v1alpha1", "kind": "Scenario"}
    event = {"at": "5m", "zonalShift": {"zone": A, "for": "40m"}}
    found = parse_scenario({**head, "events": [event]}, tmp_path / "s.yaml")
    assert found.shifts
    assert found.events[0].zonal_shift == ScenarioShift(A, lasts="40m")
    for wrong in ({"zone": A, "for": "soon"}, {"for": "5m"}, {"zone": A, "lasts": "5m"}):
        with pytest.raises(BadInput):
            parse_scenario({**head, "events": [{**event, "zonalShift": wrong}]}, tmp_path / "s.yaml")


def test_a_shift_is_told_in_a_sentence_however_far_it_came() -> None:
    whole = ShiftResult("a", 60.0, active=63.0, restoring=600.0, restored=1200.0, nodes_gone=1)
    assert render_shift(whole).startswith(
        "a was shifted away at 1m; in force 3 s later; 0 nodes launched there, 1 removed"
    )
    assert render_shift(whole).endswith("all undone at 20m")
    assert render_shift(ShiftResult("a", 60.0, active=63.0, restoring=600.0)).endswith(
        "shifting back was not over yet"
    )
    assert render_shift(ShiftResult("a", 60.0, active=63.0)).endswith("still shifted away at the end")


def test_the_policy_of_the_story_counts_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also fields that are read only then: the ConfigMap is there before the controllers are."""
    started: list[Settings] = []

    class Watched(Dovetail):
        def __init__(self, settings: Settings, *given: Any, **named: Any) -> None:
            started.append(settings)
            super().__init__(settings, *given, **named)

    monkeypatch.setattr(scenario_run, "Dovetail", Watched)
    policy = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "policy", "namespace": "shifts"},
        "data": {"rehearsal": "@weekly", "min-hold": "3m"},
    }
    inside = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shifts"}}
    settings = {"ZONAL_SHIFT_CONFIG_MAP": "shifts/policy", "ZONAL_SHIFT_MIN_HOLD": "1m"}
    play_scenario(story(duration="2m", events=[], settings=settings, manifests=[inside, policy]))
    play_scenario(story(duration="2m", settings=settings, manifests=[inside, policy]))
    off, on = (each.zonal_policy for each in started)
    assert (off.rehearsal, on.rehearsal, on.min_hold) == ("", "@weekly", timedelta(minutes=3))
