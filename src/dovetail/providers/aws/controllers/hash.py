"""nodeclass.hash: the fingerprint of a class, kept on the class and on its claims."""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.api.conditions import DRIFTED
from dovetail.api.hashes import NODECLASS_HASH_VERSION, nodeclass_hash
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.setaside import reason_of
from dovetail.controllers.base import DONE, Backoff, Cache, Result, Trigger, on, run_all
from dovetail.errors import Gone
from dovetail.ports import Kube
from dovetail.providers.aws.controllers.finalizing import refers_to
from dovetail.providers.aws.discovery import Discovery

__all__ = ["Hash"]


class Hash:
    """Writes the hash annotations. A new way of hashing must not look like a change of the classes."""

    name = "nodeclass.hash"
    concurrency = 10
    backoff = Backoff()

    def __init__(
        self, kube: Kube, classes: Cache[EC2NodeClass], claims: Cache[NodeClaim], discovery: Discovery
    ) -> None:
        self._kube = kube
        self._classes = classes
        self._claims = claims
        self._discovery = discovery

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (on(EC2NodeClass),)

    async def reconcile(self, key: str) -> Result:
        node_class = self._classes.get(key)
        if node_class is None or reason_of(node_class):
            # The hash of what is left of a class would make all of its nodes drift.
            return DONE
        fingerprint = nodeclass_hash(node_class, self._discovery.facts.ca_bundle)
        if node_class.annotations.get(labels.EC2_NODECLASS_HASH_VERSION) != NODECLASS_HASH_VERSION:
            mine = [claim for claim in self._claims if refers_to(claim, key)]
            await run_all(self._restamp(claim, fingerprint) for claim in mine)
        wanted = {
            labels.EC2_NODECLASS_HASH: fingerprint,
            labels.EC2_NODECLASS_HASH_VERSION: NODECLASS_HASH_VERSION,
        }
        if not wanted.items() <= node_class.annotations.items():
            annotations = {**node_class.annotations, **wanted}
            marked = replace(node_class, metadata=replace(node_class.metadata, annotations=annotations))
            try:
                await self._kube.patch(node_class, marked)
            except Gone:
                return DONE
        return DONE

    async def _restamp(self, claim: NodeClaim, fingerprint: str) -> None:
        if claim.annotations.get(labels.EC2_NODECLASS_HASH_VERSION) == NODECLASS_HASH_VERSION:
            return
        annotations = {**claim.annotations, labels.EC2_NODECLASS_HASH_VERSION: NODECLASS_HASH_VERSION}
        if conditions.find(claim, DRIFTED) is None:
            # One that has drifted already keeps its old hash, so that it stays drifted.
            annotations[labels.EC2_NODECLASS_HASH] = fingerprint
        marked = replace(claim, metadata=replace(claim.metadata, annotations=annotations))
        try:
            await self._kube.patch(claim, marked)
        except Gone:
            return
