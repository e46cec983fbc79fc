"""What runs, and in what order: the one list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from dovetail.api import labels
from dovetail.api.buffers import CapacityBuffer
from dovetail.api.core import Node
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.pod import Pod
from dovetail.controllers.base import Cache, Controller
from dovetail.controllers.batching import TriggerBatcher
from dovetail.controllers.capacitybuffer import CapacityBuffers
from dovetail.controllers.disruption import DisruptionController
from dovetail.controllers.disruption_history import DisruptionHistory, DriftPausedConditions, LostReplacements
from dovetail.controllers.node.eviction import EvictionQueue
from dovetail.controllers.node.health import NodeHealth
from dovetail.controllers.node.termination import NodeTermination, TerminationVolumes
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
from dovetail.controllers.nodeoverlay import NodeOverlayController, OverlaidCloud
from dovetail.controllers.nodepool.counter import NodePoolCounter
from dovetail.controllers.nodepool.hash import NodePoolHash
from dovetail.controllers.nodepool.readiness import NodePoolReadiness, NodePoolValidation
from dovetail.controllers.nodepool.registrationhealth import RegistrationHealth, RegistrationHealthReset
from dovetail.controllers.observing.costs import NodePoolPricing
from dovetail.controllers.observing.pods import PodMetrics
from dovetail.controllers.observing.status import StatusMetrics
from dovetail.controllers.orchestration import DisruptionQueue
from dovetail.controllers.ordering import NodeOrdering
from dovetail.controllers.ownership import Ownership
from dovetail.controllers.provisioning import Provisioner
from dovetail.controllers.static import StaticDeprovisioning, StaticProvisioning
from dovetail.disruption.policy import read_default_annotations
from dovetail.metrics import CONDITION_BUCKETS, PROMETHEUS_BUCKETS
from dovetail.ports import Clock, Cloud, Compute, Kube, Recorder
from dovetail.scheduling.model.device_objects import ResourceSlice
from dovetail.scheduling.model.snapshot import SchedulingOptions
from dovetail.settings import Settings
from dovetail.state import Capture, Cluster
from dovetail.zonal.model.gates import ZoneGates

__all__ = ["ControllerContext", "build_controllers"]


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """Everything controllers are made of, already built."""

    settings: Settings
    kube: Kube
    cloud: Cloud
    clock: Clock
    recorder: Recorder
    compute: Compute
    cluster: Cluster
    capture: Capture
    pods: Cache[Pod]
    nodes: Cache[Node]
    claims: Cache[NodeClaim]
    volumes: TerminationVolumes
    # None while devices are not asked for.
    slices: Cache[ResourceSlice] | None
    pools: Cache[NodePool]
    classes: Cache[Object]
    class_kind: type[Object]
    # None while their feature gates are off.
    overlays: Cache[NodeOverlay] | None
    buffers: CapacityBuffers | None
    ownership: Ownership
    options: Callable[[datetime], SchedulingOptions]
    # Zones that are shifted away; by default none ever is.
    gates: ZoneGates | None = None


def build_controllers(parts: ControllerContext) -> tuple[Controller, ...]:
    """Every controller of the process, the order of the list being the order of a reader's interest."""
    p, millicores = parts, parts.settings.cpu_requests
    health = RegistrationHealth(p.kube, p.pools, p.clock)
    provisioning = _build_provisioner(p)
    return (
        provisioning,
        _build_lifecycle(p, health),
        _build_expiration(p, millicores),
        Consistency(p.kube, p.claims, p.nodes, p.ownership, p.clock, p.recorder, millicores=millicores),
        PodEvents(p.kube, p.nodes, p.claims, p.ownership, p.clock),
        NodeClaimGarbageCollection(p.kube, p.claims, p.nodes, p.cluster, p.cloud, p.ownership),
        InstanceGarbageCollection(p.kube, p.cloud, p.claims, p.nodes, p.clock),
        NodeClaimHydration(p.kube, p.claims, p.ownership, millicores=millicores),
        StateGarbageCollection(p.kube, p.cluster, p.clock),
        NodePoolHash(p.kube, p.pools, p.claims, p.ownership),
        NodePoolCounter(p.kube, p.pools, p.cluster, p.ownership),
        NodePoolReadiness(p.kube, p.pools, p.classes, p.class_kind, p.ownership, p.clock),
        RegistrationHealthReset(p.kube, p.pools, p.classes, p.class_kind, p.ownership, health, p.clock),
        NodePoolValidation(p.kube, p.pools, p.ownership, p.cloud.flavour, p.clock),
        *_build_termination_controllers(p, millicores),
        *_build_disruption_controllers(p, millicores),
        *_build_feature_controllers(p),
        *_build_observers(p, provisioning),
    )


def _get_zone_gates(p: ControllerContext) -> ZoneGates:
    return p.gates if p.gates is not None else ZoneGates(p.clock)


def _build_returned_zones(p: ControllerContext) -> Callable[[], frozenset[str]]:
    """Zones that are back and to be filled again, where that is wanted."""
    wanted = p.settings.zonal_policy.rebalance == "Gradual"
    return (lambda: _get_zone_gates(p).returned) if wanted else frozenset


def _build_expiration(p: ControllerContext, millicores: int) -> Expiration:
    put_off = _get_zone_gates(p).delay_for_shift
    return Expiration(
        p.kube, p.claims, p.cluster, p.ownership, p.clock, put_off=put_off, millicores=millicores
    )


def _build_observers(p: ControllerContext, provisioning: Provisioner) -> tuple[Controller, ...]:
    """Those who only count and tell."""
    prices, costs = NodePoolPricing(p.pools, p.cluster, p.ownership, p.cloud), DeletionCostEvents(p.recorder)
    if p.settings.disable_cluster_state_observability:
        return prices, costs
    each = p.settings.metrics_detail == "full"
    pods = PodMetrics(p.pods, p.cluster, provisioning.times, p.clock, each=each)
    return pods, prices, costs, *_build_status_metrics(p, each)


def _build_status_metrics(p: ControllerContext, each: bool) -> Iterator[Controller]:
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
        yield StatusMetrics(
            kind, objects, p.clock, p.recorder, keys, buckets=buckets, old=kind is not Node, each=each
        )


def _build_termination_controllers(p: ControllerContext, millicores: int) -> tuple[Controller, ...]:
    """The end of a Node, and what leads to it."""
    evictions = EvictionQueue(p.kube, p.pods, p.nodes, p.claims, p.clock, p.recorder, millicores=millicores)
    termination = NodeTermination(
        p.kube,
        p.nodes,
        p.claims,
        p.volumes,
        p.cluster,
        evictions,
        p.ownership,
        p.cloud,
        p.clock,
        p.recorder,
        millicores=millicores,
    )
    health = NodeHealth(
        p.kube,
        p.nodes,
        p.claims,
        p.cluster,
        p.ownership,
        p.cloud,
        p.clock,
        p.recorder,
        enabled=p.settings.feature_gates.node_repair,
        shifted=_get_zone_gates(p).is_disruption_closed,
        millicores=millicores,
    )
    return termination, evictions, health, NodeHydration(p.kube, p.nodes, p.claims, p.ownership)


def _build_disruption_controllers(p: ControllerContext, millicores: int) -> tuple[Controller, ...]:
    """Everything that takes a node away by choice."""
    knobs = read_default_annotations(p.settings)
    gate = DriftPausedConditions(p.kube, p.pools, p.clock, p.recorder, knobs)
    losses = LostReplacements(p.kube, p.pools, p.clock, p.recorder)
    orchestration = DisruptionQueue(
        p.kube,
        p.cluster,
        p.nodes,
        p.claims,
        p.pools,
        p.cloud,
        p.clock,
        p.recorder,
        gate,
        losses,
        millicores=millicores,
    )
    loop = DisruptionController(
        p.cluster,
        p.capture,
        p.pools,
        p.ownership,
        orchestration,
        p.cloud,
        p.clock,
        p.recorder,
        p.compute,
        p.options,
        DisruptionHistory(p.kube, p.pools, p.clock, knobs),
        gate,
        losses,
        spot_to_spot=p.settings.feature_gates.spot_to_spot_consolidation,
        virtual=p.buffers.list_virtual_pods if p.buffers is not None else tuple,
        buffered=p.buffers.list_nodes if p.buffers is not None else frozenset,
        shifted=lambda: _get_zone_gates(p).disrupted,
        returned=_build_returned_zones(p),
    )
    marks = DisruptionConditions(
        p.kube,
        p.claims,
        p.pools,
        p.class_kind,
        p.cluster,
        p.ownership,
        p.cloud,
        p.clock,
        millicores=millicores,
    )
    return loop, orchestration, marks


def _build_feature_controllers(p: ControllerContext) -> tuple[Controller, ...]:
    """Controllers that run only where their feature gate is on."""
    found: list[Controller] = []
    if p.settings.feature_gates.static_capacity:
        found += (
            StaticProvisioning(
                p.pools, p.cluster, p.ownership, NodeOrdering(p.kube, p.cluster, p.pools, p.cloud, p.recorder)
            ),
            StaticDeprovisioning(p.kube, p.pools, p.cluster, p.ownership, p.clock),
        )
    if p.overlays is not None and isinstance(p.cloud, OverlaidCloud):
        found.append(
            NodeOverlayController(p.kube, p.overlays, p.pools, p.class_kind, p.ownership, p.cloud, p.clock)
        )
    if p.buffers is not None:
        found.append(p.buffers)
    return tuple(found)


def _build_provisioner(parts: ControllerContext) -> Provisioner:
    settings = parts.settings
    idle, longest = settings.batch_idle_duration, settings.batch_max_duration
    return Provisioner(
        parts.kube,
        parts.cluster,
        parts.capture,
        parts.pools,
        parts.ownership,
        parts.cloud,
        parts.clock,
        parts.recorder,
        parts.compute,
        TriggerBatcher(parts.clock, idle.total_seconds(), longest.total_seconds()),
        parts.options,
        buffers=parts.buffers,
        away=lambda: _get_zone_gates(parts).excluded_zones,
    )


def _build_lifecycle(parts: ControllerContext, health: RegistrationHealth) -> Lifecycle:
    kube, clock, recorder = parts.kube, parts.clock, parts.recorder
    launch = Launch(kube, parts.cloud, clock, recorder)
    stages = (
        launch,
        Registration(kube, parts.nodes, parts.cloud, clock, recorder, health),
        Initialization(kube, parts.nodes, clock, parts.slices),
        Liveness(kube, clock, health),
    )
    finalization = Finalization(kube, parts.nodes, parts.cloud, clock, recorder)
    millicores = parts.settings.cpu_requests
    return Lifecycle(
        kube,
        parts.claims,
        parts.ownership,
        stages,
        finalization,
        clock,
        on_new=launch.expect_first_try,
        also_woken_by=(wake_on_slices(parts.nodes, parts.claims),) if parts.slices is not None else (),
        millicores=millicores,
    )
