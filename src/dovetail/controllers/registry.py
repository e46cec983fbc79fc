"""What runs, and in what order: the one list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from dovetail.api import labels
from dovetail.api.buffers import CapacityBuffer
from dovetail.api.core import Node
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import Cache, Controller
from dovetail.controllers.batching import TriggerBatcher
from dovetail.controllers.claim_history import ClaimHistory
from dovetail.controllers.command_records import CommandRecords
from dovetail.controllers.commitments import CommitmentController
from dovetail.controllers.context import ControllerContext
from dovetail.controllers.disruption import DisruptionController
from dovetail.controllers.disruption_history import DisruptionHistory, DriftPausedConditions, LostReplacements
from dovetail.controllers.node.eviction import EvictionQueue
from dovetail.controllers.node.health import NodeHealth
from dovetail.controllers.node.termination import NodeTermination
from dovetail.controllers.node.termination_events import DeletionCostEvents
from dovetail.controllers.nodeclaim.consistency import Consistency
from dovetail.controllers.nodeclaim.disruption import DisruptionConditions
from dovetail.controllers.nodeclaim.expiration import Expiration
from dovetail.controllers.nodeclaim.finalization import Finalization
from dovetail.controllers.nodeclaim.garbage_collection import (
    InstanceGarbageCollection,
    NodeClaimGarbageCollection,
    StateGarbageCollection,
)
from dovetail.controllers.nodeclaim.hydration import NodeClaimHydration, NodeHydration
from dovetail.controllers.nodeclaim.initialization import Initialization, wake_on_slices
from dovetail.controllers.nodeclaim.launch import Launch
from dovetail.controllers.nodeclaim.lifecycle import Lifecycle
from dovetail.controllers.nodeclaim.podevents import PodEvents
from dovetail.controllers.nodeclaim.registration import Liveness, Registration
from dovetail.controllers.nodeoverlay import NodeOverlayController
from dovetail.controllers.nodepool.counter import NodePoolCounter
from dovetail.controllers.nodepool.hash import NodePoolHash
from dovetail.controllers.nodepool.readiness import NodePoolReadiness, NodePoolValidation
from dovetail.controllers.nodepool.registrationhealth import RegistrationHealth, RegistrationHealthReset
from dovetail.controllers.observing.costs import NodePoolPricing
from dovetail.controllers.observing.pods import PodMetrics
from dovetail.controllers.observing.status import StatusDetail, StatusMetrics
from dovetail.controllers.orchestration import DisruptionQueue
from dovetail.controllers.ordering import NodeOrdering
from dovetail.controllers.provisioning import Provisioner
from dovetail.controllers.rule_prices import RulePricesController
from dovetail.controllers.spend import SpendLimitController
from dovetail.controllers.static import StaticDeprovisioning, StaticProvisioning
from dovetail.disruption.policy import read_default_annotations
from dovetail.metrics import CONDITION_BUCKETS, PROMETHEUS_BUCKETS

__all__ = ["ControllerSet", "GaugeReporter", "build_controllers"]


class ItemSource(Controller, Protocol):
    """A controller that gives its own queue keys."""

    def on_item(self, wake: Callable[[str], None]) -> None:
        """Whom to tell that a key has work: the `add` of this controller's queue."""


class GaugeReporter(Protocol):
    """One that counts only when somebody looks at the metrics."""

    def report(self) -> None:
        """Count now."""


@dataclass(frozen=True, slots=True)
class ControllerSet:
    """The controllers of the process; in `all` the order is the order of a reader's interest."""

    all: tuple[Controller, ...]
    provisioner: Provisioner
    disruption: DisruptionController
    item_sources: tuple[ItemSource, ...]
    reporters: tuple[GaugeReporter, ...]
    claim_history: ClaimHistory


def build_controllers(parts: ControllerContext) -> ControllerSet:
    """Every controller of the process, and who of them is wired to more than its triggers."""
    p, millicores = parts, parts.millicores
    health = RegistrationHealth(p.kube, p.pools, p.clock)
    provisioner = _build_provisioner(p)
    evictions, collected = EvictionQueue(p), StateGarbageCollection(p.kube, p.cluster, p.clock)
    gate = DriftPausedConditions(
        p.kube, p.pools, p.clock, p.recorder, p.history, read_default_annotations(p.settings)
    )
    losses = LostReplacements(p.kube, p.pools, p.clock, p.recorder)
    records = CommandRecords(p.history, p.clock)
    orchestration = DisruptionQueue(p, gate, losses, records)
    prices, costs = NodePoolPricing(p.pools, p.cluster, p.ownership, p.cloud), DeletionCostEvents(p.recorder)
    claim_history = ClaimHistory(p.history, p.clock, p.cluster, p.ownership, prices.find_price)
    pods, statuses = _build_observers(p, provisioner)
    disruption = _build_disruption_loop(p, orchestration, gate, losses, records)
    spends, commitments = _build_spend_status(p), _build_commitment_status(p)
    rule_prices = _build_rule_prices(p, disruption)
    controllers: tuple[Controller, ...] = (
        provisioner,
        _build_lifecycle(p, health),
        Expiration(p, millicores=millicores),
        Consistency(p.kube, p.claims, p.nodes, p.ownership, p.clock, p.recorder, millicores=millicores),
        PodEvents(p.kube, p.nodes, p.claims, p.ownership, p.clock),
        NodeClaimGarbageCollection(p.kube, p.claims, p.nodes, p.cluster, p.cloud, p.ownership, p.history),
        InstanceGarbageCollection(p.kube, p.cloud, p.nodes, p.clock, p.history),
        NodeClaimHydration(p.kube, p.claims, p.ownership, millicores=millicores),
        collected,
        NodePoolHash(p.kube, p.pools, p.claims, p.ownership),
        NodePoolCounter(p.kube, p.pools, p.cluster, p.ownership),
        NodePoolReadiness(p.kube, p.pools, p.classes, p.class_kind, p.ownership, p.clock),
        RegistrationHealthReset(p.kube, p.pools, p.classes, p.class_kind, p.ownership, health, p.clock),
        NodePoolValidation(p.kube, p.pools, p.ownership, p.cloud.flavour, p.clock),
        NodeTermination(p, evictions, claim_history),
        evictions,
        NodeHealth(p, enabled=p.settings.feature_gates.node_repair, shifted=p.gates.is_disruption_closed),
        NodeHydration(p.kube, p.nodes, p.claims, p.ownership),
        disruption,
        orchestration,
        DisruptionConditions(p),
        *_build_feature_controllers(p),
        *spends,
        *commitments,
        *rule_prices,
        *pods,
        prices,
        costs,
        *statuses,
    )
    return ControllerSet(
        controllers,
        provisioner,
        disruption,
        (evictions, orchestration, collected),
        (*pods, prices, *statuses, *spends, *commitments, *rule_prices),
        claim_history,
    )


def _build_returned_zones(p: ControllerContext) -> Callable[[], frozenset[str]]:
    """Zones that are back and to be filled again, where that is wanted."""
    wanted = p.settings.zonal_policy.rebalance == "Gradual"
    return (lambda: p.gates.returned) if wanted else frozenset


def _build_observers(
    p: ControllerContext, provisioner: Provisioner
) -> tuple[tuple[PodMetrics, ...], tuple[StatusMetrics, ...]]:
    """Those who only count pods and conditions, where that is wanted."""
    if p.settings.disable_cluster_state_observability:
        return (), ()
    each = p.settings.metrics_detail == "full"
    pods = PodMetrics(p.pods, p.cluster, provisioner.times, p.clock, each=each)
    return (pods,), tuple(_build_status_metrics(p, each))


def _build_status_metrics(p: ControllerContext, each: bool) -> Iterator[StatusMetrics]:
    """One for each kind that has conditions."""
    node_class = labels.nodeclass_label(p.class_kind.KIND.group, p.class_kind.KIND.kind)
    extras = (node_class, labels.NODEPOOL)
    watched: list[tuple[type[Object], Cache[Object], tuple[str, ...]]] = [
        (NodeClaim, p.claims, extras),
        (NodePool, p.pools, ()),
        (Node, p.nodes, (*extras, labels.INITIALIZED)),
        (p.class_kind, p.classes, ()),
    ]
    if p.buffers is not None:
        watched.append((CapacityBuffer, p.buffers.objects, ()))
    for kind, objects, keys in watched:
        # Upstream counts the conditions of its node classes by other bounds than those of the rest.
        buckets = PROMETHEUS_BUCKETS if kind is p.class_kind else CONDITION_BUCKETS
        detail = StatusDetail(keys, buckets, old=kind is not Node, each=each)
        yield StatusMetrics(kind, objects, p.clock, p.recorder, detail)


def _build_disruption_loop(
    p: ControllerContext,
    orchestration: DisruptionQueue,
    gate: DriftPausedConditions,
    losses: LostReplacements,
    records: CommandRecords,
) -> DisruptionController:
    history = DisruptionHistory(p.kube, p.pools, p.clock, read_default_annotations(p.settings))
    returned = _build_returned_zones(p)
    return DisruptionController(p, orchestration, history, gate, losses, records, returned=returned)


def _build_feature_controllers(p: ControllerContext) -> tuple[Controller, ...]:
    """Controllers that run only where their feature gate is on."""
    found: list[Controller] = []
    if p.settings.feature_gates.static_capacity:
        found += (
            StaticProvisioning(
                p.pools,
                p.cluster,
                p.ownership,
                NodeOrdering(p),
            ),
            StaticDeprovisioning(p.kube, p.pools, p.cluster, p.ownership, p.clock, p.history),
        )
    if p.overlays is not None and p.overlaid is not None:
        found.append(
            NodeOverlayController(p.kube, p.overlays, p.pools, p.class_kind, p.ownership, p.overlaid, p.clock)
        )
    if p.buffers is not None:
        found.append(p.buffers)
    return tuple(found)


def _build_spend_status(p: ControllerContext) -> tuple[SpendLimitController, ...]:
    """Who writes the status of SpendLimits, where these are followed."""
    if p.spend is None or p.spend_limits is None:
        return ()
    return (SpendLimitController(p, p.spend, p.spend_limits),)


def _build_commitment_status(p: ControllerContext) -> tuple[CommitmentController, ...]:
    """Who writes the status of Commitments, where these are counted."""
    return () if p.commitments is None else (CommitmentController(p, p.commitments),)


def _build_rule_prices(
    p: ControllerContext, disruption: DisruptionController
) -> tuple[RulePricesController, ...]:
    """Who says what rules cost, where that is asked for."""
    if not p.settings.rule_prices:
        return ()
    return (RulePricesController(p, disruption.take_situation),)


def _build_provisioner(parts: ControllerContext) -> Provisioner:
    settings = parts.settings
    idle, longest = settings.batch_idle_duration, settings.batch_max_duration
    return Provisioner(parts, TriggerBatcher(parts.clock, idle.total_seconds(), longest.total_seconds()))


def _build_lifecycle(parts: ControllerContext, health: RegistrationHealth) -> Lifecycle:
    kube, clock, recorder = parts.kube, parts.clock, parts.recorder
    launch = Launch(kube, parts.cloud, clock, recorder, parts.history)
    stages = (
        launch,
        Registration(kube, parts.nodes, parts.cloud, clock, recorder, health),
        Initialization(kube, parts.nodes, clock, parts.slices),
        Liveness(kube, clock, health, parts.history),
    )
    finalization = Finalization(kube, parts.nodes, parts.cloud, clock, recorder)
    return Lifecycle(
        parts,
        stages,
        finalization,
        on_new=launch.expect_first_try,
        also_woken_by=(wake_on_slices(parts.nodes, parts.claims),) if parts.slices is not None else (),
    )
