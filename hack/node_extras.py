#!/usr/bin/env python3
"""What counting volumes does to plans: the workload families with and without, beside the original.

    python hack/node_extras.py                  20 and 100 GiB of gp3 on every node, 1,000 pods of each family
    python hack/node_extras.py --gib 500 --family mix --family spot

Each workload is planned by the price of instances alone, and by that of whole nodes. The nodes of the former
are billed with their volumes, too, so that all dollars are those of an invoice. The original's nodes and
dollars are those that `hack/chart_growth.py --measure` kept in docs/benchmarks/families.json for the same
workloads, with a volume added to each of its nodes. Every plan passes the verifier. Times are processor
seconds of the first plan, the shortest of three.

The table between the marks in docs/benchmarks.md is written with --write.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "hack" / "peer"))

from bench_peer import FAMILIES  # noqa: E402

from dovetail.api.nodeclass import BlockDevice  # noqa: E402
from dovetail.providers.aws.node_extras import price_volume  # noqa: E402
from dovetail.scheduling import verify  # noqa: E402
from dovetail.scheduling.model.decision_cache import DecisionCache  # noqa: E402
from dovetail.scheduling.model.plan import Plan  # noqa: E402
from dovetail.scheduling.model.snapshot import Snapshot  # noqa: E402
from dovetail.scheduling.solve import QUICK, THOROUGH, build_first_plan  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks.md"
MARKS = ("<!-- extras: made by hack/node_extras.py -->\n", "<!-- end of extras -->")
COLUMNS = (
    ("workload", "{}"),
    ("nodes, instances alone", "{}"),
    ("$/h with volumes", "{:.3f}"),
    ("nodes, volumes counted", "{}"),
    ("$/h", "{:.3f}"),
    ("proven floor, $/h", "{:.3f}"),
    ("saved by counting", "{:.2%}"),
    ("Karpenter's nodes", "{}"),
    ("Karpenter, $/h with volumes", "{:.3f}"),
    ("cheaper than Karpenter", "{:.1%}"),
    ("first plan's time, ratio", "{:.2f}"),
)


def main() -> int:
    options = _read_options()
    tables: dict[int, list[dict[str, Any]]] = {gib: [] for gib in options.gib or (20, 100)}
    for family in options.family or FAMILIES:
        for gib, row in _compare_plans(family, options.size, options.seed, tables):
            tables[gib].append(row)
            print(gib, *_format_cells(row), sep=" | ", flush=True)
    table = "\n\n".join("\n".join(_draw_table(gib, rows)) for gib, rows in tables.items())
    print(table)
    if options.write:
        _write_page(table)
    return 0


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--family", action="append", choices=FAMILIES, help="may be repeated; all of them")
    parser.add_argument("--size", type=int, default=1000, help="pods (1000)")
    parser.add_argument("--seed", default="1", help="seed of the workloads (1)")
    parser.add_argument(
        "--gib", action="append", type=int, help="gp3 volume of each node; may be repeated (20 and 100)"
    )
    parser.add_argument("--write", action="store_true", help="write the table into docs/benchmarks.md")
    return parser.parse_args()


def _price_volume(gib: int) -> float:
    found = price_volume(BlockDevice(volume_type="gp3", volume_size=f"{gib}Gi"), "us-east-1")
    assert found is not None
    return found


def _compare_plans(
    family: str, size: int, seed: str, sizes: Iterable[int]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """By the size of a volume, the workload's plan without and with it."""
    import workloads

    from support.peer_workloads import snapshot_of

    alone = snapshot_of(workloads.build(family, size, seed, "main"))
    before, seconds = _plan(alone)
    for gib in sizes:
        yield gib, _compare_plan(f"{family}-{size}-s{seed}", alone, before, seconds, _price_volume(gib))


def _compare_plan(
    name: str, alone: Snapshot, before: Plan, seconds_before: float, volume: float
) -> dict[str, Any]:
    after, seconds = _plan(_count_volumes(alone, volume))
    billed = before.price + volume * len(before.new_nodes)
    theirs = _find_original(name)
    original = theirs["peer_dollars"] + volume * theirs["peer_nodes"] if theirs else None
    return {
        "workload": name,
        "nodes, instances alone": len(before.new_nodes),
        "$/h with volumes": billed,
        "nodes, volumes counted": len(after.new_nodes),
        "$/h": after.price,
        "proven floor, $/h": after.bound_as_asked or None,
        "saved by counting": 1 - after.price / billed,
        "Karpenter's nodes": theirs["peer_nodes"] if theirs else None,
        "Karpenter, $/h with volumes": original,
        "cheaper than Karpenter": 1 - after.price / original if original else None,
        "first plan's time, ratio": seconds / seconds_before,
    }


def _count_volumes(snapshot: Snapshot, volume: float) -> Snapshot:
    """The same world, where every offering costs a volume more."""
    catalogs = tuple(
        tuple(
            replace(each, offerings=tuple(deal.change_parts(volumes=volume) for deal in each.offerings))
            for each in types
        )
        for types in snapshot.catalogs
    )
    return replace(snapshot, catalogs=catalogs)


def _plan(snapshot: Snapshot) -> tuple[Plan, float]:
    """The plan that a controller orders, and the processor seconds of the first one, which it improves."""
    times = []
    for _ in range(3):
        begun = time.process_time()
        build_first_plan(snapshot, QUICK, cache=DecisionCache())
        times.append(time.process_time() - begun)
    plan = build_first_plan(snapshot, THOROUGH, cache=DecisionCache())
    assert plan is not None
    wrong = verify.verify_plan(snapshot, plan, DecisionCache())
    assert not wrong, wrong[:3]
    return plan, min(times)


def _find_original(name: str) -> dict[str, Any] | None:
    kept = json.loads((ROOT / "docs" / "benchmarks" / "families.json").read_text(encoding="utf-8"))
    rows = kept["rows"] if isinstance(kept, dict) else kept
    return next((row for row in rows if row["workload"] == name and "peer_nodes" in row), None)


def _format_cells(row: dict[str, Any]) -> Iterator[str]:
    return ("" if row[name] is None else form.format(row[name]) for name, form in COLUMNS)


def _draw_table(gib: int, rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    yield f"Every node has {gib} GiB of gp3, ${_price_volume(gib):.4f} an hour in us-east-1."
    yield ""
    yield "| " + " | ".join(name for name, _ in COLUMNS) + " |"
    yield "|" + "---|" * len(COLUMNS)
    for row in rows:
        yield "| " + " | ".join(_format_cells(row)) + " |"


def _write_page(table: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    PAGE.write_text(f"{before}{MARKS[0]}\n{table}\n\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
