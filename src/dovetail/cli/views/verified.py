"""What came of making recorded decisions again, for people and for programs."""

from __future__ import annotations

from datetime import datetime

import msgspec

from dovetail.cli.views.output import Output, format_count, print_structured, print_text
from dovetail.history.verifying import DifferingDecision, VerifiedDecisions, describe_answer

__all__ = ["print_verified"]

# So many differing decisions are told to a person one by one.
MOST_TOLD = 20


def print_verified(found: VerifiedDecisions, output: Output) -> None:
    """Print how many decisions are equal, and those that differ with what differs."""
    if output is Output.table:
        print_text(_describe_verified(found))
    else:
        print_structured(_build_document(found), output)


def _describe_verified(found: VerifiedDecisions) -> str:
    differ = len(found.differing)
    if not found.decisions:
        told = "no decision is on the recording in this time"
    elif differ:
        told = f"{differ:,} of {format_count(found.decisions, 'decision')} differ, {found.equal:,} are equal"
    else:
        told = f"all of {format_count(found.decisions, 'decision')} are equal"
    lines = [f"{told} ({_tell(found.first)} to {_tell(found.last)}, {format_count(found.looks, 'look')})"]
    if found.timed_out:
        lines.append(
            f"{format_count(found.timed_out, 'decision')} met a time limit of the machine: not counted"
        )
    for each in found.differing[:MOST_TOLD]:
        lines += ["", *_describe_difference(each)]
    if differ > MOST_TOLD:
        lines += ["", f"and {differ - MOST_TOLD:,} more; -o json has all of them"]
    return "".join(f"{line}\n" for line in lines)


def _describe_difference(each: DifferingDecision) -> list[str]:
    lines = [
        f"{_tell(each.at)}  {each.question} (segment {each.segment}, look {each.look})",
        f"  was decided   {describe_answer(each.recorded, each.again)}",
        f"  would be now  {describe_answer(each.again, each.recorded)}",
    ]
    if each.inputs:
        lines.append(f"  what matters  {', '.join(each.inputs)}")
    if each.deciding_inputs:
        lines.append(f"  as recorded without {' or without '.join(each.deciding_inputs)}")
    return lines


def _build_document(found: VerifiedDecisions) -> dict[str, object]:
    return {
        "from": _tell(found.first),
        "to": _tell(found.last),
        "looks": found.looks,
        "decisions": found.decisions,
        "questions": dict(sorted(found.questions.items())),
        "equal": found.equal,
        "timedOut": found.timed_out,
        "stoppedEarly": found.stopped,
        "differing": [
            {
                "at": _tell(each.at),
                "segment": each.segment,
                "look": each.look,
                "question": each.question,
                "recorded": msgspec.to_builtins(each.recorded),
                "again": msgspec.to_builtins(each.again),
                "inputs": list(each.inputs),
                "decidingInputs": list(each.deciding_inputs),
            }
            for each in found.differing
        ],
    }


def _tell(time: datetime | None) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}" if time is not None else ""
