"""How large each ReplicaSet of a Deployment should be now: kube-controller-manager's arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

__all__ = ["DESIRED", "MOST", "DeploymentRollout", "compute_surge", "compute_unavailable", "read_size"]

Json = dict[str, Any]
Change = tuple[Json, int]
DESIRED, MOST = "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"


def read_size(replicaset: Json) -> int:
    """How many pods the set is asked for."""
    return int(replicaset["spec"].get("replicas", 1))


def compute_surge(spec: Json) -> int:
    """How many pods more than asked for a rollout may have; percentages round up."""
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return 0
    return _resolve_amount((strategy.get("rollingUpdate") or {}).get("maxSurge", "25%"), spec, math.ceil)


def compute_unavailable(spec: Json) -> int:
    """How many pods fewer than asked for a rollout may have; percentages round down."""
    strategy, replicas = spec.get("strategy") or {}, int(spec.get("replicas", 1))
    if strategy.get("type") == "Recreate" or not replicas:
        return 0
    allowed = _resolve_amount(
        (strategy.get("rollingUpdate") or {}).get("maxUnavailable", "25%"), spec, math.floor
    )
    # Both zero would never move: then one may be missing.
    return 1 if not allowed and not compute_surge(spec) else min(allowed, replicas)


def _resolve_amount(amount: int | str, spec: Json, rounded: Any) -> int:
    if isinstance(amount, int):
        return amount
    return int(rounded(spec.get("replicas", 1) * int(amount.rstrip("%")) / 100))


def _count_available(replicaset: Json) -> int:
    return int((replicaset.get("status") or {}).get("availableReplicas", 0))


class DeploymentRollout:
    """One look at a Deployment and its sets. Each answer is a list of sets with the size they should get."""

    def __init__(self, deployment: Json, current: Json | None, old: list[Json]) -> None:
        self.spec: Json = deployment["spec"]
        self.replicas = int(self.spec.get("replicas", 1))
        self.current = current
        self.old = sorted(old, key=lambda s: (s["metadata"]["creationTimestamp"], s["metadata"]["name"]))
        self.sets = [*self.old, current] if current is not None else self.old

    def was_resized(self) -> bool:
        """Whether the Deployment was resized since its sets were last sized."""
        return any(
            (s["metadata"].get("annotations") or {}).get(DESIRED) not in (None, str(self.replicas))
            for s in self.sets
            if read_size(s) > 0
        )

    def plan_resize(self) -> list[Change]:
        """A new size goes to the only set there is, or to each in proportion; nothing else moves."""
        active = [s for s in self.sets if read_size(s) > 0]
        newest = max(self.sets, key=lambda s: s["metadata"]["creationTimestamp"], default=None)
        if len(active) <= 1:
            only = active[0] if active else self.current or newest
            return [(only, self.replicas)] if only is not None else []
        if self.current is not None and self._is_saturated(self.current):
            return [(s, 0) for s in self.old]
        if (self.spec.get("strategy") or {}).get("type") == "Recreate":
            return []
        return self._resize_in_proportion(active)

    def _is_saturated(self, replicaset: Json) -> bool:
        return read_size(replicaset) == self.replicas == _count_available(replicaset)

    def _resize_in_proportion(self, active: list[Json]) -> list[Change]:
        total = sum(map(read_size, active))
        to_add = (self.replicas + compute_surge(self.spec) if self.replicas else 0) - total
        largest_first = sorted(active, key=lambda s: -read_size(s))
        sizes, added = {}, 0
        for each in largest_first:
            name, part = each["metadata"]["name"], 0
            if to_add:
                part = self._compute_share(each, total)
                left = to_add - added
                part = min(part, left) if to_add > 0 else max(part, left)
            sizes[name] = read_size(each) + part
            added += part
        # What rounding left over goes to the largest.
        first = largest_first[0]["metadata"]["name"]
        sizes[first] = max(sizes[first] + to_add - added, 0)
        return [(s, sizes[s["metadata"]["name"]]) for s in largest_first]

    def _compute_share(self, replicaset: Json, total: int) -> int:
        most = (replicaset["metadata"].get("annotations") or {}).get(MOST, "")
        before = int(most) if most.isdigit() else total
        wanted = read_size(replicaset) * (self.replicas + compute_surge(self.spec)) / (before or 1)
        return math.floor(wanted + 0.5) - read_size(replicaset)

    def plan_recreate(self, *, old_running: bool) -> list[Change]:
        """Old pods go first, all of them; the new come when the last is gone."""
        down = [(s, 0) for s in self.old]
        if old_running or self.current is None:
            return down
        return [*down, (self.current, self.replicas)]

    def plan_rolling_update(self) -> list[Change]:
        """Up as far as the surge allows; once the new set is sized, down as far as availability allows."""
        assert self.current is not None
        size = self._compute_next_size(self.current)
        if size != read_size(self.current):
            return [(self.current, size)]
        return [(self.current, size), *self._shrink_old()]

    def _compute_next_size(self, current: Json) -> int:
        have = read_size(current)
        if have >= self.replicas:
            return self.replicas
        room = self.replicas + compute_surge(self.spec) - sum(map(read_size, self.sets))
        return have + max(min(room, self.replicas - have), 0)

    def _shrink_old(self) -> Iterator[Change]:
        assert self.current is not None
        least = self.replicas - compute_unavailable(self.spec)
        missing = read_size(self.current) - _count_available(self.current)
        total = sum(map(read_size, self.sets))
        # Old pods that are not available go first: nobody misses them.
        idle_left = max(total - least - missing, 0)
        spare = max(sum(map(_count_available, self.sets)) - least, 0) if idle_left else 0
        for each in self.old:
            size = read_size(each)
            idle = min(max(size - _count_available(each), 0), idle_left)
            idle_left -= idle
            drop = min(size - idle, spare)
            spare -= drop
            if size:
                yield each, size - idle - drop
