"""Break the core on purpose, line by line, and see whether the tests notice.

Two sets. *Listed*: the safety-critical lines of `hack/mutants.toml`, each with the tests that guard it.
*Sampled*: changes of any kind, drawn by seed from the packages that decide and act. A mutant is tried in a
copy of the tree, with the tests of its part alone and a limit in time; the working tree is never touched.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import unified_diff
from importlib.util import cache_from_source
from itertools import islice
from pathlib import Path
from queue import SimpleQueue

sys.path.insert(0, str(Path(__file__).parent))

from mutations import Mutation, mutations

ROOT = Path(__file__).parents[1]
LIST = ROOT / "hack" / "mutants.toml"
CORE = ("scheduling", "disruption", "state", "controllers", "zonal")
LISTED_FLOOR, SAMPLED_FLOOR = 0.95, 0.92
LISTING = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
WAIT = 20  # times the processor's share: on a busy machine a slow run is no finding
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
    files = sorted(
        str(path.relative_to(ROOT))
        for part in within
        for path in (ROOT / "src" / "dovetail" / part).rglob("*.py")
    )
    sources = {file: (ROOT / file).read_text(encoding="utf-8") for file in files}
    every = [(file, each) for file in files for each in mutations(sources[file])]
    random.Random(seed).shuffle(every)
    drawn = (
        Mutant(_place(file, sources[file], each), file, sources[file], each, known.tests_of(file))
        for file, each in every
    )
    fit = (each for each in drawn if (each.file, *each.lines) not in known.equivalent)
    return list(islice(fit, skipped, skipped + number))


def _place(file: str, source: str, mutation: Mutation) -> str:
    line = source.count("\n", 0, mutation.start) + 1
    return f"{file}:{line}"


class Copy:
    """A copy of the tracked files, in which one mutant at a time is tried."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tracked = subprocess.run(LISTING, cwd=ROOT, capture_output=True, check=True).stdout
        for name in filter(None, tracked.decode().split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        (folder / ".venv").symlink_to(ROOT / ".venv")

    def failed(self, mutant: Mutant, limit: float) -> str:
        """How the tests noticed the mutant; empty if they did not."""
        self._write(mutant.file, mutant.changed)
        try:
            return self._tested(mutant.tests, limit)
        finally:
            self._write(mutant.file, mutant.source)

    def _write(self, file: str, text: str) -> None:
        path = self.folder / file
        path.write_text(text, encoding="utf-8")
        # Compiled code is told apart by second and size, and mutants come faster than that.
        Path(cache_from_source(str(path))).unlink(missing_ok=True)

    def _tested(self, tests: Sequence[str], limit: float) -> str:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "--no-header",
            *tests,
        ]
        path = f"{self.folder / 'src'}{os.pathsep}{self.folder / 'hack'}"
        around = {**os.environ, "PYTHONPATH": path, "DOVETAIL_HYPOTHESIS": "steady"}
        command = ["bash", "-c", f'ulimit -t {limit:.0f}; exec "$@"', "pytest", *command]
        try:
            done = subprocess.run(
                command, cwd=self.folder, env=around, capture_output=True, text=True, timeout=WAIT * limit
            )
        except subprocess.TimeoutExpired:
            return f"no end in {WAIT * limit:.0f} s"
        if done.returncode in NO_TESTS:
            raise SystemExit(f"no tests to try: {' '.join(tests)}\n{done.stdout}{done.stderr}")
        told = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return (told or ["the run broke off"])[0] if done.returncode else ""

    def sound(self, tests: Iterable[str], limit: float) -> str:
        """What fails before anything is broken; empty if nothing does."""
        return self._tested(sorted(set(tests)), limit)


def tried(mutants: Sequence[Mutant], copies: Sequence[Copy], limit: float) -> Iterator[tuple[Mutant, str]]:
    """Each mutant with how it was noticed, in the order given; as many at once as there are copies."""
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def one(mutant: Mutant) -> str:
        copy = free.get()
        try:
            return copy.failed(mutant, limit)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as workers:
        yield from zip(mutants, workers.map(one, mutants), strict=True)


def report(title: str, mutants: Sequence[Mutant], copies: Sequence[Copy], limit: float, floor: float) -> bool:
    """Try a set, print what survives, and say whether enough was noticed."""
    killed = 0
    for mutant, noticed in tried(mutants, copies, limit):
        killed += bool(noticed)
        if noticed:
            print(f"  killed    {mutant.name}: {noticed.removeprefix('FAILED ')[:120]}", flush=True)
        else:
            print(f"  SURVIVED  {mutant.name}\n{mutant.diff}", flush=True)
    share = killed / len(mutants) if mutants else 1.0
    print(f"{title}: {killed} of {len(mutants)} killed, {share:.1%} (floor {floor:.0%})", flush=True)
    return share >= floor


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sample", type=int, default=60, help="how many drawn mutants (default 60; 0 for none)"
    )
    parser.add_argument("--seed", default="1", help="what they are drawn by (default 1)")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first so many of the draw")
    parser.add_argument("--only", default="", help="of the listed ones, those with this in name or file")
    parser.add_argument("--within", nargs="+", default=CORE, help=f"packages to draw from ({' '.join(CORE)})")
    parser.add_argument("--trust", action="store_true", help="do not run the listed tests unbroken first")
    parser.add_argument("--no-listed", action="store_true", help="draw only")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--limit", type=float, default=600, help="processor seconds a mutant (default 600)")
    options = parser.parse_args()
    known = read_list()
    listed = [each for each in known.listed if options.only in each.name or options.only in each.file]
    listed = [] if options.no_listed else listed
    drawn = sampled(known, options.sample, options.seed, options.within, options.skip)
    with tempfile.TemporaryDirectory(prefix="dovetail-mutants-") as folder:
        copies = [Copy(Path(folder) / str(i)) for i in range(options.jobs)]
        guards = set() if options.trust else {test for each in listed for test in each.tests}
        broken = copies[0].sound(guards, 10 * options.limit) if guards else ""
        if broken:
            print(f"the tests fail before anything is broken: {broken}")
            return 2
        enough = not listed or report("listed", listed, copies, options.limit, LISTED_FLOOR)
        if drawn:
            print(
                f"drawn by --seed {options.seed} --sample {options.sample} --skip {options.skip}", flush=True
            )
            enough = report("sampled", drawn, copies, options.limit, SAMPLED_FLOOR) and enough
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
