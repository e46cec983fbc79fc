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
from dovetail.api.zoneshift import ZoneShift
from dovetail.app.leader_election import build_elector, work_while_leading
from dovetail.app.zonal_clients import TableKubeClient, call_arc
from dovetail.aws import Aws
from dovetail.controllers.base import SINGLETON
from dovetail.errors import Gone, Refused
from dovetail.runtime import health, logs, metrics
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.informer import Informer
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.kubeconfig import connect
from dovetail.runtime.manager import Manager
from dovetail.runtime.transport import USER_AGENT, Transport
from dovetail.runtime.watch import Follower
from dovetail.settings import Settings, read_settings
from dovetail.throttle import Throttle
from dovetail.zonal.controller.controller import ShiftedCluster
from dovetail.zonal.model.gates import ZoneGates
from dovetail.zonal.model.records import SIGNAL
from dovetail.zonal.model.shifts import STAND_ALONE
from dovetail.zonal.options import from_settings
from dovetail.zonal.policy_map import read_policy
from dovetail.zonal.wiring import ShiftClients, ZonalService, find_namespace

__all__ = [
    "ShiftCluster",
    "cancel_shift",
    "extend_shift",
    "is_ending",
    "list_live_shifts",
    "list_shifts",
    "open_aws",
    "plan_shift",
    "run_stand_alone",
]

KINDS: tuple[type[Any], ...] = (Node, NodeClaim, NodePool)
# A lease of its own: the autoscaler beside us has another.
LEASE = "dovetail-zonal-shift"
BY_PEOPLE = ("LOCAL", "ZONAL_SHIFT")


@dataclass(frozen=True, slots=True)
class ShiftCluster:
    """Which cluster is meant."""

    kubeconfig: str = ""
    context: str = ""
    # The DynamoDB table in which its shifts are kept, and the name they are found by; empty for objects.
    table: str = ""
    cluster: str = ""

    @asynccontextmanager
    async def open_kube(self) -> AsyncIterator[KubeClient]:
        clock = SystemClock()
        transport = connect(clock, self.kubeconfig, self.context).open_transport(USER_AGENT)
        try:
            if self.table:
                yield TableKubeClient(transport, clock, table=self.table, cluster=self.cluster)
            else:
                yield KubeClient(transport, clock)
        finally:
            await transport.close()


@asynccontextmanager
async def open_aws() -> AsyncIterator[Aws]:
    """AWS, by the credentials of whoever asks."""
    from dovetail.aws.boto import BotoAws

    boto = BotoAws()
    try:
        yield boto
    finally:
        boto.close()


async def cancel_shift(cluster: ShiftCluster, zone: str) -> str:
    """End every shift of the zone: ARC's by ARC, ours by deleting its object. What is ending is let be."""
    ended, ending = [], []
    async with cluster.open_kube() as kube:
        for each in await list_live_shifts(kube, zone):
            if each.spec.kind not in BY_PEOPLE:
                continue
            if is_ending(each):
                ending.append(each.name)
            else:
                ended.append(await _end_shift(kube, each))
    if ended:
        return f"cancelled {', '.join(ended)}"
    if ending:
        return f"{', '.join(ending)} is on its way back already"
    raise Gone(f"cancelling the shift of {zone}: there is none that a person started")


async def _end_shift(kube: KubeClient, shift: ZoneShift) -> str:
    if shift.spec.kind == "LOCAL":
        await kube.delete(shift)
        return shift.name
    async with open_aws() as aws:
        await call_arc(aws, "CancelZonalShift", shift.spec.zone_id, zonalShiftId=shift.spec.shift_id)
    return shift.spec.shift_id


async def extend_shift(cluster: ShiftCluster, zone: str, lasts: str, until: datetime) -> str:
    """Let a shift last longer. One on its way back is not taken up again by that: it needs another."""
    async with cluster.open_kube() as kube:
        found = [each for each in await list_live_shifts(kube, zone) if each.spec.kind in BY_PEOPLE]
        for each in found:
            if not is_ending(each):
                return await _extend_one(kube, each, lasts, until)
    if found:
        again = f"start another: dovetail zonal-shift start --zone {zone} --for {lasts}"
        local = " --local" if all(each.spec.kind == "LOCAL" for each in found) else ""
        raise Refused(f"extending the shift of {zone}: it is on its way back already; {again}{local}")
    raise Gone(f"extending the shift of {zone}: there is none that a person started")


async def _extend_one(kube: KubeClient, shift: ZoneShift, lasts: str, until: datetime) -> str:
    if shift.spec.kind == "LOCAL":
        await kube.patch(shift, structs.replace(shift, spec=structs.replace(shift.spec, expires=until)))
        return f"{shift.name} now ends at {until:%Y-%m-%d %H:%M} UTC"
    asked = {"zonalShiftId": shift.spec.shift_id, "expiresIn": lasts}
    async with open_aws() as aws:
        await call_arc(aws, "UpdateZonalShift", shift.spec.zone_id, **asked)
    return f"{shift.spec.shift_id} now ends in {lasts}"


def is_ending(shift: ZoneShift) -> bool:
    """Whether a shift is on its way back, or will be in a moment."""
    return shift.deleting or shift.status.phase == "Restoring"


async def list_live_shifts(kube: KubeClient, zone: str = "") -> list[ZoneShift]:
    """Shifts that are not over, of this zone or of all; each once, also if a table has a copy of it."""
    found = {
        each.name: each
        for each in reversed(await kube.list(ZoneShift))
        if zone in ("", each.spec.zone_id, each.status.zone_name)
        and each.spec.kind != SIGNAL
        and each.status.phase != "Restored"
    }
    return list(reversed(found.values()))


async def list_shifts(cluster: ShiftCluster, *, over: bool) -> list[ZoneShift]:
    async with cluster.open_kube() as kube:
        found = await kube.list(ZoneShift)
    return [each for each in found if each.spec.kind != SIGNAL and (each.status.phase == "Restored") == over]


class StandAloneZonal:
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
        self.zonal = ZonalService(
            settings,
            ShiftClients(aws, self.kube, KubeClient(transport, clock)),
            ShiftedCluster(ZoneGates(clock), self.informers[Node], self.informers[NodeClaim]),
            clock=clock,
            rng=chance,
            recorder=recorder,
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
            self.manager.add_service(Follower(self.kube, kind, informer, clock=clock, rng=chance).run)
        for service in (recorder.run, *self.zonal.services):
            self.manager.add_service(service)
        queue.add(SINGLETON)

    async def wait_filled(self) -> None:
        for each in self.informers.values():
            await each.wait_synced()

    async def run(self, elected: Callable[[], Awaitable[None]]) -> None:
        async def ready() -> None:
            await self.wait_filled()
            await elected()

        await self.manager.run(ready)

    @property
    def ready(self) -> health.Check:
        """Once everything has been heard, whoever leads: every replica receives."""
        return health.require_synced(
            {kind.__name__: partial(getattr, each, "synced") for kind, each in self.informers.items()}
        )

    def stop(self) -> None:
        self.manager.stop()


async def run_stand_alone(settings: Settings, cluster: ShiftCluster) -> int:
    """Follow shifts until told to stop. Pools are another autoscaler's, so they are edited."""
    logs.configure_logging(settings.log_level, settings.log_output_paths)
    connection = connect(SystemClock(), cluster.kubeconfig, cluster.context)
    transport = connection.open_transport(USER_AGENT)
    settings = await read_policy(settings, KubeClient(transport, SystemClock()), find_namespace(settings))
    edited = (
        "NodePoolEdit" if settings.find_origin("ZONAL_SHIFT_MODE") == "default" else settings.zonal_shift_mode
    )

    elector = build_elector(settings, connection, LEASE)
    leading = (lambda: True) if elector is None else (lambda: elector.leading)
    page = health.build_metrics_app(exposition=metrics.render_exposition)
    servers = [await health.serve_app(page, settings.metrics_port)]
    try:
        async with open_aws() as aws:
            alone = StandAloneZonal(settings, transport, aws, mode=edited, may_write=leading)
            probes = health.build_probes_app([alone.ready])
            servers.append(await health.serve_app(probes, settings.health_probe_port))
            return 0 if await work_while_leading(alone, elector) else 1
    finally:
        if elector is not None:
            await elector.stop()
        for runner, _ in servers:
            await runner.cleanup()
        await transport.close()


async def plan_shift(place: ShiftCluster, zone: str, cluster: str, flags: Sequence[str]) -> tuple[str, ...]:
    """Every write that shifting away from the zone would take, from a dry run that writes nothing."""
    given = tuple(each for each in flags if not each.startswith("--cluster-name="))
    named = f"--cluster-name={cluster or 'unnamed'}"
    settings = read_settings((named, "--enable-zonal-shift=true", *given), {}, provider="aws")
    clock = SystemClock()
    transport = connect(clock, place.kubeconfig, place.context).open_transport(USER_AGENT)
    try:
        async with open_aws() as aws:
            options: dict[str, Any] = {"mode": "NodePoolEdit", "dry_run": "client"}
            return await _plan_writes(
                StandAloneZonal(settings, transport, aws, may_write=lambda: False, **options), zone
            )
    finally:
        await transport.close()


async def _plan_writes(alone: StandAloneZonal, zone: str) -> tuple[str, ...]:
    running = asyncio.create_task(alone.run(alone.wait_filled))
    try:
        await alone.wait_filled()
        return await alone.zonal.controller.plan_shift(zone)
    finally:
        alone.stop()
        await running
