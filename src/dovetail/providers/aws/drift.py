"""Whether an instance still is what its class asks for, and if not, in which respect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from dovetail.api import labels, reasons
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.errors import Retry
from dovetail.providers.aws.images import choose_image
from dovetail.providers.aws.instances import Ec2Instance, InstanceProvider, instance_id
from dovetail.providers.aws.placement_groups import PlacementGroup
from dovetail.scheduling.model.instance_types import InstanceType

__all__ = ["DriftDetector", "static_drift"]

STAMPS = (labels.EC2_NODECLASS_HASH, labels.EC2_NODECLASS_HASH_VERSION)


@dataclass(frozen=True, slots=True)
class DriftDetector:
    """Compares a claim and its instance with the class; the first difference in order is the reason."""

    instances: InstanceProvider
    types_of: Callable[[EC2NodeClass], Awaitable[tuple[InstanceType, ...]]]
    group_of: Callable[[EC2NodeClass], PlacementGroup | None]

    async def find_reason(self, claim: NodeClaim, node_class: EC2NodeClass) -> str:
        """Empty while nothing has drifted. Retry when that cannot be told, Gone without an instance."""
        if static_drift(claim, node_class):
            return reasons.NODECLASS_DRIFT
        if await self._image_drift(claim, node_class):
            return reasons.AMI_DRIFT
        if not claim.status.provider_id:
            raise _cannot_tell(claim, "it has no provider ID yet")
        instance = await self.instances.get(instance_id(claim.status.provider_id))
        return (
            _groups_drift(claim, instance, node_class)
            or _subnet_drift(claim, instance, node_class)
            or await self._reservation_drift(instance, node_class)
            or self._placement_drift(claim, node_class)
        )

    async def _image_drift(self, claim: NodeClaim, node_class: EC2NodeClass) -> bool:
        name = claim.labels.get(labels.INSTANCE_TYPE, "")
        found = next((each for each in await self.types_of(node_class) if each.name == name), None)
        if found is None:
            raise _cannot_tell(claim, f"its instance type {name!r} is not known")
        if not node_class.status.amis:
            raise _cannot_tell(claim, f"EC2NodeClass {node_class.name} has no images")
        if not claim.status.image_id:
            raise _cannot_tell(claim, "it has no image ID")
        wanted = choose_image(node_class.status.amis, found)
        return wanted is None or wanted.id != claim.status.image_id

    async def _reservation_drift(self, instance: Ec2Instance, node_class: EC2NodeClass) -> str:
        def strays(found: Ec2Instance) -> bool:
            known = {each.id for each in node_class.status.capacity_reservations}
            return found.capacity_type == labels.RESERVED and found.reservation not in known

        # What is remembered may be old: an instance whose reservation ended runs on as on-demand.
        if strays(instance) and strays(await self.instances.get(instance.id, fresh=True)):
            return reasons.CAPACITY_RESERVATION_DRIFT
        return ""

    def _placement_drift(self, claim: NodeClaim, node_class: EC2NodeClass) -> str:
        group = self.group_of(node_class)
        has, wanted = claim.labels.get(labels.PLACEMENT_GROUP_ID, ""), group.id if group else ""
        return reasons.PLACEMENT_GROUP_DRIFT if has != wanted else ""


def static_drift(claim: NodeClaim, node_class: EC2NodeClass) -> bool:
    """Whether the class was rewritten since; stamps that are missing or of another version say nothing."""
    on_class = [node_class.annotations.get(key) for key in STAMPS]
    on_claim = [claim.annotations.get(key) for key in STAMPS]
    if None in on_class or None in on_claim or on_class[1] != on_claim[1]:
        return False
    return on_class[0] != on_claim[0]


def _groups_drift(claim: NodeClaim, instance: Ec2Instance, node_class: EC2NodeClass) -> str:
    wanted = {group.id for group in node_class.status.security_groups}
    if not wanted:
        raise _cannot_tell(claim, f"EC2NodeClass {node_class.name} has no security groups")
    return "" if instance.security_groups == wanted else reasons.SECURITY_GROUP_DRIFT


def _subnet_drift(claim: NodeClaim, instance: Ec2Instance, node_class: EC2NodeClass) -> str:
    wanted = {subnet.id for subnet in node_class.status.subnets}
    if not wanted:
        raise _cannot_tell(claim, f"EC2NodeClass {node_class.name} has no subnets")
    return "" if instance.subnet in wanted else reasons.SUBNET_DRIFT


def _cannot_tell(claim: NodeClaim, why: str) -> Retry:
    return Retry(f"comparing NodeClaim {claim.name} with its class: {why}")
