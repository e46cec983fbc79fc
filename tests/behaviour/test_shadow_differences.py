"""One-step differences beside a controller: none beside our own, named ones beside another planner."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from dovetail.history.difference import DifferenceKind, DifferenceReason
from dovetail.history.differences import DifferenceTracker
from dovetail.play import play_scenario
from dovetail.runtime.recording_folder import read_recording
from dovetail.sim.scenario_file import read_scenario

SCENARIOS = Path(__file__).parents[2] / "examples" / "scenarios"


def watch(folder: Path, name: str, duration: str, **settings: str) -> DifferenceTracker:
    """Play a scenario, and compare each of its decisions with ours."""
    story = replace(read_scenario(SCENARIOS / f"{name}.yaml"), duration=duration)
    play_scenario(replace(story, settings={**story.settings, "RECORDING": f"file:{folder}", **settings}))
    tracker = DifferenceTracker()
    for look in read_recording(str(folder)).looks():
        tracker.add_look(look.at, look.situation)
    return tracker


@pytest.mark.spec("SH-2")
def test_beside_our_own_controller_with_the_same_settings_nothing_differs(tmp_path: Path) -> None:
    found = watch(tmp_path, "diurnal-web", "50m")
    assert found.list_differences() == []
    assert found.purchases.compared >= 2
    assert found.consolidations.agreed >= 2


@pytest.mark.spec("SH-3")
def test_beside_another_planner_each_difference_names_planner_or_consolidation(tmp_path: Path) -> None:
    found = watch(tmp_path, "diurnal-web", "30m", PLANNER="one-by-one").list_differences()
    planner = {DifferenceReason.PACKING, DifferenceReason.TYPES, DifferenceReason.LAUNCH}
    consolidation = {
        DifferenceReason.CONSOLIDATION,
        DifferenceReason.METHOD,
        DifferenceReason.TIMING,
        DifferenceReason.BUDGET,
    }
    assert any(each.kind is DifferenceKind.BOUGHT for each in found)
    for each in found:
        assert each.reason in (planner if each.kind is DifferenceKind.BOUGHT else consolidation)
        assert each.dollars == pytest.approx(each.rate * each.hours)
