"""Moments of a recording at which commands were decided, looked at again with `plan --disruption`.

python -m support.moments FOLDER
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dovetail.history.record import DecisionRecord, RecordKind
from dovetail.history.recording.reader import RecordedLook
from dovetail.runtime.recording_folder import read_recording
from support.commands import dovetail

__all__ = ["Compared", "compare_moments"]

# Nodes that go, what each saves an hour, and the reason.
Told = tuple[str, tuple[str, ...], float]


@dataclass
class Compared:
    """How many commands of the history `plan --disruption` tells of their moment, and which it does not."""

    moments: int = 0
    commands: int = 0
    other: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = f"{self.commands} commands of {self.moments} moments, {len(self.other)} other"
        return "\n".join((told, *self.other[:10]))


def compare_moments(folder: str, most: int | None = None) -> Compared:
    """Hold what the plan says of each moment to what the controller's history says it decided then."""
    found = Compared()
    with tempfile.TemporaryDirectory() as room:
        file = Path(room) / "then.json"
        for look, records in list_decided(folder):
            if found.moments == most:
                break
            moment = look.at.isoformat()
            made = dovetail("recording", "snapshot", folder, "--at", moment, "--out", str(file))
            assert made.code == 0, made.err
            told = dovetail("plan", "--disruption", "--snapshot", str(file), "-o", "json")
            assert told.out, told.err
            planned = [each for each in json.loads(told.out)["commands"] if each["turn"] == 1]
            ours, theirs = sorted(map(tell_record, records)), sorted(map(tell_planned, planned))
            found.moments += 1
            found.commands += len(ours)
            if ours != theirs:
                found.other.append(f"{moment}\n  history: {ours}\n  plan: {theirs}")
    return found


def list_decided(folder: str) -> Iterator[tuple[RecordedLook, list[DecisionRecord]]]:
    """Looks at which commands were decided, with their records, which may stand at a later look."""
    decided: dict[Any, list[DecisionRecord]] = {}
    looks = []
    for look in read_recording(folder).looks():
        for record in look.records:
            if record.kind is RecordKind.COMMAND_DECIDED:
                decided.setdefault(record.time, []).append(record)
        if any(decision.answer.commands for decision in look.decisions):
            looks.append(look)
    for look in looks:
        records = decided.pop(look.at, [])
        if records:
            yield look, records
    assert not decided, f"decided on no look: {sorted(decided)}"


def tell_record(record: DecisionRecord) -> Told:
    nodes = record.message.partition("[")[2].partition("]")[0].split(", ")
    return record.reason, tuple(sorted(nodes)), round(record.saving or 0.0, 9)


def tell_planned(command: dict[str, Any]) -> Told:
    nodes = sorted(each["name"] for each in command["nodes"])
    return command["reason"], tuple(nodes), round(command["savingsHourly"], 9)


if __name__ == "__main__":
    result = compare_moments(sys.argv[1])
    print(result)
    sys.exit(1 if result.other or not result.commands else 0)
