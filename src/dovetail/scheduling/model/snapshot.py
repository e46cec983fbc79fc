"""Snapshot: the whole world, frozen, serialisable.

Everything a decision depends on is in here: the same bytes give the same plan. `wire` makes the
bytes; pods of one shape share one spec there as they do in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Literal

from dovetail.api.bad_items import SetAside
from dovetail.api.conditions import INSTANCE_TERMINATING, is_true
from dovetail.api.core import (
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    Service,
    StorageClass,
)
from dovetail.api.labels import CORE, INITIALIZED, REGISTERED, TRUE, Flavour
from dovetail.api.meta import LabelSelector, Record
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod, TopologySpreadConstraint
from dovetail.scheduling.commitment_terms import CommitmentTerms
from dovetail.scheduling.model.device_objects import DeviceState
from dovetail.scheduling.model.instance_types import MOST_TYPES, InstanceType

__all__ = [
    "SchedulingOptions",
    "Snapshot",
    "SnapshotPool",
    "StateNode",
    "Storage",
    "build_pools_and_catalogs",
]


class SchedulingOptions(Record, frozen=True):
    """The settings a decision depends on."""

    now: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    seed: int = 0
    preferences: Literal["Respect", "Ignore"] = "Respect"
    min_values: Literal["Strict", "BestEffort"] = "Strict"
    reserved_capacity: bool = True
    # Provisioning waits for a reservation it could use; disruption falls back to other capacity.
    reserved_fallback: bool = False
    ignore_dra: bool = True
    # Place pods in Karpenter's order, with its choices, instead of packing the batch as a whole.
    one_by_one: bool = False
    # Nodes inside their pool's consolidateAfter take no pods that only move to save money.
    consolidating: bool = False
    # The blast radius of a new node: no more pods than this are planned onto it; 0 for as many as fit.
    most_pods: int = 0
    default_spread: tuple[TopologySpreadConstraint, ...] = ()
    # Its well-known labels come with the node, so that a pool need not define them.
    flavour: Flavour = CORE
    reservation_label: str = ""
    # The most instance types one NodeClaim lists.
    most_types: int = MOST_TYPES
    unsupported_provisioners: frozenset[str] = frozenset()
    unsupported_volume_keys: frozenset[str] = frozenset()
    default_termination_grace_period: str | None = None
    # Buy and consolidate by what commitments leave to pay.
    follow_commitments: bool = False


class SnapshotPool(Record, frozen=True):
    """A pool, and which of the snapshot's catalogues it may buy from."""

    nodepool: NodePool
    catalog: int = -1

    @property
    def name(self) -> str:
        return self.nodepool.name


class StateNode(Record, frozen=True, dict=True, gc=True):
    """A Node and its NodeClaim seen as one thing, with the pods bound to it. Views are in state_node.py.

    What every pass asks of every node is worked out once for each.
    """

    node: Node | None = None
    claim: NodeClaim | None = None
    pods: tuple[Pod, ...] = ()
    # Set by whoever decided to remove the node; terminating claims count as marked without it.
    marked: bool = False
    nominated: bool = False
    # Most volumes per CSI driver, from the CSINode.
    volume_limits: Mapping[str, int] = {}

    @cached_property
    def source(self) -> Node | NodeClaim:
        """Whose word counts for names, labels and taints."""
        node, claim = self.node, self.claim
        if node is not None and (claim is None or node.metadata.labels.get(REGISTERED) == TRUE):
            return node
        assert claim is not None, "a StateNode has a Node or a NodeClaim"
        return claim

    @cached_property
    def provider_id(self) -> str:
        """The machine's identity; that of a node nobody sold is its name."""
        if self.node is not None and self.node.spec.provider_id:
            return self.node.spec.provider_id
        return self.claim.status.provider_id if self.claim else self.source.name

    @cached_property
    def initialized(self) -> bool:
        if self.claim is None:
            return True
        return self.node is not None and self.node.metadata.labels.get(INITIALIZED) == TRUE

    @cached_property
    def deleting(self) -> bool:
        """Whether it is on its way out. A managed node goes when its claim does."""
        if self.marked:
            return True
        if self.claim is None:
            return self.node is not None and self.node.deleting
        if self.claim.metadata.deletion_timestamp is not None:
            return True
        return is_true(self.claim, INSTANCE_TERMINATING)


class Storage(Record, frozen=True):
    """Volumes and the claims on them; claims by `namespace/name`, the rest by name."""

    claims: Mapping[str, PersistentVolumeClaim] = {}
    volumes: Mapping[str, PersistentVolume] = {}
    classes: Mapping[str, StorageClass] = {}


class Snapshot(Record, frozen=True):
    """The world at one instant, as far as placing pods goes.

    `pods` wait for a place; `moving` are on nodes that will go, and are placed anew; `virtual` stand
    for capacity buffers and are nobody's. `daemons` has one representative pod per DaemonSet.
    """

    pools: tuple[SnapshotPool, ...] = ()
    catalogs: tuple[tuple[InstanceType, ...], ...] = ()
    nodes: tuple[StateNode, ...] = ()
    pods: tuple[Pod, ...] = ()
    moving: tuple[Pod, ...] = ()
    virtual: tuple[Pod, ...] = ()
    daemons: tuple[Pod, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}
    storage: Storage = Storage()
    budgets: tuple[PodDisruptionBudget, ...] = ()
    services: tuple[Service, ...] = ()
    # Selectors of the workloads that own pods, by `Kind/namespace/name`; for default spreading.
    workloads: Mapping[str, LabelSelector] = {}
    devices: DeviceState = DeviceState()
    options: SchedulingOptions = SchedulingOptions()
    # What was left out when the snapshot was taken, as it could not be read.
    set_aside: tuple[SetAside, ...] = ()
    # What savings plans and reserved instances pay for, and the names of those that nodes are bought on.
    commitments: tuple[CommitmentTerms, ...] = ()
    open_commitments: tuple[str, ...] = ()

    def list_types(self, pool: SnapshotPool) -> tuple[InstanceType, ...]:
        """What the pool may buy; nothing when its instance types could not be listed."""
        return self.catalogs[pool.catalog] if pool.catalog >= 0 else ()


def build_pools_and_catalogs(
    offers: Iterable[tuple[NodePool, Sequence[InstanceType]]],
) -> tuple[tuple[SnapshotPool, ...], tuple[tuple[InstanceType, ...], ...]]:
    """Pools with their types; equal lists become one catalogue."""
    catalogs: list[tuple[InstanceType, ...]] = []
    pools: list[SnapshotPool] = []
    for nodepool, types in offers:
        if not types:
            pools.append(SnapshotPool(nodepool=nodepool))
            continue
        wanted = tuple(types)
        known = next((i for i, each in enumerate(catalogs) if each is types or each == wanted), -1)
        if known < 0:
            known = len(catalogs)
            catalogs.append(wanted)
        pools.append(SnapshotPool(nodepool=nodepool, catalog=known))
    return tuple(pools), tuple(catalogs)
