"""A cloud whose every call is timed and whose every failure is counted, by the controller that called."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from dovetail import metrics
from dovetail.api.labels import Flavour
from dovetail.api.meta import Kind
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import Controller, Result
from dovetail.errors import ClassNotReady, DovetailError, Gone, InsufficientCapacity
from dovetail.ports import Clock, Cloud, Instance, RegistrationHook, RepairPolicy
from dovetail.scheduling.model.instance_types import InstanceType

__all__ = ["CallerController", "ForwardingCloud", "MeteredCloud"]


@dataclass(eq=False)
class ForwardingCloud:
    """Asks the cloud inside and changes nothing. What else a subclass needs are fields after the cloud."""

    _cloud: Cloud

    @property
    def name(self) -> str:
        return self._cloud.name

    @property
    def flavour(self) -> Flavour:
        return self._cloud.flavour

    @property
    def node_classes(self) -> tuple[Kind, ...]:
        return self._cloud.node_classes

    @property
    def repair_policies(self) -> tuple[RepairPolicy, ...]:
        return self._cloud.repair_policies

    @property
    def hooks(self) -> Sequence[RegistrationHook]:
        return self._cloud.hooks

    async def create(self, claim: NodeClaim) -> Instance:
        return await self._cloud.create(claim)

    async def delete(self, claim: NodeClaim) -> None:
        await self._cloud.delete(claim)

    async def get(self, provider_id: str) -> Instance:
        return await self._cloud.get(provider_id)

    async def list(self) -> tuple[Instance, ...]:
        return await self._cloud.list()

    async def list_instance_types(self, nodepool: NodePool) -> tuple[InstanceType, ...]:
        return await self._cloud.list_instance_types(nodepool)

    async def find_drift_reason(self, claim: NodeClaim) -> str:
        return await self._cloud.find_drift_reason(claim)


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


class CallerController:
    """A controller whose calls to the cloud carry its name."""

    def __init__(self, controller: Controller) -> None:
        self.name = controller.name
        self.concurrency = controller.concurrency
        self.backoff = controller.backoff
        self.triggers = controller.triggers
        self.singleton = controller.singleton
        self._controller = controller

    async def reconcile(self, key: str) -> Result:
        _caller.set(self.name)
        return await self._controller.reconcile(key)


@dataclass(eq=False)
class MeteredCloud(ForwardingCloud):
    """Asks another cloud, with a watch in hand."""

    _clock: Clock

    async def create(self, claim: NodeClaim) -> Instance:
        return await self._measure_call("Create", self._cloud.create(claim))

    async def delete(self, claim: NodeClaim) -> None:
        await self._measure_call("Delete", self._cloud.delete(claim))

    async def get(self, provider_id: str) -> Instance:
        return await self._measure_call("Get", self._cloud.get(provider_id))

    async def list(self) -> tuple[Instance, ...]:
        return await self._measure_call("List", self._cloud.list())

    async def list_instance_types(self, nodepool: NodePool) -> tuple[InstanceType, ...]:
        return await self._measure_call("GetInstanceTypes", self._cloud.list_instance_types(nodepool))

    async def find_drift_reason(self, claim: NodeClaim) -> str:
        return await self._measure_call("IsDrifted", self._cloud.find_drift_reason(claim))

    async def _measure_call(self, method: str, call: Awaitable[R]) -> R:
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
