"""Demand: which pods a recorded cluster was to run, told apart from where its autoscaler put them.

Pods of a ReplicaSet are a number that changes with time. Pods that differ from one another (of a StatefulSet,
a Job or another owner, or of none) are told one by one. A pod that is evicted is still wanted: when its owner
makes it again within `DIP`, the demand never changed. Pods of DaemonSets and of nodes follow from nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from msgspec.structs import replace

from dovetail.api import conditions
from dovetail.api.meta import Record
from dovetail.api.pod import Pod, PodSpec
from dovetail.api.predicates import is_active, owned_by_daemonset, owned_by_node
from dovetail.disruption.situation import Situation
from dovetail.history.pod_ends import ComingPod, find_pod_ends, rank_by_age
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.snapshot import Snapshot, StateNode

__all__ = ["DemandChange", "DemandReader", "RecordedWorkload", "is_going"]

# A pod that was evicted and is made again within this time was wanted all the while.
DIP = timedelta(seconds=30)
# A pod that is without a node for longer has waited.
LONG_WAIT, IN_VAIN = timedelta(seconds=60), timedelta(minutes=5)
# Owners whose pods are all alike, so that a number tells all of them.
COUNTED = ("ReplicaSet", "ReplicationController")
JOB, BARE = "Job", "Pod"
_PENDING = ""


class RecordedWorkload(NamedTuple):
    """Pods of one owner that are all alike; an owner whose pods are of two shapes is two workloads."""

    kind: str
    namespace: str
    name: str
    shape: int = 0

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class DemandChange(Record, frozen=True):
    """One change of what is wanted.

    `scale`: the workload is to have `count` pods like `pod`. `come`: this one pod is wanted from now on, and
    `go`: it is not any more; a pod of a Job goes when it is done, after `work` seconds on a node.
    """

    at: datetime
    what: Literal["scale", "come", "go"]
    workload: RecordedWorkload
    pod: Pod
    slot: str = ""
    count: int = 0
    work: float | None = None


@dataclass(slots=True)
class _SeenPod:
    """A pod as it was last seen, by the place where it was seen: a node, or none yet."""

    pod: Pod
    source: str
    workload: RecordedWorkload
    slot: str = ""
    began: datetime | None = None


@dataclass(slots=True)
class _EvictedPod:
    """A pod that was evicted and may be made again."""

    seen: _SeenPod
    since: datetime


class _DemandStep(NamedTuple):
    """A change; of a workload that is a number, by how many pods more."""

    change: DemandChange
    more: int = 0


@dataclass(slots=True)
class DemandReader:
    """Reads looks in their order and tells what changed in the demand from one to the next."""

    pods: dict[str, _SeenPod] = field(default_factory=dict)
    counts: dict[RecordedWorkload, int] = field(default_factory=dict)
    # Pods of Jobs by slot: how long each worked before it was done.
    works: dict[str, float] = field(default_factory=dict)
    # What became of the pods in the recording.
    evictions: int = 0
    waited: int = 0
    repeated_hours: float = 0.0
    # Pods that went without ever having a place, by workload.
    in_vain: dict[str, int] = field(default_factory=dict)
    _first: datetime | None = None
    _sources: dict[str, tuple[object, dict[str, Pod]]] = field(default_factory=dict)
    _shapes: dict[tuple[str, str, str], list[tuple[PodSpec, Mapping[str, str], Mapping[str, str]]]] = field(
        default_factory=dict
    )
    _evicted: list[_EvictedPod] = field(default_factory=list)
    _told: dict[RecordedWorkload, int] = field(default_factory=dict)
    _last: datetime | None = None

    def read_look(self, at: datetime, situation: Situation) -> list[DemandChange]:
        """What changed since the look before, each at its own time; of the first look, everything."""
        snapshot = situation.snapshot
        self._first = self._first or at
        gone, come = self._find_changed(snapshot)
        going = {views.read_name(state) for state in snapshot.nodes if is_going(state)}
        there = {views.read_name(state) for state in snapshot.nodes}
        steps: list[_DemandStep] = []
        left = [uid for uid in gone if uid not in come]
        ended = self._find_ends(at, snapshot, left, come) if left else {}
        for uid in left:
            steps += self._end_pod(self._limit_time(ended[uid], at), self.pods.pop(uid), going, there)
        for uid, (source, pod) in sorted(come.items(), key=lambda each: rank_by_age(each[1][1], at)):
            known = self.pods.get(uid)
            if known is not None:
                self._update_pod(at, known, source, pod)
                continue
            steps += self._begin_pod(at, uid, source, pod)
        steps += self._forget_evicted(at)
        self._last = at
        return self._list_changes(steps)

    def _find_ends(
        self, at: datetime, snapshot: Snapshot, left: list[str], come: Mapping[str, tuple[str, Pod]]
    ) -> dict[str, datetime]:
        coming = []
        for uid, (_, pod) in come.items():
            known, owner = self.pods.get(uid), _find_owner_key(pod)
            coming.append(ComingPod(pod, known.pod if known is not None else None, owner in self._shapes))
        return find_pod_ends(at, snapshot, {uid: self.pods[uid].pod for uid in left}, coming)

    def _limit_time(self, time: datetime, at: datetime) -> datetime:
        """A time that an object tells, between the look before and this one."""
        return min(max(time, self._last), at) if self._last is not None else at

    def _list_changes(self, steps: list[_DemandStep]) -> list[DemandChange]:
        """The steps in the order of their times; those of a workload at one time are one change.

        At one time pods go before others come, and those come in the order in which they were written.
        """
        found: dict[object, DemandChange] = {}
        for step in sorted(
            steps, key=lambda each: (each.change.at, each.more > 0 or each.change.what == "come")
        ):
            change, workload = step.change, step.change.workload
            if change.what != "scale":
                found[id(step)] = change
                continue
            before = self._told.get(workload, 0)
            self._told[workload] = before + step.more
            if step.more:
                found[workload, change.at] = replace(change, count=before + step.more)
        return list(found.values())

    def _find_changed(self, snapshot: Snapshot) -> tuple[dict[str, Pod], dict[str, tuple[str, Pod]]]:
        """Pods that left a place and pods that came to one, as far as places changed at all."""
        gone: dict[str, Pod] = {}
        come: dict[str, tuple[str, Pod]] = {}
        sources: dict[str, tuple[object, tuple[Pod, ...]]] = {_PENDING: (snapshot.pods, snapshot.pods)}
        for state in snapshot.nodes:
            sources[views.read_name(state)] = state, state.pods
        for name in self._sources.keys() - sources.keys():
            gone |= self._sources.pop(name)[1]
        for name, (version, pods) in sources.items():
            before = self._sources.get(name)
            if before is not None and before[0] is version:
                continue
            now = {pod.uid or pod.full_name: pod for pod in pods if _is_demand(pod)}
            old = before[1] if before is not None else {}
            gone |= {uid: pod for uid, pod in old.items() if uid not in now}
            come |= {uid: (name, pod) for uid, pod in now.items() if old.get(uid) is not pod}
            self._sources[name] = version, now
        return gone, come

    def _begin_pod(self, at: datetime, uid: str, source: str, pod: Pod) -> Iterator[_DemandStep]:
        since = self._limit_time(pod.metadata.creation_timestamp or at, at)
        workload = self._find_workload(pod)
        seen = _SeenPod(pod, source, workload)
        self.pods[uid] = seen
        self._update_pod(at, seen, source, pod)
        evicted = next((each for each in self._evicted if _is_successor(each.seen, seen)), None)
        if evicted is not None:
            self._evicted.remove(evicted)
            self._count_eviction(evicted)
        if workload.kind in COUNTED:
            self.counts[workload] = self.counts.get(workload, 0) + 1
            if evicted is None:
                yield _scale(since, workload, pod, 1)
        elif evicted is not None:
            seen.slot = evicted.seen.slot
        else:
            seen.slot = pod.full_name
            change = DemandChange(at=since, what="come", workload=workload, pod=pod, slot=seen.slot)
            yield _DemandStep(change)

    def _update_pod(self, at: datetime, seen: _SeenPod, source: str, pod: Pod) -> None:
        seen.pod, seen.source = pod, source
        if source and seen.began is None:
            seen.began = pod.status.start_time or at
            created = pod.metadata.creation_timestamp
            if created is not None and self._first is not None and created >= self._first:
                self.waited += _find_bound_time(pod, at) - created > LONG_WAIT

    def _end_pod(
        self, at: datetime, seen: _SeenPod, going: set[str], there: set[str]
    ) -> Iterator[_DemandStep]:
        counted = seen.workload.kind in COUNTED
        created = seen.pod.metadata.creation_timestamp
        if not seen.source and created is not None and at - created >= IN_VAIN:
            self.in_vain[str(seen.workload)] = self.in_vain.get(str(seen.workload), 0) + 1
        if counted:
            self.counts[seen.workload] -= 1
        if seen.source and (seen.source in going or seen.source not in there):
            self._evicted.append(_EvictedPod(seen, at))
        elif counted:
            yield _scale(at, seen.workload, seen.pod, -1)
        else:
            yield _DemandStep(self._build_end(at, seen))

    def _build_end(self, at: datetime, seen: _SeenPod) -> DemandChange:
        work = None
        if seen.workload.kind == JOB:
            work = max((at - seen.began).total_seconds(), 0.0) if seen.began is not None else 0.0
            self.works[seen.slot] = work
        return DemandChange(at=at, what="go", workload=seen.workload, pod=seen.pod, slot=seen.slot, work=work)

    def _count_eviction(self, evicted: _EvictedPod) -> None:
        seen = evicted.seen
        self.evictions += 1
        if seen.workload.kind == JOB and seen.began is not None:
            self.repeated_hours += max(evicted.since - seen.began, timedelta()) / timedelta(hours=1)

    def _forget_evicted(self, at: datetime) -> Iterator[_DemandStep]:
        """Pods that nobody made again are wanted no more: their time had come, and they were not evicted."""
        for each in [each for each in self._evicted if at - each.since >= DIP]:
            self._evicted.remove(each)
            if each.seen.workload.kind == BARE:  # which nobody makes again
                self._count_eviction(each)
            if each.seen.workload.kind in COUNTED:
                yield _scale(at, each.seen.workload, each.seen.pod, -1)
            else:
                yield _DemandStep(self._build_end(each.since, each.seen))

    def _find_workload(self, pod: Pod) -> RecordedWorkload:
        owner = _find_owner_key(pod)
        if owner[0] not in COUNTED:
            return RecordedWorkload(*owner)
        shapes = self._shapes.setdefault(owner, [])
        known = (pod.spec, pod.labels, pod.annotations)
        for number, shape in enumerate(shapes):
            if all(a is b or a == b for a, b in zip(shape, known, strict=True)):
                return RecordedWorkload(*owner, number)
        shapes.append(known)
        return RecordedWorkload(*owner, len(shapes) - 1)


def _find_owner_key(pod: Pod) -> tuple[str, str, str]:
    """The kind, namespace and name of a pod's owner; a pod that nobody owns is its own."""
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    return (BARE, pod.namespace, pod.name) if owner is None else (owner.kind, pod.namespace, owner.name)


def _scale(at: datetime, workload: RecordedWorkload, pod: Pod, more: int) -> _DemandStep:
    return _DemandStep(DemandChange(at=at, what="scale", workload=workload, pod=pod), more)


def _is_demand(pod: Pod) -> bool:
    return is_active(pod) and not owned_by_daemonset(pod) and not owned_by_node(pod)


def _is_successor(evicted: _SeenPod, pod: _SeenPod) -> bool:
    """Whether the pod was made in the place of the evicted one."""
    if evicted.workload != pod.workload:
        return False
    return pod.workload.kind != "StatefulSet" or evicted.pod.name == pod.pod.name


def is_going(state: StateNode) -> bool:
    """Whether the node is on its way out: its pods are evicted from it."""
    claim, node = state.claim, state.node
    if (claim is not None and claim.deleting) or (node is not None and node.deleting):
        return True
    return views.has_disruption_mark(state)


def _find_bound_time(pod: Pod, seen: datetime) -> datetime:
    """When the pod got its node, by its own condition; else when it was first seen there."""
    scheduled = pod.status.find_condition(conditions.POD_SCHEDULED)
    if scheduled is not None and scheduled.status == "True" and scheduled.last_transition_time:
        return scheduled.last_transition_time
    return seen
