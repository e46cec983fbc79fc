"""The list of safety-critical lines fits the code, and drawn changes are changes that run."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "hack"))
import mutants  # type: ignore[import-not-found]  # noqa: E402  # hack is not a package
from mutations import mutations  # type: ignore[import-not-found]  # noqa: E402

LISTED = tomllib.loads((ROOT / "hack" / "mutants.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("entry", LISTED["listed"], ids=lambda entry: entry["name"])
def test_a_listed_line_is_there_once_and_so_are_its_tests(entry: dict[str, str]) -> None:
    source = (ROOT / entry["file"]).read_text(encoding="utf-8")
    assert source.count(entry["code"]) == 1
    ast.parse(source.replace(entry["code"], entry["change"]))
    assert [test for test in entry["tests"] if not (ROOT / test.partition("::")[0]).exists()] == []


def test_every_part_of_the_core_has_tests_that_exist() -> None:
    known = mutants.read_list()
    for part in mutants.CORE:
        assert known.tests_of(f"src/dovetail/{part}/any.py")
    listed = {each.partition("::")[0] for tests in known.tests.values() for each in tests}
    assert [each for each in listed if not (ROOT / each).exists()] == []


SOURCE = '''
def chosen(values: list[int], most: int = 3) -> int | None:
    """Not changed: 1 < 2."""
    if not values or most > 9 and values[0] == 1:
        return None
    for value, _ in zip(values, values, strict=True):
        if value is None:
            continue
        print(value + 1)
    assert values != []
    return max(values) - (most)
'''


def test_each_change_is_one_change_and_still_python() -> None:
    found = [each.applied(SOURCE) for each in mutations(SOURCE)]
    assert len(set(found)) == len(found)
    for changed in found:
        ast.parse(changed)
        assert changed != SOURCE
    lines = {line.strip() for changed in found for line in changed.splitlines()}
    assert {
        "if not values or most >= 9 and values[0] == 1:",
        "if not values or most > 9 and values[0] != 1:",
        "if not values or most > 9 and values[(1)] == 1:",
        "if (not values):",
        "if not values or (most > 9):",
        "if value is not None:",
        "break",
        "pass",
        "print(value - 1)",
        "return min(values) - (most)",
        "return max(values) + (most)",
        "return None",
    } <= lines
    assert all("strict=True" in changed for changed in found)
    assert all(
        '"""Not changed: 1 < 2."""' in changed and "assert values != []" in changed for changed in found
    )


@pytest.mark.parametrize("entry", LISTED.get("equivalent", []), ids=lambda entry: entry["code"])
def test_a_change_listed_as_equivalent_can_be_drawn_and_says_why(entry: dict[str, str]) -> None:
    source = (ROOT / entry["file"]).read_text(encoding="utf-8")
    drawn = (mutants.Mutant("", entry["file"], source, each, ()).lines for each in mutations(source))
    assert (entry["code"], entry["change"]) in drawn
    assert len(entry["why"].split()) > 3


def test_a_run_goes_on_where_another_of_the_same_seed_ended() -> None:
    known = mutants.read_list()
    whole = mutants.sampled(known, 6, "a", ("state",))
    assert mutants.sampled(known, 4, "a", ("state",), 2) == whole[2:]


def test_the_same_seed_draws_the_same_mutants_and_another_seed_others() -> None:
    known = mutants.read_list()

    def names(seed: str) -> list[str]:
        return [each.name for each in mutants.sampled(known, 20, seed, ("state",))]

    assert names("a") == names("a") != names("b")
    assert len(names("a")) == 20


def test_a_change_listed_as_equivalent_is_not_drawn() -> None:
    known = mutants.read_list()
    first = mutants.sampled(known, 1, "a", ("state",))[0]
    without = mutants.MutantList(known.listed, frozenset({(first.file, *first.lines)}), known.tests)
    drawn = mutants.sampled(without, 3, "a", ("state",))
    assert (first.file, *first.lines) not in {(each.file, *each.lines) for each in drawn}


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 9])
def test_the_parts_of_a_list_are_the_list(parts: int) -> None:
    whole = list("abcdefg")
    taken = [mutants.take_part(whole, f"{i}/{parts}") for i in range(1, parts + 1)]
    assert [each for part in taken for each in part] == whole


@pytest.mark.parametrize("part", ["0/2", "3/2", "2", "a/b", "1/0"])
def test_a_part_that_is_none_is_refused(part: str) -> None:
    with pytest.raises(SystemExit, match="--part"):
        mutants.take_part("ab", part)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_run_that_is_stopped_leaves_no_copy_behind(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, str(ROOT / "hack" / "mutants.py"), "--no-listed", "--sample", "1"]
    run = subprocess.Popen(
        [*command, "--within", "state"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert run.stdout is not None
    assert run.stdout.readline().startswith("drawn by --seed 1 ")  # the copy is made
    while not Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text():
        time.sleep(0.01)  # its tests are about to be collected
    assert len(list(tmp_path.iterdir())) == 1
    run.send_signal(number)
    run.stdout.close()
    assert run.wait() != 0
    assert list(tmp_path.iterdir()) == []
