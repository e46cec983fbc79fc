"""Stand-ins for the pools of EKS Auto Mode, where there is no pool that could be edited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.api import codec, labels
from dovetail.api.meta import ObjectMeta
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import Cache
from dovetail.controllers.zonal.documents import Documents, PoolDocument
from dovetail.controllers.zonal.edit import PoolWish
from dovetail.controllers.zonal.options import ZonalOptions
from dovetail.controllers.zonal.zones import Ground
from dovetail.errors import AlreadyExists
from dovetail.zonal import clone

__all__ = ["Clones"]

# The one of the two that serves workloads; the other is for EKS's own.
SOURCES = ("general-purpose",)


@dataclass
class Clones:
    """Makes stand-ins, retires them, and takes them away once they own nothing."""

    kube: Documents
    claims: Cache[NodeClaim]
    options: ZonalOptions

    def needed(self, pools: Sequence[PoolDocument], ground: Ground) -> bool:
        match self.options.auto_mode:
            case "Off" | "Native":
                return False
            case "auto" if ground.native:
                return False  # EKS does it by itself
            case _:
                return clone.applies([pool.name for pool in pools], ground.built_in)

    def planned(self, pools: Sequence[PoolDocument], ground: Ground, wish: PoolWish) -> list[str]:
        """What would be written, in words."""
        if not wish.zones or not self.needed(pools, ground):
            return []
        known = {pool.name for pool in pools}
        return [
            f"NodePool/{clone.clone_name(each)}: created from {each}"
            for each in SOURCES
            if each in known and clone.clone_name(each) not in known
        ]

    async def settle(self, pools: Sequence[PoolDocument], ground: Ground, wish: PoolWish) -> int:
        """Bring stand-ins to where they should be; how many are not there yet."""
        known, left = {pool.name: pool for pool in pools}, 0
        if wish.zones and self.needed(pools, ground):
            for each in SOURCES:
                if each in known:
                    left += await self._stand_in(known[each], known.get(clone.clone_name(each)), ground, wish)
            return left
        for pool in pools:
            if clone.CLONE_OF in pool.labels and not pool.deleting:
                await self._retire(pool)
        return 0

    async def _stand_in(
        self, source: PoolDocument, there: PoolDocument | None, ground: Ground, wish: PoolWish
    ) -> int:
        healthy = [ground.names[each] for each in ground.cluster if each not in wish.zones]
        if not healthy:
            return 0
        document = {"metadata": {"name": source.name}, "spec": source.spec}
        made = clone.clone_of(document, healthy, wish.shifts)
        if there is None:
            try:
                await self.kube.create(codec.convert(PoolDocument, made))
            except AlreadyExists:
                return 1
            return 0
        if dict(there.spec) != made["spec"]:
            await self.kube.json_patch(there, [{"op": "add", "path": "/spec", "value": made["spec"]}])
        return 0

    async def _retire(self, pool: PoolDocument) -> None:
        spec = clone.retired(pool.spec)
        if dict(pool.spec) != spec:
            await self.kube.json_patch(pool, [{"op": "add", "path": "/spec", "value": spec}])
        elif not any(claim.labels.get(labels.NODEPOOL) == pool.name for claim in self.claims):
            gone = NodePool(metadata=ObjectMeta(name=pool.name, uid=pool.uid))
            await self.kube.delete(gone, guarded=True)
