#!/usr/bin/env python3
"""Dovetail beside the original: the same workloads through Karpenter's own scheduler and through ours.

    python hack/bench_peer.py                                   the quick set: 100 and 1,000 pods, one seed
    python hack/bench_peer.py --family diverse --size 10000 --seed 1 --seed 2
    python hack/bench_peer.py --goals --seed 11 --seed 12       what there are goals for, on other seeds
    python hack/bench_peer.py --ours-only                       without Go, without the original

The original (hack/peer, a Go program over the published module) is built once, into a cache outside this
checkout. Both sides run in one go, each workload in processes of its own.

cold    wall clock of the first plan of a process: the table of the catalogue and every first call included
warm    wall clock of the same plan in a process that has planned before, as a controller has
first   processor time of the warm plan, indexing left out on both sides: its ratio holds on a busy machine
times faster    the original's wall clock, with 1 worker or with 5, whichever is better, against our cold plan
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / "hack" / "peer"
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(PEER))

FAMILIES = (
    "web",
    "mix",
    "iid",
    "capped",
    "daemons",
    "spot",
    "arch",
    "pools",
    "batch",
    "services",
    "prefer",
    "existing",
    "diverse",
)
GOALS: dict[tuple[str, int], tuple[float, float]] = {
    ("mix", 100): (1, 0.0),
    ("mix", 1000): (5, 0.003),
    ("arch", 1000): (5, 0.003),
    ("existing", 1000): (5, 0.01),
    ("spot", 1000): (5, 0.0),
    ("daemons", 1000): (0, 0.003),
    ("capped", 1000): (0, 0.003),
    ("pools", 1000): (0, 0.01),
    ("prefer", 1000): (20, 0.01),
    ("services", 1000): (20, 0.015),
    ("diverse", 1000): (20, 0.03),
    ("diverse", 5000): (60, 0.03),
    ("diverse", 10000): (100, 0.03),
    ("capped", 5000): (200, 0.003),
    ("mix", 20000): (200, 0.003),
}
"""Times faster than the original, and the share above the bound; 0 where there is no goal."""
WORKERS = (1, 5)
COLD_RUNS = 3  # processes of a small workload, of which the quickest counts
COLUMNS = (
    ("workload", "workload", "{}"),
    ("cold_s", "cold s", "{:.3f}"),
    ("warm_s", "warm s", "{:.3f}"),
    ("first_s", "first plan s", "{:.3f}"),
    ("first_dollars", "$/h", "{:.2f}"),
    ("dollars", "improved $/h", "{:.2f}"),
    ("improve_s", "improving s", "{:.2f}"),
    ("bound", "bound $/h", "{:.2f}"),
    ("gap", "above bound", "{:.1%}"),
    ("nodes", "nodes", "{}"),
    ("rss_mib", "MiB", "{:.0f}"),
    ("peer_wall_s", "original s", "{:.3f}"),
    ("peer_workers", "workers", "{}"),
    ("peer_dollars", "$/h", "{:.2f}"),
    ("peer_nodes", "nodes", "{}"),
    ("peer_rss_mib", "MiB", "{:.0f}"),
    ("faster_cold", "times faster", "{:.1f}"),
    ("faster_warm", "warm", "{:.1f}"),
    ("faster", "by processor time", "{:.1f}"),
    ("cheaper", "cheaper", "{:.1%}"),
    ("missed", "goals missed", "{}"),
)


def main() -> int:
    options = _options()
    if options.measure:
        print(json.dumps(_ours(Path(options.measure))))
        return 0
    cache = Path(options.cache).expanduser()
    cache.mkdir(parents=True, exist_ok=True)
    program = None if options.ours_only else _built(cache)
    if program is None and not options.ours_only:
        return 2
    rows = []
    for path in _workloads(options, cache):
        row = {"workload": path.stem, **_in_child(path)}
        if program is not None:
            row |= _better(program, path, options.workers or WORKERS)
            row["faster"] = row["peer_s"] / row["first_s"]
            row["faster_cold"] = row["peer_wall_s"] / row["cold_s"]
            row["faster_warm"] = row["peer_wall_s"] / row["warm_s"]
            row["cheaper"] = 1 - row["dollars"] / row["peer_dollars"]
        if options.goals:
            row["missed"] = _missed(path.stem, row)
        rows.append(row)
        print(_line(row), flush=True)
    _store(rows, Path(options.out))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--family", action="append", choices=FAMILIES, help="workload family; may be repeated"
    )
    parser.add_argument("--size", action="append", type=int, help="pods; may be repeated (100 and 1000)")
    parser.add_argument("--seed", action="append", type=int, help="seed; may be repeated (1)")
    parser.add_argument("--subset", default="main", help="catalogue subset: main, 400 or 144")
    parser.add_argument("--workers", action="append", type=int, help="workers of the original (1 and 5)")
    parser.add_argument("--goals", action="store_true", help="the workloads there are goals for")
    parser.add_argument("--cache", default=os.environ.get("XDG_CACHE_HOME", "~/.cache") + "/dovetail-peer")
    parser.add_argument("--out", default=str(ROOT / "build" / "bench" / "peer.json"))
    parser.add_argument("--ours-only", action="store_true", help="do not run the original")
    parser.add_argument("--measure", metavar="FILE", help=argparse.SUPPRESS)
    return parser.parse_args()


def _built(cache: Path) -> Path | None:
    """The original's program, built if it is not there or older than its sources."""
    go = shutil.which("go")
    if go is None:
        print(
            "Go is missing, so the original cannot be built; install Go 1.26 or run with --ours-only",
            file=sys.stderr,
        )
        return None
    program = cache / "peer"
    newest = max(path.stat().st_mtime for path in PEER.glob("*.go"))
    if not program.exists() or program.stat().st_mtime < newest:
        print("building the original …", flush=True)
        made = subprocess.run([go, "build", "-C", str(PEER), "-o", str(program), "."], check=False)
        if made.returncode:
            print("go build failed; its complaint is above", file=sys.stderr)
            return None
    return program


def _workloads(options: argparse.Namespace, cache: Path) -> list[Path]:
    import workloads

    made = []
    asked = [(f, size) for size in options.size or (100, 1000) for f in options.family or FAMILIES]
    for family, size in GOALS if options.goals else asked:
        for seed in options.seed or (1,):
            suffix = "" if options.subset == "main" else f"-t{options.subset}"
            path = cache / f"{family}-{size}-s{seed}{suffix}.json"
            if not path.exists():
                path.write_text(json.dumps(workloads.build(family, size, str(seed), options.subset)))
            made.append(path)
    return made


def _in_child(path: Path) -> dict[str, Any]:
    """Our side in processes of its own, so that its memory is its own, and its first plan the first."""
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", str(path)]
    runs = COLD_RUNS if _size(path) <= 1000 else 1
    measured: list[dict[str, Any]] = []
    for _ in range(runs):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        measured.append(json.loads(done.stdout))
    best = min(measured, key=lambda each: each["first_s"])
    return best | {name: min(each[name] for each in measured) for name in ("cold_s", "warm_s")}


def _size(path: Path) -> int:
    return int(path.stem.split("-")[1])


def _missed(name: str, row: dict[str, Any]) -> str:
    """The goals of this workload that were missed, or a dash."""
    family, size = name.split("-")[:2]
    faster, gap = GOALS[family, int(size)]
    words = []
    if faster and row.get("faster_cold", faster) < faster:
        words.append(f"{faster:g}x")
    if gap and row["gap"] is not None and row["gap"] > gap:
        words.append(f"{gap:.1%}")
    return ", ".join(words) or "-"


def _ours(path: Path) -> dict[str, Any]:
    from dovetail.scheduling import verify
    from dovetail.scheduling.model.decision_cache import DecisionCache
    from dovetail.scheduling.sequential.scheduler import SequentialScheduler
    from dovetail.scheduling.solve import QUICK, THOROUGH, build_first_plan
    from support.peer_workloads import snapshot_of

    snapshot = snapshot_of(json.loads(path.read_text()))
    repeats = 5 if len(snapshot.pods) <= 1000 else 3
    times, walls, plan, cache = [], [], None, DecisionCache()
    for _ in range(repeats + 1):
        begun, started = time.process_time(), time.perf_counter()
        plan = build_first_plan(snapshot, QUICK, cache=cache)
        times.append(time.process_time() - begun)
        walls.append(time.perf_counter() - started)
    begun = time.process_time()
    SequentialScheduler(snapshot, cache=cache)
    setup = time.process_time() - begun
    begun = time.process_time()
    best = build_first_plan(snapshot, THOROUGH, cache=cache)
    whole = time.process_time() - begun
    assert plan is not None
    assert best is not None
    begun = time.process_time()
    objections = verify.verify_plan(snapshot, best, cache)
    judged = time.process_time() - begun
    assert not objections, objections[:3]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "pods": len(snapshot.pods),
        "cold_s": walls[0],
        "cold_cpu_s": times[0],
        "warm_s": min(walls[1:]),
        "setup_s": setup,
        "first_s": min(times) - setup,
        "first_with_setup_s": min(times),
        "first_dollars": plan.price,
        "improve_s": whole - min(times),
        "judge_s": judged,
        "dollars": best.price,
        "bound": best.bound_as_asked,
        "bound_hard": best.bound,
        "gap": best.price / best.bound_as_asked - 1 if best.bound_as_asked else None,
        "nodes": len(best.new_nodes),
        "first_nodes": len(plan.new_nodes),
        "unschedulable": len(best.unschedulable),
        "rss_mib": peak,
    }


def _better(program: Path, path: Path, workers: Sequence[int]) -> dict[str, Any]:
    """The original at the number of workers that suits it best by the clock, and by processor time."""
    found = [_theirs(program, path, each) for each in workers]
    best = min(found, key=lambda each: float(each["peer_wall_s"]))
    return best | {"peer_s": min(each["peer_s"] for each in found)}


def _theirs(program: Path, path: Path, workers: int) -> dict[str, Any]:
    size = _size(path)
    command = [str(program), "solve", "-catalog", str(PEER / "catalog.json"), "-workload", str(path)]
    command += ["-workers", str(workers), "-repeat", "3" if size <= 1000 else "1", "-timeout", "900"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    said = json.loads(done.stdout)
    return {
        "peer_workers": workers,
        "peer_s": said["solve_cpu_s"],
        "peer_wall_s": min(said["solve_all_s"]),
        "peer_setup_s": said["setup_s"],
        "peer_dollars": said["dollars_per_hour"],
        "peer_nodes": said["new_nodes"],
        "peer_unschedulable": said["unschedulable"],
        "peer_rss_mib": said["peak_rss_mib"],
        "others_share": said["others_share"],
    }


def _line(row: dict[str, Any]) -> str:
    parts = []
    for key, name, form in COLUMNS:
        if row.get(key) is not None:
            parts.append(form.format(row[key]) if key == "workload" else f"{name} {form.format(row[key])}")
    return " | ".join(parts)


def _store(rows: list[dict[str, Any]], out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rows, indent=1) + "\n")
    shown = [
        (key, name, form) for key, name, form in COLUMNS if any(row.get(key) is not None for row in rows)
    ]
    print("\n| " + " | ".join(name for _, name, _ in shown) + " |")
    print("|" + "---|" * len(shown))
    for row in rows:
        cells = [form.format(row[key]) if row.get(key) is not None else "" for key, _, form in shown]
        print("| " + " | ".join(cells) + " |")
    print(f"\nstored as {out}")


if __name__ == "__main__":
    sys.exit(main())
