"""Expectations as people write them, and what became of each."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.api.manifests import ManifestComplaint, Severity
from dovetail.cli.views.files import read_manifests
from dovetail.cli.views.output import Output, format_count, print_structured, print_table, print_text
from dovetail.errors import BadInput
from dovetail.play.expectations import Judgement
from dovetail.play.expectations_file import Expectations, parse_expectations

__all__ = ["build_judgement", "describe_result", "read_expectations", "show_judgements"]


def read_expectations(path: str) -> Expectations:
    """The expectations in a file; BadInput says what is wrong with it, each with its line."""
    found = read_manifests([path])
    wrong = [each for each in found.complaints if each.severity is Severity.ERROR]
    if wrong:
        raise BadInput(str(wrong[0]))
    if len(found.documents) != 1:
        raise BadInput(f"reading the expectations {path}: it must be one document")
    document = found.documents[0]

    def told(where: str, message: str) -> str:
        line = document.line_of(where)
        return str(ManifestComplaint(document.source, line, None, where, message))

    return parse_expectations(document.value, told)


def show_judgements(found: Sequence[Judgement], output: Output) -> None:
    """Print every expectation with its world, and what was found there."""
    broken = sum(1 for each in found if not each.kept)
    if output is not Output.table:
        print_structured(
            {"kept": not broken, "expectations": [build_judgement(each) for each in found]}, output
        )
        return
    columns = ("RESULT", "EXPECTATION", "WORLD", "FOUND")
    print_table(columns, [(describe_result(each), each.promise, each.world, each.found) for each in found])
    kept = len(found) - broken
    print_text(f"\n{kept:,} of {format_count(len(found), 'expectation')} kept\n")


def describe_result(judgement: Judgement) -> str:
    """One word for what became of it; a proof has its own."""
    if judgement.kept:
        return "kept"
    return "impossible" if judgement.certified else "broken"


def build_judgement(judgement: Judgement) -> dict[str, object]:
    """What became of one expectation in one world, for programs."""
    return {
        "expectation": judgement.number + 1,
        "promise": judgement.promise,
        "world": judgement.world,
        "kept": judgement.kept,
        "certified": judgement.certified,
        "found": judgement.found,
        "pods": list(judgement.pods),
    }
