"""A world made ready for many questions of one kind: what if these nodes went?

Running nodes, pools and topology rules are worked out once and shared by every trial; a trial only takes
out the nodes it is about. What it learns about nodes nobody has touched yet is left for the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from copy import copy
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dovetail.api.pod import Pod
from dovetail.disruption.rules import Rules
from dovetail.scheduling import nodes as views
from dovetail.scheduling.domains import Universe
from dovetail.scheduling.eligibility import batch_of
from dovetail.scheduling.limits import Limits
from dovetail.scheduling.places import RunningNode
from dovetail.scheduling.remembered import new_run
from dovetail.scheduling.resources import Nano
from dovetail.scheduling.roster import roster_of
from dovetail.scheduling.shapes import Numbering, Shape
from dovetail.scheduling.snapshot import Snapshot, StateNode
from dovetail.scheduling.templates import dynamic_pools, soft_tainted, templates, uses_devices
from dovetail.scheduling.typetable import table_for

__all__ = ["Ground"]


class Ground:
    """Everything trials share. Nodes are known by their place in the order in which they are tried."""

    def __init__(self, snapshot: Snapshot) -> None:
        new_run(snapshot.nodes)
        self.snapshot = snapshot
        self.pools = dynamic_pools(snapshot.pools)
        self.soft_taints = soft_tainted(self.pools)
        self.templates, self.problems = templates(snapshot, self.pools)
        known = snapshot.options.flavour.well_known
        tables = [(p.nodepool, table_for(snapshot.types(p), known)) for p in self.pools if p.catalog >= 0]
        self.universe = Universe(tables)
        batch, self.ignored = batch_of(snapshot)
        self.batch = {pod.full_name: pod for pod in batch}
        self.limits = Limits((pool.nodepool for pool in self.pools), snapshot.nodes)
        self.states = roster_of(snapshot.nodes).active
        self.at = {views.provider_id(state): i for i, state in enumerate(self.states)}
        self.everywhere = (1 << len(self.states)) - 1
        self.specs, self.labels, self.statuses = Numbering(), Numbering(), Numbering()
        self._roomless: dict[frozenset[tuple[str, int]], int] = {}
        self._by_label: dict[str, dict[str, int]] = {}
        self._closed: dict[tuple[object, ...], int] = {}
        self.rules = Rules(snapshot, self.universe, frozenset(self.batch))

    def less(self, rest: Snapshot, names: AbstractSet[str]) -> Ground:
        """The ground without these nodes, for a rest of the world where nobody waits and nobody counts."""
        gone = 0
        for name in names:
            gone |= self._named.get(name, 0)
        left = copy(self)
        left.snapshot, left.batch, left.ignored = rest, {}, {}
        left.everywhere &= ~gone
        return left

    @cached_property
    def _named(self) -> dict[str, int]:
        """Where the nodes of each name are."""
        found: dict[str, int] = {}
        for i, state in enumerate(self.states):
            found[views.name(state)] = found.get(views.name(state), 0) | 1 << i
        return found

    # Nodes

    @cached_property
    def _daemons(self) -> tuple[Pod, ...]:
        listed = self.snapshot.daemons
        if self.snapshot.options.ignore_dra and any(map(uses_devices, listed)):
            return tuple(pod for pod in listed if not uses_devices(pod))
        return listed

    def node(self, index: int) -> RunningNode:
        """A node as it is before anybody is placed on it."""
        return self.seen(self.states[index], index)

    def seen(self, state: StateNode, index: int = -1) -> RunningNode:
        """A node as it would be here, whether or not it is one of these."""
        return RunningNode(index, state, self._daemons, self.snapshot.storage)

    def alike(self, place: int, keys: Iterable[str]) -> int:
        """The nodes that have the same values as this one for these labels; only itself if it lacks one."""
        mine, found = views.labels(self.states[place]), self.everywhere
        for key in keys:
            found &= self._having(key).get(mine.get(key, ""), 0)
        return found | 1 << place

    def _having(self, key: str) -> dict[str, int]:
        known = self._by_label.get(key)
        if known is None:
            known = self._by_label[key] = {}
            for i, state in enumerate(self.states):
                value = views.labels(state).get(key)
                if value is not None:
                    known[value] = known.get(value, 0) | 1 << i
        return known

    @cached_property
    def young(self) -> int:
        """Nodes too young to take pods that only move to save money."""
        pools = {pool.name: pool.nodepool for pool in self.snapshot.pools}
        now = self.snapshot.options.now
        found = (views.too_young(s, pools.get(views.pool(s)), now) for s in self.states)
        return sum(1 << i for i, young in enumerate(found) if young)

    @cached_property
    def unready(self) -> dict[str, StateNode]:
        """Nodes of ours that have not come up yet, by name."""
        return {
            views.name(s): s for s in self.snapshot.nodes if views.managed(s) and not views.initialized(s)
        }

    @cached_property
    def _left(self) -> tuple[dict[str, int], NDArray[np.float64]]:
        """What is free: a row per resource, a column per node. Overdrawn nodes have nothing at all.

        Amounts can be too large for 64 bits. As floating point numbers they may be rounded, but never past
        each other, so what does not fit by these does not fit.
        """
        places = [self.node(i) for i in range(len(self.states))]
        names = sorted({name for place in places for name in place.left})
        rows = [[-1.0 if p.overdrawn else float(p.left.get(name, 0)) for p in places] for name in names]
        return {name: i for i, name in enumerate(names)}, np.array(rows, dtype=np.float64)

    def there(self, without: Iterable[str]) -> int:
        """The nodes but for these, which are named by their provider IDs."""
        places = (self.at.get(key) for key in without)
        return self.everywhere & ~sum(1 << place for place in places if place is not None)

    def roomless(self, wanted: Nano) -> int:
        """Nodes that have no room for this, as far as it can be told at a glance."""
        key = frozenset(wanted.items())
        known = self._roomless.get(key)
        if known is None:
            known = self._roomless[key] = self._short_of(wanted)
        return known

    def _short_of(self, wanted: Nano) -> int:
        names, left = self._left
        short = np.zeros(len(self.states), dtype=bool)
        for name, amount in wanted.items():
            if name in names:
                short |= left[names[name]] < float(amount)
            elif amount > 0:
                return self.everywhere
        return int.from_bytes(np.packbits(short, bitorder="little").tobytes(), "little")

    def closed(self, key: tuple[object, ...], shape: Shape) -> int:
        """Nodes known to refuse a shape of pod for good."""
        known = self._closed.get(key)
        if known is None:
            known = self._closed[key] = self.roomless(shape.requests)
        return known

    def learned(self, key: tuple[object, ...], refusing: int) -> None:
        """These refused the shape as they are, with nobody placed on them."""
        self._closed[key] |= refusing
