"""An EC2 instance as controllers see it: labels, capacity, and where it is in its life. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dovetail.api import labels
from dovetail.api.meta import Amounts
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.quantity import Quantity
from dovetail.ports import Instance
from dovetail.providers.aws.instances import Ec2Instance
from dovetail.scheduling.catalog import InstanceType

__all__ = ["described"]

OF_RESERVATIONS = frozenset(
    (
        labels.CAPACITY_RESERVATION_ID,
        labels.CAPACITY_RESERVATION_TYPE,
        labels.CAPACITY_RESERVATION_INTERRUPTIBLE,
    )
)


def described(
    instance: Ec2Instance,
    instance_type: InstanceType | None,
    node_class: EC2NodeClass | None,
    *,
    claim: str = "",
    annotations: Mapping[str, str] | None = None,
) -> Instance:
    """The instance; what its type or class would tell is left out where they are not known."""
    known = dict(_of_type(instance_type)) | dict(_of_instance(instance, node_class))
    has = instance_type.capacity if instance_type is not None else {}
    left = instance_type.allocatable() if instance_type is not None else {}
    return Instance(
        provider_id=instance.provider_id,
        image_id=instance.image,
        labels=known,
        annotations=annotations or {},
        capacity=_amounts(has, instance.efa),
        allocatable=_amounts(left, instance.efa),
        claim=claim,
        created=instance.launched,
        deleting=instance.ending,
    )


def _of_type(instance_type: InstanceType | None) -> Iterator[tuple[str, str]]:
    for key in instance_type.requirements if instance_type is not None else ():
        assert instance_type is not None
        only = instance_type.requirements[key].only
        if only is not None and key not in OF_RESERVATIONS:
            yield key, only


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


def _amounts(listed: Amounts, efa: bool) -> dict[str, Quantity]:
    """What there is any of; EFA interfaces only where the instance was given some."""
    return {name: amount for name, amount in listed.items() if amount.nano and (efa or name != labels.EFA)}
