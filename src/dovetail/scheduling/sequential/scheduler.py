"""The sequential scheduler: one pod after another, each to the first place that takes it.

Karpenter: running nodes in order, then nodes of this run with the fewest pods, then a new node of the
first pool that can; a pod that is unschedulable gives up its preferences one by one, and failing that goes
back to the end of the queue for as long as others still find a place (scheduler.go).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from dovetail.api.labels import HOSTNAME
from dovetail.api.pod import Pod
from dovetail.scheduling.model import state_node
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.instance_type_table import TypeTableCache, build_mask, iterate_bits
from dovetail.scheduling.model.nodeclaim_template import (
    NodeClaimTemplate,
    build_templates,
    has_soft_taints,
    list_dynamic_pools,
    uses_devices,
)
from dovetail.scheduling.model.nodepool_limits import NodePoolLimits
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.model.pod_shapes import SchedulingShape, SchedulingShapes
from dovetail.scheduling.model.reasons import Reason
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.sequential.device_allocation import DeviceAllocator, DeviceOption
from dovetail.scheduling.sequential.device_search import DeviceSelectorCache
from dovetail.scheduling.sequential.existing_nodes import ExistingNodes
from dovetail.scheduling.sequential.nodes import ExistingNode, Fit, NewNode, NoFit
from dovetail.scheduling.sequential.pending_pods import list_pods_to_schedule
from dovetail.scheduling.sequential.reservations import ReservationManager
from dovetail.scheduling.topology.domains import TopologyDomains
from dovetail.scheduling.topology.tracker import Topology

__all__ = ["SequentialScheduler", "sort_queue"]


class SequentialScheduler:
    """The state of one run: places, counts, what is left of limits, and who waits.

    Whoever runs again and again hands in a cache; a run without one has its own.
    """

    def __init__(self, snapshot: Snapshot, thrifty: bool = True, cache: DecisionCache | None = None) -> None:
        self.cache = DecisionCache() if cache is None else cache
        self.cache.begin_run(snapshot.nodes)
        self.thrifty = thrifty
        self.chose = False
        self.snapshot = snapshot
        self.options = snapshot.options
        self.pools = list_dynamic_pools(snapshot.pools)
        waiting, self.ignored = list_pods_to_schedule(snapshot)
        self.batch = list(waiting.values())
        self.shapes = SchedulingShapes(snapshot.storage, self.options, has_soft_taints(self.pools))
        known = self.cache.get_part(TypeTableCache)
        self.templates, self.problems = build_templates(snapshot, self.pools, known)
        well_known = self.options.flavour.well_known
        tables = [
            (pool.nodepool, known.find_table(snapshot.list_types(pool), well_known))
            for pool in self.pools
            if pool.catalog >= 0
        ]
        self.topology = Topology(snapshot, TopologyDomains(tables), waiting.keys(), self.cache)
        self.reservations = ReservationManager(template.table for template in self.templates)
        self.limits = NodePoolLimits((pool.nodepool for pool in self.pools), snapshot.nodes)
        self.running = ExistingNodes(snapshot, self.cache)
        self.nodes: Sequence[ExistingNode] = self.running
        self.all_nodes = (1 << len(self.nodes)) - 1
        self.young, self.only_move = _find_young_nodes(snapshot, self.nodes)
        self.devices = (
            None
            if self.options.ignore_dra
            else DeviceAllocator(snapshot, self.nodes, self.batch, self.cache.get_part(DeviceSelectorCache))
        )
        self.new_nodes: list[NewNode] = []
        self.inflight = InflightNodes()
        self.progress = 0
        self.failures: dict[str, NoFit] = {}
        self.placements: dict[str, tuple[NewNode | ExistingNode, SchedulingShape]] = {}
        self.timed_out = False

    @property
    def filled(self) -> Iterable[ExistingNode]:
        """The running nodes that were given pods."""
        return self.running.list_filled()

    @property
    def refusing(self) -> Iterable[ExistingNode]:
        """The running nodes whose refusals are told one by one."""
        return self.nodes

    def schedule_all(self, order: Sequence[str] | None, should_stop: Callable[[], bool] | None) -> None:
        if not self.pools:
            return
        queue = deque(sort_queue(self.batch, self.shapes, order))
        for pod in queue:
            self.topology.find_constraints(self.shapes.find_shape(pod))
        noted: dict[str, int] = {}
        while queue:
            if should_stop is not None and should_stop():
                self.timed_out = True
                return
            pod = queue[0]
            # A full turn without anybody finding a place: nobody will.
            if noted.get(pod.full_name) == len(queue):
                return
            queue.popleft()
            refusal = self.schedule_pod(pod)
            if refusal is None:
                self.failures.pop(pod.full_name, None)
            else:
                self.failures[pod.full_name] = refusal
                queue.append(pod)
                noted[pod.full_name] = len(queue)

    def schedule_pod(self, pod: Pod) -> NoFit | None:
        """Find a place for one pod, giving up preferences if need be; or say why there is none."""
        first = shape = self.shapes.find_shape(pod)
        if shape.failed_at == self.progress:
            return self.read_failure(shape)
        if uses_devices(pod) and (self.devices is None or isinstance(self.devices.list_claims(pod), str)):
            return NoFit(Reason.DEVICES)
        while True:
            refusal = self._try_shape(pod, shape)
            if refusal is None:
                self.progress += 1
                return None
            further = None if refusal.reason is Reason.RESERVED else shape.relax()
            if further is None:
                first.failed_at, first.failure = self.progress, refusal
                return refusal
            shape = further

    @staticmethod
    def read_failure(shape: SchedulingShape) -> NoFit:
        failure = shape.failure
        assert isinstance(failure, NoFit)
        return failure

    def _try_shape(self, pod: Pod, shape: SchedulingShape) -> NoFit | None:
        if shape.at_odds:
            return NoFit(Reason.LABELS)
        self.topology.find_constraints(shape)
        if self._add_to_existing_node(pod, shape) or self._add_to_inflight_node(pod, shape):
            return None
        return self._add_to_new_node(pod, shape)

    def _add_to_existing_node(self, pod: Pod, shape: SchedulingShape) -> bool:
        barred = self.young if pod.full_name in self.only_move else 0
        for i in iterate_bits(self.all_nodes & ~shape.closed_nodes & ~barred):
            node = self.nodes[i]
            found = node.check_fit(shape, self.topology)
            if isinstance(found, NoFit):
                if found.final:
                    shape.closed_nodes |= 1 << i
                continue
            if not self._take_devices(node, pod):
                continue
            node.add_pod(shape, pod.full_name, found, self.topology)
            self.placements[pod.full_name] = node, shape
            return True
        return False

    def _take_devices(self, node: ExistingNode, pod: Pod) -> bool:
        """Give the pod its devices on a running node, if it has claims and they can be met."""
        if self.devices is None or not uses_devices(pod):
            return True
        wanted = self.devices.list_claims(pod)
        option = None if isinstance(wanted, str) else self.devices.find_option_on_node(node, wanted)
        if option is not None:
            self.devices.take_devices(node.hostname, 0, option)
        return option is not None

    def _check_new_node(
        self, claim: NewNode, pod: Pod, shape: SchedulingShape, new: bool
    ) -> tuple[Fit | NoFit, DeviceOption | None]:
        """Whether a new node could take the pod, and how it would be given its devices."""
        if self.devices is None or not uses_devices(pod):
            return claim.check_fit(shape, self, new), None
        wanted = self.devices.list_claims(pod)
        found: Fit | NoFit = NoFit(Reason.DEVICES)
        for option in self.devices.list_options(claim, wanted) if not isinstance(wanted, str) else ():
            found = claim.check_fit(shape, self, new, option.within)
            if not isinstance(found, NoFit) or found.reason is Reason.RESERVED:
                return found, option
        return found, None

    def _add_to_inflight_node(self, pod: Pod, shape: SchedulingShape) -> bool:
        for claim in self.inflight.list_candidates(shape.closed_new_nodes):
            found, option = self._check_new_node(claim, pod, shape, new=False)
            if isinstance(found, NoFit):
                if found.final:
                    shape.closed_new_nodes |= 1 << claim.index
                continue
            self._add_pod(pod, shape, claim, found, option)
            self.inflight.record_growth(claim)
            return True
        return False

    def _add_to_new_node(self, pod: Pod, shape: SchedulingShape) -> NoFit | None:
        refusal = NoFit(Reason.NO_TYPES)
        for template in self.templates:
            claim = self.build_new_node(template)
            if isinstance(claim, NoFit):
                refusal = claim
                continue
            found, option = self._check_new_node(claim, pod, shape, new=True)
            if not isinstance(found, NoFit):
                self._add_pod(pod, shape, claim, found, option)
                self._record_new_node(claim)
                return None
            refusal = found
            # Waiting for a reservation beats a lighter pool.
            if found.reason is Reason.RESERVED:
                break
        return refusal

    def choose_fit(self, fits: Sequence[Fit], price: Callable[[Fit], float]) -> Fit:
        """Of equally good domains the cheapest, or simply the first."""
        if not self.thrifty:
            return fits[0]
        best = min(fits, key=price)
        self.chose = self.chose or best is not fits[0]
        return best

    def build_new_node(self, template: NodeClaimTemplate) -> NewNode | NoFit:
        """A node of the pool that does not exist yet, as far as the pool's limits allow one."""
        if self.limits.is_exhausted(template.pool):
            return NoFit(Reason.LIMIT)
        types = self.limits.filter_types(template.pool, template.table, template.types)
        return NewNode(len(self.new_nodes), template, types) if types else NoFit(Reason.LIMIT)

    def open_node(self, planned: PlannedNode, pods: Iterable[Pod]) -> None:
        """Make a node as it was planned before and put these pods there, as far as it still takes them."""
        template = next(each for each in self.templates if each.pool == planned.pool)
        index = template.table.index
        types = build_mask((index[name] for name in planned.instance_types), len(template.table.types))
        claim = NewNode(len(self.new_nodes), template, types & template.types)
        host = claim.requirements[HOSTNAME]
        claim.requirements = planned.requirements.replace_key(HOSTNAME, host)
        for pod in pods:
            shape: SchedulingShape | None = self.shapes.find_shape(pod)
            while shape is not None:
                self.topology.find_constraints(shape)
                found, option = self._check_new_node(claim, pod, shape, new=not claim.pods)
                if not isinstance(found, NoFit):
                    self._add_pod(pod, shape, claim, found, option)
                    break
                shape = shape.relax()
        if claim.pods:
            self._record_new_node(claim)
            self.progress += 1

    def _record_new_node(self, claim: NewNode) -> None:
        self.new_nodes.append(claim)
        self.inflight.add(claim)
        self.limits.charge_new_node(claim.template.pool, claim.template.table, claim.types)

    def _add_pod(
        self, pod: Pod, shape: SchedulingShape, claim: NewNode, fit: Fit, option: DeviceOption | None
    ) -> None:
        claim.add_pod(shape, pod.full_name, fit, self)
        if self.devices is not None and option is not None:
            self.devices.take_devices(claim.hostname, fit.types, option)
        self.placements[pod.full_name] = claim, shape


class InflightNodes:
    """The nodes of this run, fewest pods first.

    Karpenter sorts one list again and again, and keeps the order of equals: a claim that has just
    grown comes before those that already had as many pods, a new one after them.
    """

    def __init__(self) -> None:
        self._by_count: dict[int, deque[NewNode]] = {}
        self._bits: dict[int, int] = {}

    def add(self, claim: NewNode) -> None:
        self._put_node(claim, len(claim.pods), first=False)

    def record_growth(self, claim: NewNode) -> None:
        before = len(claim.pods) - 1
        self._by_count[before].remove(claim)
        self._bits[before] &= ~(1 << claim.index)
        self._put_node(claim, len(claim.pods), first=True)

    def _put_node(self, claim: NewNode, count: int, first: bool) -> None:
        bucket = self._by_count.setdefault(count, deque())
        (bucket.appendleft if first else bucket.append)(claim)
        self._bits[count] = self._bits.get(count, 0) | 1 << claim.index

    def list_candidates(self, closed: int) -> Iterable[NewNode]:
        for count in sorted(self._by_count):
            if self._bits[count] & ~closed:
                yield from [claim for claim in self._by_count[count] if not closed >> claim.index & 1]


def _find_young_nodes(snapshot: Snapshot, running: Sequence[ExistingNode]) -> tuple[int, frozenset[str]]:
    """Nodes too young to take pods that only move to save money, and those pods."""
    if not snapshot.options.consolidating:
        return 0, frozenset()
    pools = {pool.name: pool.nodepool for pool in snapshot.pools}
    now = snapshot.options.now
    young = sum(
        1 << node.index
        for node in running
        if state_node.is_too_young(node.state, pools.get(state_node.read_pool_name(node.state)), now)
    )
    return young, frozenset(pod.full_name for pod in snapshot.moving if pod.status.phase != "Pending")


def sort_queue(
    batch: Iterable[Pod], shapes: SchedulingShapes, order: Sequence[str] | None = None
) -> list[Pod]:
    """The largest pods first: by cpu, then memory, then age, then uid; those named in `order` before all."""
    named = {name: i for i, name in enumerate(order or ())}

    def key(pod: Pod) -> tuple[int, int, int, float, str, str]:
        requests = shapes.find_shape(pod).requests
        created = pod.metadata.creation_timestamp
        return (
            named.get(pod.full_name, len(named)),
            -requests.get("cpu", 0),
            -requests.get("memory", 0),
            created.timestamp() if created else 0.0,
            pod.uid,
            pod.full_name,
        )

    return sorted(batch, key=key)
