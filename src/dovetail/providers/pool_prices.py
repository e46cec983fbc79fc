"""Instance types at the prices of one NodePool: what a person adds to its nodes is in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.node_extras import read_node_extra, set_node_extra
from dovetail.settings import Settings
from dovetail.settings.node_extra import NO_EXTRA, NodeExtra

__all__ = ["PoolPrices"]

Types = tuple[InstanceType, ...]


@dataclass(eq=False)
class PoolPrices:
    """Prices the instance types of NodePools; the very same tuple while nothing changed.

    `usual` is what a NodePool adds that says nothing itself; None where extras are switched off.
    """

    usual: NodeExtra | None = None
    find_pool: Callable[[str], NodePool | None] = lambda name: None
    _made: dict[str, tuple[Types, NodeExtra, Types]] = field(default_factory=dict, init=False)

    @classmethod
    def from_settings(
        cls, settings: Settings, find_pool: Callable[[str], NodePool | None] = lambda name: None
    ) -> PoolPrices:
        return cls(settings.find_node_extra(), find_pool)

    def price_types(self, nodepool: NodePool, types: Types) -> Types:
        """What a NodePool may buy, at its own prices."""
        extra = NO_EXTRA if self.usual is None else read_node_extra(nodepool, self.usual)
        if extra == NO_EXTRA:
            self._made.pop(nodepool.name, None)
            return types
        known = self._made.get(nodepool.name)
        if known is None or known[0] is not types or known[1] != extra:
            known = self._made[nodepool.name] = types, extra, set_node_extra(types, extra)
        return known[2]

    def price_for_claim(self, claim: NodeClaim, types: Types) -> Types:
        """What a NodeClaim may be launched as, at the prices of its NodePool."""
        pool = self.find_pool(claim.labels.get(labels.NODEPOOL, ""))
        return types if pool is None else self.price_types(pool, types)
