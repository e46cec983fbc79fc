"""With everything new switched off, a scenario leaves behind what it always did, byte for byte."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
# Those that are played in seconds; `hack/same_bytes.py` plays all.
QUICK = ("inflate", "spot-reclaim", "zonal-shift", "zone-loss")


def load_program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("same_bytes", ROOT / "hack" / "same_bytes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SAME = load_program()


@pytest.mark.spec("FN-1")
@pytest.mark.parametrize("name", QUICK)
def test_a_scenario_says_what_it_said_before(name: str) -> None:
    """The report, every event that is stored, and every metric family but those that came with a feature."""
    assert list(SAME.compare_digests(SAME.read_record()[name], SAME.play_apart(name))) == []


@pytest.mark.spec("FN-1")
def test_every_shipped_scenario_is_on_record_but_one() -> None:
    """Four thousand nodes are played in many minutes; until they are on record the program says so."""
    assert set(SAME.list_scenarios()) - set(SAME.read_record()) == set()
    assert SAME.RECORD.stat().st_size < 1 << 20


def test_every_kind_of_difference_has_a_name() -> None:
    before = {
        "report": "a",
        "events": "b",
        "events by reason": {"Launched": "3 c", "Nominated": "1 d"},
        "metrics": {"karpenter_pods_state": "e", "workqueue_depth": "f"},
    }

    def differences(**changed: object) -> list[str]:
        return list(SAME.compare_digests(before, {**json.loads(json.dumps(before)), **changed}))

    assert differences() == []
    assert differences(report="x") == ["the report differs"]
    assert differences(events="x") == ["the events come in another order"]
    assert differences(**{"events by reason": {"Launched": "4 x", "Frozen": "1 d"}}) == [
        "events Frozen is new",
        "events Launched differs",
        "events Nominated is gone",
    ]
    allowed = dict.fromkeys((f"{prefix}x" for prefix in SAME.MAY_BE_NEW), "g")
    assert differences(metrics={**before["metrics"], **allowed}) == []  # type: ignore[dict-item]
    assert differences(metrics={"workqueue_depth": "x", "dovetail_frozen": "h"}) == [
        "metric dovetail_frozen is new",
        "metric karpenter_pods_state is gone",
        "metric workqueue_depth differs",
    ]
    assert list(SAME.compare_digests({}, before)) == ["nothing is on record; say --record"]


def test_what_the_machine_says_of_the_process_is_no_part_of_it() -> None:
    text = (
        "# HELP process_cpu_seconds_total x\n# TYPE process_cpu_seconds_total counter\n"
        "process_cpu_seconds_total 3.5\n# HELP workqueue_depth x\n# TYPE workqueue_depth gauge\n"
        'workqueue_depth{name="a"} 0.0\n'
    )
    assert list(SAME.split_exposition(text)) == ["workqueue_depth"]
    assert len(SAME.split_exposition(text)["workqueue_depth"]) == 3
