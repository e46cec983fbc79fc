"""``dovetail notify``: try the sinks of notifications, and see what they would have been sent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

import typer

from dovetail.app.history_source import ask_for_all, open_history
from dovetail.app.notifications import UNNAMED, SinkSenders
from dovetail.cli.views.options import (
    ContextOption,
    HistoryPlaceOption,
    KubeconfigOption,
    check_history_place,
)
from dovetail.cli.views.output import (
    COMPLAINTS,
    Output,
    OutputOption,
    format_count,
    print_remark,
    print_structured,
    print_table,
)
from dovetail.errors import BadInput, DovetailError, Misconfigured
from dovetail.history.asking import parse_moment
from dovetail.history.filters import DueBatch, PlannedMessage, plan_messages, wants_record
from dovetail.history.messages import render_batch, tell_batch
from dovetail.history.notify import Notify, NotifyRule, NotifySink, find_way
from dovetail.history.record import (
    DecisionRecord,
    RecordDraft,
    RecordGroup,
    RecordIds,
    RecordKind,
    stamp_record,
)
from dovetail.history.ring import HistoryQuery
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.notify_file import load_notify

__all__ = ["build_examples"]

EXAMPLE = "a test of this sink by `dovetail notify test`; nothing happened"


def notify(
    action: Annotated[
        Literal["test", "show"],
        typer.Argument(
            help="test: send each sink one message of each kind it wants, now. "
            "show: say what the sinks would have been sent, from the history."
        ),
    ],
    sink: Annotated[str, typer.Option(metavar="NAME", help="Only this sink.")] = "",
    file: Annotated[
        str, typer.Option("--file", "-f", metavar="FILE", help="The file of sinks; else as NOTIFY_FILE says.")
    ] = "",
    since: Annotated[
        str, typer.Option(metavar="DURATION|TIME", help="show: from when on; 24h, or 2026-11-02T03:00:00Z.")
    ] = "24h",
    place: HistoryPlaceOption = "",
    cluster_name: Annotated[
        str, typer.Option(metavar="NAME", help="What messages call the cluster; else as CLUSTER_NAME says.")
    ] = "",
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    output: OutputOption = Output.table,
) -> None:
    """Try the sinks of notifications, and see what they would have been sent.

    `test` sends for real, whatever quiet hours say; a sink with a digest gets one digest. It ends with 1 when
    a sink did not take a message. `show` sends nothing: it puts the records of the history through the rules,
    digests and quiet hours of the file, so that rules can be tuned without waiting for something to happen.
    """
    rules = _load_rules(file, sink)
    cluster = cluster_name or os.environ.get("CLUSTER_NAME", "") or UNNAMED
    now = SystemClock().now()
    if action == "test":
        outcomes = asyncio.run(_test_sinks(rules, cluster, now))
        _print_outcomes(outcomes, output)
        if any(each.error for each in outcomes):
            raise typer.Exit(COMPLAINTS)
        return
    check_history_place(place, kubeconfig, context)
    query = HistoryQuery(since=parse_moment(since, now, "--since"))
    records = asyncio.run(_read_records(place, kubeconfig, context, query))
    planned = plan_messages(rules.sinks, records, now)
    _print_planned(planned, rules, cluster, output)
    if output is Output.table:
        counted = format_count(len(records), "record"), format_count(len(planned), "message")
        print_remark(f"{counted[0]} since {query.since:%Y-%m-%d %H:%M:%S} UTC would have made {counted[1]}")


def _load_rules(file: str, name: str) -> Notify:
    """The file's rules; of one sink alone where one is named."""
    path = file or os.environ.get("NOTIFY_FILE", "")
    if not path:
        raise Misconfigured("no file of sinks is named; give --file, or set NOTIFY_FILE")
    rules = load_notify(path)
    if not name:
        return rules
    found = tuple(each for each in rules.sinks if each.name == name)
    if not found:
        listed = ", ".join(each.name for each in rules.sinks) or "none"
        raise BadInput(f"--sink {name}: there is no such sink in {path}; there are {listed}")
    return Notify(rules.api_version, rules.kind, found, rules.dashboard)


@dataclass(frozen=True, slots=True)
class SinkTest:
    """How a sink took the messages of a test."""

    sink: NotifySink
    sent: int
    error: str = ""

    @property
    def result(self) -> str:
        sent = f"{format_count(self.sent, 'message')} taken"
        return f"not taken: {self.error}" if self.error else sent


async def _test_sinks(rules: Notify, cluster: str, now: datetime) -> list[SinkTest]:
    senders = SinkSenders(SystemClock(), cluster)
    try:
        return [await _test_sink(senders, each, rules.dashboard, now) for each in rules.sinks]
    finally:
        await senders.close()


async def _test_sink(senders: SinkSenders, sink: NotifySink, dashboard: str, now: datetime) -> SinkTest:
    examples = build_examples(sink, now)
    batches = [DueBatch((each,)) for each in examples]
    if sink.digest_window:
        batches = [DueBatch(tuple(examples), digest=True)]
    sender, sent = senders.make_sender(sink), 0
    try:
        for batch in batches:
            message = render_batch(batch, sink, senders.cluster, dashboard)
            await sender.send_message(message, batch)
            sent += 1
    except DovetailError as error:
        return SinkTest(sink, sent, str(error))
    return SinkTest(sink, sent)


def build_examples(sink: NotifySink, now: datetime) -> list[DecisionRecord]:
    """One record of each kind that a sink wants, as its rules want it."""
    ids, found = RecordIds("test"), {}
    for rule in sink.when or (NotifyRule(),):
        for kind in map(RecordKind, rule.kinds or tuple(RecordKind)):
            record = stamp_record(_draft_example(kind, rule), ids.make_id(now), now, "dovetail notify test")
            if kind not in found and wants_record(sink, record):
                found[kind] = record
    return list(found.values())


def _draft_example(kind: RecordKind, rule: NotifyRule) -> RecordDraft:
    pool = next(iter(rule.pools), "default").replace("*", "example").replace("?", "x")
    return RecordDraft(
        kind=kind,
        subject=_choose_subject(kind, pool),
        reason=next(iter(rule.reasons), ""),
        message=EXAMPLE,
        pool=pool,
        price_before=float(rule.min_saving or "0") or None,
        price_after=0.0 if rule.min_saving else None,
    )


def _choose_subject(kind: RecordKind, pool: str) -> str:
    if kind.group is RecordGroup.LOG:
        return "log/example"
    if kind.startswith("Pod"):
        return "pod/default/example"
    if kind.startswith("Command"):
        return "command/0123"
    if kind.startswith("Shift"):
        return "zone/example"
    return f"pool/{pool}" if kind.startswith("Drift") else "node/example"


async def _read_records(
    place: str, kubeconfig: str, context: str, query: HistoryQuery
) -> Sequence[DecisionRecord]:
    async with open_history(place, kubeconfig, context) as source:
        return (await ask_for_all(source, query)).records


def _print_outcomes(outcomes: Sequence[SinkTest], output: Output) -> None:
    if output is Output.table:
        rows = [(each.sink.name, find_way(each.sink.to), each.sink.format, each.result) for each in outcomes]
        print_table(("SINK", "TO", "FORMAT", "RESULT"), rows)
        return
    print_structured({"sinks": [_build_outcome(each) for each in outcomes]}, output)


def _build_outcome(outcome: SinkTest) -> dict[str, object]:
    sink = outcome.sink
    about = {"sink": sink.name, "to": find_way(sink.to), "format": sink.format, "sent": outcome.sent}
    return {**about, **({"error": outcome.error} if outcome.error else {})}


def _print_planned(planned: Sequence[PlannedMessage], rules: Notify, cluster: str, output: Output) -> None:
    if output is Output.table:
        rows = [
            (f"{each.time:%Y-%m-%d %H:%M:%S}", each.sink.name, tell_batch(each.batch).partition("\n")[0])
            for each in planned
        ]
        print_table(("TIME", "SINK", "MESSAGE"), rows)
        return
    print_structured(
        {"messages": [_build_planned(each, rules.dashboard, cluster) for each in planned]}, output
    )


def _build_planned(planned: PlannedMessage, dashboard: str, cluster: str) -> dict[str, object]:
    sink, records = planned.sink, planned.batch.records
    return {
        "time": f"{planned.time:%Y-%m-%dT%H:%M:%SZ}",
        "sink": sink.name,
        "format": sink.format,
        "digest": planned.batch.digest,
        "records": [record.id for record in records],
        "body": render_batch(planned.batch, sink, cluster, dashboard).body.decode(),
    }
