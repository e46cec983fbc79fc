"""What a node waits for before it counts as registered: the partition EC2 chose for it."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.providers.aws.instances import Instances, instance_id

__all__ = ["PartitionHook"]

AGAIN = timedelta(seconds=1)


class PartitionHook:
    """Fills in the partition label of a claim that left the choice of partition to EC2."""

    name = "placement-group-partition"

    def __init__(self, instances: Instances) -> None:
        self._instances = instances

    async def settle(self, claim: NodeClaim) -> tuple[NodeClaim, timedelta | None]:
        if claim.labels.get(labels.PLACEMENT_GROUP_PARTITION, "none"):
            return claim, None
        if not claim.status.provider_id:
            return claim, AGAIN
        instance = await self._instances.get(instance_id(claim.status.provider_id), fresh=True)
        if not instance.partition:
            return claim, AGAIN
        known = {**claim.labels, labels.PLACEMENT_GROUP_PARTITION: instance.partition}
        return replace(claim, metadata=replace(claim.metadata, labels=known)), None
