"""Pool limits: how much more of each limited resource a pool may buy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.api.labels import NODES
from dovetail.api.nodepool import NodePool
from dovetail.scheduling.model import state_node
from dovetail.scheduling.model.instance_type_table import InstanceTypeTable, iterate_bits
from dovetail.scheduling.model.resources import Nano, convert_to_nano
from dovetail.scheduling.model.snapshot import StateNode

__all__ = ["NodePoolLimits"]


class NodePoolLimits:
    """What is left of every pool's limits in this run. Nodes on their way out are not charged."""

    def __init__(self, pools: Iterable[NodePool], states: Iterable[StateNode]) -> None:
        self.left: dict[str, Nano] = {pool.name: convert_to_nano(pool.spec.limits) for pool in pools}
        if not any(self.left.values()):
            return
        for state in state_node.list_active(states):
            left = self.left.get(state_node.read_pool_name(state))
            if left:
                _charge_usage(left, state_node.read_capacity(state))

    @classmethod
    def from_remaining(cls, left: dict[str, Nano]) -> NodePoolLimits:
        """Limits of which this much is left."""
        made = cls((), ())
        made.left = left
        return made

    def is_exhausted(self, pool: str) -> bool:
        """Whether not one more node is allowed, whatever its size."""
        return self.left[pool].get(NODES) == 0

    def filter_types(self, pool: str, table: InstanceTypeTable, types: int) -> int:
        """The types that are small enough for what is left."""
        left = self.left[pool]
        if not left:
            return types
        return sum(1 << i for i in iterate_bits(types) if _fits_limits(table.capacities[i], left))

    def charge_new_node(self, pool: str, table: InstanceTypeTable, types: int) -> None:
        """Charge a new node as the largest it could become."""
        left = self.left[pool]
        for name in left:
            left[name] -= max((table.capacities[i].get(name, 0) for i in iterate_bits(types)), default=0)


def _charge_usage(left: Nano, used: Mapping[str, int]) -> None:
    for name in left:
        left[name] -= used.get(name, 0)


def _fits_limits(capacity: Nano, left: Nano) -> bool:
    return all(capacity.get(name, 0) <= amount for name, amount in left.items())
