#!/usr/bin/env python3
"""Dovetail beside the original: the same workloads through Karpenter's own scheduler and through ours.

    python hack/bench_peer.py                                   the quick set: 100 and 1,000 pods, one seed
    python hack/bench_peer.py --family diverse --size 10000 --seed 1 --seed 2
    python hack/bench_peer.py --ours-only                       without Go, without the original

The original (hack/peer, a Go program over the published module) is built once, into a cache outside this
checkout. Both sides run in one go, each workload in processes of its own, so that the ratios hold on a busy
machine too: times are processor time unless they say otherwise.
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
COLUMNS = (
    ("workload", "workload", "{}"),
    ("first_s", "first plan s", "{:.3f}"),
    ("first_dollars", "$/h", "{:.2f}"),
    ("dollars", "improved $/h", "{:.2f}"),
    ("improve_s", "improving s", "{:.2f}"),
    ("bound", "bound $/h", "{:.2f}"),
    ("gap", "above bound", "{:.1%}"),
    ("nodes", "nodes", "{}"),
    ("rss_mib", "MiB", "{:.0f}"),
    ("peer_s", "original s", "{:.3f}"),
    ("peer_dollars", "$/h", "{:.2f}"),
    ("peer_nodes", "nodes", "{}"),
    ("peer_rss_mib", "MiB", "{:.0f}"),
    ("faster", "times faster", "{:.1f}"),
    ("cheaper", "cheaper", "{:.1%}"),
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
            row |= _theirs(program, path, options.workers)
            row["faster"] = row["peer_s"] / row["first_s"]
            row["cheaper"] = 1 - row["dollars"] / row["peer_dollars"]
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
    parser.add_argument("--workers", type=int, default=1, help="workers of the original (1)")
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
    for size in options.size or (100, 1000):
        for family in options.family or FAMILIES:
            for seed in options.seed or (1,):
                suffix = "" if options.subset == "main" else f"-t{options.subset}"
                path = cache / f"{family}-{size}-s{seed}{suffix}.json"
                if not path.exists():
                    path.write_text(json.dumps(workloads.build(family, size, str(seed), options.subset)))
                made.append(path)
    return made


def _in_child(path: Path) -> dict[str, Any]:
    """Our side in a process of its own, so that its memory is its own too."""
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def _ours(path: Path) -> dict[str, Any]:
    from dovetail.scheduling import verify
    from dovetail.scheduling.model.decision_cache import DecisionCache
    from dovetail.scheduling.sequential.scheduler import SequentialScheduler
    from dovetail.scheduling.solve import QUICK, THOROUGH, build_first_plan
    from support.peer_workloads import snapshot_of

    snapshot = snapshot_of(json.loads(path.read_text()))
    repeats = 5 if len(snapshot.pods) <= 1000 else 3
    times, plan, cache = [], None, DecisionCache()
    for _ in range(repeats):
        begun = time.process_time()
        plan = build_first_plan(snapshot, QUICK, cache=cache)
        times.append(time.process_time() - begun)
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


def _theirs(program: Path, path: Path, workers: int) -> dict[str, Any]:
    size = int(path.stem.split("-")[1])
    command = [str(program), "solve", "-catalog", str(PEER / "catalog.json"), "-workload", str(path)]
    command += ["-workers", str(workers), "-repeat", "3" if size <= 1000 else "1", "-timeout", "900"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    said = json.loads(done.stdout)
    return {
        "peer_s": said["solve_cpu_s"],
        "peer_wall_s": said["solve_s"],
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
