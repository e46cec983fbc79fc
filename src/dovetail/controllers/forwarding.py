"""The Cloud port by asking another cloud: what everyone who adds one thing to a cloud starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.api.labels import Flavour
from dovetail.api.meta import Kind
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.ports import Cloud, Instance, RegistrationHook, RepairPolicy
from dovetail.scheduling.catalog import InstanceType

__all__ = ["ForwardingCloud"]


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

    async def instance_types(self, nodepool: NodePool) -> tuple[InstanceType, ...]:
        return await self._cloud.instance_types(nodepool)

    async def drifted(self, claim: NodeClaim) -> str:
        return await self._cloud.drifted(claim)
