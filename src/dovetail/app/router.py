"""The interruption router as a process, and its tools: route, resolve, replay and doctor."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from dovetail.bus.config import BusConfig
from dovetail.bus.daemon import RouterDaemon
from dovetail.bus.destinations import DestinationRegistry
from dovetail.bus.events import BusEvent, BusPlace, ReceivedMessage, read_event
from dovetail.bus.lookup import InstanceResolver
from dovetail.bus.operator_tools import DoctorFinding, ReplayFilter, ReplayResult, examine_setup, replay_queue
from dovetail.bus.owners import OWNED, UNKNOWN, InstanceOwners, KnownInstance
from dovetail.bus.ports import BusTally, RouterContext
from dovetail.bus.sources import DestinationSources
from dovetail.errors import BadInput, Misconfigured
from dovetail.runtime import health
from dovetail.runtime.clock import SystemClock

__all__ = [
    "read_lines",
    "replay_events",
    "resolve_owners",
    "route_events",
    "run_doctor",
    "run_router",
    "supervise_workers",
]

PATIENCE = 10.0


def open_aws(config: BusConfig) -> Any:
    """AWS, with threads enough for the long polls and the sends."""
    from dovetail.aws.boto import BotoAws

    return BotoAws(region=config["region"], threads=config["parallel"] + 16)


async def route_events(config: BusConfig, file: str) -> list[tuple[str, ...]]:
    """Say where each event of a file would go; nothing is sent."""
    rules = replace(config.rules, senders=None)  # a file has none
    events = [
        read_event(ReceivedMessage(str(index), line), rules)[1] for index, line in enumerate(read_lines(file))
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
    return rows


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


async def resolve_owners(config: BusConfig, ids: list[str]) -> list[tuple[str, ...]]:
    """Say which cluster owns each instance, wherever it is."""
    if not ids:
        raise Misconfigured("no instance is named; write `dovetail interruption-router resolve i-…`")
    aws, rules = open_aws(config), config.rules
    rows: list[tuple[str, ...]] = []
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
    return rows + [(id, "", "", "", UNKNOWN) for id in ids if id not in found]


async def replay_events(config: BusConfig, source: str, wanted: ReplayFilter, rate: float) -> ReplayResult:
    """Move the events of a queue of dead letters back to where they came from."""
    aws = open_aws(config)
    name = config[f"queues.{source}"] if source in ("dlq", "park") else source
    try:
        return await replay_queue(aws, config, name, wanted, clock=SystemClock(), rate=rate)
    finally:
        aws.close()


async def run_doctor(config: BusConfig) -> list[DoctorFinding]:
    """Look at queues, rules and permissions, and say what is wrong."""
    aws = open_aws(config)
    try:
        registry = await DestinationSources(config, aws, counts=BusTally()).read_destinations()
        return await examine_setup(aws, config, registry)
    finally:
        aws.close()


def read_lines(file: str) -> list[str]:
    """The lines of a file, or of stdin, that are not empty."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"reading {file}: {error.strerror}; name a file that can be read") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"reading {file}: it is not UTF-8 text") from error
    return [line for line in text.splitlines() if line.strip()]


async def run_router(
    config: BusConfig, metrics_port: int, health_port: int, reread: Callable[[], BusConfig] | None
) -> int:
    """Route until told to stop; the exit code."""
    from dovetail.bus.prometheus import PrometheusCounts

    aws, stop = open_aws(config), asyncio.Event()
    context = RouterContext(
        config,
        aws,
        clock=SystemClock(),
        counts=PrometheusCounts(config["maxClusterLabels"]),
        rng=Random(SystemRandom().getrandbits(64)),
    )
    daemon = RouterDaemon(context, reread=reread)
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
    return 0


def _build_ready_check(daemon: RouterDaemon) -> health.Check:
    async def check() -> str | None:
        return None if daemon.ready else "the router is not receiving"

    return check


class _Workers:
    """So many routers, each a process of its own with ports of its own; they end together."""

    def __init__(
        self, command: list[str], count: int, ports: tuple[int, int], remark: Callable[[str], None]
    ) -> None:
        self._command, self._ports, self._remark = command, ports, remark
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
                self._remark(f"dovetail: a router was ended by signal {-code}; starting another")
                self._running[index] = self._start_worker(index)
        return max(self._ended.values(), key=abs)


def supervise_workers(
    config: Path | None, log_level: str, count: int, ports: tuple[int, int], remark: Callable[[str], None]
) -> int:
    """Run several routers, each a process of its own, until they have ended; the exit code."""
    command = [sys.executable, "-m", "dovetail", "interruption-router", "--log-level", log_level]
    workers = _Workers(command + (["--config", str(config)] if config else []), count, ports, remark)
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, workers.stop)
    return workers.wait_all()
