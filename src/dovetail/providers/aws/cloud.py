"""The Cloud port, spelled in EC2."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from dovetail.api import conditions, labels, reasons
from dovetail.api.hashes import NODECLASS_HASH_VERSION, nodeclass_hash
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.setaside import reason_of
from dovetail.controllers.base import Cache
from dovetail.errors import (
    ClassNotReady,
    CreateFailed,
    DovetailError,
    Gone,
    InsufficientCapacity,
    Refused,
    Retry,
)
from dovetail.ports import Instance, Recorder, RegistrationHook, RepairPolicy
from dovetail.providers.aws.attribution import claims_of
from dovetail.providers.aws.discovery import Discovery
from dovetail.providers.aws.drift import Drift
from dovetail.providers.aws.instances import Ec2Instance, Instances, instance_id
from dovetail.providers.aws.launching import Launching
from dovetail.providers.aws.machine import UNKNOWN, Traits, described
from dovetail.providers.aws.placement import PlacementGroup
from dovetail.providers.aws.reservations import Reservations
from dovetail.providers.aws.tags import launch_tags, restricted
from dovetail.providers.aws.tokens import launch_group
from dovetail.providers.aws.types import InstanceTypes
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.overlays import overlaid

__all__ = ["REPAIR_POLICIES", "AwsCloud"]

SLICE = 200  # instances told of before others get their turn
TYPES_FAILED = "InstanceTypeResolutionFailed"
REPAIR_POLICIES = tuple(
    RepairPolicy(condition=condition, status=status, toleration=timedelta(minutes=minutes))
    for condition, statuses, minutes in (
        ("Ready", ("False", "Unknown"), 30),
        ("AcceleratedHardwareReady", ("False",), 10),
        ("StorageReady", ("False",), 30),
        ("NetworkingReady", ("False",), 30),
        ("KernelReady", ("False",), 30),
        ("ContainerRuntimeReady", ("False",), 30),
    )
    for status in statuses
)


@dataclass(frozen=True, slots=True)
class AwsCloud:
    """EC2 instances for claims."""

    classes: Cache[EC2NodeClass]
    pools: Cache[NodePool]
    claims: Cache[NodeClaim]
    overlays: Cache[NodeOverlay] | None
    recorder: Recorder
    discovery: Discovery
    types: InstanceTypes
    group_of: Callable[[EC2NodeClass], PlacementGroup | None]
    instances: Instances
    launching: Launching
    reservations: Reservations
    drift: Drift
    hooks: Sequence[RegistrationHook] = ()

    name = "aws"
    flavour = labels.AWS
    node_classes = (EC2NodeClass.KIND,)
    repair_policies = REPAIR_POLICIES

    async def create(self, claim: NodeClaim) -> Instance:
        node_class = self._class(claim.spec.node_class_ref.name)
        if node_class is None:
            self._class_missing(claim, claim.spec.node_class_ref.name)
            raise InsufficientCapacity(
                f"launching {claim.name}: its EC2NodeClass is not there, is going, or cannot be read"
            )
        _ready_or_raise(node_class)
        tags = self._tags(claim, node_class)
        types = await self._for_launch(claim, node_class)
        group = self.group_of(node_class)
        try:
            started = await self.launching.launch(node_class, claim, types, tags, group)
        except InsufficientCapacity as error:
            raise InsufficientCapacity(f"launching {claim.name}: {error}") from error
        found = next((each for each in types if each.name == started.type), None)
        traits = UNKNOWN if found is None else Traits.of(found)
        return described(started, traits, node_class, claim=claim.name, annotations=self._stamps(node_class))

    async def _for_launch(self, claim: NodeClaim, node_class: EC2NodeClass) -> Sequence[InstanceType]:
        try:
            types = await self.types.of(node_class)
        except Retry as error:
            raise CreateFailed(TYPES_FAILED, str(error)) from error
        pool = self.pools.get(claim.labels.get(labels.NODEPOOL, ""))
        if self.overlays is None or pool is None:
            return types
        return overlaid([(pool, types)], self.overlays, self.flavour).types[pool.name]

    def _tags(self, claim: NodeClaim, node_class: EC2NodeClass) -> dict[str, str]:
        bad = restricted(node_class.spec.tags)
        if bad:
            raise ClassNotReady(
                f"EC2NodeClass {node_class.name} may not set the tag(s) {', '.join(bad)}; remove them"
            )
        return launch_tags(node_class, self.discovery.facts.name, claim.labels.get(labels.NODEPOOL, ""))

    def _stamps(self, node_class: EC2NodeClass) -> dict[str, str]:
        return {
            labels.EC2_NODECLASS_HASH: nodeclass_hash(node_class, self.discovery.facts.ca_bundle),
            labels.EC2_NODECLASS_HASH_VERSION: NODECLASS_HASH_VERSION,
            labels.INSTANCE_PROFILE_NAME: node_class.status.instance_profile or "",
        }

    async def delete(self, claim: NodeClaim) -> None:
        try:
            await self.instances.delete(instance_id(claim.status.provider_id))
        except Gone:
            reservation = claim.labels.get(labels.CAPACITY_RESERVATION_ID, "")
            if reservation:
                self.reservations.terminated(reservation)
            raise

    async def get(self, provider_id: str) -> Instance:
        (told,) = await self._told([await self.instances.get(instance_id(provider_id))])
        return told

    async def list(self) -> tuple[Instance, ...]:
        return await self._told(await self.instances.list())

    async def instance_types(self, nodepool: NodePool) -> tuple[InstanceType, ...]:
        name = nodepool.spec.template.spec.node_class_ref.name
        node_class = self._class(name)
        if node_class is None:
            self._class_missing(nodepool, name)
            raise Retry(
                f"listing the instance types of NodePool {nodepool.name}: there is no EC2NodeClass {name}"
            )
        return await self.types.of(node_class)

    async def drifted(self, claim: NodeClaim) -> str:
        pool = self.pools.get(claim.labels.get(labels.NODEPOOL, ""))
        if pool is None:
            return ""
        node_class = self._class(pool.spec.template.spec.node_class_ref.name)
        if node_class is None:
            self._class_missing(pool, pool.spec.template.spec.node_class_ref.name)
            return ""
        try:
            return await self.drift.reason(claim, node_class)
        except Refused as error:
            # What AWS refuses today it may grant tomorrow, and nobody would wake us then.
            raise Retry(str(error)) from error

    def _class(self, name: str) -> EC2NodeClass | None:
        """A class that can still be used; one on its way out cannot, nor one that cannot be read."""
        found = self.classes.get(name)
        return found if found is not None and not found.deleting and not reason_of(found) else None

    def _class_missing(self, about: Object, name: str) -> None:
        # Karpenter leaves the reason of this event empty.
        note = f"Failed resolving NodeClass {name}"
        self.recorder.event(about, "FailedResolvingNodeClass", note, warning=True, dedupe=(about.uid,))

    async def _told(self, instances: Sequence[Ec2Instance]) -> tuple[Instance, ...]:
        """Instances as controllers see them; without its pool or class, less is known of one."""
        whose, told = self._whose(instances), []
        types: dict[str, dict[str, InstanceType]] = {}
        kinds: dict[tuple[str, str], Traits] = {}
        for count, each in enumerate(instances, start=1):
            pool = self.pools.get(each.tags.get(labels.NODEPOOL, ""))
            node_class = None if pool is None else self._class(pool.spec.template.spec.node_class_ref.name)
            traits = UNKNOWN
            if node_class is not None:
                if node_class.name not in types:
                    types[node_class.name] = await self._types_by_name(node_class)
                kind, found = (node_class.name, each.type), types[node_class.name].get(each.type)
                if kind not in kinds:
                    kinds[kind] = UNKNOWN if found is None else Traits.of(found)
                traits = kinds[kind]
            told.append(described(each, traits, node_class, claim=whose.get(each.id, each.id)))
            if count % SLICE == 0:
                await asyncio.sleep(0)
        return tuple(told)

    def _whose(self, instances: Sequence[Ec2Instance]) -> dict[str, str]:
        """By instance id. All are ours, so one that no tag gives to a claim goes by its own id: nobody's."""
        cluster = self.discovery.facts.name
        waiting = {
            each.name: launch_group(each, cluster)
            for each in self.claims
            if not each.status.provider_id and not each.deleting
        }
        return claims_of(instances, waiting, {each.status.provider_id for each in self.claims})

    async def _types_by_name(self, node_class: EC2NodeClass) -> dict[str, InstanceType]:
        try:
            return {each.name: each for each in await self.types.of(node_class)}
        except DovetailError:
            # Karpenter fails the whole list here. What nobody can describe must still be seen, and ended.
            return {}


def _ready_or_raise(node_class: EC2NodeClass) -> None:
    ready = conditions.find(node_class, conditions.READY)
    about = f"EC2NodeClass {node_class.name}"
    if ready is not None and ready.status == conditions.FALSE:
        raise ClassNotReady(f"{about} is not ready: {ready.message or ready.reason}")
    if ready is None or ready.status == conditions.UNKNOWN:
        why = ready.message if ready is not None and ready.message else "it has not been looked at yet"
        raise CreateFailed(reasons.NODECLASS_READINESS_UNKNOWN, f"{about} may not be ready: {why}")
    if ready.observed_generation != node_class.metadata.generation:
        raise ClassNotReady(f"{about} was changed since it was last found ready")
