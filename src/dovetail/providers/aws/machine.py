"""An EC2 instance as controllers see it: labels, capacity, and where it is in its life. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dovetail.api import labels
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.quantity import Quantity
from dovetail.ports import Instance
from dovetail.providers.aws.instances import Ec2Instance
from dovetail.scheduling.catalog import InstanceType

__all__ = ["UNKNOWN", "Traits", "described"]

OF_RESERVATIONS = frozenset(
    (
        labels.CAPACITY_RESERVATION_ID,
        labels.CAPACITY_RESERVATION_TYPE,
        labels.CAPACITY_RESERVATION_INTERRUPTIBLE,
    )
)


@dataclass(frozen=True, slots=True)
class Traits:
    """What all instances of a type have in common, as a class sees them. Without a type, nothing."""

    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)

    @staticmethod
    def of(instance_type: InstanceType) -> Traits:
        known = {key: values.only for key, values in instance_type.requirements.by_key.items()}
        return Traits(
            {key: only for key, only in known.items() if only is not None and key not in OF_RESERVATIONS},
            {name: amount for name, amount in instance_type.capacity.items() if amount.nano},
            {name: amount for name, amount in instance_type.allocatable().items() if amount.nano},
        )


UNKNOWN = Traits()


def described(
    instance: Ec2Instance,
    traits: Traits,
    node_class: EC2NodeClass | None,
    *,
    claim: str = "",
    annotations: Mapping[str, str] | None = None,
) -> Instance:
    """The instance; what its type or class would tell is left out where they are not known."""
    return Instance(
        provider_id=instance.provider_id,
        image_id=instance.image,
        labels={**traits.labels, **dict(_of_instance(instance, node_class))},
        annotations=annotations or {},
        capacity=_given(traits.capacity, instance.efa),
        allocatable=_given(traits.allocatable, instance.efa),
        claim=claim,
        created=instance.launched,
        deleting=instance.ending,
    )


def _of_instance(instance: Ec2Instance, node_class: EC2NodeClass | None) -> Iterator[tuple[str, str]]:
    yield labels.ZONE, instance.zone
    zone_id = _zone_id(instance, node_class)
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


def _zone_id(instance: Ec2Instance, node_class: EC2NodeClass | None) -> str:
    subnets = node_class.status.subnets if node_class is not None else ()
    return next((subnet.zone_id for subnet in subnets if subnet.zone == instance.zone), instance.zone_id)


def _given(amounts: Mapping[str, Quantity], efa: bool) -> Mapping[str, Quantity]:
    """EFA interfaces are there only where the instance was given some."""
    if efa or labels.EFA not in amounts:
        return amounts
    return {name: amount for name, amount in amounts.items() if name != labels.EFA}
