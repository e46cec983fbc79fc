"""What runs, and in what order: the one list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from dovetail.api.core import Node
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import Cache, Controller
from dovetail.controllers.batching import Batcher
from dovetail.controllers.nodeclaim.finalization import Finalization
from dovetail.controllers.nodeclaim.initialization import Initialization
from dovetail.controllers.nodeclaim.launch import Launch
from dovetail.controllers.nodeclaim.lifecycle import Lifecycle
from dovetail.controllers.nodeclaim.liveness import Liveness
from dovetail.controllers.nodeclaim.registration import Registration
from dovetail.controllers.nodepool.counter import Counter
from dovetail.controllers.nodepool.hash import Hash
from dovetail.controllers.nodepool.health import RegistrationHealth
from dovetail.controllers.nodepool.readiness import Readiness
from dovetail.controllers.nodepool.validation import Validation
from dovetail.controllers.owning import Ownership
from dovetail.controllers.provisioning import Provisioning
from dovetail.ports import Clock, Cloud, Compute, Kube, Recorder
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
    nodes: Cache[Node]
    claims: Cache[NodeClaim]
    pools: Cache[NodePool]
    classes: Cache[Object]
    class_kind: type[Object]
    ownership: Ownership
    options: Callable[[datetime], Options]


def controllers(parts: Parts) -> tuple[Controller, ...]:
    """Every controller of the process, the order of the list being the order of a reader's interest."""
    health = RegistrationHealth(parts.kube, parts.pools, parts.clock)
    return (
        _provisioning(parts),
        _lifecycle(parts, health),
        Hash(parts.kube, parts.pools, parts.claims, parts.ownership),
        Counter(parts.kube, parts.pools, parts.cluster, parts.ownership),
        Readiness(parts.kube, parts.pools, parts.classes, parts.class_kind, parts.ownership, parts.clock),
        Validation(parts.kube, parts.pools, parts.ownership, parts.cloud.flavour, parts.clock),
    )


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
    )


def _lifecycle(parts: Parts, health: RegistrationHealth) -> Lifecycle:
    kube, clock, recorder = parts.kube, parts.clock, parts.recorder
    stages = (
        Launch(kube, parts.cloud, clock, recorder),
        Registration(kube, parts.nodes, parts.cloud, clock, recorder, health),
        Initialization(kube, parts.nodes, clock),
        Liveness(kube, clock, health),
    )
    finalization = Finalization(kube, parts.nodes, parts.cloud, clock, recorder)
    millicores = parts.settings.cpu_requests
    return Lifecycle(kube, parts.claims, parts.ownership, stages, finalization, clock, millicores=millicores)
