"""Mutants tried by forks of a warm process: what is told as killed was noticed, by a test that is sound."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import FunctionType
from typing import Any

HACK = Path(__file__).parents[2] / "hack"
sys.path.insert(0, str(HACK))
from probes import Probes  # type: ignore[import-not-found]  # noqa: E402  # hack is not a package
from swap import enclosing, swap  # type: ignore[import-not-found]  # noqa: E402

SOURCE = '''
"""A module."""
FIRST = 1


def made_at_import(value: int) -> int:
    return value + 1


TABLE = {made_at_import(1): "two"}


def larger(one: int, other: int) -> int:
    """Which is larger."""
    if one > other:
        return one
    return other


def counted(limit: int) -> int:
    at = 0
    while at < limit:
        at += 1
    return at


def unread(value: int) -> int:
    return value * 3


def closing(start: int):
    def add(value: int) -> int:
        return start + value

    return add


def unreached() -> int:
    return 7
'''
TESTS = """
import pytest
from sample import FIRST, TABLE, closing, counted, larger, unread

ORDER = []


def test_larger():
    ORDER.append("larger")
    assert [larger(1, 2), larger(2, 1)] == [2, 2]


def test_counted():
    assert counted(3) == 3


def test_table():
    assert (TABLE, FIRST) == ({2: "two"}, 1)


def test_closing():
    assert closing(2)(3) == 5


def test_unread():
    unread(2)


def test_that_always_fails():
    assert unread(2) == 0


def test_that_fails_after_another():
    unread(1)
    larger(1, 2)
    assert not ORDER
"""


def job(tmp_path: Path, *changes: tuple[str, str], named: bool = False, **more: Any) -> list[dict[str, Any]]:
    """What the warm process tells of these changes, and of unsound tests."""
    with started(tmp_path, *changes, named=named, **more) as warm:
        told, wrong = warm.communicate()
    lines = [json.loads(line) for line in told.splitlines()]
    assert lines[-1] == {"ended": 0}, wrong
    return lines[:-1]


def started(
    tmp_path: Path, *changes: tuple[str, str], named: bool = False, **more: Any
) -> subprocess.Popen[str]:
    """A warm process with a job of these changes."""
    (tmp_path / "src").mkdir(exist_ok=True)
    (tmp_path / "src" / "sample.py").write_text(SOURCE)
    (tmp_path / "test_sample.py").write_text(TESTS)
    mutants = []
    for code, change in changes:
        assert SOURCE.count(code) == 1
        start = SOURCE.index(code)
        mutants.append(
            {
                "name": f"{code} -> {change}",
                "file": "src/sample.py",
                "start": start,
                "end": start + len(code),
                "new": change,
                "tests": ["test_sample.py"],
                "named": named,
            }
        )
    told = {
        "mutants": mutants,
        "tests": ["test_sample.py"],
        "probed": ["src/sample.py"],
        "kept": str(tmp_path / "kept"),
        "tree": "tree",
        "budget": 60,
        **more,
    }
    (tmp_path / "tmp").mkdir(exist_ok=True)
    (tmp_path / "job").write_text(json.dumps(told))
    with (tmp_path / "job").open() as told_by:
        return subprocess.Popen(
            [sys.executable, str(HACK / "warm.py")],
            cwd=tmp_path,
            env={
                "PYTHONPATH": str(tmp_path / "src"),
                "PATH": "/usr/bin:/bin",
                "TMPDIR": str(tmp_path / "tmp"),
            },
            stdin=told_by,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def test_a_change_is_killed_by_a_test_that_passes_without_it(tmp_path: Path) -> None:
    told = job(
        tmp_path,
        ("one > other", "one < other"),
        ("value * 3", "value * 4"),
        ("start + value", "start - value"),
        ("return 7", "return 8"),
    )
    by_name = {each["mutant"]: each for each in told if "mutant" in each}
    assert by_name["one > other -> one < other"]["noticed"].startswith("test_sample.py::test_larger ")
    assert by_name["start + value -> start - value"]["noticed"].startswith("test_sample.py::test_closing ")
    # Reached by a sound test that does not look, and by two that fail with nothing broken.
    assert by_name["value * 3 -> value * 4"] == {
        "mutant": "value * 3 -> value * 4",
        "noticed": "",
        "tried": 1,
    }
    assert by_name["return 7 -> return 8"]["tried"] == 0
    unsound = {each["unsound"] for each in told if "unsound" in each}
    assert unsound == {
        "test_sample.py::test_that_always_fails",
        "test_sample.py::test_that_fails_after_another",
    }


def test_a_change_that_never_ends_is_noticed(tmp_path: Path) -> None:
    (told,) = (
        each
        for each in job(tmp_path, ("at += 1", "at += 0"), spare=1.0)
        if each.get("mutant") == "at += 1 -> at += 0"
    )
    assert told["noticed"] == "test_sample.py::test_counted does not come to an end"


def test_one_that_is_stopped_ends_its_fork_and_removes_what_tests_wrote(tmp_path: Path) -> None:
    """The fork is in a loop without end when the signal comes, with minutes to go."""
    with started(tmp_path, ("one > other", "one < other"), ("at += 1", "at += 0"), spare=600.0) as warm:
        assert warm.stdout is not None
        while "one > other" not in warm.stdout.readline():
            pass  # what is not broken has been learned
        while not (fork := Path(f"/proc/{warm.pid}/task/{warm.pid}/children").read_text().strip()):
            time.sleep(0.01)
        while int(Path(f"/proc/{fork}/stat").read_text().split()[13]) < 10:
            time.sleep(0.01)  # a tenth of a second of work: it is in its loop
        warm.terminate()
    assert not Path(f"/proc/{fork}").exists()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_what_only_a_new_process_would_see_is_told_so(tmp_path: Path) -> None:
    told = job(tmp_path, ("FIRST = 1", "FIRST = 2"), ("value + 1", "value + 2"))
    assert [each.get("cold") for each in told if "mutant" in each] == [True, True]


def test_tests_named_by_hand_that_reach_it_in_no_process_of_ours_are_asked_in_a_new_one(
    tmp_path: Path,
) -> None:
    """They may start a process that imports the code from its file, where no fork has changed it."""
    told = job(tmp_path, ("return 7", "return 8"), ("value * 3", "value * 4"), named=True)
    assert [each.get("cold") for each in told if "mutant" in each] == [True, None]


def test_what_was_learned_is_kept_until_the_test_changes(tmp_path: Path) -> None:
    job(tmp_path, ("one > other", "one < other"))
    (kept,) = (tmp_path / "kept" / "tree").iterdir()
    learned = json.loads(kept.read_text())
    # What is not known of a file is learned when it is asked for.
    kept.write_text(json.dumps([each for each in learned if "larger" not in each[0]]))
    (told,) = (each for each in job(tmp_path, ("one > other", "one < other")) if "mutant" in each)
    assert told["noticed"].startswith("test_sample.py::test_larger ")
    assert {each[0] for each in json.loads(kept.read_text())} == {each[0] for each in learned}


def place(code: str) -> int:
    assert SOURCE.count(code) == 1
    return SOURCE.index(code)


def test_a_probe_stands_around_a_place_and_tells_branches_apart(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(SOURCE)
    probes = Probes(tmp_path, ["sample.py"])
    found = {
        code: probes.at("sample.py", place(code))
        for code in ("one > other", "return one\n", "return other", "at = 0", "return at")
    }
    assert None not in found.values()
    assert len(set(found.values())) == len(found)
    assert probes.at("sample.py", place("FIRST = 1")) is None


def test_a_function_is_swapped_where_it_lives(tmp_path: Path) -> None:
    path = str(tmp_path / "sample.py")
    space: dict[str, Any] = {}
    exec(compile(SOURCE, path, "exec"), space)
    functions = [each for each in space.values() if isinstance(each, FunctionType)]
    start = place("start + value")
    places = enclosing(SOURCE, start, start + len("start + value"))
    assert places == ((("closing", 0),), (("closing", 0), ("add", 0)))
    held = space["closing"](2)
    changed = SOURCE.replace("start + value", "start - value")
    assert swap([*functions, held], path, SOURCE, changed, places)
    assert (held(3), space["closing"](2)(3)) == (-1, -1)
    # Without a variable of the function around it the closure is another: that needs a new process.
    lost = SOURCE.replace("start + value", "value")
    assert not swap([held], path, SOURCE, lost, places[1:])
    assert enclosing(SOURCE, place("FIRST = 1"), place("FIRST = 1") + 5) == ()
