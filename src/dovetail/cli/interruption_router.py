"""``dovetail interruption-router``: the interruption bus as a long-running process, and its tools."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Annotated, Any, Literal

import msgspec
import typer

from dovetail.bus.config import BusConfig, read_config
from dovetail.bus.daemon import RouterDaemon
from dovetail.bus.operator_tools import ReplayFilter
from dovetail.cli import router_tools as tools
from dovetail.cli.output import FINE, Output, OutputOption, format_count, print_note, print_text
from dovetail.errors import BadInput, Misconfigured
from dovetail.runtime import health, logs
from dovetail.runtime.clock import SystemClock

Action = Literal["run", "route", "resolve", "replay", "trace", "doctor", "keys"]


def interruption_router(
    action: Annotated[
        Action,
        typer.Argument(
            help="run; route the events of a file without sending; resolve instances; replay dead letters; "
            "trace an id through a log; doctor looks at queues, rules and permissions; keys lists settings."
        ),
    ] = "run",
    what: Annotated[
        list[str] | None, typer.Argument(help="Instance ids to resolve, or the id to trace.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="The configuration, in YAML or JSON."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Check the configuration and end.")] = False,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that share the work.")] = 1,
    metrics_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of /metrics; 0 for none.")] = 8080,
    health_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of /healthz and /readyz; 0 for none.")
    ] = 8081,
    log_level: Annotated[Literal["debug", "info", "error"], typer.Option(help="What to log.")] = "info",
    file: Annotated[
        str,
        typer.Option("--file", metavar="FILE", help="Events to route, or the log to trace in; - for stdin."),
    ] = "-",
    source: Annotated[
        str, typer.Option("--from", metavar="QUEUE", help="Replay from: dlq, park or a name.")
    ] = "dlq",
    since: Annotated[str, typer.Option(metavar="TIME", help="Replay what came after this time.")] = "",
    kind: Annotated[str, typer.Option(help="Replay events of this kind only.")] = "",
    cluster: Annotated[str, typer.Option(help="Replay events of this cluster only.")] = "",
    rate: Annotated[float, typer.Option(min=0.1, help="Replay so many events a second.")] = 100.0,
    output: OutputOption = Output.table,
) -> None:
    """Send each interruption event to the cluster that owns the instance.

    The configuration comes from --config and from DOVETAIL_BUS_* variables, which win; `keys` lists both.
    """
    if action == "keys":
        return tools.print_keys(output)
    if action == "trace":
        return tools.print_trace(what or [], file, output)
    settings = _read_config(config)
    if check:
        return _report_config(settings, config)
    if action == "run" and workers > 1:
        sys.exit(_supervise_workers(config, log_level, workers, (metrics_port, health_port)))
    logs.configure_logging(log_level, ("stdout",) if action == "run" else ("stderr",))
    if action == "run":
        reread = partial(_read_config, config) if config is not None else None
        sys.exit(asyncio.run(_run_router(settings, metrics_port, health_port, reread)))
    if action == "replay":
        wanted = ReplayFilter(tools.parse_time(since), tools.check_kind(kind), cluster)
        return asyncio.run(tools.replay_events(settings, source, wanted, rate))
    work: dict[str, Callable[[], Coroutine[Any, Any, int]]] = {
        "route": lambda: tools.route_events(settings, file, output),
        "resolve": lambda: tools.resolve_owners(settings, what or [], output),
        "doctor": lambda: tools.run_doctor(settings, output),
    }
    sys.exit(asyncio.run(work[action]()))


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
    print_text(
        f"{where} is fine: {format_count(len(config.registry), 'destination')}, "
        f"{format_count(len(rules.accounts), 'account')}, {format_count(len(rules.regions), 'region')}.\n"
    )


async def _run_router(
    config: BusConfig, metrics_port: int, health_port: int, reread: Callable[[], BusConfig] | None
) -> int:
    from dovetail.bus.prometheus import PrometheusCounts

    aws, stop = tools.open_aws(config), asyncio.Event()
    daemon = RouterDaemon(
        config,
        aws,
        clock=SystemClock(),
        counts=PrometheusCounts(config["maxClusterLabels"]),
        rng=Random(SystemRandom().getrandbits(64)),
        reread=reread,
    )
    for one in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(one, stop.set)
    servers = []
    try:
        await daemon.prepare()
        if metrics_port:
            servers.append(await health.serve_app(health.build_metrics_app(), metrics_port))
        if health_port:
            servers.append(
                await health.serve_app(health.build_probes_app([_build_ready_check(daemon)]), health_port)
            )
        await daemon.run(stop)
    finally:
        for runner, _ in servers:
            await runner.cleanup()
        aws.close()
    return FINE


def _build_ready_check(daemon: RouterDaemon) -> health.Check:
    async def check() -> str | None:
        return None if daemon.ready else "the router is not receiving"

    return check


class _Workers:
    """So many routers, each a process of its own with ports of its own; they end together."""

    def __init__(self, command: list[str], count: int, ports: tuple[int, int]) -> None:
        self._command, self._ports = command, ports
        self._running = {index: self._start_worker(index) for index in range(count)}
        self._ended: dict[int, int] = {}
        self._stopping = False

    def _start_worker(self, index: int) -> subprocess.Popen[bytes]:
        metrics, probes = (str(port and port + 2 * index) for port in self._ports)
        return subprocess.Popen([*self._command, "--metrics-port", metrics, "--health-port", probes])

    def stop(self, *_: object) -> None:
        self._stopping = True
        for index, process in self._running.items():
            if index not in self._ended:
                process.send_signal(signal.SIGTERM)

    def wait_all(self) -> int:
        """Until all have ended. One that was killed is started again; one that said why it ended is not."""
        while len(self._ended) < len(self._running):
            pid, status = os.wait()
            index = next((each for each, process in self._running.items() if process.pid == pid), None)
            if index is None:
                continue
            code = self._running[index].returncode = os.waitstatus_to_exitcode(status)
            if self._stopping or code >= 0:
                self._ended[index] = code
                if not self._stopping:
                    self.stop()
            else:
                print_note(f"dovetail: a router was ended by signal {-code}; starting another")
                self._running[index] = self._start_worker(index)
        return max(self._ended.values(), key=abs)


def _supervise_workers(config: Path | None, log_level: str, count: int, ports: tuple[int, int]) -> int:
    command = [sys.executable, "-m", "dovetail", "interruption-router", "--log-level", log_level]
    workers = _Workers(command + (["--config", str(config)] if config else []), count, ports)
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, workers.stop)
    return workers.wait_all()
