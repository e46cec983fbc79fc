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
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec

from dovetail.api import codec
from dovetail.api.core import Lease, LeaseSpec
from dovetail.api.meta import ObjectMeta
from dovetail.errors import AlreadyExists, Conflict, DovetailError, Gone, Misconfigured
from dovetail.ports import Clock
from dovetail.runtime import metrics
from dovetail.runtime.kube import KubeClient

__all__ = ["ElectionTerms", "Elector", "ElectorThread", "new_identity"]


class ElectionTerms(msgspec.Struct, frozen=True):
    """The rules of one election, in seconds. The deadline must be well below the lease: the gap between
    them is what two clocks that run at different speeds may use up."""

    name: str = "karpenter-leader-election"
    namespace: str = "kube-system"
    lease: float = 15.0
    deadline: float = 10.0
    retry: float = 2.0
    # What the leader says of itself, as annotations of the Lease.
    annotations: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        if not self.retry < self.deadline < self.lease:
            raise Misconfigured(
                f"standing for {self.name}: the retry period ({self.retry:g} s) must be shorter than the "
                f"renew deadline ({self.deadline:g} s), and that shorter than the lease ({self.lease:g} s)"
            )


def new_identity() -> str:
    """A name no other process has, not even this one after a restart: a namesake would lead as well."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Elector:
    """Stands for election until stopped."""

    def __init__(
        self,
        kube: KubeClient,
        terms: ElectionTerms,
        identity: str,
        *,
        clock: Clock,
        rng: Random,
        on_change: Callable[[bool], None] = lambda leading: None,
    ) -> None:
        self._kube = kube
        self._terms = terms
        self.identity = identity
        self._clock = clock
        self._chance = rng
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
        return self._time_left > 0

    @property
    def leader(self) -> str:
        """Who held the lease when it was last read; empty while nobody does."""
        return (self._seen.spec.holder_identity or "") if self._seen is not None else ""

    @property
    def _time_left(self) -> float:
        return self._renewed_at + self._terms.deadline - self._clock.monotonic()

    async def run(self) -> None:
        """Stand until cancelled; then give the lease back so that another need not wait for it."""
        try:
            while True:
                await self._try_once()
                self._report_change()
                pause = self._terms.retry * (1 + 0.2 * self._chance.random())
                await self._clock.sleep(min(pause, self._time_left) if self.leading else pause)
                self._report_change()
        finally:
            await self._release_lease()
            self._report_change()

    async def _try_once(self) -> None:
        started = self._clock.monotonic()
        # One lost answer must leave time for another try before the deadline.
        patience = self._terms.deadline / 2
        if self.leading:
            patience = min(patience, self._time_left)
        try:
            async with asyncio.timeout(patience):
                if await self._take_or_renew():
                    self._renewed_at = started
        except (DovetailError, TimeoutError):
            # Unreachable, refused or overtaken: the deadline decides whether we still lead.
            return

    async def _take_or_renew(self) -> bool:
        if self.leading and self._seen is not None:
            try:
                return await self._write_lease(self._seen, taking=False)
            except (Conflict, Gone):
                self._slow.inc()
        try:
            lease = await self._kube.get(Lease, self._terms.name, self._terms.namespace)
        except Gone:
            return await self._create_lease()
        self._observe_lease(lease)
        holder = lease.spec.holder_identity or ""
        if holder == self.identity:
            return await self._write_lease(lease, taking=False)
        if holder and self._clock.monotonic() < self._seen_at + self._term_of(lease):
            self._renewed_at = float("-inf")
            return False
        return await self._write_lease(lease, taking=True)

    def _term_of(self, lease: Lease) -> float:
        # Its holder counts on what it wrote there, which may be longer than what we would write.
        return max(lease.spec.lease_duration_seconds or 0, self._terms.lease)

    async def _create_lease(self) -> bool:
        now = self._clock.now()
        spec = self._claim_spec(LeaseSpec(acquire_time=now, lease_transitions=0), now)
        meta = ObjectMeta(
            name=self._terms.name, namespace=self._terms.namespace, annotations=dict(self._terms.annotations)
        )
        try:
            self._observe_lease(await self._kube.create(Lease(metadata=meta, spec=spec)))
        except AlreadyExists:
            return False
        return True

    async def _write_lease(self, lease: Lease, *, taking: bool) -> bool:
        """Claim the lease as it was when last read; true when the server has it in our name, anew."""
        now = self._clock.now()
        if now == lease.spec.renew_time:
            # A clock that was set back may show the same time twice, and others must see a change.
            now += timedelta(microseconds=1)
        spec = self._claim_spec(lease.spec, now)
        if taking:
            transitions = (lease.spec.lease_transitions or 0) + 1
            spec = msgspec.structs.replace(spec, acquire_time=now, lease_transitions=transitions)
        written = await self._put_lease(lease, spec)
        self._observe_lease(written)
        renewed = written.metadata.resource_version != lease.metadata.resource_version
        return renewed and written.spec.holder_identity == self.identity

    def _claim_spec(self, spec: LeaseSpec, now: datetime) -> LeaseSpec:
        return msgspec.structs.replace(
            spec,
            holder_identity=self.identity,
            lease_duration_seconds=int(self._terms.lease),
            renew_time=now,
        )

    async def _put_lease(self, lease: Lease, spec: LeaseSpec) -> Lease:
        # Always sent, even if nothing seems to differ: the answer, and not our belief, is what counts.
        document: dict[str, Any] = codec.to_dict(msgspec.structs.replace(lease, spec=spec))
        meta: dict[str, Any] = {"resourceVersion": lease.metadata.resource_version, "uid": lease.uid}
        said = self._terms.annotations
        if spec.holder_identity == self.identity and not said.items() <= lease.annotations.items():
            meta["annotations"] = dict(said)
        return await self._kube.merge_patch(lease, {"metadata": meta, "spec": document["spec"]})

    def _observe_lease(self, lease: Lease) -> None:
        if self._seen is None or self._seen.metadata.resource_version != lease.metadata.resource_version:
            self._seen_at = self._clock.monotonic()
        self._seen = lease

    async def _release_lease(self) -> None:
        if not self.leading or self._seen is None:
            return
        self._renewed_at = float("-inf")
        # Best effort: a lease that cannot be given back runs out by itself.
        with suppress(DovetailError, TimeoutError):
            async with asyncio.timeout(self._terms.deadline / 2):
                try:
                    await self._give_back(self._seen)
                except Conflict:
                    # The renewal that was under way when we were stopped may have arrived after all.
                    await self._give_back(
                        await self._kube.get(Lease, self._terms.name, self._terms.namespace)
                    )

    async def _give_back(self, lease: Lease) -> None:
        if lease.spec.holder_identity == self.identity:
            empty = msgspec.structs.replace(
                lease.spec, holder_identity="", lease_duration_seconds=1, renew_time=self._clock.now()
            )
            await self._put_lease(lease, empty)

    async def close(self) -> None:
        """Let go of the elector's connections."""
        await self._kube.transport.close()

    def _report_change(self) -> None:
        leading = self.leading
        self._gauge.set(1 if leading else 0)
        if leading != self._told:
            self._told = leading
            self._on_change(leading)


class ElectorThread:
    """An elector in a thread and loop of its own, so that a busy main loop cannot starve its renewals.

    `make` is called in that thread and builds a client of its own, whose budget nothing else may use up.
    """

    def __init__(self, make: Callable[[Callable[[bool], None]], Elector]) -> None:
        self._make = make
        self._elector: Elector | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._standing = threading.Event()
        self._leading = asyncio.Event()
        self._lost = asyncio.Event()
        self._failed: Exception | None = None

    @property
    def leading(self) -> bool:
        """May be asked from any thread: the fence before every write."""
        return self._elector is not None and self._elector.leading

    @property
    def leader(self) -> str:
        """Who leads, as far as is known here; may be asked from any thread."""
        return self._elector.leader if self._elector is not None else ""

    def start(self) -> None:
        home = asyncio.get_running_loop()

        def tell(event: asyncio.Event) -> None:
            # The main loop may have ended before us; then there is nobody to tell.
            with suppress(RuntimeError):
                home.call_soon_threadsafe(event.set)

        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run_elector(tell)), name="leader-election", daemon=True
        )
        self._thread.start()

    async def _run_elector(self, tell: Callable[[asyncio.Event], None]) -> None:
        try:
            self._elector = self._make(lambda leading: tell(self._leading if leading else self._lost))
            self._task = asyncio.create_task(self._elector.run())
            self._standing.set()
            with suppress(asyncio.CancelledError):
                await self._task
            await self._elector.close()
        except Exception as error:  # noqa: BLE001 (handed to whoever waits, in the thread they wait in)
            self._failed = error
            tell(self._leading)
        finally:
            self._standing.set()
            tell(self._lost)

    async def wait_leading(self) -> None:
        """Return once this process leads; raises what ended the thread, if something did."""
        await self._leading.wait()
        if self._failed is not None:
            raise self._failed

    async def wait_lost(self) -> None:
        """Return once leadership was lost, or the thread ended for whatever reason."""
        await self._lost.wait()

    async def stop(self) -> None:
        """Give the lease back and end the thread."""
        if self._thread is None:
            return
        await asyncio.to_thread(self._standing.wait)
        if self._task is not None and not self._task.done():
            with suppress(RuntimeError):
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)
        await asyncio.to_thread(self._thread.join, 10)
