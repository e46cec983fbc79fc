"""Every decision of a recording made again, by whatever process runs this.

python -m support.remaking FOLDER
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from dovetail.history.recording.deciding import decide_again
from dovetail.runtime.recording_folder import read_recording
from dovetail.scheduling.model.decision_cache import DecisionCache

__all__ = ["Remade", "remake_decisions"]


@dataclass
class Remade:
    """How many decisions came out the same, and what of those that did not."""

    same: int = 0
    timed_out: int = 0
    busy: int = 0
    other: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = f"{self.same} the same ({self.busy} of them with something to do), {len(self.other)} other"
        return "\n".join((f"{told}, {self.timed_out} not counted", *self.other[:10]))


def remake_decisions(place: str, cached: bool = True) -> Remade:
    """Ask every recorded question again. With a cache as the controller has it, or with none."""
    found, cache = Remade(), DecisionCache()
    reader = read_recording(place)
    for look in reader.looks():
        for decision in look.decisions:
            if decision.timed_out:
                found.timed_out += 1
                continue
            again = decide_again(look.situation, decision.question, cache if cached else None)
            if again == decision.answer:
                found.same += 1
                found.busy += bool(again.nodes or again.commands or again.places)
            else:
                found.other.append(f"{look.at} {decision.question}:\n  {decision.answer}\n  {again}")
    if reader.troubles or reader.list_gaps():
        found.other.append(f"the recording is not whole: {reader.troubles} {reader.list_gaps()}")
    return found


if __name__ == "__main__":
    result = remake_decisions(sys.argv[1], cached="--without-cache" not in sys.argv)
    print(result)
    sys.exit(1 if result.other or not result.same else 0)
