"""nodeclaim.hydration: claims of older releases get the label that marks them as ours."""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.base import DONE, Backoff, Cache, Pace, Result, Trigger, on
from dovetail.controllers.owning import Ownership
from dovetail.errors import Gone
from dovetail.ports import Kube

__all__ = ["Hydration"]

PACE = Pace(1000, 5000)


class Hydration:
    """Writes `<group>/<kind>: <class>` on claims that lack it."""

    name = "nodeclaim.hydration"
    backoff = Backoff(first=0.1, last=60.0)

    def __init__(
        self, kube: Kube, claims: Cache[NodeClaim], ownership: Ownership, *, millicores: int = 1000
    ) -> None:
        self._kube = kube
        self._claims = claims
        self._ownership = ownership
        self.concurrency = PACE.at(millicores)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (on(NodeClaim),)

    async def reconcile(self, key: str) -> Result:
        claim = self._claims.get(key)
        if claim is None or not self._ownership.of_claim(claim):
            return DONE
        reference = claim.spec.node_class_ref
        label = labels.nodeclass_label(reference.group, reference.kind)
        if claim.labels.get(label) == reference.name:
            return DONE
        marked = replace(claim.metadata, labels={**claim.labels, label: reference.name})
        try:
            await self._kube.patch(claim, replace(claim, metadata=marked))
        except Gone:
            return DONE
        return DONE
