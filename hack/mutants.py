"""Break the core on purpose, line by line, and see whether the tests notice.

Two sets. *Listed*: the safety-critical lines of `hack/mutants.toml`, each with the tests that guard it.
*Sampled*: changes of any kind, drawn by seed from the packages that decide and act. Both are tried in a copy
of the tree, by forks of one warm process (`hack/warm.py`); a change that only a new process would see
(outside of functions, or in what runs while modules are imported) is written to the copy. The working tree is
never touched.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from importlib.util import cache_from_source
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parent))

from mutations import Mutation, mutations

T = TypeVar("T")
ROOT = Path(__file__).parents[1]
LIST = ROOT / "hack" / "mutants.toml"
CORE = ("scheduling", "disruption", "state", "controllers", "zonal")
LISTED_FLOOR, SAMPLED_FLOOR = 0.95, 0.92
LISTING = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
WAIT = 20  # times the processor's share: on a busy machine a slow run is no finding
PATIENCE = 60.0  # seconds in which the warm process ends its forks
NO_TESTS = {4, 5}  # pytest's exit codes for an unknown path and for an empty collection


@dataclass(frozen=True)
class Mutant:
    """One file as it is, as it becomes, and the tests to try, in order."""

    name: str
    file: str
    source: str
    mutation: Mutation
    tests: tuple[str, ...]

    @property
    def changed(self) -> str:
        return self.mutation.applied(self.source)

    @property
    def diff(self) -> str:
        """What changes, as a patch without context."""
        lines = unified_diff(self.source.splitlines(), self.changed.splitlines(), self.file, n=0, lineterm="")
        return "\n".join(f"    {line}" for line in list(lines)[2:])

    @property
    def lines(self) -> tuple[str, str]:
        """The changed lines before and after, without indentation: how an equivalent mutant is listed."""
        before, after = self.source.splitlines(), self.changed.splitlines()
        old = [line.strip() for line in before if line not in after] or [""]
        new = [line.strip() for line in after if line not in before] or [""]
        return " ".join(old), " ".join(new)


@dataclass(frozen=True)
class MutantList:
    """What `hack/mutants.toml` says."""

    listed: tuple[Mutant, ...]
    equivalent: frozenset[tuple[str, str, str]]
    tests: dict[str, tuple[str, ...]]

    def tests_of(self, file: str) -> tuple[str, ...]:
        """The tests of the nearest part of the tree that has some; those named like the module come first."""
        part = max((each for each in self.tests if file.startswith(each)), key=len)
        stem = Path(file).stem
        own = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob(f"test_*{stem}*.py"))
        away = ("tests/cluster", "tests/iac", "tests/wire", "tests/deploy")
        return tuple(dict.fromkeys((*(each for each in own if not each.startswith(away)), *self.tests[part])))


def read_list(path: Path = LIST) -> MutantList:
    """The list; a complaint ends the program when an entry does not fit the code."""
    told = tomllib.loads(path.read_text(encoding="utf-8"))
    return MutantList(
        tuple(_listed(entry) for entry in told["listed"]),
        frozenset((each["file"], each["code"], each["change"]) for each in told.get("equivalent", ())),
        {part: tuple(tests) for part, tests in told["tests"].items()},
    )


def _listed(entry: dict[str, object]) -> Mutant:
    name, file, code, change = (str(entry[key]) for key in ("name", "file", "code", "change"))
    tests = entry["tests"]
    assert isinstance(tests, list)
    source = (ROOT / file).read_text(encoding="utf-8")
    if source.count(code) != 1:
        raise SystemExit(
            f"{name}: {file} has {source.count(code)} times {code!r}; the list must name it once"
        )
    start = source.index(code)
    return Mutant(name, file, source, Mutation(start, start + len(code), change), tuple(tests))


def sampled(
    known: MutantList, number: int, seed: str, within: Sequence[str], skipped: int = 0
) -> list[Mutant]:
    """So many mutants of the core, drawn by seed; those listed as equivalent are drawn anew."""
    files = core_files(within)
    sources = {file: (ROOT / file).read_text(encoding="utf-8") for file in files}
    every = [(file, each) for file in files for each in mutations(sources[file])]
    random.Random(seed).shuffle(every)
    drawn = (
        Mutant(_place(file, sources[file], each), file, sources[file], each, known.tests_of(file))
        for file, each in every
    )
    fit = (each for each in drawn if (each.file, *each.lines) not in known.equivalent)
    return list(islice(fit, skipped, skipped + number))


def core_files(within: Sequence[str]) -> list[str]:
    """The modules of some packages."""
    return sorted(
        str(path.relative_to(ROOT))
        for part in within
        for path in (ROOT / "src" / "dovetail" / part).rglob("*.py")
    )


def _place(file: str, source: str, mutation: Mutation) -> str:
    line = source.count("\n", 0, mutation.start) + 1
    return f"{file}:{line}"


def take_part(mutants: Sequence[T], part: str) -> Sequence[T]:
    """The part `i/n` of a list, so that n runs together try each mutant once."""
    number, _, parts = part.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise SystemExit(f"--part {part}: say which of how many, such as 2/6")
    first, after = ((int(number) + less) * len(mutants) // int(parts) for less in (-1, 0))
    return mutants[first:after]


class Copy:
    """A copy of the tracked files, in which one mutant at a time is tried.

    What tests write beside it is under the same temporary folder, and goes with it.
    """

    def __init__(self, temporary: Path) -> None:
        self.folder = folder = temporary / "tree"
        self._written = temporary / "tmp"
        for each in (folder, self._written):
            each.mkdir()
        tracked = subprocess.run(LISTING, cwd=ROOT, capture_output=True, check=True).stdout
        for name in filter(None, tracked.decode().split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        (folder / ".venv").symlink_to(ROOT / ".venv")

    def failed(self, mutant: Mutant, tests: Sequence[str], limit: float) -> str:
        """How the tests noticed the mutant in a process of its own; empty if they did not, or always fail."""
        self._write(mutant.file, mutant.changed)
        try:
            noticed, test = self._tested(tests, limit)
        finally:
            self._write(mutant.file, mutant.source)
        if not noticed:
            return ""
        broken, _ = self._tested([test] if test else tests, limit)
        if broken:
            print(f"  unsound   {broken}", flush=True)
        return "" if broken else noticed

    def _write(self, file: str, text: str) -> None:
        path = self.folder / file
        path.write_text(text, encoding="utf-8")
        # Compiled code is told apart by second and size, and mutants come faster than that.
        Path(cache_from_source(str(path))).unlink(missing_ok=True)

    @property
    def around(self) -> dict[str, str]:
        """The environment in which the copy's modules are the ones imported."""
        path = f"{self.folder / 'src'}{os.pathsep}{self.folder / 'hack'}"
        own = {"PYTHONPATH": path, "DOVETAIL_HYPOTHESIS": "steady", "TMPDIR": str(self._written)}
        return {**os.environ, **own}

    def _tested(self, tests: Sequence[str], limit: float) -> tuple[str, str]:
        """What fails first, in words and by its name where it has one."""
        command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "--no-header", *tests]
        command = ["bash", "-c", f'ulimit -t {limit:.0f}; exec "$@"', "pytest", *command]
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=self.around,
                capture_output=True,
                text=True,
                timeout=WAIT * limit,
            )
        except subprocess.TimeoutExpired:
            return f"no end in {WAIT * limit:.0f} s", ""
        if done.returncode in NO_TESTS:
            raise SystemExit(f"no tests to try: {' '.join(tests)}\n{done.stdout}{done.stderr}")
        if not done.returncode:
            return "", ""
        summary = done.stdout.rpartition("short test summary info")[2]
        told = [line for line in summary.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        if not told:
            return "the run broke off", ""
        kind, _, words = told[0].partition(" ")
        return words, words.partition(" - ")[0] if kind == "FAILED" else ""


@dataclass
class Run:
    """A set of mutants, tried in one warm process of a copy."""

    copy: Copy
    limit: float
    budget: float
    probed: list[str]  # files whose code says which test reaches it
    unsound: int = 0  # tests that fail with nothing broken
    warm: subprocess.Popen[str] | None = None

    def stop(self) -> None:
        """End the warm process, should it run: it writes to the copy."""
        if self.warm is not None and self.warm.poll() is None:
            self.warm.terminate()
            try:
                self.warm.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.warm.kill()

    def tried(self, mutants: Sequence[Mutant], named: bool) -> Iterator[tuple[Mutant, str, int]]:
        """Each mutant, how it was noticed, how many tests it met; `named`: only its own are asked."""
        mutants = list(mutants)
        for told in self._told(self._job(mutants, named)):
            if "unsound" in told:
                self.unsound += 1
                print(f"  unsound   {told['unsound']}: {told['why']}", flush=True)
            elif "mutant" in told:
                mutant = mutants.pop(0)
                if "cold" in told:
                    yield mutant, self.copy.failed(mutant, mutant.tests, self.limit), len(mutant.tests)
                else:
                    yield mutant, told["noticed"], told["tried"]
        if mutants:
            raise SystemExit(f"the warm process broke off at {mutants[0].name}")

    def _job(self, mutants: Sequence[Mutant], named: bool) -> dict[str, object]:
        return {
            "mutants": [
                {
                    "name": each.name,
                    "file": each.file,
                    "start": each.mutation.start,
                    "end": each.mutation.end,
                    "new": each.mutation.new,
                    "tests": each.tests,
                    "named": named,
                }
                for each in mutants
            ],
            "tests": widest({test for each in mutants for test in each.tests}),
            "probed": self.probed,
            "kept": str(ROOT / "build" / "mutants"),
            "tree": self._digest(),
            "budget": self.budget,
        }

    def _digest(self) -> str:
        """A name for everything that an unbroken run depends on but the file of the test itself."""
        made = hashlib.sha256("\n".join(self.probed).encode())
        files = sorted(
            path for part in ("src", "tests", "hack") for path in (self.copy.folder / part).rglob("*")
        )
        for path in files:
            own = path.name.startswith("test_") or path.suffix == ".pyc"
            if path.is_file() and not own and path.name != "mutants.toml":
                made.update(path.read_bytes())
        return made.hexdigest()[:16]

    def _told(self, job: dict[str, object]) -> Iterator[dict[str, Any]]:
        command = [sys.executable, "hack/warm.py"]
        with subprocess.Popen(
            command,
            cwd=self.copy.folder,
            env=self.copy.around,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            self.warm = process
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps(job))
                process.stdin.close()
                for line in process.stdout:
                    yield json.loads(line)
            except BaseException:
                self.stop()  # before it is waited for
                raise


def widest(tests: set[str]) -> list[str]:
    """Paths and names of tests without those that another holds."""
    return sorted(
        each
        for each in tests
        if not any(each != other and each.startswith((other + "/", other + "::")) for other in tests)
    )


def report(title: str, mutants: Sequence[Mutant], run: Run, named: bool, floor: float) -> bool:
    """Try a set, print what survives, and say whether enough was noticed."""
    killed = 0
    for mutant, noticed, met in run.tried(mutants, named):
        killed += bool(noticed)
        if noticed:
            print(f"  killed    {mutant.name}: {noticed[:160]}", flush=True)
        else:
            print(f"  SURVIVED  {mutant.name} ({met} tests)\n{mutant.diff}", flush=True)
    share = killed / len(mutants) if mutants else 1.0
    print(f"{title}: {killed} of {len(mutants)} killed, {share:.1%} (floor {floor:.0%})", flush=True)
    return share >= floor


def _stop(number: int, _frame: object) -> None:
    """Leave as at the end, so that the copy is removed."""
    raise SystemExit(128 + number)


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    options = _read_options()
    known = read_list()
    listed = [each for each in known.listed if options.only in each.name or options.only in each.file]
    listed = [] if options.no_listed else listed
    drawn = sampled(known, options.sample, options.seed, options.within, options.skip)
    probed = sorted({*core_files(CORE), *(each.file for each in (*known.listed, *drawn))})
    with tempfile.TemporaryDirectory(prefix="dovetail-mutants-") as folder:
        run = Run(Copy(Path(folder)), options.limit, options.budget, probed)
        try:
            return _try_both(take_part(listed, options.part), take_part(drawn, options.part), run, options)
        finally:
            run.stop()


def _try_both(
    listed: Sequence[Mutant], drawn: Sequence[Mutant], run: Run, options: argparse.Namespace
) -> int:
    enough = not listed or report("listed", listed, run, True, LISTED_FLOOR)
    if run.unsound:
        print(f"{run.unsound} of the listed tests fail with nothing broken")
        enough = False
    if drawn:
        told = f"--seed {options.seed} --sample {options.sample} --skip {options.skip} --part {options.part}"
        print(f"drawn by {told}", flush=True)
        enough = report("sampled", drawn, run, False, SAMPLED_FLOOR) and enough
    return 0 if enough else 1


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sample", type=int, default=60, help="how many drawn mutants (default 60; 0 for none)"
    )
    parser.add_argument("--seed", default="1", help="what they are drawn by (default 1)")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first so many of the draw")
    parser.add_argument("--part", default="1/1", help="try the part i/n of both sets, such as 2/6")
    parser.add_argument("--only", default="", help="of the listed ones, those with this in name or file")
    parser.add_argument("--within", nargs="+", default=CORE, help=f"packages to draw from ({' '.join(CORE)})")
    parser.add_argument("--no-listed", action="store_true", help="draw only")
    parser.add_argument(
        "--budget", type=float, default=120, help="seconds of tests that a drawn mutant meets (default 120)"
    )
    parser.add_argument(
        "--limit", type=float, default=600, help="processor seconds of a process of its own (default 600)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
