"""What goes with a router: where events would go, whose instances are, what is wrong; replay and trace."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from dovetail.bus.config import KEYS, BusConfig
from dovetail.bus.counts import BusTally
from dovetail.bus.destinations import DestinationRegistry
from dovetail.bus.events import KINDS, BusEvent, BusPlace, ReceivedMessage, read_event
from dovetail.bus.lookup import InstanceResolver
from dovetail.bus.operator_tools import ReplayFilter, examine_setup, replay_queue, trace_log
from dovetail.bus.owners import OWNED, UNKNOWN, InstanceOwners, KnownInstance
from dovetail.bus.sources import DestinationSources
from dovetail.cli.output import (
    COMPLAINTS,
    FINE,
    Output,
    format_count,
    print_note,
    print_structured,
    print_table,
    print_text,
)
from dovetail.errors import BadInput, Misconfigured
from dovetail.runtime.clock import SystemClock

__all__ = [
    "check_kind",
    "parse_time",
    "print_keys",
    "print_trace",
    "replay_events",
    "resolve_owners",
    "route_events",
    "run_doctor",
]

PATIENCE = 10.0
TRACED = ("kind", "cluster", "reason", "clusters")


def open_aws(config: BusConfig) -> Any:
    """AWS, with threads enough for the long polls and the sends."""
    from dovetail.aws.boto import BotoAws

    return BotoAws(region=config["region"], threads=config["parallel"] + 16)


async def route_events(config: BusConfig, file: str, output: Output) -> int:
    """Say where each event of a file would go; nothing is sent."""
    rules = replace(config.rules, senders=None)  # a file has none
    events = [
        read_event(ReceivedMessage(str(index), line), rules)[1]
        for index, line in enumerate(_read_lines(file))
    ]
    wanted: dict[BusPlace, set[str]] = {}
    for event in events:
        if isinstance(event, BusEvent):
            wanted.setdefault(event.place, set()).update(event.instances)
    aws, owners = open_aws(config), InstanceOwners()
    resolver = _build_resolver(config, aws, owners)
    try:
        for place, ids in wanted.items():
            await resolver.resolve_instances(place, ids, urgent=True, patience=PATIENCE)
        registry = await DestinationSources(config, aws, counts=BusTally()).read_destinations()
    finally:
        await resolver.close()
        aws.close()
    rows: list[tuple[str, ...]] = []
    for event in events:
        if isinstance(event, BusEvent):
            rows += [
                row
                for id in event.instances
                for row in _list_routes(event.kind, id, _find_known(owners, id), registry)
            ]
        else:
            rows.append((event.reason, "", "", str(event.fate)))
    _show_rows(("KIND", "INSTANCE", "CLUSTER", "OUTCOME"), rows, output)
    return FINE


def _list_routes(
    kind: str, id: str, known: KnownInstance | None, registry: DestinationRegistry
) -> list[tuple[str, ...]]:
    if known is None:
        return [(kind, id, "", "not looked up")]
    if known.state is not OWNED:
        return [(kind, id, "", known.state)]
    return [
        (kind, id, owner.name, "sent" if registry.find_by_cluster(owner) else "parked: no_destination")
        for owner in known.owners
    ]


def _find_known(owners: InstanceOwners, id: str) -> KnownInstance | None:
    return owners.get(id, SystemClock().now().timestamp())


def _build_resolver(config: BusConfig, aws: Any, owners: InstanceOwners) -> InstanceResolver:
    return InstanceResolver(config, aws, owners, clock=SystemClock(), counts=BusTally())


async def resolve_owners(config: BusConfig, ids: list[str], output: Output) -> int:
    """Say which cluster owns each instance, wherever it is."""
    if not ids:
        raise Misconfigured("no instance is named; write `dovetail interruption-router resolve i-…`")
    aws, rules, rows = open_aws(config), config.rules, []
    try:
        for place in [BusPlace(a, r) for a in sorted(rules.accounts) for r in sorted(rules.regions)]:
            owners = InstanceOwners()
            resolver = _build_resolver(config, aws, owners)
            await resolver.resolve_instances(place, ids, urgent=False, patience=PATIENCE)
            await resolver.close()
            for id in ids:
                known = _find_known(owners, id)
                if known is not None and known.state is not UNKNOWN:
                    rows.append((id, *place, ", ".join(each.name for each in known.owners), known.state))
    finally:
        aws.close()
    found = {row[0] for row in rows}
    rows += [(id, "", "", "", UNKNOWN) for id in ids if id not in found]
    _show_rows(("INSTANCE", "ACCOUNT", "REGION", "CLUSTER", "STATE"), rows, output)
    return FINE if len(found) == len(set(ids)) else COMPLAINTS


async def replay_events(config: BusConfig, source: str, wanted: ReplayFilter, rate: float) -> None:
    aws = open_aws(config)
    name = config[f"queues.{source}"] if source in ("dlq", "park") else source
    try:
        done = await replay_queue(aws, config, name, wanted, clock=SystemClock(), rate=rate)
    finally:
        aws.close()
    print_text(
        f"{format_count(done.moved, 'event')} moved back; "
        f"{done.left} not wanted, {done.unreadable} unreadable.\n"
    )


async def run_doctor(config: BusConfig, output: Output) -> int:
    aws = open_aws(config)
    try:
        registry = await DestinationSources(config, aws, counts=BusTally()).read_destinations()
        findings = await examine_setup(aws, config, registry)
    finally:
        aws.close()
    _show_rows(("SUBJECT", "FINDING"), [(each.subject, each.problem or "fine") for each in findings], output)
    return COMPLAINTS if any(each.problem for each in findings) else FINE


def print_keys(output: Output) -> None:
    rows = [(key.path, key.variable, _format_default(key.default), key.meaning) for key in KEYS]
    _show_rows(("KEY", "VARIABLE", "DEFAULT", "MEANING"), rows, output)


def _format_default(value: Any) -> str:
    if value is None:
        return "required"
    if isinstance(value, tuple | frozenset):
        return ", ".join(sorted(map(str, value)) if isinstance(value, frozenset) else map(str, value))
    if isinstance(value, float):
        return f"{value:g}s"  # all of them are durations
    return str(value).lower() if isinstance(value, bool) else str(value)


def print_trace(what: list[str], file: str, output: Output) -> None:
    if len(what) != 1:
        raise Misconfigured("name one instance, event or message to trace, as `trace i-… --file router.log`")
    rows = []
    for line in trace_log(_read_lines(file), what[0]):
        shown = {name: value for name, value in line.items() if name in TRACED}
        rows.append(
            (
                str(line.get("time", "")),
                str(line.get("message", "")),
                " ".join(f"{name}={value}" for name, value in shown.items()),
            )
        )
    _show_rows(("TIME", "WHAT", "FIELDS"), rows, output)
    if not rows:
        print_note(
            f"dovetail: nothing about {what[0]} is in there; deliveries are logged at --log-level debug"
        )


def _show_rows(columns: tuple[str, ...], rows: list[Any], output: Output) -> None:
    if output is Output.table:
        print_table(columns, rows)
        return
    names = [column.lower() for column in columns]
    print_structured({"items": [dict(zip(names, row, strict=True)) for row in rows]}, output)


def _read_lines(file: str) -> list[str]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"reading {file}: {error.strerror}; name a file that can be read") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"reading {file}: it is not UTF-8 text") from error
    return [line for line in text.splitlines() if line.strip()]


def parse_time(text: str) -> float:
    if not text:
        return 0.0
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as error:
        raise Misconfigured(f"--since {text} is not a time; write it as 2026-02-03T10:00:00Z") from error


def check_kind(kind: str) -> str:
    if kind and kind not in KINDS:
        raise Misconfigured(f"--kind {kind} is none; there are {', '.join(sorted(KINDS))}")
    return kind
