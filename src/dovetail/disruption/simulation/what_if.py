"""One question about the base state: without these nodes, where are their pods scheduled?

The sequential scheduler decides, with its own rules; only what it starts from is borrowed instead of built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

from dovetail.api.pod import Pod
from dovetail.disruption.simulation.base_state import BaseState
from dovetail.disruption.simulation.topology import WhatIfTopology
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model import volumes
from dovetail.scheduling.model.instance_type_table import iterate_bits
from dovetail.scheduling.model.nodepool_limits import NodePoolLimits
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.pod_shapes import SchedulingShape, SchedulingShapes
from dovetail.scheduling.model.reasons import Reason
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import SchedulingOptions, StateNode
from dovetail.scheduling.sequential.nodes import ExistingNode, NewNode, NoFit
from dovetail.scheduling.sequential.pending_pods import add_default_spread
from dovetail.scheduling.sequential.reservations import ReservationManager
from dovetail.scheduling.sequential.results import build_plan
from dovetail.scheduling.sequential.schedule import rank_plan
from dovetail.scheduling.sequential.scheduler import InflightNodes, SequentialScheduler

__all__ = ["WhatIfQuestion", "WhatIfScheduler", "answer_question"]


_ANY_WAY = (Requirements(),)


class WhatIfQuestion:
    """Which nodes are removed, which pods need a node, and under which options."""

    def __init__(
        self, candidates: Sequence[StateNode], pods: Sequence[Pod], options: SchedulingOptions
    ) -> None:
        self.removed_nodes = candidates
        self.pods = pods
        self.options = options


def answer_question(
    base: BaseState,
    question: WhatIfQuestion,
    order: Sequence[str],
    seen: list[WhatIfScheduler] | None = None,
    most: int | None = None,
) -> WhatIfScheduler:
    """The better of a thrifty run and a plain one, as the sequential scheduler does; `seen` gets both.

    A what-if that opens more new nodes than `most` goes no further: nobody has a use for it.
    """
    simulations = [WhatIfScheduler(base, question)]
    simulations[0].schedule_all(order, simulations[0].stop_after(most))
    if simulations[0].chose:
        simulations.append(WhatIfScheduler(base, question, thrifty=False))
        simulations[1].schedule_all(order, simulations[1].stop_after(most))
    if seen is not None:
        seen += simulations
    whole = [each for each in simulations if not each.timed_out] or simulations[:1]
    return whole[0] if len(whole) == 1 else min(whole, key=lambda each: rank_plan(each.plan))


class WhatIfScheduler(SequentialScheduler):
    """A run of the sequential scheduler over the base state, less the removed nodes."""

    def __init__(self, base: BaseState, question: WhatIfQuestion, thrifty: bool = True) -> None:
        self.base_state = base
        self.cache = base.cache
        self.thrifty = thrifty
        self.chose = False
        self.snapshot = base.snapshot
        self.options = question.options
        self.pools = base.pools
        self.batch, self.ignored = _build_batch(base, question.pods)
        self.shapes = _SharedShapes(base, question.options)
        self.templates, self.problems = base.templates, base.problems
        self.topology: WhatIfTopology = WhatIfTopology(base.topology, question.removed_nodes)
        self.reservations = ReservationManager(template.table for template in self.templates)
        self.limits = _build_limits(base, question.removed_nodes)
        self.all_nodes = base.mask_without(map(views.read_provider_id, question.removed_nodes))
        self.nodes = self._nodes = _Nodes(base, self.all_nodes)
        self.young, self.only_move = _find_young_nodes(base, question)
        self.devices = None
        self.new_nodes: list[NewNode] = []
        self.inflight = InflightNodes()
        self.progress = 0
        self.failures: dict[str, NoFit] = {}
        self.placements: dict[str, tuple[NewNode | ExistingNode, SchedulingShape]] = {}
        self.timed_out = False
        self._keys: dict[int, tuple[object, ...]] = {}
        # Nodes without room for a pod of some size by now: places only fill up, whatever else pods ask for.
        self._full: dict[frozenset[tuple[str, int]], int] = {}
        self._sizes: dict[int, frozenset[tuple[str, int]]] = {}
        self._plan: Plan | None = None

    def stop_after(self, most: int | None) -> Callable[[], bool] | None:
        """Whether more new nodes were opened than this; None where any number will do."""
        return None if most is None else lambda: len(self.new_nodes) > most

    @property
    def plan(self) -> Plan:
        if self._plan is None:
            self._plan = build_plan(self)
        return self._plan

    @property
    def filled(self) -> Iterable[ExistingNode]:
        return self._nodes.list_filled()

    @property
    def refusing(self) -> Iterable[ExistingNode]:
        """Nobody reads what each of thousands of nodes had against a pod that stays where it is."""
        return ()

    def _add_to_existing_node(self, pod: Pod, shape: SchedulingShape) -> bool:
        key = self._prime_shape(pod, shape)
        barred, size = self.young if pod.full_name in self.only_move else 0, self._sizes[id(shape)]
        full = self._full.get(size, 0)
        left, refusing = self.all_nodes & ~shape.closed_nodes & ~full & ~barred, 0
        while left:
            here = left & -left
            left ^= here
            node = self._nodes.find_node(here.bit_length() - 1)
            found = node.check_fit(shape, self.topology)
            if not isinstance(found, NoFit):
                node.add_pod(shape, pod.full_name, found, self.topology)
                self.placements[pod.full_name] = node, shape
                break
            if found.final:
                shape.closed_nodes |= here
                if found.reason is Reason.RESOURCES:
                    full |= here
                if found.group is None and not node.pods:
                    refusing |= here
            elif found.group is not None and shape.volume_topologies == _ANY_WAY:
                # The rules see nothing of a node but these labels, so the others need not be asked.
                left &= ~self.base_state.find_alike(node.index, {group.key for group, _ in shape.rules})
        self._full[size] = full
        self.base_state.record_refusals(key, refusing)
        return pod.full_name in self.placements

    def _prime_shape(self, pod: Pod, shape: SchedulingShape) -> tuple[object, ...]:
        """What is known of the shape; a shape seen for the first time in this what-if is told of it."""
        key = self._keys.get(id(shape))
        if key is None:
            key = self._keys[id(shape)] = (*self.shapes._build_key(pod), shape.gave_up)
            self._sizes[id(shape)] = frozenset(shape.requests.items())
            shape.closed_nodes |= self.base_state.find_closed(key, shape)
        return key


class _SharedShapes(SchedulingShapes):
    """The shapes of one what-if, numbered as in every other."""

    def __init__(self, base: BaseState, options: SchedulingOptions) -> None:
        super().__init__(base.snapshot.storage, options, base.soft_taints)
        self._specs, self._labels, self._statuses = base.specs, base.labels, base.statuses


class _Nodes(Sequence[ExistingNode]):
    """The nodes of the base state, each made when it is first looked at; `there` are those not removed."""

    def __init__(self, base: BaseState, there: int) -> None:
        self._base = base
        self._there = there
        self._made: dict[int, ExistingNode] = {}

    def __len__(self) -> int:
        return self._there.bit_count()

    def __iter__(self) -> Iterator[ExistingNode]:
        return map(self.find_node, iterate_bits(self._there))

    @overload
    def __getitem__(self, index: int) -> ExistingNode: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ExistingNode]: ...
    def __getitem__(self, index: int | slice) -> ExistingNode | Sequence[ExistingNode]:
        return list(self)[index]

    def find_node(self, place: int) -> ExistingNode:
        """The node at this place of the base state."""
        node = self._made.get(place)
        if node is None:
            node = self._made[place] = self._base.build_node(place)
        return node

    def list_filled(self) -> list[ExistingNode]:
        return [self._made[place] for place in sorted(self._made) if self._made[place].pods]


def _build_batch(base: BaseState, pods: Iterable[Pod]) -> tuple[list[Pod], dict[str, str]]:
    """The pods to schedule: the pending ones, and those of the removed nodes."""
    batch, ignored, snapshot = dict(base.batch), dict(base.ignored), base.snapshot
    for pod in pods:
        lost = volumes.describe_lost_claim(pod, snapshot.storage)
        if lost is None:
            batch.setdefault(pod.full_name, add_default_spread(pod, snapshot))
        else:
            ignored[pod.full_name] = lost
    return [batch[name] for name in sorted(batch)], ignored


def _build_limits(base: BaseState, candidates: Iterable[StateNode]) -> NodePoolLimits:
    """What NodePools may still buy once the removed nodes no longer count."""
    left = {pool: dict(amounts) for pool, amounts in base.limits.left.items()}
    for state in candidates:
        mine = left.get(views.read_pool_name(state))
        if mine and not views.is_deleting(state):
            used = views.read_capacity(state)
            for name in mine:
                mine[name] += used.get(name, 0)
    return NodePoolLimits.from_remaining(left)


def _find_young_nodes(base: BaseState, question: WhatIfQuestion) -> tuple[int, frozenset[str]]:
    """Nodes too young to take pods that only move to save money, and those pods."""
    if not question.options.consolidating:
        return 0, frozenset()
    moving = (*base.snapshot.moving, *question.pods)
    return base.young, frozenset(pod.full_name for pod in moving if pod.status.phase != "Pending")
