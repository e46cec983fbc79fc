"""nodeclaim.tagging: instances are given the name of their node, and of the claim they serve."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.base import DONE, Backoff, Cache, Result, Trigger, retry_refusals, wake_on
from dovetail.controllers.ownership import Ownership
from dovetail.errors import Gone, Retry
from dovetail.logs import build_reference, get_logger
from dovetail.ports import Clock, Kube
from dovetail.providers.aws.instances import InstanceProvider, instance_id

__all__ = ["InstanceTagging"]

NAME: Final = "Name"
DONE_MARKS: Final = {labels.TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}
# Tags are written one instance a second, so that launches never wait for them.
PAUSE: Final = 1.0

log = get_logger()


class InstanceTagging:
    """Adds what is missing once the node is known. A tag that someone else has set stays."""

    name = "nodeclaim.tagging"
    singleton = False
    concurrency = 1
    backoff = Backoff(first=1.0, last=120.0)

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        claims: Cache[NodeClaim],
        ownership: Ownership,
        instances: InstanceProvider,
        cluster: str,
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._claims = claims
        self._ownership = ownership
        self._instances = instances
        self._cluster = cluster
        self._next = 0.0

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (wake_on(NodeClaim),)

    async def reconcile(self, key: str) -> Result:
        claim = self._claims.get(key)
        if claim is None or not self._ownership.owns_claim(claim) or not _is_due(claim):
            return DONE
        try:
            instance = instance_id(claim.status.provider_id)
        except Retry as error:
            log.error("a nodeclaim cannot be tagged", NodeClaim=build_reference(claim.name), error=error)
            return DONE
        with retry_refusals():
            try:
                await self._tag_instance(claim, instance)
                annotations = {**claim.annotations, **DONE_MARKS}
                marked = replace(claim, metadata=replace(claim.metadata, annotations=annotations))
                await self._kube.patch(claim, marked)
            except Gone:
                return DONE
        return DONE

    async def _tag_instance(self, claim: NodeClaim, instance: str) -> None:
        known = (await self._instances.get(instance, fresh=True)).tags
        wanted = {
            NAME: claim.status.node_name,
            labels.NODECLAIM_TAG: claim.name,
            labels.EKS_CLUSTER_TAG: self._cluster,
        }
        missing = {key: value for key, value in wanted.items() if key not in known}
        if missing:
            await self._clock.sleep(max(0.0, self._next - self._clock.monotonic()))
            self._next = self._clock.monotonic() + PAUSE
            await self._instances.tag_instance(instance, missing)


def _is_due(claim: NodeClaim) -> bool:
    done = DONE_MARKS.items() <= claim.annotations.items()
    return bool(claim.status.node_name) and not claim.deleting and not done
