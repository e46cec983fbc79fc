"""``dovetail history``: what was decided about a pod, a node or a NodePool, when and why."""

from __future__ import annotations

import asyncio
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer

from dovetail.app.history_source import HistoryAnswer, OpenedHistory, ask_for_all, open_history
from dovetail.cli.views.histories import describe_nothing, print_history
from dovetail.cli.views.options import (
    ContextOption,
    HistoryPlaceOption,
    KubeconfigOption,
    check_history_place,
)
from dovetail.cli.views.output import COMPLAINTS, format_count, print_note, print_remark, print_text
from dovetail.errors import BadInput
from dovetail.history.asking import parse_kind, parse_moment
from dovetail.history.ring import HistoryQuery
from dovetail.runtime.clock import SystemClock

# So many lines are read by people; whoever wants more says --all.
FEW = 100


class HistoryOutput(StrEnum):
    """The shape of a history."""

    table = "table"
    json = "json"
    yaml = "yaml"
    jsonl = "jsonl"


NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="POD|NODE|NODECLAIM|POOL",
        help="A name: of a pod, a node, a NodeClaim or an instance; where several things share it: "
        "NAMESPACE/NAME, pod/NAMESPACE/NAME, node/NAME, nodeclaim/NAME; or pool/NAME.",
        show_default=False,
    ),
]
CheckOption = Annotated[
    str,
    typer.Option(
        "--check",
        metavar="DIR|s3://…",
        help="Check this decision log instead: nothing changed, nothing missing but what it declares.",
    ),
]


def history(
    name: NameArgument = "",
    since: Annotated[
        str, typer.Option(metavar="DURATION|TIME", help="From when on: 24h, or 2026-11-02T03:00:00Z.")
    ] = "24h",
    until: Annotated[str, typer.Option(metavar="DURATION|TIME", help="Until when, said likewise.")] = "",
    kind: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="Only records of this kind, as NodeGone; may be said again."),
    ] = None,
    pool: Annotated[str, typer.Option(metavar="NAME", help="Only what is about this NodePool.")] = "",
    reason: Annotated[str, typer.Option(metavar="WORD", help="Only this reason, as Underutilized.")] = "",
    acts: Annotated[
        bool, typer.Option("--acts", help="Only what was done, and not what was found about pods and nodes.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help=f"All that is remembered of that time, not only the newest {FEW}.")
    ] = False,
    place: HistoryPlaceOption = "",
    check: CheckOption = "",
    head: Annotated[
        str, typer.Option(metavar="DIGEST", help="With --check: a head that an earlier check printed.")
    ] = "",
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    output: Annotated[
        HistoryOutput, typer.Option("--output", "-o", help="Shape of the result.")
    ] = HistoryOutput.table,
) -> None:
    """Say what happened to a node, a pod or a NodePool, and why.

    The leader of the cluster's Dovetail is asked, through the API server; that takes the right to get
    services/proxy. It remembers a day (HISTORY_KEEP), and what it decided since it began to lead. What is
    older is in a decision log, where one is written (DECISION_LOG). Times are in UTC, the oldest line first.
    """
    if check or head:
        _check(check, head, name or place)
        return
    now = SystemClock().now()
    query = HistoryQuery(
        name=_spell_name(name),
        since=parse_moment(since, now, "--since"),
        until=parse_moment(until, now, "--until") if until else None,
        kinds=frozenset(parse_kind(each, "--kind") for each in kind or ()),
        pool=pool,
        reason=reason,
        acts_only=acts,
        limit=FEW + 1,
    )
    if query.until is not None and query.since is not None and query.since > query.until:
        raise BadInput(f"--until {until} is before --since {since}; exchange them")
    check_history_place(place, kubeconfig, context)
    answer = asyncio.run(_ask(open_history(place, kubeconfig, context), query, everything))
    _show(answer, query, everything, output, now)


def _check(place: str, head: str, other: str) -> None:
    """Check a decision log, and say what is in it, or the first thing that is wrong with it."""
    if not place:
        raise BadInput(f"--head {head} is asked about without a log; say which with --check")
    if other:
        raise BadInput(f"--check looks at all of a log, and at nothing else; leave {other} out")
    # Not everyone checks a log.
    from dovetail.app.decision_log import check_log

    report = check_log(place, head)
    if report.fault:
        print_note(f"{place}: {report.fault}")
        raise typer.Exit(COMPLAINTS)
    told = (
        f"{format_count(report.records, 'record')} in {format_count(report.parts, 'part')}, "
        f"{format_count(report.terms, 'term')}, {format_count(report.declared_gaps, 'declared gap')}"
    )
    loose = f", {format_count(report.unlinked_terms, 'term')} not linked to the one before"
    print_text(f"{told}{loose if report.unlinked_terms else ''}; nothing else is missing or changed\n")
    print_text(f"head {report.head}\n")


def _spell_name(name: str) -> str:
    """The name as records have it; `nodepool/` is `pool/` in full."""
    kind, slash, rest = name.partition("/")
    return f"pool/{rest}" if slash and kind in ("nodepool", "nodepools") else name


async def _ask(opened: OpenedHistory, query: HistoryQuery, everything: bool) -> HistoryAnswer:
    async with opened as source:
        return await (ask_for_all(source, query) if everything else source.ask(query))


def _show(
    answer: HistoryAnswer, query: HistoryQuery, everything: bool, output: HistoryOutput, now: datetime
) -> None:
    shown = answer.records if everything else answer.records[:FEW]
    if not shown:
        print_note(describe_nothing(answer, query))
    if shown or output is not HistoryOutput.table:
        print_history(tuple(reversed(shown)), output.value, query.name, now, answer.remembers)
    if len(answer.records) > len(shown):
        print_remark(f"these are the newest {FEW} lines of that time; --all shows the others")
    if answer.unread:
        print_remark(f"{answer.unread:,} records were left out: this version of Dovetail cannot read them")
