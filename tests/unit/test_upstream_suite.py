"""How upstream's specs are chosen, shared out among clusters, judged and written down."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "hack" / "upstream-suite"))
import upstream_specs as specs  # type: ignore[import-not-found]  # noqa: E402  # hack is not a package
import upstream_verdicts as verdicts  # type: ignore[import-not-found]  # noqa: E402

KNOWN = {f"I{number}": f"Integration spec {number}" for number in range(1, 100)}


def run_module() -> Any:
    found = importlib.util.spec_from_file_location("run_upstream", ROOT / "hack/upstream-suite/run.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def tried(key: str, verdict: str = verdicts.PASS) -> Any:
    return verdicts.SpecRun(key, KNOWN[key], verdict, 2.0, 0.5, 100.0)


def suite_of(runs: list[Any], **given: object) -> Any:
    run = run_module()
    options = argparse.Namespace(**{"reference": False, "controller": run.OURS, **given})
    suite = run.Suite(options, KNOWN, Path())
    suite.runs = runs
    return run, suite


def page(folder: Path) -> Path:
    found = folder / "compatibility.md"
    found.write_text(f"# Before\n\n{verdicts.BEGIN}\nold\n{verdicts.END}\n\nafter\n")
    return found


def test_words_stand_for_ids_ranges_groups_and_patterns() -> None:
    known = KNOWN | {"D1": "Drift one", "D2": "Drift two"}

    assert specs.chosen_specs(["I3-I5", "D1", "I4", "/two/"], known) == ["I3", "I4", "I5", "D1", "D2"]
    with pytest.raises(specs.UnknownSpec, match="D12"):
        specs.chosen_specs(["D12"], known)
    with pytest.raises(specs.UnknownSpec, match="I100"):
        specs.chosen_specs(["I98-I100"], known)


def test_the_specs_that_wait_longest_are_begun_first_and_none_is_lost() -> None:
    order = specs.queue_of_specs(["I1", "D12", "I2", "N6"])

    assert order == ["N6", "D12", "I1", "I2"]


def test_two_specs_that_want_the_same_port_never_run_at_once() -> None:
    queue = specs.SpecQueue(["C1", "C2", "I1"])

    assert [queue.take(), queue.take()] == ["C1", "I1"]
    later: list[str | None] = []
    waiting = threading.Thread(target=lambda: later.append(queue.take()))
    waiting.start()
    assert not later
    queue.done("C1")
    waiting.join(10)
    assert later == ["C2"]
    assert queue.take() is None


def test_a_spec_passes_only_if_it_ran_and_nothing_around_it_failed() -> None:
    def report(*states: tuple[str, str]) -> str:
        reports = [
            {"State": state, "LeafNodeType": leaf, "RunTime": 1_500_000_000, "Failure": {"Message": "no"}}
            for leaf, state in states
        ]
        return json.dumps([{"SpecReports": reports}])

    assert verdicts.read_report(report(("It", "passed"), ("It", "skipped"))) == ("pass", 1.5, "")
    assert verdicts.read_report(report(("It", "passed"), ("AfterEach", "failed")))[0] == "FAIL"
    assert verdicts.read_report(report(("It", "skipped")))[0] == "FAIL"


def test_a_run_of_all_specs_writes_the_table_and_names_what_failed(tmp_path: Path) -> None:
    runs = [tried(key) for key in reversed(KNOWN)] + [tried(key) for key in KNOWN if key != "I7"]
    run, suite = suite_of([*runs, tried("I7", verdicts.FAIL)])

    said = run.write_table(suite, page(tmp_path))

    written = (tmp_path / "compatibility.md").read_text()
    assert said == "the table of compatibility.md was written"
    assert "**98 of 99** specs passed every time, each run 2 times" in written
    assert "| I7 | Integration spec 7 | **1/2** | 2 | 0.5 | 100 |" in written
    assert "| I8 | Integration spec 8 | 2/2 | 2 | 0.5 | 100 |" in written
    assert written.index("| I1 |") < written.index("| I99 |")
    assert "old" not in written
    assert written.endswith("\n\nafter\n")


@pytest.mark.parametrize(
    ("given", "count", "said"),
    [
        ({}, 98, "98 of 99 specs were run"),
        ({"reference": True}, 99, "this was not our controller"),
        ({"controller": "other"}, 99, "this was not our controller"),
    ],
)
def test_any_other_run_leaves_the_table_and_says_so(
    tmp_path: Path, given: dict[str, object], count: int, said: str
) -> None:
    run, suite = suite_of([tried(key) for key in [*KNOWN][:count]], **given)
    file = page(tmp_path)
    before = file.read_text()

    assert run.write_table(suite, file) == f"compatibility.md is left as it is: {said}"
    assert file.read_text() == before


def test_the_page_has_the_marks_the_table_goes_between() -> None:
    text = (ROOT / "docs" / "compatibility.md").read_text()

    assert verdicts.with_table(text, "x").count("\nx\n") == 1
