"""Zonal shift as a Lambda function inside the VPC: `dovetail.zonal.lambda_entry.lambda_handler`.

It is the controller without its loop: invoked with messages about shifts, and once a minute besides, it keeps
what it is told in the table, takes the table's lock, and makes passes for as long as one follows another.
"""

from __future__ import annotations

import asyncio
import json
import os
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from random import Random, SystemRandom
from typing import Any, TypeVar

from dovetail.api.core import Node
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.aws import Aws
from dovetail.controllers.base import SINGLETON
from dovetail.errors import BadInput, DovetailError, Gone, Misconfigured
from dovetail.logs import get_logger
from dovetail.ports import Clock
from dovetail.runtime import logs
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.eks import connect_eks
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.informer import Informer
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.transport import Transport
from dovetail.settings import Settings, read_settings
from dovetail.throttle import Throttle
from dovetail.zonal.controller.controller import ShiftedCluster
from dovetail.zonal.model.events import SOURCE, parse_signal
from dovetail.zonal.model.gates import ZoneGates
from dovetail.zonal.model.shifts import STAND_ALONE
from dovetail.zonal.options import ZonalOptions, from_settings
from dovetail.zonal.policy_map import ConfigMap, read_policy
from dovetail.zonal.store.table_store import TableLock
from dovetail.zonal.wiring import ShiftClients, ZonalService, find_namespace

__all__ = ["Function", "function_options", "lambda_handler"]

T = TypeVar("T", bound=Object)
# What is left of an invocation's time when the last pass ends. Seconds.
MARGIN = 5.0
# A next pass that is due sooner than this is waited for; a later one is left to the next invocation.
STAY = 6.0
ASK_AGAIN = 2.0
LEASE = timedelta(seconds=60)


def function_options(settings: Settings) -> ZonalOptions:
    """Options for a function, which edits pools: there is no engine to withhold a zone from."""
    if settings.zonal_shift_store != "DynamoDB":
        raise Misconfigured(
            f'ZONAL_SHIFT_STORE is "{settings.zonal_shift_store}", but a function keeps its shifts in a '
            "table: set it to DynamoDB"
        )
    default = settings.find_origin("ZONAL_SHIFT_MODE") == "default"
    if settings.zonal_shift_mode == "Offerings" and not default:
        raise Misconfigured(
            'ZONAL_SHIFT_MODE is "Offerings", but a function has no offerings to withhold: '
            "set it to NodePoolEdit"
        )
    options = replace(from_settings(settings), owner=STAND_ALONE)
    return replace(options, mode="NodePoolEdit") if default else options


class Function:
    """One container: the controller, its caches, and what each invocation does with them."""

    def __init__(
        self, settings: Settings, aws: Aws, transport: Transport, *, clock: Clock, rng: Random, owner: str
    ) -> None:
        options = function_options(settings)
        self._settings, self._policy_seen = settings, ConfigMap()
        self._clock, self._leads, self._log = clock, False, get_logger("zonalshift")
        throttle = Throttle(clock, settings.kube_client_qps, settings.kube_client_burst)
        self._kube = KubeClient(transport, clock, throttle=throttle, may_write=lambda: self._leads)
        self._recorder = EventRecorder(self._kube, clock, rng)
        self._nodes, self._claims = Informer(Node), Informer(NodeClaim)
        self.zonal = ZonalService(
            settings,
            ShiftClients(aws, self._kube, KubeClient(transport, clock)),
            ShiftedCluster(ZoneGates(clock), self._nodes, self._claims),
            clock=clock,
            rng=rng,
            recorder=self._recorder,
            options=options,
        )
        self._lock = TableLock(aws, options.table, self.zonal.arc.resolve_arn, clock, owner)

    async def handle(self, event: Any, seconds: float) -> dict[str, Any]:
        """Keep what came, then act for as long as there is something to do and time for it."""
        end = self._clock.monotonic() + seconds - min(MARGIN, seconds / 4)
        failed = [name for name, body in _messages(event) if not await self._kept(body)]
        passes = 0
        async with self._leading(end) as leads:
            if leads:
                await self._follow_policy()
                passes = await self._act(end)
        if "" in failed:
            raise RuntimeError("an event that came without a queue could not be kept; it must come again")
        return {"batchItemFailures": [{"itemIdentifier": each} for each in failed], "passes": passes}

    async def _follow_policy(self) -> None:
        """The policy as it is written now; a function has no time to watch it."""
        namespace, _, name = self._settings.zonal_shift_config_map.rpartition("/")
        if not name:
            return
        try:
            found = await self._kube.get(ConfigMap, name, namespace or find_namespace(self._settings))
        except DovetailError as error:
            self._log.warning("the policy of zonal shift cannot be read", error=error)
            return
        self.zonal.policy_map.apply_change(self._policy_seen, found)
        self._policy_seen = found

    async def _kept(self, body: str) -> bool:
        """Whether a message may be crossed off; one that makes no sense is put aside by its queue."""
        try:
            await self.zonal.signals.put_signal(parse_signal(body, "sqs"))
        except BadInput as error:
            self._log.warning("a message makes no sense", error=error)
            return False
        except DovetailError as error:
            self._log.warning("a message could not be kept, and must come again", error=error)
            return False
        return True

    @asynccontextmanager
    async def _leading(self, end: float) -> AsyncIterator[bool]:
        """Whoever else is at it is waited for: it may have looked before our message came."""
        try:
            while (
                not (held := await self._lock.take_lock(LEASE)) and self._clock.monotonic() + ASK_AGAIN < end
            ):
                await self._clock.sleep(ASK_AGAIN)
        except DovetailError as error:
            self._log.error("the table's lock cannot be had", error=error)
            held = False
        self._leads = held
        telling = asyncio.ensure_future(self._recorder.run())
        try:
            yield held
        finally:
            # What still waits to be told is told when it is stopped.
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
            self._leads = False
            if held:
                await self._given_back()

    async def _given_back(self) -> None:
        try:
            await self._lock.release_lock()
        except DovetailError as error:
            self._log.warning("the lock could not be given back, and runs out by itself", error=error)

    async def _act(self, end: float) -> int:
        """Passes, one after the other; how many were made."""
        self.zonal.arc.poll_now()
        passes, pause = 0, 1.0
        while True:
            try:
                await self._look()
                result = await self.zonal.controller.reconcile(SINGLETON)
                wait, pause = (result.after.total_seconds() if result.after is not None else 0.0), 1.0
            except DovetailError as error:
                self._log.error("Reconciler error", error=error)
                wait, pause = pause, pause * 2
            passes += 1
            if wait > STAY or self._clock.monotonic() + wait >= end:
                return passes
            await self._clock.sleep(wait)
            if not await self._lock.take_lock(LEASE):
                return passes

    async def _look(self) -> None:
        """Nodes and claims as they are now; there is no time to watch them."""
        await self._filled(self._nodes)
        await self._filled(self._claims)

    async def _filled(self, informer: Informer[T]) -> None:
        try:
            found = await self._kube.list(informer.kind)
        except Gone:
            found = ()  # the kind is not installed here
        informer.begin_list()
        informer.add_listed(found)
        informer.end_list()


def _messages(event: Any) -> list[tuple[str, str]]:
    """What a queue, a topic or a rule tells, by the id of its message; a mere tick tells nothing."""
    if not isinstance(event, Mapping):
        return []
    if isinstance(event.get("Records"), list):
        return [_record(each) for each in event["Records"] if isinstance(each, Mapping)]
    return [("", json.dumps(event))] if event.get("source") == SOURCE else []


def _record(record: Mapping[str, Any]) -> tuple[str, str]:
    if "messageId" in record:
        return str(record["messageId"]), str(record.get("body", ""))
    return "", str((record.get("Sns") or {}).get("Message", ""))


class _Container:
    """What a container keeps between invocations."""

    loop: asyncio.AbstractEventLoop | None = None
    function: Function | None = None


async def _begun(settings: Settings, aws: Aws, owner: str) -> Function:
    clock = SystemClock()
    found = (await aws.call("eks", "DescribeCluster", {"name": settings.cluster_name}))["cluster"]
    authority = b64decode(found["certificateAuthority"]["data"])
    connection = connect_eks(found["endpoint"], authority, settings.cluster_name, aws.region, clock)
    rng, transport = Random(SystemRandom().getrandbits(64)), connection.open_transport()
    settings = await read_policy(settings, KubeClient(transport, clock), find_namespace(settings))
    return Function(settings, aws, transport, clock=clock, rng=rng, owner=owner)


def lambda_handler(event: Any, context: Any) -> dict[str, Any]:
    """What Lambda calls. Settings are the controller's variables; the feature and its table are on."""
    kept = _Container
    if kept.function is None or kept.loop is None:
        from dovetail.aws.slim import SlimAws

        defaults = {"ENABLE_ZONAL_SHIFT": "true", "ZONAL_SHIFT_STORE": "DynamoDB"}
        settings = read_settings((), {**defaults, **os.environ}, provider="aws")
        logs.configure_logging(settings.log_level, settings.log_output_paths)
        for warning in settings.warnings:
            get_logger("zonalshift").warning("a setting has another name now", note=warning)
        kept.loop = asyncio.new_event_loop()
        aws = SlimAws(os.environ["AWS_REGION"], name="dovetail-zonal-shift")
        kept.function = kept.loop.run_until_complete(_begun(settings, aws, context.aws_request_id))
    return kept.loop.run_until_complete(
        kept.function.handle(event, context.get_remaining_time_in_millis() / 1000)
    )
