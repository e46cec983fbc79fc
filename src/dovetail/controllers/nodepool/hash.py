"""nodepool.hash: the fingerprint of a pool's template, kept on the pool and on its claims."""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.api.conditions import DRIFTED
from dovetail.api.hashes import NODEPOOL_HASH_VERSION
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import DONE, Backoff, Cache, Result, Trigger, run_all, wake_on
from dovetail.controllers.ordering import hash_annotations
from dovetail.controllers.ownership import Ownership
from dovetail.errors import Gone
from dovetail.ports import Kube

__all__ = ["NodePoolHash"]


class NodePoolHash:
    """Writes the hash annotations. A new way of hashing must not look like a change of the pools."""

    name = "nodepool.hash"
    singleton = False
    concurrency = 10
    backoff = Backoff()

    def __init__(
        self, kube: Kube, pools: Cache[NodePool], claims: Cache[NodeClaim], ownership: Ownership
    ) -> None:
        self._kube = kube
        self._pools = pools
        self._claims = claims
        self._ownership = ownership

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (wake_on(NodePool),)

    async def reconcile(self, key: str) -> Result:
        pool = self._pools.get(key)
        if pool is None or not self._ownership.owns_pool(pool):
            return DONE
        wanted = hash_annotations(pool)
        if pool.annotations.get(labels.NODEPOOL_HASH_VERSION) != NODEPOOL_HASH_VERSION:
            mine = [
                claim
                for claim in self._claims
                if claim.labels.get(labels.NODEPOOL) == pool.name and self._ownership.owns_claim(claim)
            ]
            await run_all(self._update_claim_hash(claim, wanted[labels.NODEPOOL_HASH]) for claim in mine)
        if not wanted.items() <= pool.annotations.items():
            annotations = {**pool.annotations, **wanted}
            marked = replace(pool, metadata=replace(pool.metadata, annotations=annotations))
            try:
                await self._kube.patch(pool, marked)
            except Gone:
                return DONE
        return DONE

    async def _update_claim_hash(self, claim: NodeClaim, fingerprint: str) -> None:
        if claim.annotations.get(labels.NODEPOOL_HASH_VERSION) == NODEPOOL_HASH_VERSION:
            return
        annotations = {**claim.annotations, labels.NODEPOOL_HASH_VERSION: NODEPOOL_HASH_VERSION}
        if conditions.find_condition(claim, DRIFTED) is None:
            # One that has drifted already keeps its old hash, so that it stays drifted.
            annotations[labels.NODEPOOL_HASH] = fingerprint
        try:
            await self._kube.patch(
                claim, replace(claim, metadata=replace(claim.metadata, annotations=annotations))
            )
        except Gone:
            return
