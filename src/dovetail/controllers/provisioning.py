"""Turn pending pods into NodeClaims.

Woken once per burst of pods, it decides for all of them together. It launches nothing: a NodeClaim is
the order, and the lifecycle controllers fill it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf

from dovetail import metrics
from dovetail.api import conditions, predicates
from dovetail.api.bad_items import SetAside
from dovetail.api.conditions import NODE_REGISTRATION_HEALTHY
from dovetail.api.core import Node
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.api.taints import DISRUPTED, is_same_taint
from dovetail.controllers.base import (
    DONE,
    SINGLETON,
    Backoff,
    Result,
    Trigger,
    requeue_after,
    retry_refusals,
    run_all,
)
from dovetail.controllers.batching import TriggerBatcher
from dovetail.controllers.context import ControllerContext
from dovetail.controllers.ordering import NodeOrder, NodeOrdering
from dovetail.controllers.plan_messages import (
    log_plan,
    log_pools_not_ready,
    log_preferences,
    log_refused_claim,
    log_types_missing,
)
from dovetail.controllers.set_aside import SetAsideReporter
from dovetail.controllers.spend_guard import Offers
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.errors import Refused, describe_error, note_contained
from dovetail.history.drafts import of_plan, of_refused_order
from dovetail.history.record import RecordKind
from dovetail.logs import Changes
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.plan import Plan, PlannedNode
from dovetail.scheduling.model.snapshot import SchedulingOptions
from dovetail.scheduling.spend_caps import SpendCap
from dovetail.scheduling.spend_plan import read_priority
from dovetail.scheduling.zone_bound import defer_zone_bound_pods
from dovetail.state.pod_times import PodTimes

__all__ = ["Provisioner"]

SCHEDULING_SECONDS = metrics.histogram(
    "karpenter_scheduler_scheduling_duration_seconds", "How long deciding for a batch took.", ("controller",)
)
QUEUE_DEPTH = metrics.gauge(
    "karpenter_scheduler_queue_depth", "Pods of the batch being decided.", ("controller", "scheduling_id")
)
UNFINISHED = metrics.gauge(
    "karpenter_scheduler_unfinished_work_seconds",
    "For how long the batch being decided has been.",
    ("controller", "scheduling_id"),
)
IGNORED = metrics.gauge("karpenter_scheduler_ignored_pods_count", "Pods that were not considered.")
UNSCHEDULABLE = metrics.gauge(
    "karpenter_scheduler_unschedulable_pods_count", "Pods that are unschedulable.", ("controller",)
)
BY_ZONE = metrics.gauge(
    "karpenter_scheduler_pending_pods_by_effective_zone_count",
    "Pending pods, by the one zone they can run in; `flexible` for several, `none` for no zone.",
    ("controller", "zone"),
)
DECISION_SECONDS = metrics.histogram(
    "karpenter_pods_scheduling_decision_duration_seconds", "From first seeing a pod to deciding for it."
)
# While an order is open nothing new is decided; this is how soon we look again.
UNSYNCED_SECONDS = 0.25
RETRIGGER_SECONDS = 10.0
POD_VERDICTS = frozenset((RecordKind.POD_PLACED, RecordKind.POD_UNSCHEDULABLE))


class Provisioner:
    """One pass per burst: read the world, ask the engine, order what it says."""

    name = "provisioner"
    singleton = False
    concurrency = 1
    backoff = Backoff(first=1.0, last=10.0)

    def __init__(self, context: ControllerContext, batcher: TriggerBatcher) -> None:
        self._kube = context.kube
        self._cluster = context.cluster
        self._capture = context.capture
        self._pools = context.pools
        self._ownership = context.ownership
        self._cloud = context.cloud
        self._clock = context.clock
        self._recorder = context.recorder
        self._history = context.history
        self._compute = context.compute
        self._cache = context.cache
        self._batcher = batcher
        self._options = context.options
        self._buffers = context.buffers
        self._ordering = NodeOrdering(context, self._list_instance_types)
        self._spend = context.spend
        # Zones in which nothing can be bought because they are shifted away, names by id.
        self._gates = context.gates
        self._recording = context.recording
        # What the last plan was decided from, and its digest as soon as a record is to have it.
        self._decided, self._digest = Situation(), ""
        self.times = PodTimes()
        self._changes = Changes(context.clock.monotonic)
        self._bad = SetAsideReporter(context.recorder, context.clock, self.name)
        self._deciding_since: float | None = None
        UNFINISHED.labels(self.name, "").set_function(self._measure_unfinished)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(Pod, self._pod_wakes), Trigger(Node, self._node_wakes))

    def _pod_wakes(self, before: Pod | None, pod: Pod | None) -> Iterable[str]:
        if pod is None or not predicates.is_provisionable(pod):
            if pod is None and before is not None:
                self.times.forget_pod(before.full_name)
                self._history.forget_verdicts(f"pod/{before.full_name}")
            return ()
        self.times.record_seen(pod, self._clock.monotonic())
        self._batcher.trigger(pod.uid)
        return (SINGLETON,)

    def _node_wakes(self, before: Node | None, node: Node | None) -> Iterable[str]:
        if node is None or not any(is_same_taint(taint, DISRUPTED) for taint in node.spec.taints):
            return ()
        self._batcher.trigger(node.uid)
        return (SINGLETON,)

    def woken_by(self, add: Callable[[str], None]) -> Callable[[str], None]:
        """For another controller that wants a pass, such as when a buffer was resolved."""

        def wake(uid: str) -> None:
            self._batcher.trigger(uid)
            add(SINGLETON)

        return wake

    async def reconcile(self, key: str) -> Result:
        await self._batcher.wait()
        if not self._cluster.synced:
            # Half a cluster, or an order still open, looks like a shortage of nodes.
            self._retrigger_pods()
            return requeue_after(UNSYNCED_SECONDS)
        with retry_refusals():
            started = self._clock.monotonic()
            plan = await self.make_plan()
            self._show_zones(plan.zones if plan is not None else {})
            if plan is not None:
                log_preferences(self._cluster.pending, self._changes)
                log_plan(plan, self._clock.monotonic() - started, self._changes)
                self._report_plan(plan)
                self._bad.report_all(_list_unreported(plan))
                await run_all(self._try_order(node) for node in plan.new_nodes)
            if self._spend is not None:
                self._spend.note_held(plan.spend_held if plan is not None else {})
            if self._buffers is not None:
                await self._buffers.record_plan(plan or Plan())
        return self._requeue_pending()

    def _measure_unfinished(self) -> float:
        since = self._deciding_since
        return self._clock.monotonic() - since if since is not None else 0.0

    def _retrigger_pods(self) -> None:
        for pod in self._cluster.pending:
            self._batcher.trigger(pod.uid)

    def _requeue_pending(self) -> Result:
        """Pods that still wait are looked at again, in case what was in their way is gone."""
        if not self._cluster.pending:
            return DONE
        self._retrigger_pods()
        return requeue_after(RETRIGGER_SECONDS)

    async def make_plan(self) -> Plan | None:
        """What should be done now; None when no pod waits."""
        situation = await self.take_situation()
        snapshot, waiting = defer_zone_bound_pods(situation.snapshot, situation.closed_zones)
        count = len(snapshot.pods) + len(snapshot.moving) + len(snapshot.virtual)
        if not count and not waiting:
            return None
        plan = await self._decide_plan(situation, count) if count else decide_plan(situation)
        self._decided, self._digest = situation, ""
        if self._recording is not None:
            self._recording.note_plan(situation, plan)
        return plan

    def _digest_decided(self) -> str:
        """The digest of what the last plan was decided from, for records of what is new in it."""
        if not self._digest:
            self._digest = self._history.digest_situation(self._decided)
        return self._digest

    async def take_situation(self) -> Situation:
        """Everything that buying nodes is decided from, as it is now."""
        offers = await self._list_offers()
        options = self._options(self._clock.now())
        virtual = self._buffers.list_virtual_pods() if self._buffers is not None else ()
        return Situation(
            snapshot=self._capture.take_snapshot(offers, options, virtual),
            excluded_zones=self._gates.disrupted,
            closed_zones=self._gates.excluded_zones,
            spend_caps=self._list_spend_caps(offers, options),
        )

    def _list_spend_caps(self, offers: Offers, options: SchedulingOptions) -> tuple[SpendCap, ...]:
        """What spend limits allow now; orders are checked again at the prices of these offers."""
        if self._spend is None:
            return ()
        self._spend.note_offers(offers, options)
        return self._spend.list_caps()

    async def _decide_plan(self, situation: Situation, count: int) -> Plan:
        started = self._deciding_since = self._clock.monotonic()
        depth = QUEUE_DEPTH.labels(self.name, "")
        depth.set(count)
        try:
            plan = await self._compute(decide_plan, situation, cache=self._cache)
        finally:
            self._deciding_since = None
            depth.set(0)
        SCHEDULING_SECONDS.labels(self.name).observe(self._clock.monotonic() - started)
        return plan

    async def _list_offers(self) -> list[tuple[NodePool, tuple[InstanceType, ...]]]:
        """Pools that may grow, the heaviest first, with what each could buy."""
        usable = [pool for pool in self._pools if self._is_usable(pool)]
        log_pools_not_ready(filter(self._ownership.owns_pool, self._pools), len(usable), self._changes)
        usable.sort(key=lambda pool: pool.name, reverse=True)
        usable.sort(key=lambda pool: pool.spec.weight or 0, reverse=True)
        return [(pool, await self._list_instance_types(pool)) for pool in usable]

    async def _list_instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        try:
            types = await self._cloud.list_instance_types(pool)
        except Exception as error:  # noqa: BLE001 - one pool must not keep the others from growing
            # A pool whose types cannot be listed now still stands in line; it just has nothing to offer.
            note_contained(error)
            log_types_missing(pool, error, self._changes)
            return ()
        if not types:
            log_types_missing(pool, None, self._changes)
        return types

    def _is_usable(self, pool: NodePool) -> bool:
        return (
            self._ownership.owns_pool(pool)
            and not pool.static
            and not pool.deleting
            and conditions.is_true(pool, conditions.READY)
        )

    def _report_plan(self, plan: Plan) -> None:
        self._record_decisions(plan)
        IGNORED.set(len(plan.ignored))
        UNSCHEDULABLE.labels(self.name).set(len(plan.unschedulable))
        for name, why in plan.pool_problems.items():
            pool = self._pools.get(name)
            if pool is not None:
                self._recorder.publish_event(
                    pool, "NoCompatibleInstanceTypes", why, warning=True, dedupe=(pool.uid,), window=60
                )
        pods = {pod.full_name: pod for pod in self._cluster.pending}
        for name, why in (*plan.unschedulable.items(), *plan.ignored.items(), *_list_spend_held(plan)):
            if name in pods and why:
                self._tell_unschedulable(pods[name], why)
        for node_name, names in plan.existing.items():
            if self._list_real_pods(names):
                self._ordering.nominate_node(node_name, [pods[name] for name in names if name in pods])

    def _tell_unschedulable(self, pod: Pod, why: str) -> None:
        note = f"Failed to schedule pod, {why}"
        self._recorder.publish_event(
            pod, "FailedScheduling", note, warning=True, dedupe=(pod.uid,), window=300
        )

    def _show_zones(self, zones: Mapping[str, int]) -> None:
        BY_ZONE.clear()
        for zone, number in zones.items():
            BY_ZONE.labels(self.name, zone).set(number)

    def _record_decisions(self, plan: Plan) -> None:
        """Keep when it was decided for each pod, and note what is new about its place."""
        now = self._clock.monotonic()
        healthy = {pool.name for pool in self._pools if conditions.is_true(pool, NODE_REGISTRATION_HEALTHY)}
        proven = {pod for node in plan.new_nodes if node.pool in healthy for pod in node.pods}
        real = set(self._list_real_pods(decision.pod for decision in plan.decisions))
        for decision in plan.decisions:
            if decision.pod not in real:
                continue
            placed = decision.place is not None
            waited = self.times.record_decision(
                decision.pod, now, placed=placed, healthy=decision.pod in proven
            )
            if waited is not None:
                DECISION_SECONDS.observe(waited)
        if self._history.recording:
            found = of_plan(plan, self._history.verdicts, self._map_claims(plan.existing))
            verdicts = [each for each in found if each.draft.subject.removeprefix("pod/") in real]
            self._history.note_verdicts(verdicts, self._digest_decided() if verdicts else "")

    def _map_claims(self, places: Iterable[str]) -> dict[str, str]:
        """The NodeClaim of each node."""
        found = ((place, self._cluster.find_by_node(place)) for place in places)
        return {place: each.claim.name for place, each in found if each and each.claim is not None}

    async def _try_order(self, node: PlannedNode) -> None:
        """Order a node. One that is refused is told to its pods, and no other waits for it."""
        try:
            await self._order_node(node)
        except Refused as error:
            log_refused_claim(node, error, self._changes)
            pods = {pod.full_name: pod for pod in self._cluster.pending}
            self._history.note_verdicts(of_refused_order(node, describe_error(error)), self._digest_decided())
            for name in node.pods:
                if name in pods:
                    self._tell_unschedulable(pods[name], describe_error(error))

    async def _order_node(self, node: PlannedNode) -> None:
        grace = self._options(self._clock.now()).default_termination_grace_period
        promised = self._list_real_pods(node.pods)
        cause = self._find_cause(promised)
        pods = {pod.full_name: pod for pod in self._cluster.pending}
        order = NodeOrder(
            node,
            pods=promised,
            grace=grace,
            cause=cause,
            situation=self._digest_decided(),
            priority=max((read_priority(pods[n]) for n in node.pods if n in pods), default=-inf),
        )
        claim = await self._ordering.order_node(order)
        pods = {pod.full_name: pod for pod in self._cluster.pending}
        self._ordering.tell_ordered((pods[n] for n in node.pods if n in pods), claim.name)

    def _find_cause(self, pods: Iterable[str]) -> str:
        """The record that says that the first of these pods is unschedulable, if it was for long enough."""
        found = next((self._history.find_record(pod, POD_VERDICTS) for pod in pods), None)
        return found.id if found is not None and found.kind is RecordKind.POD_UNSCHEDULABLE else ""

    def _list_real_pods(self, names: Iterable[str]) -> list[str]:
        """The pods among these that exist; room kept for a buffer is nobody's."""
        virtual = (
            {pod.full_name for pod in self._buffers.list_virtual_pods()} if self._buffers is not None else ()
        )
        return [name for name in names if name not in virtual]


def _list_spend_held(plan: Plan) -> Iterator[tuple[str, str]]:
    """The pods that spend limits hold, and why; those that a limit only warns of have their place."""
    names = (name for held in plan.spend_held.values() for name in held)
    return ((name, plan.deferred[name]) for name in names if name in plan.deferred)


def _list_unreported(plan: Plan) -> Iterator[SetAside]:
    """The bad items; a pod that waits is told so with the others that do."""
    return (each for each in plan.set_aside if f"{each.namespace}/{each.name}" not in plan.unschedulable)
