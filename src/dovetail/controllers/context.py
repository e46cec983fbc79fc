"""What controllers are made of: the one record that is handed to their constructors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from dovetail.api.commitment import Commitment
from dovetail.api.core import Node, PersistentVolumeClaim, VolumeAttachment
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.pod import Pod
from dovetail.api.spend_limit import SpendLimit
from dovetail.controllers.base import Cache
from dovetail.controllers.capacitybuffer import CapacityBuffers
from dovetail.controllers.nodeoverlay import OverlaidCloud
from dovetail.controllers.ownership import Ownership
from dovetail.controllers.spend_guard import SpendGuard
from dovetail.ports import Clock, Cloud, Compute, DecisionSink, Kube, Recorder, SituationSink
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.device_objects import ResourceSlice
from dovetail.scheduling.model.snapshot import SchedulingOptions
from dovetail.settings import Settings
from dovetail.state.capture import Capture
from dovetail.state.cluster import Cluster
from dovetail.zonal.model.gates import ZoneGates

__all__ = ["ControllerContext", "TerminationVolumes"]


@dataclass(frozen=True, slots=True)
class TerminationVolumes:
    """Where attachments (filed by BY_NODE) and claims to storage are found."""

    attachments: Cache[VolumeAttachment]
    claims: Cache[PersistentVolumeClaim]


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """Everything controllers are made of, already built."""

    settings: Settings
    kube: Kube
    cloud: Cloud
    clock: Clock
    recorder: Recorder
    history: DecisionSink
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
    overlaid: OverlaidCloud | None
    buffers: CapacityBuffers | None
    ownership: Ownership
    options: Callable[[datetime], SchedulingOptions]
    # Zones that are shifted away.
    gates: ZoneGates
    # What decisions leave for the next one, whoever makes it.
    cache: DecisionCache
    # None while spend limits are not followed.
    spend: SpendGuard | None = None
    spend_limits: Cache[SpendLimit] | None = None
    # None while commitments are not counted.
    commitments: Cache[Commitment] | None = None
    # Where work is done that nobody waits for, so that no decision waits behind it; None for `compute`.
    aside: Compute | None = None
    # Keeps what decisions saw; None unless a recording is asked for.
    recording: SituationSink | None = None

    @property
    def millicores(self) -> int:
        """What the process requests of a CPU: how much it may do at once follows from it."""
        return self.settings.cpu_requests
