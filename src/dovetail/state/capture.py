"""Cluster → Snapshot, in one breath: no await inside, so it is one instant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from dovetail.api.bad_items import SetAside, reason_of
from dovetail.api.commitment import Commitment
from dovetail.api.core import (
    DaemonSet,
    LimitRange,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    ReplicaSet,
    Service,
    StatefulSet,
    StorageClass,
)
from dovetail.api.meta import LabelSelector, Object
from dovetail.api.nodepool import NodePool
from dovetail.api.pdb import PdbLimits
from dovetail.api.pod import Pod
from dovetail.scheduling.commitment_terms import TermsReader
from dovetail.scheduling.model.daemonsets import build_daemon_pods
from dovetail.scheduling.model.device_objects import DeviceClass, DeviceState, ResourceClaim, ResourceSlice
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.label_selectors import matches_selector
from dovetail.scheduling.model.snapshot import (
    SchedulingOptions,
    Snapshot,
    SnapshotPool,
    Storage,
    build_pools_and_catalogs,
)
from dovetail.scheduling.sunk_prices import CommitmentBook
from dovetail.state.cluster import Cluster

__all__ = ["Capture", "ClusterStores", "DeviceStores", "InformerStore"]

T = TypeVar("T", bound=Object, covariant=True)
K = TypeVar("K", bound=Object)
V = TypeVar("V")
Offered = tuple[tuple[SnapshotPool, ...], tuple[tuple[InstanceType, ...], ...]]


class InformerStore(Protocol[T]):
    """The objects of one kind, as an informer keeps them. `revision` grows with every change."""

    @property
    def revision(self) -> int:
        """Grows with every change."""

    def __iter__(self) -> Iterator[T]:
        """All of them."""


@dataclass(frozen=True, slots=True)
class DeviceStores:
    """Devices, for clusters whose pods may claim them."""

    slices: InformerStore[ResourceSlice]
    classes: InformerStore[DeviceClass]
    claims: InformerStore[ResourceClaim]

    def build_state(self) -> DeviceState:
        return DeviceState(
            slices=tuple(_readable(self.slices)),
            classes={each.name: each for each in _readable(self.classes)},
            claims={each.full_name: each for each in _readable(self.claims)},
        )


@dataclass(frozen=True, slots=True)
class ClusterStores:
    """The kinds a snapshot needs besides nodes, claims and pods."""

    daemonsets: InformerStore[DaemonSet]
    limit_ranges: InformerStore[LimitRange]
    namespaces: InformerStore[Namespace]
    claims: InformerStore[PersistentVolumeClaim]
    volumes: InformerStore[PersistentVolume]
    classes: InformerStore[StorageClass]
    budgets: InformerStore[PodDisruptionBudget]
    services: InformerStore[Service]
    replicasets: InformerStore[ReplicaSet]
    statefulsets: InformerStore[StatefulSet]
    # None while device claims are ignored.
    devices: DeviceStores | None = None
    # None while commitments do not count.
    commitments: InformerStore[Commitment] | None = None


class _CachedValue(Generic[V]):
    """Something made from stores, made anew only when one of them changed."""

    def __init__(self, make: Callable[[], V], *stores: InformerStore[Object]) -> None:
        self._make = make
        self._stores = stores
        self._made_at: tuple[int, ...] | None = None
        self._value: V | None = None

    def __call__(self) -> V:
        now = tuple(store.revision for store in self._stores)
        if self._value is None or now != self._made_at:
            self._value, self._made_at = self._make(), now
        return self._value


class Capture:
    """Takes snapshots. What seldom changes is kept between them."""

    def __init__(self, cluster: Cluster, stores: ClusterStores) -> None:
        self._cluster = cluster
        self._stores = stores
        s = stores
        self._storage = _CachedValue(self._make_storage, s.claims, s.volumes, s.classes)
        self._namespaces = _CachedValue(self._make_namespaces, s.namespaces)
        self._workloads = _CachedValue(self._make_workloads, s.replicasets, s.statefulsets)
        d = stores.devices
        self._devices = _CachedValue(d.build_state, d.slices, d.classes, d.claims) if d is not None else None
        self._budgets = _CachedValue(lambda: tuple(s.budgets), s.budgets)
        self._services = _CachedValue(lambda: tuple(_readable(s.services)), s.services)
        # Parts that are equal from one snapshot to the next are the same: what was worked out for them holds.
        self._offers: tuple[tuple[NodePool, Sequence[InstanceType]], ...] = ()
        self._offered_then = build_pools_and_catalogs(())
        self._daemons_of: tuple[tuple[DaemonSet, Pod | None], ...] = ()
        self._daemons_then: tuple[Pod, ...] = ()
        self._daemons_aside: tuple[SetAside, ...] = ()
        self._ranges_then = -1
        self._terms, self._committed = TermsReader(), CommitmentBook()
        self._limits = _CachedValue(lambda: PdbLimits(s.budgets, matches_selector), s.budgets)

    def take_snapshot(
        self,
        offers: Iterable[tuple[NodePool, Sequence[InstanceType]]],
        options: SchedulingOptions,
        virtual: tuple[Pod, ...] = (),
    ) -> Snapshot:
        """The world now, with what each pool could buy."""
        pools, catalogs = self._build_offers(tuple(offers))
        snapshot = Snapshot(
            pools=pools,
            catalogs=catalogs,
            nodes=tuple(tracked.state for tracked in self._cluster),
            pods=self._cluster.pending,
            moving=self._list_moving_pods(options),
            virtual=virtual,
            daemons=self._build_daemon_pods(),
            namespaces=self._namespaces(),
            storage=self._storage(),
            budgets=self._budgets(),
            services=self._services(),
            workloads=self._workloads() if options.default_spread else {},
            devices=self._devices() if self._devices is not None else DeviceState(),
            options=options,
            set_aside=self._daemons_aside,
        )
        commitments = self._stores.commitments
        if commitments is None:
            return snapshot
        terms = self._terms.read_terms(_readable(commitments), options.now)
        return self._committed.add_commitments(snapshot, terms)

    def _list_moving_pods(self, options: SchedulingOptions) -> tuple[Pod, ...]:
        """Pods on places that will go, unless something holds them there for good."""
        limits = self._limits()
        return tuple(
            pod
            for tracked in self._cluster
            if tracked.node is not None and tracked.deleting
            for pod in tracked.pods.values()
            if limits.currently_reschedulable(pod, options.now)
        )

    def _build_offers(self, offers: tuple[tuple[NodePool, Sequence[InstanceType]], ...]) -> Offered:
        if not _is_same(offers, self._offers):
            self._offers, self._offered_then = offers, build_pools_and_catalogs(offers)
        return self._offered_then

    def _build_daemon_pods(self) -> tuple[Pod, ...]:
        listed = sorted(self._stores.daemonsets, key=lambda d: d.full_name)
        of = tuple((daemonset, self._cluster.find_newest_daemon_pod(daemonset.uid)) for daemonset in listed)
        ranges = self._stores.limit_ranges
        if not _is_same(of, self._daemons_of) or ranges.revision != self._ranges_then:
            limits = tuple(ranges)
            self._daemons_of, self._ranges_then = of, ranges.revision
            self._daemons_then, self._daemons_aside = build_daemon_pods(of, limits)
        return self._daemons_then

    def _make_storage(self) -> Storage:
        return Storage(
            claims={claim.full_name: claim for claim in _readable(self._stores.claims)},
            volumes={volume.name: volume for volume in _readable(self._stores.volumes)},
            classes={storage.name: storage for storage in _readable(self._stores.classes)},
        )

    def _make_namespaces(self) -> Mapping[str, Mapping[str, str]]:
        return {namespace.name: namespace.labels for namespace in self._stores.namespaces}

    def _make_workloads(self) -> Mapping[str, LabelSelector]:
        owners: tuple[ReplicaSet | StatefulSet, ...] = (
            *_readable(self._stores.replicasets),
            *_readable(self._stores.statefulsets),
        )
        return {
            f"{o.KIND.kind}/{o.full_name}": o.spec.selector for o in owners if o.spec.selector is not None
        }


def _readable(objects: Iterable[K]) -> Iterator[K]:
    """Those that are not set aside: what is left of the others could select more than was written."""
    return (each for each in objects if not reason_of(each))


def _is_same(these: Sequence[tuple[object, object]], those: Sequence[tuple[object, object]]) -> bool:
    """Whether the very same things are paired in the same order, with the same or with equal ones."""
    pairs = zip(these, those, strict=False)
    return len(these) == len(those) and all(a is c and (b is d or b == d) for (a, b), (c, d) in pairs)
