"""What ``dovetail zonal-shift`` does: asks ARC, writes ZoneShifts, and runs the controller by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from random import Random, SystemRandom
from typing import Any

from msgspec import structs

from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.zoneshift import Count, ZoneShift
from dovetail.aws import Aws
from dovetail.cli.output import Output, structured, table
from dovetail.cli.zonalrefusals import arc
from dovetail.cli.zonaltable import TabledKube
from dovetail.controllers.base import SINGLETON
from dovetail.controllers.zonal.gates import Gates
from dovetail.controllers.zonal.options import from_settings
from dovetail.controllers.zonal.records import SIGNAL
from dovetail.errors import Gone, Refused
from dovetail.runtime import health, logs, metrics
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.informer import Informer
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.kubeconfig import Connection, connect
from dovetail.runtime.leader import Elector, ElectorThread, Terms, new_identity
from dovetail.runtime.manager import Manager, at_once
from dovetail.runtime.throttle import Throttle
from dovetail.runtime.transport import USER_AGENT, Transport
from dovetail.runtime.watch import Follower
from dovetail.runtime.zonal import Zonal
from dovetail.settings import Settings, read
from dovetail.zonal.owners import STAND_ALONE

__all__ = ["Place", "account", "cancel", "extend", "is_ending", "listed", "live", "planned", "run", "shown"]

KINDS: tuple[type[Any], ...] = (Node, NodeClaim, NodePool)
BY_PEOPLE = ("LOCAL", "ZONAL_SHIFT")


@dataclass(frozen=True, slots=True)
class Place:
    """Which cluster is meant."""

    kubeconfig: str = ""
    context: str = ""
    # The DynamoDB table in which its shifts are kept, and the name they are found by; empty for objects.
    table: str = ""
    cluster: str = ""

    @asynccontextmanager
    async def kube(self) -> AsyncIterator[KubeClient]:
        clock = SystemClock()
        transport = connect(clock, self.kubeconfig, self.context).transport(USER_AGENT)
        try:
            if self.table:
                yield TabledKube(transport, clock, table=self.table, cluster=self.cluster)
            else:
                yield KubeClient(transport, clock)
        finally:
            await transport.close()


@asynccontextmanager
async def account() -> AsyncIterator[Aws]:
    """AWS, by the credentials of whoever asks."""
    from dovetail.aws.boto import Boto

    boto = Boto()
    try:
        yield boto
    finally:
        boto.close()


async def cancel(place: Place, zone: str) -> str:
    """End every shift of the zone: ARC's by ARC, ours by deleting its object. What is ending is let be."""
    ended, ending = [], []
    async with place.kube() as kube:
        for each in await live(kube, zone):
            if each.spec.kind not in BY_PEOPLE:
                continue
            if is_ending(each):
                ending.append(each.name)
            else:
                ended.append(await _ended(kube, each))
    if ended:
        return f"cancelled {', '.join(ended)}"
    if ending:
        return f"{', '.join(ending)} is on its way back already"
    raise Gone(f"cancelling the shift of {zone}: there is none that a person started")


async def _ended(kube: KubeClient, shift: ZoneShift) -> str:
    if shift.spec.kind == "LOCAL":
        await kube.delete(shift)
        return shift.name
    async with account() as aws:
        await arc(aws, "CancelZonalShift", shift.spec.zone_id, zonalShiftId=shift.spec.shift_id)
    return shift.spec.shift_id


async def extend(place: Place, zone: str, lasts: str, until: datetime) -> str:
    """Let a shift last longer. One on its way back is not taken up again by that: it needs another."""
    async with place.kube() as kube:
        found = [each for each in await live(kube, zone) if each.spec.kind in BY_PEOPLE]
        for each in found:
            if not is_ending(each):
                return await _extended(kube, each, lasts, until)
    if found:
        again = f"start another: dovetail zonal-shift start --zone {zone} --for {lasts}"
        local = " --local" if all(each.spec.kind == "LOCAL" for each in found) else ""
        raise Refused(f"extending the shift of {zone}: it is on its way back already; {again}{local}")
    raise Gone(f"extending the shift of {zone}: there is none that a person started")


async def _extended(kube: KubeClient, shift: ZoneShift, lasts: str, until: datetime) -> str:
    if shift.spec.kind == "LOCAL":
        await kube.patch(shift, structs.replace(shift, spec=structs.replace(shift.spec, expires=until)))
        return f"{shift.name} now ends at {until:%Y-%m-%d %H:%M} UTC"
    asked = {"zonalShiftId": shift.spec.shift_id, "expiresIn": lasts}
    async with account() as aws:
        await arc(aws, "UpdateZonalShift", shift.spec.zone_id, **asked)
    return f"{shift.spec.shift_id} now ends in {lasts}"


def is_ending(shift: ZoneShift) -> bool:
    """Whether a shift is on its way back, or will be in a moment."""
    return shift.deleting or shift.status.phase == "Restoring"


async def live(kube: KubeClient, zone: str = "") -> list[ZoneShift]:
    """Shifts that are not over, of this zone or of all; each once, also if a table has a copy of it."""
    found = {
        each.name: each
        for each in reversed(await kube.list(ZoneShift))
        if zone in ("", each.spec.zone_id, each.status.zone_name)
        and each.spec.kind != SIGNAL
        and each.status.phase != "Restored"
    }
    return list(reversed(found.values()))


async def listed(place: Place, *, over: bool) -> list[ZoneShift]:
    async with place.kube() as kube:
        found = await kube.list(ZoneShift)
    return [each for each in found if each.spec.kind != SIGNAL and (each.status.phase == "Restored") == over]


def shown(found: Sequence[ZoneShift], output: Output) -> None:
    rows = [
        (
            each.name,
            each.spec.zone_id,
            each.status.zone_name,
            each.spec.kind,
            each.status.phase or "Pending",
            _counted(each.status.steps.nodes),
            _counted(each.status.steps.node_pools),
            f"{each.status.expiry_time:%Y-%m-%d %H:%M}" if each.status.expiry_time else "",
            each.status.end_reason,
        )
        for each in found
    ]
    names = ("NAME", "ZONE ID", "ZONE", "KIND", "PHASE", "NODES", "POOLS", "UNTIL", "ENDED BY")
    if output is Output.table:
        table(names, rows)
    else:
        fields = [name.lower().replace(" ", "-") for name in names]
        structured({"shifts": [dict(zip(fields, row, strict=True)) for row in rows]}, output)


def _counted(steps: Count) -> str:
    """How far a step has come; where it has nothing to do, nothing."""
    return f"{steps.done}/{steps.desired}" if steps.desired else "-"


class Alone:
    """The zonal controller by itself, beside whoever serves the pools."""

    def __init__(self, settings: Settings, transport: Transport, aws: Aws, **options: Any) -> None:
        clock, chance = SystemClock(), Random(SystemRandom().getrandbits(64))
        throttle = Throttle(clock, settings.kube_client_qps, settings.kube_client_burst)
        self.kube = KubeClient(
            transport, clock, throttle=throttle, may_write=options.pop("may_write", lambda: True)
        )
        recorder = EventRecorder(self.kube, clock, chance)
        self.manager = Manager(clock, chance)
        self.informers = {kind: Informer(kind) for kind in KINDS}
        self.zonal = Zonal(
            settings,
            aws,
            kube=self.kube,
            receiving=KubeClient(transport, clock),
            clock=clock,
            chance=chance,
            recorder=recorder,
            gates=Gates(clock),
            nodes=self.informers[Node],
            claims=self.informers[NodeClaim],
            options=replace(from_settings(settings), owner=STAND_ALONE, **options),
        )
        queue = self.manager.add(self.zonal.controller)
        self.zonal.controller.on_wake(partial(queue.add, SINGLETON))
        for trigger in self.zonal.controller.triggers:

            def heard(before: Any, after: Any, keys: Any = trigger.keys) -> None:
                for key in keys(before, after):
                    queue.add(key)

            self.informers[trigger.kind].on_change(heard)
        for kind, informer in self.informers.items():
            self.manager.serve(Follower(self.kube, kind, informer, clock=clock, chance=chance).run)
        for service in (recorder.run, *self.zonal.services):
            self.manager.serve(service)
        queue.add(SINGLETON)

    async def filled(self) -> None:
        for each in self.informers.values():
            await each.wait_synced()

    async def run(self, elected: Callable[[], Awaitable[None]]) -> None:
        async def ready() -> None:
            await self.filled()
            await elected()

        await self.manager.run(ready)

    @property
    def ready(self) -> health.Check:
        """Once everything has been heard, whoever leads: every replica receives."""
        return health.synced(
            {kind.__name__: partial(getattr, each, "synced") for kind, each in self.informers.items()}
        )

    def stop(self) -> None:
        self.manager.stop()


async def run(settings: Settings, place: Place) -> int:
    """Follow shifts until told to stop. Pools are another autoscaler's, so they are edited."""
    logs.configure(settings.log_level, settings.log_output_paths)
    connection = connect(SystemClock(), place.kubeconfig, place.context)
    transport = connection.transport(USER_AGENT)
    edited = "NodePoolEdit" if settings.origin("ZONAL_SHIFT_MODE") == "default" else settings.zonal_shift_mode

    elector = None if settings.disable_leader_election else _elector(settings, connection)
    leading = (lambda: True) if elector is None else (lambda: elector.leading)
    page = health.metrics_app(exposition=metrics.exposition)
    servers = [await health.serve(page, settings.metrics_port)]
    try:
        async with account() as aws:
            alone = Alone(settings, transport, aws, mode=edited, may_write=leading)
            probes = health.probes_app([alone.ready])
            servers.append(await health.serve(probes, settings.health_probe_port))
            return await _led(alone, elector)
    finally:
        if elector is not None:
            await elector.stop()
        for runner, _ in servers:
            await runner.cleanup()
        await transport.close()


async def _led(alone: Alone, elector: ElectorThread | None) -> int:
    alone.manager.stop_on_signals()
    if elector is None:
        await alone.run(at_once)
        return 0
    elector.start()
    lost = asyncio.create_task(elector.wait_lost())
    running = asyncio.create_task(alone.run(elector.wait_leading))
    await asyncio.wait({running, lost}, return_when=asyncio.FIRST_COMPLETED)
    over = lost.done() and not running.done()
    alone.stop()
    lost.cancel()
    await running
    return 1 if over else 0


def _elector(settings: Settings, connection: Connection) -> ElectorThread:
    """A lease of its own: the autoscaler beside us has another."""
    namespace = settings.leader_election_namespace or connection.namespace
    terms, identity = Terms(name="dovetail-zonal-shift", namespace=namespace), new_identity()

    def make(tell: Callable[[bool], None]) -> Elector:
        clock = SystemClock()
        kube = KubeClient(connection.transport(USER_AGENT), clock)
        return Elector(kube, terms, identity, clock=clock, chance=Random(identity), on_change=tell)

    return ElectorThread(make)


async def planned(place: Place, zone: str, cluster: str, flags: Sequence[str]) -> tuple[str, ...]:
    """Every write that stepping out of the zone would take, from a dry run that writes nothing."""
    given = tuple(each for each in flags if not each.startswith("--cluster-name="))
    named = f"--cluster-name={cluster or 'unnamed'}"
    settings = read((named, "--enable-zonal-shift=true", *given), {}, provider="aws")
    clock = SystemClock()
    transport = connect(clock, place.kubeconfig, place.context).transport(USER_AGENT)
    try:
        async with account() as aws:
            options: dict[str, Any] = {"mode": "NodePoolEdit", "dry_run": "client"}
            return await _planned(Alone(settings, transport, aws, may_write=lambda: False, **options), zone)
    finally:
        await transport.close()


async def _planned(alone: Alone, zone: str) -> tuple[str, ...]:
    running = asyncio.create_task(alone.run(alone.filled))
    try:
        await alone.filled()
        return await alone.zonal.controller.plan(zone)
    finally:
        alone.stop()
        await running
