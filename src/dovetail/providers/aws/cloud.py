"""The Cloud port, spelled in EC2."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from dovetail.api import conditions, labels, reasons
from dovetail.api.bad_items import reason_of
from dovetail.api.hashes import NODECLASS_HASH_VERSION, hash_nodeclass
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.quantity import Quantity
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
from dovetail.providers.aws.capacity_reservations import CapacityReservationProvider
from dovetail.providers.aws.cluster_discovery import ClusterDiscovery
from dovetail.providers.aws.drift import DriftDetector
from dovetail.providers.aws.instance_types import InstanceTypeProvider
from dovetail.providers.aws.instances import Ec2Instance, InstanceProvider, instance_id, match_claims
from dovetail.providers.aws.launch import InstanceLauncher
from dovetail.providers.aws.launch_tokens import launch_group
from dovetail.providers.aws.placement_groups import PlacementGroup
from dovetail.providers.aws.tags import build_launch_tags, find_restricted
from dovetail.providers.pool_prices import PoolPrices
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.node_overlays import apply_overlays

__all__ = ["REPAIR_POLICIES", "UNKNOWN", "AwsCloud", "InstanceTraits", "build_instance"]

OF_RESERVATIONS = frozenset(
    (
        labels.CAPACITY_RESERVATION_ID,
        labels.CAPACITY_RESERVATION_TYPE,
        labels.CAPACITY_RESERVATION_INTERRUPTIBLE,
    )
)


@dataclass(frozen=True, slots=True)
class InstanceTraits:
    """What all instances of a type have in common, as a class sees them. Without a type, nothing."""

    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)

    @staticmethod
    def from_type(instance_type: InstanceType) -> InstanceTraits:
        known = {key: values.only for key, values in instance_type.requirements.by_key.items()}
        return InstanceTraits(
            {key: only for key, only in known.items() if only is not None and key not in OF_RESERVATIONS},
            {name: amount for name, amount in instance_type.capacity.items() if amount.nano},
            {name: amount for name, amount in instance_type.allocatable().items() if amount.nano},
        )


UNKNOWN = InstanceTraits()


def build_instance(
    instance: Ec2Instance,
    traits: InstanceTraits,
    node_class: EC2NodeClass | None,
    *,
    claim: str = "",
    annotations: Mapping[str, str] | None = None,
) -> Instance:
    """The instance; what its type or class would tell is left out where they are not known."""
    return Instance(
        provider_id=instance.provider_id,
        image_id=instance.image,
        labels={**traits.labels, **dict(_list_instance_labels(instance, node_class))},
        annotations=annotations or {},
        capacity=_drop_missing_efa(traits.capacity, instance.efa),
        allocatable=_drop_missing_efa(traits.allocatable, instance.efa),
        claim=claim,
        created=instance.launched,
        deleting=instance.terminating,
    )


def _list_instance_labels(
    instance: Ec2Instance, node_class: EC2NodeClass | None
) -> Iterator[tuple[str, str]]:
    yield labels.ZONE, instance.zone
    zone_id = _find_zone_id(instance, node_class)
    if zone_id:
        yield labels.ZONE_ID, zone_id
    yield labels.CAPACITY_TYPE, instance.capacity_type
    yield labels.INSTANCE_TENANCY, instance.tenancy
    if instance.capacity_type == labels.RESERVED:
        yield labels.CAPACITY_RESERVATION_ID, instance.reservation
        yield labels.CAPACITY_RESERVATION_TYPE, instance.reservation_type
        yield labels.CAPACITY_RESERVATION_INTERRUPTIBLE, "true" if instance.interruptible else "false"
    if instance.group:
        yield labels.PLACEMENT_GROUP_ID, instance.group
        if instance.partition is not None:
            yield labels.PLACEMENT_GROUP_PARTITION, instance.partition
    if labels.NODEPOOL in instance.tags:
        yield labels.NODEPOOL, instance.tags[labels.NODEPOOL]


def _find_zone_id(instance: Ec2Instance, node_class: EC2NodeClass | None) -> str:
    subnets = node_class.status.subnets if node_class is not None else ()
    return next((subnet.zone_id for subnet in subnets if subnet.zone == instance.zone), instance.zone_id)


def _drop_missing_efa(amounts: Mapping[str, Quantity], efa: bool) -> Mapping[str, Quantity]:
    """EFA interfaces are there only where the instance was given some."""
    if efa or labels.EFA not in amounts:
        return amounts
    return {name: amount for name, amount in amounts.items() if name != labels.EFA}


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
    prices: PoolPrices
    claims: Cache[NodeClaim]
    overlays: Cache[NodeOverlay] | None
    recorder: Recorder
    discovery: ClusterDiscovery
    types: InstanceTypeProvider
    group_of: Callable[[EC2NodeClass], PlacementGroup | None]
    instances: InstanceProvider
    launching: InstanceLauncher
    reservations: CapacityReservationProvider
    drift: DriftDetector
    hooks: Sequence[RegistrationHook] = ()

    name = "aws"
    flavour = labels.AWS
    node_classes = (EC2NodeClass.KIND,)
    repair_policies = REPAIR_POLICIES

    async def create(self, claim: NodeClaim) -> Instance:
        node_class = self._find_class(claim.spec.node_class_ref.name)
        if node_class is None:
            self._report_missing_class(claim, claim.spec.node_class_ref.name)
            raise InsufficientCapacity(
                f"launching {claim.name}: its EC2NodeClass is not there, is going, or cannot be read"
            )
        _check_ready(node_class)
        tags = self._build_tags(claim, node_class)
        types = await self._list_types_for_launch(claim, node_class)
        group = self.group_of(node_class)
        try:
            started = await self.launching.launch_instance(node_class, claim, types, tags, group)
        except InsufficientCapacity as error:
            raise InsufficientCapacity(f"launching {claim.name}: {error}") from error
        found = next((each for each in types if each.name == started.type), None)
        traits = UNKNOWN if found is None else InstanceTraits.from_type(found)
        return build_instance(
            started, traits, node_class, claim=claim.name, annotations=self._build_stamps(node_class)
        )

    async def _list_types_for_launch(
        self, claim: NodeClaim, node_class: EC2NodeClass
    ) -> Sequence[InstanceType]:
        try:
            types = await self.types.list_types(node_class)
        except Retry as error:
            raise CreateFailed(TYPES_FAILED, str(error)) from error
        types = self.prices.price_for_claim(claim, types)
        pool = self.pools.get(claim.labels.get(labels.NODEPOOL, ""))
        if self.overlays is None or pool is None:
            return types
        return apply_overlays([(pool, types)], self.overlays, self.flavour).types[pool.name]

    def _build_tags(self, claim: NodeClaim, node_class: EC2NodeClass) -> dict[str, str]:
        bad = find_restricted(node_class.spec.tags)
        if bad:
            raise ClassNotReady(
                f"EC2NodeClass {node_class.name} may not set the tag(s) {', '.join(bad)}; remove them"
            )
        return build_launch_tags(node_class, self.discovery.facts.name, claim.labels.get(labels.NODEPOOL, ""))

    def _build_stamps(self, node_class: EC2NodeClass) -> dict[str, str]:
        return {
            labels.EC2_NODECLASS_HASH: hash_nodeclass(node_class, self.discovery.facts.ca_bundle),
            labels.EC2_NODECLASS_HASH_VERSION: NODECLASS_HASH_VERSION,
            labels.INSTANCE_PROFILE_NAME: node_class.status.instance_profile or "",
        }

    async def delete(self, claim: NodeClaim) -> None:
        try:
            await self.instances.delete(instance_id(claim.status.provider_id))
        except Gone:
            reservation = claim.labels.get(labels.CAPACITY_RESERVATION_ID, "")
            if reservation:
                self.reservations.mark_terminated(reservation)
            raise

    async def get(self, provider_id: str) -> Instance:
        (told,) = await self._describe_instances([await self.instances.get(instance_id(provider_id))])
        return told

    async def list(self) -> tuple[Instance, ...]:
        return await self._describe_instances(await self.instances.list())

    async def list_instance_types(self, nodepool: NodePool) -> tuple[InstanceType, ...]:
        name = nodepool.spec.template.spec.node_class_ref.name
        node_class = self._find_class(name)
        if node_class is None:
            self._report_missing_class(nodepool, name)
            raise Retry(
                f"listing the instance types of NodePool {nodepool.name}: there is no EC2NodeClass {name}"
            )
        return self.prices.price_types(nodepool, await self.types.list_types(node_class))

    async def find_drift_reason(self, claim: NodeClaim) -> str:
        pool = self.pools.get(claim.labels.get(labels.NODEPOOL, ""))
        if pool is None:
            return ""
        node_class = self._find_class(pool.spec.template.spec.node_class_ref.name)
        if node_class is None:
            self._report_missing_class(pool, pool.spec.template.spec.node_class_ref.name)
            return ""
        try:
            return await self.drift.find_reason(claim, node_class)
        except Refused as error:
            # What AWS refuses today it may grant tomorrow, and nobody would wake us then.
            raise Retry(str(error)) from error

    def _find_class(self, name: str) -> EC2NodeClass | None:
        """A class that can still be used; one on its way out cannot, nor one that cannot be read."""
        found = self.classes.get(name)
        return found if found is not None and not found.deleting and not reason_of(found) else None

    def _report_missing_class(self, about: Object, name: str) -> None:
        # Karpenter leaves the reason of this event empty.
        note = f"Failed resolving NodeClass {name}"
        self.recorder.publish_event(
            about, "FailedResolvingNodeClass", note, warning=True, dedupe=(about.uid,)
        )

    async def _describe_instances(self, instances: Sequence[Ec2Instance]) -> tuple[Instance, ...]:
        """Instances as controllers see them; without its pool or class, less is known of one."""
        whose, told = self._match_claims(instances), []
        types: dict[str, dict[str, InstanceType]] = {}
        kinds: dict[tuple[str, str], InstanceTraits] = {}
        for count, each in enumerate(instances, start=1):
            pool = self.pools.get(each.tags.get(labels.NODEPOOL, ""))
            node_class = (
                None if pool is None else self._find_class(pool.spec.template.spec.node_class_ref.name)
            )
            traits = UNKNOWN
            if node_class is not None:
                if node_class.name not in types:
                    types[node_class.name] = await self._types_by_name(node_class)
                kind, found = (node_class.name, each.type), types[node_class.name].get(each.type)
                if kind not in kinds:
                    kinds[kind] = UNKNOWN if found is None else InstanceTraits.from_type(found)
                traits = kinds[kind]
            told.append(build_instance(each, traits, node_class, claim=whose.get(each.id, each.id)))
            if count % SLICE == 0:
                await asyncio.sleep(0)
        return tuple(told)

    def _match_claims(self, instances: Sequence[Ec2Instance]) -> dict[str, str]:
        """By instance id. All are ours, so one that no tag gives to a claim goes by its own id: nobody's."""
        cluster = self.discovery.facts.name
        waiting = {
            each.name: launch_group(each, cluster)
            for each in self.claims
            if not each.status.provider_id and not each.deleting
        }
        return match_claims(instances, waiting, {each.status.provider_id for each in self.claims})

    async def _types_by_name(self, node_class: EC2NodeClass) -> dict[str, InstanceType]:
        try:
            return {each.name: each for each in await self.types.list_types(node_class)}
        except DovetailError:
            # Karpenter fails the whole list here. What nobody can describe must still be seen, and ended.
            return {}


def _check_ready(node_class: EC2NodeClass) -> None:
    ready = conditions.find_condition(node_class, conditions.READY)
    about = f"EC2NodeClass {node_class.name}"
    if ready is not None and ready.status == conditions.FALSE:
        raise ClassNotReady(f"{about} is not ready: {ready.message or ready.reason}")
    if ready is None or ready.status == conditions.UNKNOWN:
        why = ready.message if ready is not None and ready.message else "it has not been looked at yet"
        raise CreateFailed(reasons.NODECLASS_READINESS_UNKNOWN, f"{about} may not be ready: {why}")
    if ready.observed_generation != node_class.metadata.generation:
        raise ClassNotReady(f"{about} was changed since it was last found ready")
