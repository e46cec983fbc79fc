"""Try many mutants in one warm process: tests are collected once, a mutant is a fork that changes a function.

Run by `hack/mutants.py` as a program of its own: a job as JSON on its input, a line of JSON for each answer.
Before a file of tests is asked for the first time, it runs with nothing broken; that tells what passes, how
long it takes and which code it reaches. A mutant meets the tests that reach it, file by file as the job names
them (those that are known already first), in each the quickest first. One that a test notices is told as
killed only after the same tests in the same order have passed in a fork without it.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from probes import Probes
from swap import enclosing, live_functions, swap

SOUND, BROKEN = ".", "F"
MEMORY = 8 << 30  # bytes: a mutant that eats more has been noticed
SPARE, TIMES = 30.0, 10.0  # seconds, and times what a test took unbroken, that it may take
BUSY = 20.0  # times the processor's share: on a busy machine a slow run is no finding


@dataclass(frozen=True)
class Known:
    """What the unbroken run told of a test."""

    seconds: float
    reached: int  # a bit for each probe


@dataclass
class Answer:
    """How a list of tests went in a fork: how many ran, and what was noticed."""

    ran: int = 0
    noticed: str = ""
    test: str = ""
    cold: bool = False
    told: list[list[Any]] = field(default_factory=list)


class Warm:
    """The plugin that runs instead of pytest's own loop."""

    def __init__(self, job: dict[str, Any], probes: Probes, say: Callable[[dict[str, Any]], None]) -> None:
        self.job, self.probes, self.say = job, probes, say
        self._reports: list[pytest.TestReport] = []
        self._at_import: frozenset[int] = frozenset()
        self._known: dict[str, Known] = {}
        self._learned: set[Path] = set()
        self._files: dict[Path, list[pytest.Item]] = {}
        self._functions: dict[str, list[FunctionType]] = {}
        self._fork: tuple[int, str] | None = None  # the one that runs, and its folder

    def stop(self, number: int, _frame: object) -> None:
        """End at once, with the fork that runs and what it has written."""
        if self._fork is not None:
            child, folder = self._fork
            _end(child)
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(128 + number)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Failed(f"{session.testsfailed} errors while collecting")
        self._at_import = frozenset(self.probes.seen)
        self._functions = live_functions(self.probes.paths)
        for item in session.items:
            self._files.setdefault(item.path, []).append(item)
        for path in self._files:
            if self._kept(path).exists():
                self._learn(path)
        for mutant in self.job["mutants"]:
            self.say({"mutant": mutant["name"], **self._tried(mutant)})
        return True

    # What passes unbroken

    def _learn(self, path: Path) -> None:
        """Know the tests of a file, from an earlier run where neither code nor tests changed since."""
        if path in self._learned:
            return
        self._learned.add(path)
        kept, items = self._kept(path), self._files[path]
        told = json.loads(kept.read_text()) if kept.exists() else []
        heard = {each[0] for each in told}
        told += self._unbroken([item for item in items if item.nodeid not in heard])
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(told))
        for test, outcome, seconds, reached in told:
            if outcome == SOUND:
                self._known[test] = Known(seconds, int(reached, 16))
            else:
                self.say({"unsound": test, "why": "fails before anything is broken"})

    def _kept(self, path: Path) -> Path:
        own = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        return Path(self.job["kept"]) / self.job["tree"] / f"{path.stem}-{own}.json"

    def _unbroken(self, items: list[pytest.Item]) -> list[list[Any]]:
        """Each test with how it went, its seconds and its reach; one that ends its process is unsound."""
        told: list[list[Any]] = []
        while len(told) < len(items):
            answer = self._forked(items[len(told) :], lambda: True, whole=True)
            told.extend(answer.told)
            if len(told) < len(items):
                told.append([items[len(told)].nodeid, BROKEN, 0.0, "0"])
        return told

    # What a mutant meets

    def _tried(self, mutant: dict[str, Any]) -> dict[str, Any]:
        path = str(Path(mutant["file"]).absolute())
        before = Path(path).read_text(encoding="utf-8")
        after = before[: mutant["start"]] + mutant["new"] + before[mutant["end"] :]
        places = enclosing(before, mutant["start"], mutant["end"])
        probe = self.probes.at(mutant["file"], mutant["start"])
        if not places or probe is None or probe in self._at_import:
            return {"cold": True}

        def change() -> bool:
            self.probes.change(path, after)
            loaded = any(getattr(each, "__file__", None) == path for each in list(sys.modules.values()))
            return not loaded or swap(self._functions[path], path, before, after, places)

        left, tried, reached = float(self.job["budget"]), 0, False
        for chosen in self._chosen(mutant, probe):
            reached = reached or any(self._known[item.nodeid].reached >> probe & 1 for item in chosen)
            fit = []
            for item in chosen:
                left -= self._known[item.nodeid].seconds
                if left < 0 and tried + len(fit):
                    break
                fit.append(item)
            answer = self._judged(fit, change)
            tried += answer.ran
            if answer.cold:
                return {"cold": True}
            if answer.noticed:
                return {"noticed": f"{answer.test} {answer.noticed}", "tried": tried}
            if left < 0 and tried:
                break  # what is left over would only be learned for nothing
        if mutant["named"] and not reached:
            return {"cold": True}  # tests that were named by hand reach it in processes that they start
        return {"noticed": "", "tried": tried}

    def _judged(self, items: list[pytest.Item], change: Callable[[], bool]) -> Answer:
        """How tests of a file went; one that fails unbroken as well, after those before it, is left out."""
        while True:
            answer = self._forked(items, change)
            if answer.cold or not answer.noticed:
                return answer
            control = self._forked(items[: answer.ran], lambda: True)
            if not control.noticed:
                return answer
            self.say({"unsound": control.test, "why": control.noticed})
            items = [item for item in items if item.nodeid != control.test]

    def _chosen(self, mutant: dict[str, Any], probe: int) -> Iterator[list[pytest.Item]]:
        """The tests to try, file by file: those that reach the place; all where they are named by hand."""
        for path in sorted(self._files, key=lambda path: self._rank(path, mutant["tests"])):
            items = [item for item in self._files[path] if _is_of(item.nodeid, mutant["tests"])]
            if items:
                self._learn(path)
            elif mutant["named"]:
                continue
            else:  # not asked for, and free where it is known
                items = self._files[path]
            items = [item for item in items if item.nodeid in self._known]
            reaching = [item for item in items if self._known[item.nodeid].reached >> probe & 1]
            reaching.sort(key=lambda item: self._known[item.nodeid].seconds)
            yield reaching
            if mutant["named"]:
                yield [item for item in items if item not in set(reaching)]

    def _rank(self, path: Path, named: Sequence[str]) -> tuple[bool, bool, int]:
        """Files that are named come first, of these the known ones, and each in the order of the names."""
        files = (each.partition("::")[0] for each in named)
        test = self._files[path][0].nodeid
        place = next((i for i, each in enumerate(files) if _is_of(test, [each])), len(named))
        return place == len(named), path not in self._learned, place

    # Forks

    def _forked(
        self, items: Sequence[pytest.Item], change: Callable[[], bool], whole: bool = False
    ) -> Answer:
        """Run tests in a fork, up to the first that fails or (`whole`) all of them."""
        answer = Answer()
        if not items:
            return answer
        folder = tempfile.mkdtemp(prefix="dovetail-warm-")
        source, sink = os.pipe()
        child = os.fork()
        if not child:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.close(source)
            try:
                self._run(items, change, whole, Path(folder), os.fdopen(sink, "w", buffering=1))
            finally:
                os._exit(0)
        self._fork = child, folder
        os.close(sink)
        try:
            with os.fdopen(source) as lines:
                self._follow(child, lines, items, whole, answer)
        finally:
            self._fork = None
            _end(child)
            shutil.rmtree(folder, ignore_errors=True)
        return answer

    def _run(
        self, items: Sequence[pytest.Item], change: Callable[[], bool], whole: bool, folder: Path, sink: Any
    ) -> None:
        """In the fork: change what is to be changed, run the tests, tell of each."""
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        items[0].config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        if not change():
            print(json.dumps(["cold"]), file=sink)
            return
        for i, item in enumerate(items):
            print(json.dumps(["begin", item.nodeid]), file=sink)
            begun = time.process_time()
            resource.setrlimit(resource.RLIMIT_CPU, (int(begun + self._allowed(item)) + 1, -1))
            self.probes.seen.clear()
            self._reports.clear()
            following = items[i + 1] if i + 1 < len(items) else None
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            wrong = [each for each in self._reports if each.failed]
            why = _words(wrong[0]) if wrong else ""
            reached = hex(sum(1 << each for each in self.probes.seen)) if whole else ""
            spent = time.process_time() - begun
            print(json.dumps(["end", item.nodeid, why, spent, reached]), file=sink)
            if wrong and not whole:
                return

    def _allowed(self, item: pytest.Item) -> float:
        known = self._known.get(item.nodeid)
        return 600.0 if known is None else self.job.get("spare", SPARE) + TIMES * known.seconds

    def _follow(
        self, child: int, lines: Any, items: Sequence[pytest.Item], whole: bool, answer: Answer
    ) -> None:
        """Hear a fork out; one that says nothing for too long, or ends in the middle, has been noticed."""
        waiting = None
        for line in _heard(lines, lambda: BUSY * max((self._allowed(each) for each in items), default=SPARE)):
            match json.loads(line):
                case ["cold"]:
                    answer.cold = True
                    return
                case ["begin", test]:
                    waiting = test
                case ["end", test, why, spent, reached]:
                    waiting = None
                    answer.ran += 1
                    answer.told.append([test, BROKEN if why else SOUND, round(spent, 4), reached])
                    if why and not whole:
                        answer.noticed, answer.test = why, test
                        return
        if waiting is not None and not whole:
            answer.ran += 1
            answer.noticed, answer.test = "does not come to an end", waiting


def _heard(lines: Any, patience: Callable[[], float]) -> Iterator[str]:
    """Lines until the end, or until none comes any more."""
    held = b""
    while select.select([lines.fileno()], [], [], patience())[0]:
        read = os.read(lines.fileno(), 1 << 16)
        if not read:
            return
        *whole, held = (held + read).split(b"\n")
        yield from (each.decode() for each in whole)


def _end(child: int) -> None:
    """End a fork and whatever it started."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(child, signal.SIGKILL)  # not a group of its own yet, or no more
    os.waitpid(child, 0)


def _words(report: pytest.TestReport) -> str:
    told = getattr(report.longrepr, "reprcrash", None)
    words = str(told.message if told else report.longrepr).strip() or "failed"
    return words.splitlines()[0][:160]


def _is_of(test: str, named: Sequence[str]) -> bool:
    return any(test == each or test.startswith((each + "::", each + "[", each + "/")) for each in named)


def main() -> int:
    job = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w", buffering=1)
    probes = Probes(Path.cwd(), job["probed"])
    probes.install()
    os.environ["DOVETAIL_HYPOTHESIS"] = "mutants"
    options = ["-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "no:xdist"]
    warm = Warm(job, probes, lambda told: print(json.dumps(told), file=out))
    signal.signal(signal.SIGTERM, warm.stop)
    with tempfile.TemporaryFile() as words:
        os.dup2(words.fileno(), 1)  # pytest's own words are read only when it could not begin
        ended = pytest.main([*options, *job["tests"]], plugins=[warm])
        if ended:
            words.seek(0)
            print(words.read().decode(errors="replace")[-4000:], file=sys.stderr)
    print(json.dumps({"ended": int(ended)}), file=out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
