"""One leader at a time, by a Lease.

    following ──► leading ──► following
       │ the lease is free, or its      │ not renewed in time, or taken by another,
       │ holder has been silent for     │ or stopped: then the lease is given back
       └ a whole lease duration

Clocks of two machines are never compared: a follower measures on its own monotonic clock how long
the lease has not changed. A leader measures from *before* it sent its last renewal. Since the renew
deadline is shorter than the lease, a leader knows that it fell before anyone else may stand up,
whatever was paused, slow or skewed in between.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from random import Random

import msgspec

from dovetail.api.core import Lease, LeaseSpec
from dovetail.api.meta import ObjectMeta
from dovetail.errors import AlreadyExists, Conflict, DovetailError, Gone
from dovetail.ports import Clock
from dovetail.runtime import metrics
from dovetail.runtime.kube import KubeClient

__all__ = ["Elector", "ElectorThread", "Terms"]


class Terms(msgspec.Struct, frozen=True):
    """The rules of one election. Seconds; the deadline must be shorter than the lease."""

    name: str = "karpenter-leader-election"
    namespace: str = "kube-system"
    lease: float = 15.0
    deadline: float = 10.0
    retry: float = 2.0


class Elector:
    """Stands for election until stopped."""

    def __init__(
        self,
        kube: KubeClient,
        terms: Terms,
        identity: str,
        *,
        clock: Clock,
        chance: Random,
        on_change: Callable[[bool], None] = lambda leading: None,
    ) -> None:
        self._kube = kube
        self._terms = terms
        self.identity = identity
        self._clock = clock
        self._chance = chance
        self._on_change = on_change
        self._seen: Lease | None = None
        self._seen_at = float("-inf")
        self._renewed_at = float("-inf")
        self._told = False
        self._gauge = metrics.LEADING.labels(terms.name)
        self._slow = metrics.SLOW_RENEWALS.labels(terms.name)

    @property
    def leading(self) -> bool:
        """True only while the last renewal is younger than the deadline: asked anew before every write."""
        return self._clock.monotonic() < self._renewed_at + self._terms.deadline

    async def run(self) -> None:
        """Stand until cancelled; then give the lease back so that another need not wait for it."""
        try:
            while True:
                await self._step()
                self._tell()
                await self._clock.sleep(self._terms.retry * (1 + 0.2 * self._chance.random()))
        finally:
            await self._release()
            self._tell()

    async def _step(self) -> None:
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._terms.deadline):
                if await self._take_or_renew():
                    self._renewed_at = started
        except (DovetailError, TimeoutError):
            # Unreachable, refused or overtaken: the deadline decides whether we still lead.
            return

    async def _take_or_renew(self) -> bool:
        if self.leading and self._seen is not None:
            try:
                self._observe(await self._write(self._seen, taking=False))
                return True
            except (Conflict, Gone):
                self._slow.inc()
        try:
            lease = await self._kube.get(Lease, self._terms.name, self._terms.namespace)
        except Gone:
            return await self._create()
        self._observe(lease)
        holder = lease.spec.holder_identity or ""
        if holder == self.identity:
            self._observe(await self._write(lease, taking=False))
            return True
        if holder and self._clock.monotonic() < self._seen_at + self._terms.lease:
            self._renewed_at = float("-inf")
            return False
        self._observe(await self._write(lease, taking=True))
        return True

    async def _create(self) -> bool:
        now = self._clock.now()
        spec = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=int(self._terms.lease),
            acquire_time=now,
            renew_time=now,
            lease_transitions=0,
        )
        meta = ObjectMeta(name=self._terms.name, namespace=self._terms.namespace)
        try:
            self._observe(await self._kube.create(Lease(metadata=meta, spec=spec)))
        except AlreadyExists:
            return False
        return True

    async def _write(self, lease: Lease, *, taking: bool) -> Lease:
        now = self._clock.now()
        spec = msgspec.structs.replace(
            lease.spec,
            holder_identity=self.identity,
            lease_duration_seconds=int(self._terms.lease),
            renew_time=now,
            acquire_time=now if taking else lease.spec.acquire_time,
            lease_transitions=(lease.spec.lease_transitions or 0) + taking,
        )
        return await self._kube.patch(lease, msgspec.structs.replace(lease, spec=spec), guarded=True)

    def _observe(self, lease: Lease) -> None:
        if self._seen is None or self._seen.metadata.resource_version != lease.metadata.resource_version:
            self._seen_at = self._clock.monotonic()
        self._seen = lease

    async def _release(self) -> None:
        if not self.leading or self._seen is None:
            return
        self._renewed_at = float("-inf")
        empty = msgspec.structs.replace(self._seen.spec, holder_identity="", lease_duration_seconds=1)
        # Best effort: a lease that cannot be given back runs out by itself.
        with suppress(DovetailError, TimeoutError):
            async with asyncio.timeout(self._terms.deadline / 2):
                await self._kube.patch(
                    self._seen, msgspec.structs.replace(self._seen, spec=empty), guarded=True
                )

    def _tell(self) -> None:
        leading = self.leading
        self._gauge.set(1 if leading else 0)
        if leading != self._told:
            self._told = leading
            self._on_change(leading)


class ElectorThread:
    """An elector in a thread and loop of its own, so that a busy main loop cannot starve its renewals."""

    def __init__(self, make: Callable[[Callable[[bool], None]], Elector]) -> None:
        self._make = make
        self._elector: Elector | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._leading = asyncio.Event()
        self._lost = asyncio.Event()

    @property
    def leading(self) -> bool:
        return self._elector is not None and self._elector.leading

    def start(self) -> None:
        home = asyncio.get_running_loop()

        def tell(leading: bool) -> None:
            home.call_soon_threadsafe((self._leading if leading else self._lost).set)

        async def stand() -> None:
            self._loop = asyncio.get_running_loop()
            self._elector = self._make(tell)
            self._task = asyncio.ensure_future(self._elector.run())
            with suppress(asyncio.CancelledError):
                await self._task

        self._thread = threading.Thread(
            target=lambda: asyncio.run(stand()), name="leader-election", daemon=True
        )
        self._thread.start()

    async def wait_leading(self) -> None:
        await self._leading.wait()

    async def wait_lost(self) -> None:
        await self._lost.wait()

    async def stop(self) -> None:
        """Give the lease back and end the thread."""
        if self._loop is not None and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 10)
