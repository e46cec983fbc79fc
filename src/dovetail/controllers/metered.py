"""A cloud whose every call is timed and whose every failure is counted, by the controller that called."""

from __future__ import annotations

from collections.abc import Awaitable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from dovetail import metrics
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import Controller, Result
from dovetail.controllers.forwarding import ForwardingCloud
from dovetail.errors import ClassNotReady, DovetailError, Gone, InsufficientCapacity
from dovetail.ports import Clock, Instance
from dovetail.scheduling.catalog import InstanceType

__all__ = ["Calling", "MeteredCloud"]

R = TypeVar("R")
SECONDS = metrics.histogram(
    "karpenter_cloudprovider_duration_seconds",
    "How long calls to the cloud took.",
    ("controller", "method", "provider"),
    metrics.PROMETHEUS_BUCKETS,
)
ERRORS = metrics.counter(
    "karpenter_cloudprovider_errors_total",
    "Calls to the cloud that failed.",
    ("controller", "method", "provider", "error"),
)
NAMES: tuple[tuple[type[DovetailError], str], ...] = (
    (InsufficientCapacity, "InsufficientCapacityError"),
    (Gone, "NodeClaimNotFoundError"),
    (ClassNotReady, "NodeClassNotReadyError"),
)

_caller: ContextVar[str] = ContextVar("caller", default="")


class Calling:
    """A controller whose calls to the cloud carry its name."""

    def __init__(self, controller: Controller) -> None:
        self.name = controller.name
        self.concurrency = controller.concurrency
        self.backoff = controller.backoff
        self.triggers = controller.triggers
        self._controller = controller

    async def reconcile(self, key: str) -> Result:
        _caller.set(self.name)
        return await self._controller.reconcile(key)


@dataclass(eq=False)
class MeteredCloud(ForwardingCloud):
    """Asks another cloud, with a watch in hand."""

    _clock: Clock

    async def create(self, claim: NodeClaim) -> Instance:
        return await self._timed("Create", self._cloud.create(claim))

    async def delete(self, claim: NodeClaim) -> None:
        await self._timed("Delete", self._cloud.delete(claim))

    async def get(self, provider_id: str) -> Instance:
        return await self._timed("Get", self._cloud.get(provider_id))

    async def list(self) -> tuple[Instance, ...]:
        return await self._timed("List", self._cloud.list())

    async def instance_types(self, nodepool: NodePool) -> tuple[InstanceType, ...]:
        return await self._timed("GetInstanceTypes", self._cloud.instance_types(nodepool))

    async def drifted(self, claim: NodeClaim) -> str:
        return await self._timed("IsDrifted", self._cloud.drifted(claim))

    async def _timed(self, method: str, call: Awaitable[R]) -> R:
        about = (_caller.get(), method, self.name)
        started = self._clock.monotonic()
        try:
            return await call
        except DovetailError as error:
            known = next((name for kind, name in NAMES if isinstance(error, kind)), "")
            ERRORS.labels(*about, known).inc()
            raise
        finally:
            SECONDS.labels(*about).observe(self._clock.monotonic() - started)
