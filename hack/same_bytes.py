"""Plays the shipped scenarios and compares what they leave behind, byte for byte, with what is on record.

python hack/same_bytes.py                     all of them; some minutes
python hack/same_bytes.py inflate zone-loss   only these
python hack/same_bytes.py --into FOLDER       also keep reports, events and metrics there, to be compared
python hack/same_bytes.py --record            put on record what is said now

A feature that is off changes nothing: not the report of a scenario, not one event that the API server
stores, not one number that Prometheus reads. On record is one digest for the report, one for the events of
each reason, and one for each metric family, so that a difference has a name.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCENARIOS = ROOT / "examples" / "scenarios"
RECORD = ROOT / "tests" / "conformance" / "same-bytes.json"
# What a new feature may add. Everything else is what it was, or the feature is not off.
MAY_BE_NEW = (
    "dovetail_history_",
    "dovetail_notifications_",
    "dovetail_notify_",
    "dovetail_decision_log_",
    "dovetail_recording_",
    "dovetail_nodepools_extras_cost",
    "dovetail_spend_",
    "dovetail_commitment_",
    "dovetail_bill_",
    "dovetail_rule_price_",
)
# What the machine says of the process, which no seed decides.
OF_THE_MACHINE = ("process_", "karpenter_build_info")

Digests = dict[str, Any]


def main() -> None:
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("scenario", nargs="*", help="names of examples/scenarios; else all of them")
    words.add_argument("--into", type=Path, metavar="FOLDER", help="keep everything that was said there")
    words.add_argument("--record", action="store_true", help="put on record what is said now")
    words.add_argument("--one", metavar="SCENARIO", help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.one:
        print(json.dumps(play_one(SCENARIOS / f"{given.one}.yaml", given.into)))
        return
    wrong = 0
    for name in given.scenario or list_scenarios():
        found = play_apart(name, given.into)
        if given.record:
            write_record({**read_record(), name: found})
            print(f"{name}: on record")
            continue
        differences = list(compare_digests(read_record().get(name, {}), found))
        wrong += bool(differences)
        print(f"{name}: {'the same' if not differences else 'DIFFERENT'}", flush=True)
        for line in differences:
            print(f"  {line}")
    sys.exit(1 if wrong else 0)


def list_scenarios() -> list[str]:
    return sorted(path.stem for path in SCENARIOS.glob("*.yaml"))


def read_record() -> dict[str, Digests]:
    found: dict[str, Digests] = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    return found


def write_record(record: Mapping[str, Digests]) -> None:
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", "utf-8")


def play_apart(name: str, into: Path | None = None) -> Digests:
    """One scenario in a process of its own: metrics count from when a process starts."""
    command = [sys.executable, str(Path(__file__)), "--one", name, *(["--into", str(into)] if into else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"playing {name}: {done.stderr}")
    found: Digests = json.loads(done.stdout)
    return found


def play_one(path: Path, into: Path | None = None) -> Digests:
    """Play a scenario in this process, and digest its report, its events and its metrics."""
    from dovetail.play import ScenarioRun, play_scenario, read_scenario
    from dovetail.runtime import logs, metrics
    from dovetail.sim.kube.store import StoreEvent
    from dovetail.sim.report import build_document

    logs.configure_logging("error", ("/dev/null",))
    events: list[tuple[str, str]] = []
    exposition = b""

    def heard(event: StoreEvent) -> None:
        if event.new.info.plural == "events":
            events.append((event.new.obj["reason"], canonical_json([event.type, event.new.obj])))

    def started(run: ScenarioRun) -> None:
        run.world.server.store.on_commit(heard)

    def told(share: float, moment: str) -> bool:
        nonlocal exposition
        if share >= 1:
            exposition = metrics.render_exposition()
        return False

    report = canonical_json(build_document(play_scenario(read_scenario(path), told, started)))
    families = split_exposition(exposition.decode())
    if into is not None:
        keep_texts(into / path.stem, report, [line for _, line in events], families)
    by_reason: dict[str, list[str]] = defaultdict(list)
    for reason, line in events:
        by_reason[reason].append(line)
    return {
        "report": digest_lines([report]),
        "events": digest_lines(line for _, line in events),
        "events by reason": {
            each: f"{len(lines)} {digest_lines(lines)}" for each, lines in by_reason.items()
        },
        "metrics": {family: digest_lines(lines) for family, lines in families.items()},
    }


def canonical_json(document: Any) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), default=str)


def split_exposition(text: str) -> dict[str, list[str]]:
    """The lines of each family, in their order; what no seed decides is left out."""
    families: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("# HELP "):
            lines = families.setdefault(line.split(" ", 3)[2], [])
        lines.append(line)
    return {name: said for name, said in families.items() if not name.startswith(OF_THE_MACHINE)}


def digest_lines(lines: Iterable[str]) -> str:
    return sha256("\n".join(lines).encode()).hexdigest()[:16]


def keep_texts(folder: Path, report: str, events: list[str], families: Mapping[str, list[str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(json.loads(report), indent=1), "utf-8")
    (folder / "events.jsonl").write_text("".join(f"{line}\n" for line in events), "utf-8")
    metrics = "".join(f"{line}\n" for lines in families.values() for line in lines)
    (folder / "metrics.txt").write_text(metrics, "utf-8")


def compare_digests(before: Digests, now: Digests) -> Iterator[str]:
    """Each thing that is not what it was, in words."""
    if not before:
        yield "nothing is on record; say --record"
        return
    if before["report"] != now["report"]:
        yield "the report differs"
    for part, one in (("events by reason", "events"), ("metrics", "metric")):
        old, new = before[part], now[part]
        for name in sorted({*old, *new}):
            if name not in new:
                yield f"{one} {name} is gone"
            elif name not in old:
                if part == "events by reason" or not name.startswith(MAY_BE_NEW):
                    yield f"{one} {name} is new"
            elif old[name] != new[name]:
                yield f"{one} {name} differs"
    if before["events"] != now["events"] and before["events by reason"] == now["events by reason"]:
        yield "the events come in another order"


if __name__ == "__main__":
    main()
