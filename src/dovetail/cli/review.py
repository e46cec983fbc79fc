"""``dovetail review``: what a pull request would do to a cluster, as a comment for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from dovetail.app.changed_plan import change_cluster, plan_change
from dovetail.app.cluster_source import ClusterSource
from dovetail.cli.verify import judge_cluster
from dovetail.cli.views.expectations import read_expectations
from dovetail.cli.views.options import SnapshotOption, add_cluster_options
from dovetail.cli.views.output import LEFT_OUT, Output, print_structured, print_text
from dovetail.cli.views.progress import ProgressBar
from dovetail.cli.views.review_comment import Review, build_review_document, render_markdown
from dovetail.cli.views.review_sides import compare_folders
from dovetail.cli.views.world_source import LiveOption, WorldSource
from dovetail.errors import BadInput, Misconfigured, shorten_text

STEPS = 8
COST = re.compile(r"cost:\+([0-9]{1,6}(?:\.[0-9]{1,3})?)%")


class CommentFormat(StrEnum):
    """The shape of a review."""

    markdown = "markdown"
    json = "json"


BaseOption = Annotated[
    str, typer.Option("--base", metavar="DIR", help="Manifests before, as kustomize or helm renders them.")
]
HeadOption = Annotated[str, typer.Option("--head", metavar="DIR", help="Manifests after, rendered alike.")]
CommentOption = Annotated[CommentFormat, typer.Option("--format", help="Shape of the review.")]
ExpectOption = Annotated[
    str, typer.Option("--expect", metavar="FILE", help="Expectations, as `dovetail verify` takes them.")
]
FailOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="expect|pods|cost:+5%",
        help="End with 3 when an expectation is broken, a pod loses its place, or the bill grows by more. "
        "May be given more than once.",
    ),
]


@add_cluster_options
def review(
    base: BaseOption,
    head: HeadOption,
    live: LiveOption = False,
    snapshot: SnapshotOption = "",
    format: CommentOption = CommentFormat.markdown,
    expect: ExpectOption = "",
    fail_on: FailOption = None,
    *,
    where: ClusterSource,
) -> None:
    """Say what a pull request would do to a cluster, as a comment for it.

    Both sides are rendered manifests; what differs is applied to the cluster in memory. Nothing is written to
    the cluster and nothing is posted. Exit codes: 0 fine, 3 something of --fail-on, 1 unreadable.
    """
    rules = [_parse_rule(each) for each in fail_on or ()]
    if "expect" in (fail_on or ()) and not expect:
        raise Misconfigured("--fail-on expect needs expectations; name their file with --expect")
    expectations = read_expectations(expect) if expect else None
    sides = compare_folders(base, head)
    source = WorldSource(live, snapshot, "", "", where)
    if not source.given:
        raise Misconfigured("there is no cluster to review against: give a --snapshot, or --live")
    seen = source.read()
    seen = replace(seen, class_hashes={**seen.class_hashes, **sides.class_hashes})
    planned, remarks = None, sides.remarks
    if sides.change is not None:
        changed = change_cluster(seen, sides.change)
        with ProgressBar(STEPS) as progress:
            planned = plan_change(seen, changed, False, progress.start_step)
        remarks = (*remarks, *planned.remarks)
    judged = judge_cluster(expectations, seen, sides.change) if expectations is not None else []
    found = Review(planned, tuple(judged), remarks)
    if format is CommentFormat.markdown:
        print_text(render_markdown(found))
    else:
        print_structured(build_review_document(found), Output.json)
    if _has_failed(found, fail_on or (), rules):
        raise typer.Exit(LEFT_OUT)


def _parse_rule(text: str) -> float | None:
    """How much the bill may grow, as a share; None for the other rules."""
    if text in ("expect", "pods"):
        return None
    found = COST.fullmatch(text)
    if found is None:
        raise BadInput(f"--fail-on {shorten_text(text)}: write expect, pods, or a growth such as cost:+5%")
    return float(found[1]) / 100


def _has_failed(found: Review, rules: Sequence[str], growths: Sequence[float | None]) -> bool:
    if "expect" in rules and any(not each.kept for each in found.judgements):
        return True
    if found.planned is None:
        return False
    if "pods" in rules and found.planned.list_moved()[0]:
        return True
    was, now = found.planned.hourly
    return any(growth is not None and now > was * (1 + growth) + 1e-9 for growth in growths)
