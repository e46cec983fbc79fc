"""``dovetail interruption-router``: the interruption bus as a long-running process, and its tools."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from dovetail.app import router
from dovetail.bus.config import ADVANCED, ADVANCED_VARIABLE, FIELDS, KEYS, BusConfig, read_config
from dovetail.bus.events import KINDS
from dovetail.bus.operator_tools import DoctorFinding, ReplayFilter, ReplayResult, trace_log
from dovetail.bus.owners import UNKNOWN
from dovetail.cli.views.output import (
    COMPLAINTS,
    FINE,
    Output,
    OutputOption,
    format_count,
    print_note,
    print_structured,
    print_table,
    print_text,
)
from dovetail.errors import BadInput, Misconfigured
from dovetail.runtime import logs

TRACED = ("kind", "cluster", "reason", "clusters")
Action = Literal["run", "route", "resolve", "replay", "trace", "doctor", "keys"]
ActionArgument = Annotated[
    Action,
    typer.Argument(
        help="run; route the events of a file without sending; resolve instances; replay dead letters; "
        "trace an id through a log; doctor looks at queues, rules and permissions; keys lists settings."
    ),
]
IdsArgument = Annotated[list[str] | None, typer.Argument(help="Instance ids to resolve, or the id to trace.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="The configuration, in YAML or JSON."),
]
CheckOption = Annotated[bool, typer.Option("--check", help="Check the configuration and end.")]
WorkersOption = Annotated[int, typer.Option(min=1, max=64, help="Processes that share the work.")]
MetricsPortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port of /metrics; 0 for none.")]
HealthPortOption = Annotated[
    int, typer.Option(min=0, max=65535, help="Port of /healthz and /readyz; 0 for none.")
]
LogLevelOption = Annotated[Literal["debug", "info", "error"], typer.Option(help="What to log.")]
EventsFileOption = Annotated[
    str,
    typer.Option("--file", metavar="FILE", help="Events to route, or the log to trace in; - for stdin."),
]
ReplaySourceOption = Annotated[
    str, typer.Option("--from", metavar="QUEUE", help="Replay from: dlq, park or a name.")
]
ReplaySinceOption = Annotated[str, typer.Option(metavar="TIME", help="Replay what came after this time.")]
ReplayKindOption = Annotated[str, typer.Option(help="Replay events of this kind only.")]
ReplayClusterOption = Annotated[str, typer.Option(help="Replay events of this cluster only.")]
ReplayRateOption = Annotated[float, typer.Option(min=0.1, help="Replay so many events a second.")]


def interruption_router(
    action: ActionArgument = "run",
    what: IdsArgument = None,
    config: ConfigOption = None,
    check: CheckOption = False,
    workers: WorkersOption = 1,
    metrics_port: MetricsPortOption = 8080,
    health_port: HealthPortOption = 8081,
    log_level: LogLevelOption = "info",
    file: EventsFileOption = "-",
    source: ReplaySourceOption = "dlq",
    since: ReplaySinceOption = "",
    kind: ReplayKindOption = "",
    cluster: ReplayClusterOption = "",
    rate: ReplayRateOption = 100.0,
    output: OutputOption = Output.table,
) -> None:
    """Send each interruption event to the cluster that owns the instance.

    The configuration comes from --config and from DOVETAIL_BUS_* variables, which win; `keys` lists both.
    """
    if action == "keys":
        return _print_keys(output)
    if action == "trace":
        return _print_trace(what or [], file, output)
    settings = _read_config(config)
    if check:
        return _report_config(settings, config)
    if action == "run" and workers > 1:
        ports = (metrics_port, health_port)
        sys.exit(router.supervise_workers(config, log_level, workers, ports, print_note))
    logs.configure_logging(log_level, ("stdout",) if action == "run" else ("stderr",))
    if action == "run":
        reread = partial(_read_config, config) if config is not None else None
        sys.exit(asyncio.run(router.run_router(settings, metrics_port, health_port, reread)))
    if action == "replay":
        wanted = ReplayFilter(_parse_time(since), _check_kind(kind), cluster)
        return _report_replay(asyncio.run(router.replay_events(settings, source, wanted, rate)))
    if action == "route":
        rows = asyncio.run(router.route_events(settings, file))
        return _show_rows(("KIND", "INSTANCE", "CLUSTER", "OUTCOME"), rows, output)
    if action == "resolve":
        sys.exit(_show_owners(asyncio.run(router.resolve_owners(settings, what or [])), output))
    sys.exit(_show_findings(asyncio.run(router.run_doctor(settings)), output))


def _read_config(path: Path | None) -> BusConfig:
    if path is None:
        return read_config(None, os.environ, where="the environment")
    try:
        document = msgspec.yaml.decode(path.read_bytes())
    except OSError as error:
        raise BadInput(f"reading {path}: {error.strerror}; name a file that can be read") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())[:200]
        raise BadInput(f"reading {path}: it is not YAML that can be read: {why}") from error
    return read_config(document, os.environ, where=str(path))


def _report_config(config: BusConfig, path: Path | None) -> None:
    rules = config.rules
    if not rules.accounts:
        raise Misconfigured("no account is served; list one under `accounts`, or register a destination")
    where = path or "the environment"
    for each in config.old_names:
        print_note(f"{where}: {each}")
    print_text(
        f"{where} is fine: {format_count(len(config.registry), 'destination')}, "
        f"{format_count(len(rules.accounts), 'account')}, {format_count(len(rules.regions), 'region')}.\n"
    )


def _report_replay(done: ReplayResult) -> None:
    print_text(
        f"{format_count(done.moved, 'event')} moved back; "
        f"{done.left} not wanted, {done.unreadable} unreadable.\n"
    )


def _show_owners(rows: list[tuple[str, ...]], output: Output) -> int:
    _show_rows(("INSTANCE", "ACCOUNT", "REGION", "CLUSTER", "STATE"), rows, output)
    return COMPLAINTS if any(row[-1] == UNKNOWN for row in rows) else FINE


def _show_findings(findings: list[DoctorFinding], output: Output) -> int:
    _show_rows(("SUBJECT", "FINDING"), [(each.subject, each.problem or "fine") for each in findings], output)
    return COMPLAINTS if any(each.problem for each in findings) else FINE


def _print_keys(output: Output) -> None:
    rows = [(key.path, key.variable, _format_default(key.default), key.meaning) for key in KEYS]
    rows.append(
        (ADVANCED, ADVANCED_VARIABLE, "", "An object of the fields below; the variable holds it as JSON.")
    )
    rows += [(key.location, "", _format_default(key.default), key.meaning) for key in FIELDS]
    _show_rows(("KEY", "VARIABLE", "DEFAULT", "MEANING"), rows, output)


def _format_default(value: Any) -> str:
    if value is None:
        return "required"
    if isinstance(value, tuple | frozenset):
        return ", ".join(sorted(map(str, value)) if isinstance(value, frozenset) else map(str, value))
    if isinstance(value, float):
        return f"{value:g}s"  # all of them are durations
    return str(value).lower() if isinstance(value, bool) else str(value)


def _print_trace(what: list[str], file: str, output: Output) -> None:
    if len(what) != 1:
        raise Misconfigured("name one instance, event or message to trace, as `trace i-… --file router.log`")
    rows = []
    for line in trace_log(router.read_lines(file), what[0]):
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


def _parse_time(text: str) -> float:
    if not text:
        return 0.0
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as error:
        raise Misconfigured(f"--since {text} is not a time; write it as 2026-02-03T10:00:00Z") from error


def _check_kind(kind: str) -> str:
    if kind and kind not in KINDS:
        raise Misconfigured(f"--kind {kind} is none; there are {', '.join(sorted(KINDS))}")
    return kind
