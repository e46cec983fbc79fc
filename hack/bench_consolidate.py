#!/usr/bin/env python3
"""Consolidation beside the original: one pass of each search over the same running nodes, in one run.

    python hack/bench_consolidate.py                            100, 700 and 1,000 nodes of each family
    python hack/bench_consolidate.py --family tight --size 700

`sweep` looks at every single node, also where one that may go was found; the original's ends there. In
`tight` there is nothing to find, so both look at all of them. `pass` is the search over many nodes and the
one over single nodes together, and `saved` the better of what they found. Processor seconds, cold caches.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / "hack" / "peer"
sys.path[:0] = [str(ROOT / "tests"), str(PEER), str(ROOT / "hack")]

FAMILIES, SIZES = ("tight", "packed", "consolidate"), (100, 700, 1000)
COLUMNS = (
    ("workload", "{}"),
    ("sweep s", "{:.3f}"),
    ("nodes looked at", "{}"),
    ("pass s", "{:.3f}"),
    ("saved $/h", "{:.2f}"),
    ("original's sweep s", "{:.2f}"),
    ("original's pass s", "{:.2f}"),
    ("original's saved $/h", "{:.2f}"),
    ("times faster", "{:.1f}"),
)


def main() -> int:
    options = _options()
    if options.measure:
        print(json.dumps(_ours(Path(options.measure))))
        return 0
    from bench_peer import _built

    cache = Path(options.cache).expanduser()
    cache.mkdir(parents=True, exist_ok=True)
    program = _built(cache)
    if program is None:
        return 2
    out, rows = Path(options.out), []
    out.parent.mkdir(parents=True, exist_ok=True)
    for path in _workloads(options, cache):
        row = {"workload": path.stem, **_in_child(path), **_theirs(program, path)}
        row["times faster"] = row["original's pass s"] / row["pass s"]
        rows.append(row)
        print(" | ".join(f"{name} {form.format(row[name])}" for name, form in COLUMNS), flush=True)
        # The last workloads come late: whoever ends the run before them keeps the others.
        out.write_text(json.dumps(rows, indent=1) + "\n")
    print("\n| " + " | ".join(name for name, _ in COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for row in rows:
        print("| " + " | ".join(form.format(row[name]) for name, form in COLUMNS) + " |")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--family", action="append", choices=FAMILIES)
    parser.add_argument("--size", action="append", type=int, help="nodes; may be repeated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cache", default=os.environ.get("XDG_CACHE_HOME", "~/.cache") + "/dovetail-peer")
    parser.add_argument("--out", default=str(ROOT / "build" / "bench" / "consolidate.json"))
    parser.add_argument("--measure", metavar="FILE", help=argparse.SUPPRESS)
    return parser.parse_args()


def _workloads(options: argparse.Namespace, cache: Path) -> list[Path]:
    import workloads

    made = []
    for family in options.family or FAMILIES:
        for size in options.size or SIZES:
            path = cache / f"{family}-{size}-s{options.seed}.json"
            if not path.exists():
                path.write_text(json.dumps(workloads.build(family, size, str(options.seed))))
            made.append(path)
    return made


def _in_child(path: Path) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def _ours(path: Path) -> dict[str, Any]:
    """The sweep in one world; in another, the searches of a pass, one after the other as they are run."""
    from dovetail.disruption.inputs import DisruptionInput
    from dovetail.disruption.methods.consolidation import (
        choose_multi_node,
        choose_single_node,
        evaluate_nodes,
        list_single_node_queue,
    )
    from support.peer_workloads import snapshot_of

    document = json.loads(path.read_text())

    def timed(search: Callable[[DisruptionInput], Any], scene: DisruptionInput) -> tuple[float, Any]:
        begun = time.process_time()
        found = search(scene)
        return time.process_time() - begun, found

    sweep, looked = timed(
        lambda scene: evaluate_nodes(scene, list_single_node_queue(scene)),
        DisruptionInput(snapshot_of(document)),
    )
    scene = DisruptionInput(snapshot_of(document))
    searches = [timed(search, scene) for search in (choose_multi_node, choose_single_node)]
    savings = [command.savings for _, found in searches for command in found.commands]
    return {
        "sweep s": sweep,
        "nodes looked at": len(looked),
        "pass s": sum(spent for spent, _ in searches),
        "saved $/h": max(savings, default=0.0),
    }


def _theirs(program: Path, path: Path) -> dict[str, Any]:
    command = [str(program), "consolidate", "-catalog", str(PEER / "catalog.json"), "-workload", str(path)]
    done = subprocess.run([*command, "-workers", "1"], check=True, capture_output=True, text=True)
    said = json.loads(done.stdout)
    searches = [said[kind] for kind in ("multi", "single")]
    return {
        "original's sweep s": said["single"]["compute_cpu_s"],
        "original's pass s": sum(each["compute_cpu_s"] for each in searches),
        "original's saved $/h": max(each["saved_dollars_per_hour"] for each in searches),
    }


if __name__ == "__main__":
    sys.exit(main())
