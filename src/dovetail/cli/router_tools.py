"""What goes with a router: where events would go, whose instances are, what is wrong; replay and trace."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from dovetail.bus.cache import OWNED, UNKNOWN, Known, Owners
from dovetail.bus.config import KEYS, Config
from dovetail.bus.counts import Tally
from dovetail.bus.destinations import Registry
from dovetail.bus.doctor import examine
from dovetail.bus.events import KINDS, Event, Place, Received, read
from dovetail.bus.lookup import Resolver
from dovetail.bus.replay import Wanted, replay
from dovetail.bus.sources import Sources
from dovetail.bus.trace import trace
from dovetail.cli.output import COMPLAINTS, FINE, Output, counted, note, put, structured, table
from dovetail.errors import BadInput, Misconfigured
from dovetail.runtime import logs
from dovetail.runtime.clock import SystemClock

__all__ = ["doctor", "keys", "kind_named", "replayed", "resolve", "route", "time_named", "traced"]

PATIENCE = 10.0
TRACED = ("kind", "cluster", "reason", "clusters")


def door(config: Config) -> Any:
    """AWS, with threads enough for the long polls and the sends."""
    from dovetail.aws.boto import Boto

    return Boto(region=config["region"], threads=config["parallel"] + 16)


async def route(config: Config, file: str, output: Output) -> int:
    """Say where each event of a file would go; nothing is sent."""
    rules = replace(config.rules, senders=None)  # a file has none
    events = [read(Received(str(index), line), rules)[1] for index, line in enumerate(_lines(file))]
    wanted: dict[Place, set[str]] = {}
    for event in events:
        if isinstance(event, Event):
            wanted.setdefault(event.place, set()).update(event.instances)
    aws, owners = door(config), Owners()
    resolver = _resolver(config, aws, owners)
    try:
        for place, ids in wanted.items():
            await resolver.settle(place, ids, urgent=True, patience=PATIENCE)
        registry = await Sources(config, aws, counts=Tally(), log=logs.get("bus")).read()
    finally:
        await resolver.close()
        aws.close()
    rows: list[tuple[str, ...]] = []
    for event in events:
        if isinstance(event, Event):
            rows += [
                row for id in event.instances for row in _routes(event.kind, id, _known(owners, id), registry)
            ]
        else:
            rows.append((event.reason, "", "", str(event.fate)))
    _show(("KIND", "INSTANCE", "CLUSTER", "OUTCOME"), rows, output)
    return FINE


def _routes(kind: str, id: str, known: Known | None, registry: Registry) -> list[tuple[str, ...]]:
    if known is None:
        return [(kind, id, "", "not looked up")]
    if known.state is not OWNED:
        return [(kind, id, "", known.state)]
    return [
        (kind, id, owner.name, "sent" if registry.of(owner) else "parked: no_destination")
        for owner in known.owners
    ]


def _known(owners: Owners, id: str) -> Known | None:
    return owners.get(id, SystemClock().now().timestamp())


def _resolver(config: Config, aws: Any, owners: Owners) -> Resolver:
    return Resolver(config, aws, owners, clock=SystemClock(), counts=Tally(), log=logs.get("bus"))


async def resolve(config: Config, ids: list[str], output: Output) -> int:
    """Say which cluster owns each instance, wherever it is."""
    if not ids:
        raise Misconfigured("no instance is named; write `dovetail interruption-router resolve i-…`")
    aws, rules, rows = door(config), config.rules, []
    try:
        for place in [Place(a, r) for a in sorted(rules.accounts) for r in sorted(rules.regions)]:
            owners = Owners()
            resolver = _resolver(config, aws, owners)
            await resolver.settle(place, ids, urgent=False, patience=PATIENCE)
            await resolver.close()
            for id in ids:
                known = _known(owners, id)
                if known is not None and known.state is not UNKNOWN:
                    rows.append((id, *place, ", ".join(each.name for each in known.owners), known.state))
    finally:
        aws.close()
    found = {row[0] for row in rows}
    rows += [(id, "", "", "", UNKNOWN) for id in ids if id not in found]
    _show(("INSTANCE", "ACCOUNT", "REGION", "CLUSTER", "STATE"), rows, output)
    return FINE if len(found) == len(set(ids)) else COMPLAINTS


async def replayed(config: Config, source: str, wanted: Wanted, rate: float) -> None:
    aws = door(config)
    name = config[f"queues.{source}"] if source in ("dlq", "park") else source
    try:
        done = await replay(aws, config, name, wanted, clock=SystemClock(), rate=rate)
    finally:
        aws.close()
    put(f"{counted(done.moved, 'event')} moved back; {done.left} not wanted, {done.unreadable} unreadable.\n")


async def doctor(config: Config, output: Output) -> int:
    aws = door(config)
    try:
        registry = await Sources(config, aws, counts=Tally(), log=logs.get("bus")).read()
        findings = await examine(aws, config, registry)
    finally:
        aws.close()
    _show(("SUBJECT", "FINDING"), [(each.subject, each.problem or "fine") for each in findings], output)
    return COMPLAINTS if any(each.problem for each in findings) else FINE


def keys(output: Output) -> None:
    rows = [(key.path, key.variable, _default(key.default), key.meaning) for key in KEYS]
    _show(("KEY", "VARIABLE", "DEFAULT", "MEANING"), rows, output)


def _default(value: Any) -> str:
    if value is None:
        return "required"
    if isinstance(value, tuple | frozenset):
        return ", ".join(sorted(map(str, value)) if isinstance(value, frozenset) else map(str, value))
    if isinstance(value, float):
        return f"{value:g}s"  # all of them are durations
    return str(value).lower() if isinstance(value, bool) else str(value)


def traced(what: list[str], file: str, output: Output) -> None:
    if len(what) != 1:
        raise Misconfigured("name one instance, event or message to trace, as `trace i-… --file router.log`")
    rows = []
    for line in trace(_lines(file), what[0]):
        shown = {name: value for name, value in line.items() if name in TRACED}
        rows.append(
            (
                str(line.get("time", "")),
                str(line.get("message", "")),
                " ".join(f"{name}={value}" for name, value in shown.items()),
            )
        )
    _show(("TIME", "WHAT", "FIELDS"), rows, output)
    if not rows:
        note(f"dovetail: nothing about {what[0]} is in there; deliveries are logged at --log-level debug")


def _show(columns: tuple[str, ...], rows: list[Any], output: Output) -> None:
    if output is Output.table:
        table(columns, rows)
        return
    names = [column.lower() for column in columns]
    structured({"items": [dict(zip(names, row, strict=True)) for row in rows]}, output)


def _lines(file: str) -> list[str]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"reading {file}: {error.strerror}; name a file that can be read") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"reading {file}: it is not UTF-8 text") from error
    return [line for line in text.splitlines() if line.strip()]


def time_named(text: str) -> float:
    if not text:
        return 0.0
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as error:
        raise Misconfigured(f"--since {text} is not a time; write it as 2026-02-03T10:00:00Z") from error


def kind_named(kind: str) -> str:
    if kind and kind not in KINDS:
        raise Misconfigured(f"--kind {kind} is none; there are {', '.join(sorted(KINDS))}")
    return kind
