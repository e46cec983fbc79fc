"""The exact placer: one pod after another, each to the first place that takes it.

Karpenter: running nodes in order, then nodes of this run with the fewest pods, then a new node of the
first pool that can; a pod that fits nowhere gives up its preferences one by one, and failing that goes
back to the end of the queue for as long as others still find a place (scheduler.go).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from dovetail.api.pod import Pod
from dovetail.explain import Reason
from dovetail.scheduling import nodes
from dovetail.scheduling.devices import Devices, DeviceWay
from dovetail.scheduling.domains import Universe
from dovetail.scheduling.eligibility import batch_of
from dovetail.scheduling.limits import Limits
from dovetail.scheduling.outcome import plan_of
from dovetail.scheduling.places import Claim, Fit, Refusal, RunningNode
from dovetail.scheduling.plan import Plan
from dovetail.scheduling.remembered import new_run
from dovetail.scheduling.reserved import Reservations
from dovetail.scheduling.roster import RunningNodes
from dovetail.scheduling.shapes import Shape, Shapes
from dovetail.scheduling.snapshot import Snapshot
from dovetail.scheduling.templates import Template, dynamic_pools, soft_tainted, templates, uses_devices
from dovetail.scheduling.topology import Topology
from dovetail.scheduling.typetable import bits, table_for
from dovetail.scheduling.zones import waiting_by_zone

__all__ = ["Run", "place", "plan_run"]


def place(
    snapshot: Snapshot, order: Sequence[str] | None = None, should_stop: Callable[[], bool] | None = None
) -> Plan:
    """Decide every waiting pod, one by one.

    `order` puts the pods it names first, in that order; the others follow by size. `should_stop` is
    asked between pods; what is placed by then is kept.
    """
    return plan_run(Run(snapshot), order, should_stop)


def plan_run(run: Run, order: Sequence[str] | None, should_stop: Callable[[], bool] | None) -> Plan:
    """Place the batch of a run that has not begun, and say what came of it."""
    zones = {} if run.options.consolidating else waiting_by_zone(run, _in_order(run, order))
    run.place_all(order, should_stop)
    return replace(_finished(run, order, should_stop), zones=zones)


def _in_order(run: Run, order: Sequence[str] | None) -> Iterator[tuple[Shape, Sequence[Pod]]]:
    return ((run.shapes.of(pod), (pod,)) for pod in queue_order(run.batch, run.shapes, order))


def _finished(run: Run, order: Sequence[str] | None, should_stop: Callable[[], bool] | None) -> Plan:
    if not run.chose or run.timed_out:
        return plan_of(run)
    # What is cheapest for one pod need not be for those that follow: try the plain order as well.
    plain = Run(run.snapshot, thrifty=False)
    plain.place_all(order, should_stop)
    return plan_of(run) if plain.timed_out else min(plan_of(run), plan_of(plain), key=badness)


def badness(plan: Plan) -> tuple[int, float]:
    return len(plan.unschedulable) + len(plan.deferred), plan.price


class Run:
    """The state of one run: places, counts, what is left of limits, and who waits."""

    def __init__(self, snapshot: Snapshot, thrifty: bool = True) -> None:
        new_run(snapshot.nodes)
        self.thrifty = thrifty
        self.chose = False
        self.snapshot = snapshot
        self.options = snapshot.options
        self.pools = dynamic_pools(snapshot.pools)
        self.batch, self.ignored = batch_of(snapshot)
        self.shapes = Shapes(snapshot.storage, self.options, soft_tainted(self.pools))
        self.templates, self.problems = templates(snapshot, self.pools)
        well_known = self.options.flavour.well_known
        tables = [
            (pool.nodepool, table_for(snapshot.types(pool), well_known))
            for pool in self.pools
            if pool.catalog >= 0
        ]
        self.topology = Topology(snapshot, Universe(tables), frozenset(pod.full_name for pod in self.batch))
        self.reservations = Reservations(template.table for template in self.templates)
        self.limits = Limits((pool.nodepool for pool in self.pools), snapshot.nodes)
        self.running = RunningNodes(snapshot)
        self.nodes: Sequence[RunningNode] = self.running
        self.all_nodes = (1 << len(self.nodes)) - 1
        self.young, self.only_move = _held_back(snapshot, self.nodes)
        self.devices = None if self.options.ignore_dra else Devices(snapshot, self.nodes, self.batch)
        self.claims: list[Claim] = []
        self.open = Open()
        self.progress = 0
        self.failures: dict[str, Refusal] = {}
        self.homes: dict[str, tuple[Claim | RunningNode, Shape]] = {}
        self.timed_out = False

    @property
    def filled(self) -> Iterable[RunningNode]:
        """The running nodes that were given pods."""
        return self.running.filled()

    @property
    def refusing(self) -> Iterable[RunningNode]:
        """The running nodes whose refusals are told one by one."""
        return self.nodes

    def place_all(self, order: Sequence[str] | None, should_stop: Callable[[], bool] | None) -> None:
        if not self.pools:
            return
        queue = deque(queue_order(self.batch, self.shapes, order))
        for pod in queue:
            self.topology.constraints(self.shapes.of(pod))
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
            refusal = self.place(pod)
            if refusal is None:
                self.failures.pop(pod.full_name, None)
            else:
                self.failures[pod.full_name] = refusal
                queue.append(pod)
                noted[pod.full_name] = len(queue)

    def place(self, pod: Pod) -> Refusal | None:
        """Find a place for one pod, giving up preferences if need be; or say why there is none."""
        first = shape = self.shapes.of(pod)
        if shape.failed_at == self.progress:
            return self.failures_of(shape)
        if uses_devices(pod) and (self.devices is None or isinstance(self.devices.wanted(pod), str)):
            return Refusal(Reason.DEVICES)
        while True:
            refusal = self._try(pod, shape)
            if refusal is None:
                self.progress += 1
                return None
            further = None if refusal.reason is Reason.RESERVED else shape.relax()
            if further is None:
                first.failed_at, first.failure = self.progress, refusal
                return refusal
            shape = further

    @staticmethod
    def failures_of(shape: Shape) -> Refusal:
        failure = shape.failure
        assert isinstance(failure, Refusal)
        return failure

    def _try(self, pod: Pod, shape: Shape) -> Refusal | None:
        if shape.at_odds:
            return Refusal(Reason.LABELS)
        self.topology.constraints(shape)
        if self._on_running(pod, shape) or self._on_open(pod, shape):
            return None
        return self._on_new(pod, shape)

    def _on_running(self, pod: Pod, shape: Shape) -> bool:
        barred = self.young if pod.full_name in self.only_move else 0
        for i in bits(self.all_nodes & ~shape.closed_nodes & ~barred):
            node = self.nodes[i]
            found = node.offer(shape, self.topology)
            if isinstance(found, Refusal):
                if found.final:
                    shape.closed_nodes |= 1 << i
                continue
            if not self._devices_at(node, pod):
                continue
            node.take(shape, pod.full_name, found, self.topology)
            self.homes[pod.full_name] = node, shape
            return True
        return False

    def _devices_at(self, node: RunningNode, pod: Pod) -> bool:
        """Give the pod its devices on a running node, if it has claims and they can be met."""
        if self.devices is None or not uses_devices(pod):
            return True
        wanted = self.devices.wanted(pod)
        way = None if isinstance(wanted, str) else self.devices.at_node(node, wanted)
        if way is not None:
            self.devices.take(node.hostname, 0, way)
        return way is not None

    def _offer(
        self, claim: Claim, pod: Pod, shape: Shape, new: bool
    ) -> tuple[Fit | Refusal, DeviceWay | None]:
        """Whether a new node could take the pod, and how it would be given its devices."""
        if self.devices is None or not uses_devices(pod):
            return claim.offer(shape, self, new), None
        wanted = self.devices.wanted(pod)
        found: Fit | Refusal = Refusal(Reason.DEVICES)
        for way in self.devices.ways(claim, wanted) if not isinstance(wanted, str) else ():
            found = claim.offer(shape, self, new, way.within)
            if not isinstance(found, Refusal) or found.reason is Reason.RESERVED:
                return found, way
        return found, None

    def _on_open(self, pod: Pod, shape: Shape) -> bool:
        for claim in self.open.candidates(shape.closed_claims):
            found, way = self._offer(claim, pod, shape, new=False)
            if isinstance(found, Refusal):
                if found.final:
                    shape.closed_claims |= 1 << claim.index
                continue
            self._take(pod, shape, claim, found, way)
            self.open.grew(claim)
            return True
        return False

    def _on_new(self, pod: Pod, shape: Shape) -> Refusal | None:
        refusal = Refusal(Reason.NO_TYPES)
        for template in self.templates:
            claim = self.candidate(template)
            if isinstance(claim, Refusal):
                refusal = claim
                continue
            found, way = self._offer(claim, pod, shape, new=True)
            if not isinstance(found, Refusal):
                self._take(pod, shape, claim, found, way)
                self._opened(claim)
                return None
            refusal = found
            # Waiting for a reservation beats a lighter pool.
            if found.reason is Reason.RESERVED:
                break
        return refusal

    def choose(self, fits: Sequence[Fit], price: Callable[[Fit], float]) -> Fit:
        """Of equally good domains the cheapest, or simply the first."""
        if not self.thrifty:
            return fits[0]
        best = min(fits, key=price)
        self.chose = self.chose or best is not fits[0]
        return best

    def candidate(self, template: Template) -> Claim | Refusal:
        """A node of the pool that does not exist yet, as far as the pool's limits allow one."""
        if self.limits.exhausted(template.pool):
            return Refusal(Reason.LIMIT)
        types = self.limits.within(template.pool, template.table, template.types)
        return Claim(len(self.claims), template, types) if types else Refusal(Reason.LIMIT)

    def _opened(self, claim: Claim) -> None:
        self.claims.append(claim)
        self.open.add(claim)
        self.limits.open(claim.template.pool, claim.template.table, claim.types)

    def _take(self, pod: Pod, shape: Shape, claim: Claim, fit: Fit, way: DeviceWay | None) -> None:
        claim.take(shape, pod.full_name, fit, self)
        if self.devices is not None and way is not None:
            self.devices.take(claim.hostname, fit.types, way)
        self.homes[pod.full_name] = claim, shape


class Open:
    """The nodes of this run, fewest pods first.

    Karpenter sorts one list again and again, and keeps the order of equals: a claim that has just
    grown comes before those that already had as many pods, a new one after them.
    """

    def __init__(self) -> None:
        self._by_count: dict[int, deque[Claim]] = {}
        self._bits: dict[int, int] = {}

    def add(self, claim: Claim) -> None:
        self._put(claim, len(claim.pods), first=False)

    def grew(self, claim: Claim) -> None:
        before = len(claim.pods) - 1
        self._by_count[before].remove(claim)
        self._bits[before] &= ~(1 << claim.index)
        self._put(claim, len(claim.pods), first=True)

    def _put(self, claim: Claim, count: int, first: bool) -> None:
        bucket = self._by_count.setdefault(count, deque())
        (bucket.appendleft if first else bucket.append)(claim)
        self._bits[count] = self._bits.get(count, 0) | 1 << claim.index

    def candidates(self, closed: int) -> Iterable[Claim]:
        for count in sorted(self._by_count):
            if self._bits[count] & ~closed:
                yield from [claim for claim in self._by_count[count] if not closed >> claim.index & 1]


def _held_back(snapshot: Snapshot, running: Sequence[RunningNode]) -> tuple[int, frozenset[str]]:
    """Nodes too young to take pods that only move to save money, and those pods."""
    if not snapshot.options.consolidating:
        return 0, frozenset()
    pools = {pool.name: pool.nodepool for pool in snapshot.pools}
    now = snapshot.options.now
    young = sum(
        1 << node.index
        for node in running
        if nodes.too_young(node.state, pools.get(nodes.pool(node.state)), now)
    )
    return young, frozenset(pod.full_name for pod in snapshot.moving if pod.status.phase != "Pending")


def queue_order(batch: Iterable[Pod], shapes: Shapes, order: Sequence[str] | None = None) -> list[Pod]:
    """The largest pods first: by cpu, then memory, then age, then uid; those named in `order` before all."""
    named = {name: i for i, name in enumerate(order or ())}

    def key(pod: Pod) -> tuple[int, int, int, float, str, str]:
        requests = shapes.of(pod).requests
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
