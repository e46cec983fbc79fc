"""Pool limits: how much more of each limited resource a pool may buy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.api.labels import NODES
from dovetail.api.nodepool import NodePool
from dovetail.scheduling import nodes
from dovetail.scheduling.resources import Nano, nano
from dovetail.scheduling.snapshot import StateNode
from dovetail.scheduling.typetable import TypeTable, bits

__all__ = ["Limits", "exceeded"]


class Limits:
    """What is left of every pool's limits in this run. Nodes on their way out are not charged."""

    def __init__(self, pools: Iterable[NodePool], states: Iterable[StateNode]) -> None:
        self.left: dict[str, Nano] = {pool.name: nano(pool.spec.limits) for pool in pools}
        if not any(self.left.values()):
            return
        for state in nodes.active(states):
            left = self.left.get(nodes.pool(state))
            if left:
                _charge(left, nodes.capacity(state))

    @classmethod
    def with_left(cls, left: dict[str, Nano]) -> Limits:
        """Limits of which this much is left."""
        made = cls((), ())
        made.left = left
        return made

    def exhausted(self, pool: str) -> bool:
        """Whether not one more node is allowed, whatever its size."""
        return self.left[pool].get(NODES) == 0

    def within(self, pool: str, table: TypeTable, types: int) -> int:
        """The types that are small enough for what is left."""
        left = self.left[pool]
        if not left:
            return types
        return sum(1 << i for i in bits(types) if _fits(table.capacities[i], left))

    def open(self, pool: str, table: TypeTable, types: int) -> None:
        """Charge a new node as the largest it could become."""
        left = self.left[pool]
        for name in left:
            left[name] -= max((table.capacities[i].get(name, 0) for i in bits(types)), default=0)


def _charge(left: Nano, used: Mapping[str, int]) -> None:
    for name in left:
        left[name] -= used.get(name, 0)


def _fits(capacity: Nano, left: Nano) -> bool:
    return all(capacity.get(name, 0) <= amount for name, amount in left.items())


def exceeded(pool: NodePool, usage: Mapping[str, int]) -> str | None:
    """The check made once more when a claim is created: is a limit already overrun?"""
    for name, limit in sorted(pool.spec.limits.items()):
        used = usage.get(name, 0)
        if used > limit.nano:
            spent = type(limit)(used, limit.format)
            return f"resource usage exceeds limit (resource-name={name}, usage={spent}, limit={limit})"
    return None
