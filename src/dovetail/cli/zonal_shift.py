"""``dovetail zonal-shift``: step out of a zone, back into it, and see what that means beforehand."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import typer

from dovetail.cli import zonalacts as acts
from dovetail.cli import zonalstart as starting
from dovetail.cli.output import Output, OutputOption, put
from dovetail.cli.seen import KubeconfigOption, SnapshotOption
from dovetail.cli.zonalrehearsal import RATES, rehearsed
from dovetail.errors import BadInput, Misconfigured
from dovetail.settings import read
from dovetail.settings.durations import parse as parse_duration

OPTIONS = {"context_settings": {"ignore_unknown_options": True, "allow_extra_args": True}}
Action = Literal["start", "cancel", "extend", "status", "history", "plan", "rehearse", "run"]


ActionArgument = Annotated[
    Action,
    typer.Argument(
        help="start, cancel or extend a shift; status of shifts in force; history of those that ended; "
        "plan tells what a start would write; rehearse tells what losing a zone would mean; run follows "
        "shifts beside another autoscaler until it is told to stop."
    ),
]
ZoneOption = Annotated[str, typer.Option(metavar="ZONE", help="The zone's id, such as use1-az1.")]
LastsOption = Annotated[str, typer.Option("--for", metavar="DURATION", help="How long, such as 2h.")]
CommentOption = Annotated[str, typer.Option(help="Why, for people; at most 128 characters.")]
LocalOption = Annotated[
    bool, typer.Option("--local", help="Without ARC: by a ZoneShift object in this cluster alone.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="With start --local: only say what would be done.")
]
RateOption = Annotated[
    float | None,
    typer.Option(min=0.1, help="With rehearse: nodes a minute that can be launched; 60 if not told."),
]


# The parameter cannot bear the option's name: the command's own context has it.
ZonalContextOption = Annotated[
    str, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig to use.")
]

# How it was called until there was one name for it in every command.
OldContextOption = Annotated[str, typer.Option("--kube-context", hidden=True)]


def zonal_shift(
    context: typer.Context,
    action: ActionArgument = "status",
    zone: ZoneOption = "",
    lasts: LastsOption = "2h",
    comment: CommentOption = "",
    local: LocalOption = False,
    dry_run: DryRunOption = False,
    launch_rate: RateOption = None,
    snapshot: SnapshotOption = "",
    kubeconfig: KubeconfigOption = "",
    context_name: ZonalContextOption = "",
    kube_context: OldContextOption = "",
    output: OutputOption = Output.table,
) -> None:
    """Step out of an impaired zone and back, or see what that would mean.

    Settings of `dovetail controller`, such as --cluster-name, may be given too. Exit codes: 0 fine, 1 the
    rehearsal found pods without a home, or something was refused.
    """
    tabled = _given(context, "zonal-shift-store") == "DynamoDB"
    table = _given(context, "zonal-shift-table") if tabled else ""
    place = acts.Place(kubeconfig, context_name or kube_context, table, _given(context, "cluster-name"))
    flags = _flags(context.args)
    if action == "rehearse":
        sys.exit(rehearsed(place, snapshot, _needed(zone), launch_rate or RATES, output))
    if action == "run":
        settings = read(("--enable-zonal-shift=true", *flags), dict(os.environ), provider="aws")
        sys.exit(asyncio.run(acts.run(settings, place)))
    if action in ("status", "history"):
        return acts.shown(asyncio.run(acts.listed(place, over=action == "history")), output)
    if action == "plan":
        lines = asyncio.run(acts.planned(place, _needed(zone), place.cluster, flags))
        return put("".join(f"{line}\n" for line in lines) or "nothing would be written\n")
    return put(asyncio.run(_changed(action, place, _needed(zone), lasts, comment, local, dry_run)) + "\n")


async def _changed(
    action: Action, place: acts.Place, zone: str, lasts: str, comment: str, local: bool, dry_run: bool
) -> str:
    """Begin, extend or end a shift, and say so."""
    until = datetime.now(UTC) + _duration(lasts)
    if action == "start" and local:
        return await starting.start_local(place, zone, until, comment, dry_run=dry_run)
    if action == "start":
        return await starting.start(place, place.cluster, zone, lasts, comment)
    if action == "extend":
        return await acts.extend(place, zone, lasts, until)
    return await acts.cancel(place, zone)


def _needed(zone: str) -> str:
    if not zone:
        raise Misconfigured("no zone is named; give one with --zone, such as --zone use1-az1")
    return zone


def _duration(text: str) -> timedelta:
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise BadInput(f"--for is {text!r}, but must be a duration such as 90m or 2h") from error
    if found <= timedelta():
        raise BadInput(f"--for is {text!r}, but a shift must last some time, such as 2h")
    return found


def _flags(arguments: list[str]) -> tuple[str, ...]:
    return tuple(arguments)


def _given(context: typer.Context, name: str) -> str:
    """A setting's text, from a flag or the environment; empty where nobody gave it."""
    for word in context.args:
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
    return os.environ.get(name.upper().replace("-", "_"), "")
