"""Zonal shift as it runs: the controller, what it hears of shifts by, and what is kept going for that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from dovetail.api.zoneshift import ZoneShift
from dovetail.aws import Aws
from dovetail.logs import get_logger
from dovetail.ports import Clock, Recorder
from dovetail.runtime.informer import Informer
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.kubeconfig import SERVICE_ACCOUNT
from dovetail.runtime.watch import Follower, WatchOptions
from dovetail.settings import Settings
from dovetail.zonal.controller.arc import ArcPoller
from dovetail.zonal.controller.controller import ShiftedCluster, ZonalShiftController
from dovetail.zonal.ingest.signals import ShiftQueueReader, SignalStore
from dovetail.zonal.options import ZonalOptions, from_settings
from dovetail.zonal.policy_map import ConfigMap, ShiftPolicyMap
from dovetail.zonal.store.cluster_store import ShiftStore
from dovetail.zonal.store.mirror_store import build_store
from dovetail.zonal.store.table_store import TableListener, TableStore

__all__ = ["ShiftClients", "ZonalService", "find_namespace"]

log = get_logger()
Service = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ShiftClients:
    """`kube` writes only while this process leads; `receiving` is for messages, which every replica keeps."""

    aws: Aws
    kube: KubeClient
    receiving: KubeClient


class ZonalService:
    """Everything about zonal shifts in one process."""

    def __init__(
        self,
        settings: Settings,
        clients: ShiftClients,
        cluster: ShiftedCluster,
        *,
        clock: Clock,
        rng: Random,
        recorder: Recorder,
        options: ZonalOptions | None = None,
    ) -> None:
        self.options = options or from_settings(settings)
        self._settings, self._clock, self._kube = settings, clock, clients.kube
        self._aws, self._receiving = clients.aws, clients.receiving
        self.arc = ArcPoller(
            clients.aws,
            self.options.cluster,
            clock,
            rng,
            calm=self.options.poll,
            active=self.options.poll_active,
            observer=self.options.observer,
        )
        self.controller = ZonalShiftController(
            clients.kube,
            cluster,
            self.arc,
            self._build_store(clients.kube),
            self.options,
            clock=clock,
            recorder=recorder,
        )
        self.signals = SignalStore(
            self._build_signal_store(self.options),
            arn=lambda: self.arc.arn,
            observer=self.options.observer,
            woken=self.controller.poll_now,
        )
        self._chance, self._recorder = rng, recorder
        self.policy_map = ShiftPolicyMap(settings, self.options, recorder, self.change_options)

    def _build_signal_store(self, options: ZonalOptions) -> ShiftStore | None:
        """Where messages go; nowhere in a dry run that writes nothing at all."""
        return None if options.dry_run == "client" else self._build_store(self._receiving)

    def change_options(self, options: ZonalOptions) -> None:
        """Go on by other options."""
        self.options = options
        self.signals.store, self.signals.observer = self._build_signal_store(options), options.observer
        self.controller.change_options(options)

    def _build_store(self, kube: KubeClient) -> ShiftStore:
        """Where shifts are kept, by the hands of this client."""
        return build_store(
            self.options, kube, self._aws, self.arc.resolve_arn, self._clock, may_write=lambda: kube.may_write
        )

    @property
    def services(self) -> tuple[Service, ...]:
        """What is kept going beside the controller; while the feature is off, nothing."""
        if not self.options.enabled:
            return ()
        found: list[Service] = [self._follow_zone_shifts()]
        if self._settings.zonal_shift_config_map:
            found.append(self._follow_config_map())
        if self.options.store == "DynamoDB":
            table = TableStore(self._aws, self.options.table, self.arc.resolve_arn, self._clock)
            found.append(TableListener(table, self._clock, self.controller.poll_now).run)
        if self._settings.zonal_shift_queue:
            found.append(
                ShiftQueueReader(self._aws, self._settings.zonal_shift_queue, self.signals, self._clock).run
            )
        # Here, for the function has no endpoint, and its package none of what checks certificates.
        from dovetail.zonal.ingest.sns_endpoint import endpoint_wanted
        from dovetail.zonal.ingest.sns_process import EndpointProcess

        if endpoint_wanted(self._settings):
            found.append(EndpointProcess(self._settings, self._aws, self.signals, self._clock).run)
        return tuple(found)

    def _follow_zone_shifts(self) -> Service:
        """ZoneShifts that somebody writes wake the controller. Nobody waits for this one to be filled."""
        informer = Informer(ZoneShift)
        informer.on_change(self.controller.shift_changed)
        follower = Follower(
            self._kube,
            ZoneShift,
            informer,
            clock=self._clock,
            rng=self._chance,
            options=WatchOptions(optional=True),
        )
        return follower.run

    def _follow_config_map(self) -> Service:
        """The policy as it is written in a ConfigMap, from now on."""
        named = self._settings.zonal_shift_config_map
        namespace, _, name = named.rpartition("/")
        informer = Informer(ConfigMap)
        informer.on_change(self.policy_map.apply_change)
        follower = Follower(
            self._kube,
            ConfigMap,
            informer,
            clock=self._clock,
            rng=self._chance,
            options=WatchOptions(
                namespace=namespace or find_namespace(self._settings),
                # Enough where a role grants this one alone.
                fields=f"metadata.name={name}",
                on_trouble=lambda error: log.warning(
                    "cannot follow a ConfigMap", ConfigMap=named, error=error
                ),
            ),
        )
        return follower.run

    async def prepare(self) -> None:
        """Close the gates that must be closed, before anything is bought; what fails is tried again later."""
        if not self.options.enabled:
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await self.controller.prepare()
        except TimeoutError:
            return


def find_namespace(settings: Settings) -> str:
    """Where the ConfigMap is looked for when its name says nothing about that."""
    return settings.leader_election_namespace or read_pod_namespace()


def read_pod_namespace(root: Path = SERVICE_ACCOUNT) -> str:
    """The namespace this process runs in, as its pod tells it."""
    told = root / "namespace"
    return told.read_text().strip() if told.exists() else "default"


# Seconds a start waits for ARC; its silence keeps nobody from starting.
PATIENCE = 10.0
