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
from dovetail.controllers.batching import Batcher
from dovetail.controllers.capacitybuffer import Buffers
from dovetail.controllers.disruption import Disruption
from dovetail.controllers.driftgate import DriftGate
from dovetail.controllers.moves import Moves
from dovetail.controllers.node.deletioncost import DeletionCosts
from dovetail.controllers.node.eviction import EvictionQueue
from dovetail.controllers.node.health import Health
from dovetail.controllers.node.hydration import NodeHydration
from dovetail.controllers.node.termination import Termination, Volumes
from dovetail.controllers.nodeclaim.consistency import Consistency
from dovetail.controllers.nodeclaim.devices import slices_wake
from dovetail.controllers.nodeclaim.disruption import DisruptionConditions
from dovetail.controllers.nodeclaim.expiration import Expiration
from dovetail.controllers.nodeclaim.finalization import Finalization
from dovetail.controllers.nodeclaim.garbage import Garbage
from dovetail.controllers.nodeclaim.ghosts import Ghosts
from dovetail.controllers.nodeclaim.hydration import Hydration
from dovetail.controllers.nodeclaim.initialization import Initialization
from dovetail.controllers.nodeclaim.launch import Launch
from dovetail.controllers.nodeclaim.lifecycle import Lifecycle
from dovetail.controllers.nodeclaim.liveness import Liveness
from dovetail.controllers.nodeclaim.orphans import Orphans
from dovetail.controllers.nodeclaim.podevents import PodEvents
from dovetail.controllers.nodeclaim.registration import Registration
from dovetail.controllers.nodeoverlay import NodeOverlays, OverlaidCloud
from dovetail.controllers.nodepool.counter import Counter
from dovetail.controllers.nodepool.hash import Hash
from dovetail.controllers.nodepool.health import RegistrationHealth
from dovetail.controllers.nodepool.readiness import Readiness
from dovetail.controllers.nodepool.registrationhealth import HealthReset
from dovetail.controllers.nodepool.validation import Validation
from dovetail.controllers.observing.costs import Pricing
from dovetail.controllers.observing.pods import PodMetrics
from dovetail.controllers.observing.status import StatusMetrics
from dovetail.controllers.orchestration import Orchestration
from dovetail.controllers.owning import Ownership
from dovetail.controllers.provisioning import Provisioning
from dovetail.controllers.setbacks import LostReplacements
from dovetail.controllers.static import StaticDeprovisioning, StaticProvisioning
from dovetail.controllers.zonal.gates import Gates
from dovetail.disruption.churn import from_settings
from dovetail.metrics import CONDITION_BUCKETS, PROMETHEUS_BUCKETS
from dovetail.ports import Clock, Cloud, Compute, Kube, Recorder
from dovetail.scheduling.device_records import ResourceSlice
from dovetail.scheduling.snapshot import Options
from dovetail.settings import Settings
from dovetail.state import Capture, Cluster

__all__ = ["Parts", "controllers"]


@dataclass(frozen=True, slots=True)
class Parts:
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
    volumes: Volumes
    # None while devices are not asked for.
    slices: Cache[ResourceSlice] | None
    pools: Cache[NodePool]
    classes: Cache[Object]
    class_kind: type[Object]
    # None while their feature gates are off.
    overlays: Cache[NodeOverlay] | None
    buffers: Buffers | None
    ownership: Ownership
    options: Callable[[datetime], Options]
    # Zones that are shifted away; by default none ever is.
    gates: Gates | None = None


def controllers(parts: Parts) -> tuple[Controller, ...]:
    """Every controller of the process, the order of the list being the order of a reader's interest."""
    p, millicores = parts, parts.settings.cpu_requests
    health = RegistrationHealth(p.kube, p.pools, p.clock)
    provisioning = _provisioning(p)
    return (
        provisioning,
        _lifecycle(p, health),
        _expiration(p, millicores),
        Consistency(p.kube, p.claims, p.nodes, p.ownership, p.clock, p.recorder, millicores=millicores),
        PodEvents(p.kube, p.nodes, p.claims, p.ownership, p.clock),
        Garbage(p.kube, p.claims, p.nodes, p.cluster, p.cloud, p.ownership),
        Orphans(p.kube, p.cloud, p.claims, p.nodes, p.clock),
        Hydration(p.kube, p.claims, p.ownership, millicores=millicores),
        Ghosts(p.kube, p.cluster, p.clock),
        Hash(p.kube, p.pools, p.claims, p.ownership),
        Counter(p.kube, p.pools, p.cluster, p.ownership),
        Readiness(p.kube, p.pools, p.classes, p.class_kind, p.ownership, p.clock),
        HealthReset(p.kube, p.pools, p.classes, p.class_kind, p.ownership, health, p.clock),
        Validation(p.kube, p.pools, p.ownership, p.cloud.flavour, p.clock),
        *_endings(p, millicores),
        *_disruption(p, millicores),
        *_gated(p),
        *_observers(p, provisioning),
    )


def _gates(p: Parts) -> Gates:
    return p.gates if p.gates is not None else Gates(p.clock)


def _returned(p: Parts) -> Callable[[], frozenset[str]]:
    """Zones that are back and to be filled again, where that is wanted."""
    wanted = p.settings.zonal_shift_rebalance == "Gradual"
    return (lambda: _gates(p).returned) if wanted else frozenset


def _expiration(p: Parts, millicores: int) -> Expiration:
    put_off = _gates(p).put_off
    return Expiration(
        p.kube, p.claims, p.cluster, p.ownership, p.clock, put_off=put_off, millicores=millicores
    )


def _observers(p: Parts, provisioning: Provisioning) -> tuple[Controller, ...]:
    """Those who only count and tell."""
    prices, costs = Pricing(p.pools, p.cluster, p.ownership, p.cloud), DeletionCosts(p.recorder)
    if p.settings.disable_cluster_state_observability:
        return prices, costs
    each = p.settings.metrics_detail == "full"
    pods = PodMetrics(p.pods, p.cluster, provisioning.times, p.clock, each=each)
    return pods, prices, costs, *_statuses(p, each)


def _statuses(p: Parts, each: bool) -> Iterator[Controller]:
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


def _endings(p: Parts, millicores: int) -> tuple[Controller, ...]:
    """The end of a Node, and what leads to it."""
    evictions = EvictionQueue(p.kube, p.pods, p.nodes, p.claims, p.clock, p.recorder, millicores=millicores)
    termination = Termination(
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
    health = Health(
        p.kube,
        p.nodes,
        p.claims,
        p.cluster,
        p.ownership,
        p.cloud,
        p.clock,
        p.recorder,
        enabled=p.settings.feature_gates.node_repair,
        shifted=_gates(p).disruption,
        millicores=millicores,
    )
    return termination, evictions, health, NodeHydration(p.kube, p.nodes, p.claims, p.ownership)


def _disruption(p: Parts, millicores: int) -> tuple[Controller, ...]:
    """Everything that takes a node away by choice."""
    knobs = from_settings(p.settings)
    gate = DriftGate(p.kube, p.pools, p.clock, p.recorder, knobs)
    losses = LostReplacements(p.kube, p.pools, p.clock, p.recorder)
    orchestration = Orchestration(
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
    loop = Disruption(
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
        Moves(p.kube, p.pools, p.clock, knobs),
        gate,
        losses,
        spot_to_spot=p.settings.feature_gates.spot_to_spot_consolidation,
        virtual=p.buffers.virtual if p.buffers is not None else tuple,
        buffered=p.buffers.nodes if p.buffers is not None else frozenset,
        shifted=lambda: _gates(p).disrupted,
        returned=_returned(p),
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


def _gated(p: Parts) -> tuple[Controller, ...]:
    """Controllers that run only where their feature gate is on."""
    found: list[Controller] = []
    if p.settings.feature_gates.static_capacity:
        found += (
            StaticProvisioning(p.kube, p.pools, p.cluster, p.ownership, p.cloud),
            StaticDeprovisioning(p.kube, p.pools, p.cluster, p.ownership, p.clock),
        )
    if p.overlays is not None and isinstance(p.cloud, OverlaidCloud):
        found.append(NodeOverlays(p.kube, p.overlays, p.pools, p.class_kind, p.ownership, p.cloud, p.clock))
    if p.buffers is not None:
        found.append(p.buffers)
    return tuple(found)


def _provisioning(parts: Parts) -> Provisioning:
    settings = parts.settings
    idle, longest = settings.batch_idle_duration, settings.batch_max_duration
    return Provisioning(
        parts.kube,
        parts.cluster,
        parts.capture,
        parts.pools,
        parts.ownership,
        parts.cloud,
        parts.clock,
        parts.recorder,
        parts.compute,
        Batcher(parts.clock, idle.total_seconds(), longest.total_seconds()),
        parts.options,
        buffers=parts.buffers,
        away=lambda: _gates(parts).away,
    )


def _lifecycle(parts: Parts, health: RegistrationHealth) -> Lifecycle:
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
        on_new=launch.expect,
        also_woken_by=(slices_wake(parts.nodes, parts.claims),) if parts.slices is not None else (),
        millicores=millicores,
    )
