"""Cluster → Snapshot, in one breath: no await inside, so it is one instant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

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
from dovetail.api.setaside import SetAside, reason_of
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.daemons import representatives
from dovetail.scheduling.device_records import DeviceClass, DeviceState, ResourceClaim, ResourceSlice
from dovetail.scheduling.selectors import matches
from dovetail.scheduling.snapshot import Options, Pool, Snapshot, Storage, pools_and_catalogs
from dovetail.state.cluster import Cluster

__all__ = ["Capture", "DeviceShelves", "Shelf", "Shelves"]

T = TypeVar("T", bound=Object, covariant=True)
K = TypeVar("K", bound=Object)
V = TypeVar("V")
Offered = tuple[tuple[Pool, ...], tuple[tuple[InstanceType, ...], ...]]


class Shelf(Protocol[T]):
    """The objects of one kind, as an informer keeps them. `revision` grows with every change."""

    @property
    def revision(self) -> int:
        """Grows with every change."""

    def __iter__(self) -> Iterator[T]:
        """All of them."""


@dataclass(frozen=True, slots=True)
class DeviceShelves:
    """Devices, for clusters whose pods may claim them."""

    slices: Shelf[ResourceSlice]
    classes: Shelf[DeviceClass]
    claims: Shelf[ResourceClaim]

    def state(self) -> DeviceState:
        return DeviceState(
            slices=tuple(_readable(self.slices)),
            classes={each.name: each for each in _readable(self.classes)},
            claims={each.full_name: each for each in _readable(self.claims)},
        )


@dataclass(frozen=True, slots=True)
class Shelves:
    """The kinds a snapshot needs besides nodes, claims and pods."""

    daemonsets: Shelf[DaemonSet]
    limit_ranges: Shelf[LimitRange]
    namespaces: Shelf[Namespace]
    claims: Shelf[PersistentVolumeClaim]
    volumes: Shelf[PersistentVolume]
    classes: Shelf[StorageClass]
    budgets: Shelf[PodDisruptionBudget]
    services: Shelf[Service]
    replicasets: Shelf[ReplicaSet]
    statefulsets: Shelf[StatefulSet]
    # None while device claims are ignored.
    devices: DeviceShelves | None = None


class _Kept(Generic[V]):
    """Something made from shelves, made anew only when one of them changed."""

    def __init__(self, make: Callable[[], V], *shelves: Shelf[Object]) -> None:
        self._make = make
        self._shelves = shelves
        self._made_at: tuple[int, ...] | None = None
        self._value: V | None = None

    def __call__(self) -> V:
        now = tuple(shelf.revision for shelf in self._shelves)
        if self._value is None or now != self._made_at:
            self._value, self._made_at = self._make(), now
        return self._value


class Capture:
    """Takes snapshots. What seldom changes is kept between them."""

    def __init__(self, cluster: Cluster, shelves: Shelves) -> None:
        self._cluster = cluster
        self._shelves = shelves
        s = shelves
        self._storage = _Kept(self._make_storage, s.claims, s.volumes, s.classes)
        self._namespaces = _Kept(self._make_namespaces, s.namespaces)
        self._workloads = _Kept(self._make_workloads, s.replicasets, s.statefulsets)
        d = shelves.devices
        self._devices = _Kept(d.state, d.slices, d.classes, d.claims) if d is not None else None
        self._budgets = _Kept(lambda: tuple(s.budgets), s.budgets)
        self._services = _Kept(lambda: tuple(_readable(s.services)), s.services)
        # Parts that are equal from one snapshot to the next are the same: what was worked out for them holds.
        self._offers: tuple[tuple[NodePool, Sequence[InstanceType]], ...] = ()
        self._offered_then = pools_and_catalogs(())
        self._daemons_of: tuple[tuple[DaemonSet, Pod | None], ...] = ()
        self._daemons_then: tuple[Pod, ...] = ()
        self._daemons_aside: tuple[SetAside, ...] = ()
        self._ranges_then = -1
        self._limits = _Kept(lambda: PdbLimits(s.budgets, matches), s.budgets)

    def snapshot(
        self,
        offers: Iterable[tuple[NodePool, Sequence[InstanceType]]],
        options: Options,
        virtual: tuple[Pod, ...] = (),
    ) -> Snapshot:
        """The world now, with what each pool could buy."""
        pools, catalogs = self._offered(tuple(offers))
        return Snapshot(
            pools=pools,
            catalogs=catalogs,
            nodes=tuple(place.state for place in self._cluster),
            pods=self._cluster.pending,
            moving=self._moving(options),
            virtual=virtual,
            daemons=self._daemons(),
            namespaces=self._namespaces(),
            storage=self._storage(),
            budgets=self._budgets(),
            services=self._services(),
            workloads=self._workloads() if options.default_spread else {},
            devices=self._devices() if self._devices is not None else DeviceState(),
            options=options,
            set_aside=self._daemons_aside,
        )

    @property
    def pdb_limits(self) -> PdbLimits:
        return self._limits()

    def _moving(self, options: Options) -> tuple[Pod, ...]:
        """Pods on places that will go, unless something holds them there for good."""
        limits = self._limits()
        return tuple(
            pod
            for place in self._cluster
            if place.node is not None and place.deleting
            for pod in place.pods.values()
            if limits.currently_reschedulable(pod, options.now)
        )

    def _offered(self, offers: tuple[tuple[NodePool, Sequence[InstanceType]], ...]) -> Offered:
        if not _same(offers, self._offers):
            self._offers, self._offered_then = offers, pools_and_catalogs(offers)
        return self._offered_then

    def _daemons(self) -> tuple[Pod, ...]:
        listed = sorted(self._shelves.daemonsets, key=lambda d: d.full_name)
        of = tuple((daemonset, self._cluster.newest_daemon_pod(daemonset.uid)) for daemonset in listed)
        ranges = self._shelves.limit_ranges
        if not _same(of, self._daemons_of) or ranges.revision != self._ranges_then:
            limits = tuple(ranges)
            self._daemons_of, self._ranges_then = of, ranges.revision
            self._daemons_then, self._daemons_aside = representatives(of, limits)
        return self._daemons_then

    def _make_storage(self) -> Storage:
        return Storage(
            claims={claim.full_name: claim for claim in _readable(self._shelves.claims)},
            volumes={volume.name: volume for volume in _readable(self._shelves.volumes)},
            classes={storage.name: storage for storage in _readable(self._shelves.classes)},
        )

    def _make_namespaces(self) -> Mapping[str, Mapping[str, str]]:
        return {namespace.name: namespace.labels for namespace in self._shelves.namespaces}

    def _make_workloads(self) -> Mapping[str, LabelSelector]:
        owners: tuple[ReplicaSet | StatefulSet, ...] = (
            *_readable(self._shelves.replicasets),
            *_readable(self._shelves.statefulsets),
        )
        return {
            f"{o.KIND.kind}/{o.full_name}": o.spec.selector for o in owners if o.spec.selector is not None
        }


def _readable(objects: Iterable[K]) -> Iterator[K]:
    """Those that are not set aside: what is left of the others could select more than was written."""
    return (each for each in objects if not reason_of(each))


def _same(these: Sequence[tuple[object, object]], those: Sequence[tuple[object, object]]) -> bool:
    """Whether the very same things are paired in the same order, with the same or with equal ones."""
    pairs = zip(these, those, strict=False)
    return len(these) == len(those) and all(a is c and (b is d or b == d) for (a, b), (c, d) in pairs)
