#!/usr/bin/env python3
"""Try a controller with upstream Karpenter's own end-to-end specs, on control planes of its own.

    run.py                                  all 99, four clusters side by side; writes docs/compatibility.md
    run.py smoke D12 N1-N5 /drift/          groups, ids, ranges and /regexes/; writes no documentation
    run.py --reference D12                  the same against upstream's own controller
    run.py --list                           every spec with its id

Each run of a spec is one line: id, verdict, seconds, the controller's CPU seconds and peak memory, name.
Logs and reports stay under --out.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from upstream_cluster import GATES, ControllerUnderTest, SuiteFailed, UpstreamCluster
from upstream_specs import (
    ALL,
    GROUPS,
    SpecQueue,
    UnknownSpec,
    binaries,
    chosen_specs,
    listed_specs,
    queue_of_specs,
)
from upstream_verdicts import (
    FAIL,
    KILLED,
    PASS,
    SpecRun,
    as_table,
    read_report,
    save_run,
    summed_up,
    with_table,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
OURS = f"{sys.executable} -m dovetail controller --provider kwok"
PORTS_EACH = 100


class Suite:
    """All that one call of this program runs, and what came of it."""

    def __init__(self, options: argparse.Namespace, known: dict[str, str], out: Path) -> None:
        self.options, self.known, self.out = options, known, out
        self.runs: list[SpecRun] = []
        self._begun: Counter[str] = Counter()
        self.problems: list[str] = []
        self._lock = threading.Lock()
        self._specs: set[subprocess.Popen[bytes]] = set()

    def end_specs(self) -> None:
        """End the specs that run; their clusters and controllers stop behind them."""
        for process in tuple(self._specs):
            process.kill()

    def work(self, number: int, queue: SpecQueue, folder: Path) -> None:
        """One cluster and its controller, as long as there are specs to run."""
        cluster = UpstreamCluster(folder, self.options.port + PORTS_EACH * number)
        try:
            cluster.start()
            try:
                self._try_all(number, queue, cluster)
            finally:
                cluster.stop()
        except SuiteFailed as problem:
            self.problems.append(str(problem))

    def _try_all(self, number: int, queue: SpecQueue, cluster: UpstreamCluster) -> None:
        command = self.options.controller
        if self.options.reference:
            command = str(binaries() / "karpenter-reference")
        log = self.out / f"controller-{number}.log"
        controller = ControllerUnderTest(cluster, command, log, self.options.gates)
        controller.start()
        try:
            while (key := queue.take()) is not None:
                try:
                    self._told(self._tried(key, cluster, controller), cluster)
                finally:
                    queue.done(key)
                if not controller.alive:
                    print(f"the controller died; it is started again, see {log}", flush=True)
                    controller.start()
        finally:
            controller.stop()

    def _told(self, run: SpecRun, cluster: UpstreamCluster) -> None:
        with self._lock:
            self.runs.append(run)
            save_run(run, self.out / "results.jsonl")
            print(run, flush=True)
        if run.verdict != PASS:
            cluster.scrub()

    def _tried(self, key: str, cluster: UpstreamCluster, controller: ControllerUnderTest) -> SpecRun:
        with self._lock:
            self._begun[key] += 1
            own = self.out / f"{key}-{self._begun[key]}"
        own.mkdir(parents=True)
        report, limit = own / "report.json", self.options.timeout
        command = [
            binaries() / "regression.test",
            f"--ginkgo.focus={re.escape(self.known[key])}$",
            f"--ginkgo.timeout={limit}s",
            "--ginkgo.grace-period=60s",
            "--ginkgo.v",
            "--ginkgo.no-color",
            f"--test.timeout={limit + 600}s",
            f"--ginkgo.json-report={report}",
        ]
        env = os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "OUTPUT_DIR": str(own)}
        controller.reset_peak()
        cpu, began = controller.cpu_seconds(), time.monotonic()
        with (own / "spec.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
            self._specs.add(process)
            try:
                process.wait(limit + 180)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._specs.discard(process)
        seconds = time.monotonic() - began
        verdict, message = KILLED, f"the spec left no report; see {own}"
        if report.exists():
            verdict, inside, message = read_report(report.read_text())
            seconds = inside or seconds
            verdict = FAIL if process.returncode else verdict
        used = controller.cpu_seconds() - cpu
        return SpecRun(key, self.known[key], verdict, seconds, used, controller.peak_mb(), message)


def read_options(arguments: list[str]) -> argparse.Namespace:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--controller", metavar="COMMAND", default=OURS, help="try this (default: ours)")
    who.add_argument("--reference", action="store_true", help="try upstream's own kwok controller")
    parser.add_argument("--list", action="store_true", help="list the specs and groups")
    parser.add_argument("--gates", default=GATES, help="FEATURE_GATES (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=1, help="run each spec so many times (default 1)")
    parser.add_argument("--clusters", type=int, default=4, help="clusters side by side (default 4)")
    parser.add_argument("--port", type=int, default=int(os.environ.get("UPSTREAM_PORT", "26000")))
    parser.add_argument("--timeout", type=int, default=1200, help="seconds for one spec (default 1200)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "upstream", help="logs and reports")
    parser.add_argument("what", nargs="*", metavar="SPEC", help="ids, ranges, groups, /regexes/")
    return parser.parse_args(arguments)


def stop_on_signals(suite: Suite, queue: SpecQueue) -> list[int]:
    """End everything that was started when told to stop; the list then holds the signal."""
    told: list[int] = []

    def stop(number: int, _: object) -> None:
        if not told:
            print("stopping: the specs are ended, then their controllers and clusters", file=sys.stderr)
        told.append(number)
        queue.close()
        suite.end_specs()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return told


def write_table(suite: Suite, page: Path = PAGE) -> str:
    """Write the documentation when every spec was run with our controller, and say what was done."""
    tried, name = {run.id for run in suite.runs}, page.name
    if suite.options.reference or suite.options.controller != OURS:
        return f"{name} is left as it is: this was not our controller"
    if len(tried) < ALL:
        return f"{name} is left as it is: {len(tried)} of {ALL} specs were run"
    order = list(suite.known)
    runs = sorted(suite.runs, key=lambda run: order.index(run.id))
    when = datetime.now(UTC).date().isoformat()
    page.write_text(with_table(page.read_text(), as_table(runs, who="Dovetail", when=when)))
    return f"the table of {name} was written"


def main(arguments: list[str]) -> int:
    options = read_options(arguments)
    known = listed_specs()
    if options.list:
        print("\n".join([*(f"{key:<5} {name}" for key, name in known.items())]))
        print("\n".join(f"group {group}: {words}" for group, words in GROUPS.items()))
        return 0
    try:
        chosen = chosen_specs(options.what, known) if options.what else list(known)
    except UnknownSpec as problem:
        sys.exit(str(problem))
    out = options.out / datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    out.mkdir(parents=True)
    suite, queue = Suite(options, known, out), SpecQueue(queue_of_specs(chosen) * options.repeat)
    count = min(options.clusters, len(chosen) * options.repeat)
    with tempfile.TemporaryDirectory(prefix="upstream-") as folder:
        workers = [
            threading.Thread(target=suite.work, args=(number, queue, Path(folder) / str(number)))
            for number in range(count)
        ]
        stopped = stop_on_signals(suite, queue)
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    print(summed_up(suite.runs))
    for problem in suite.problems:
        print(problem, file=sys.stderr)
    if not suite.problems and not stopped:
        print(write_table(suite))
    if stopped:
        return 130
    failed = [run for run in suite.runs if run.verdict != PASS]
    return 1 if failed or suite.problems or len(suite.runs) < len(chosen) * options.repeat else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
