"""When pods of a recording were told to go: as they say themselves, or as others tell who came and went.

Looks are seconds apart, and a pod may be gone before a look sees it going. Of those the time is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from dovetail.api import conditions
from dovetail.api.pod import Pod
from dovetail.scheduling.model.snapshot import Snapshot

__all__ = ["ComingPod", "find_pod_ends", "rank_by_age"]

# What differs is recorded at most ten seconds later: so long before it was, when nobody tells.
UNSEEN = timedelta(seconds=5)


class ComingPod(NamedTuple):
    """A pod that a look has anew, or otherwise than the look before; `owned` if its owner had pods before."""

    pod: Pod
    before: Pod | None
    owned: bool


def find_pod_ends(
    at: datetime, snapshot: Snapshot, left: Mapping[str, Pod], come: Iterable[ComingPod]
) -> dict[str, datetime]:
    """When pods were told to go that are wanted no more at this look; `come` are those that it has anew."""
    ended = _read_ends(snapshot, left)
    return ended | _guess_ends(at, left, ended, tuple(come))


def rank_by_age(pod: Pod, at: datetime) -> tuple[datetime, int]:
    """Who came first; of those that came in one second, whom the API server wrote first."""
    written = pod.metadata.resource_version
    return pod.metadata.creation_timestamp or at, int(written) if written.isdecimal() else 0


def _read_ends(snapshot: Snapshot, left: Mapping[str, Pod]) -> dict[str, datetime]:
    """Of the pods that are still there to tell: when they were told to go."""
    found = {}
    for pods in (snapshot.pods, *(state.pods for state in snapshot.nodes)):
        for pod in pods:
            ends = pod.metadata.deletion_timestamp
            if ends is not None and (pod.uid or pod.full_name) in left:
                grace = timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
                found[pod.uid or pod.full_name] = ends - grace
    return found


def _guess_ends(
    at: datetime, left: Mapping[str, Pod], ended: Mapping[str, datetime], come: tuple[ComingPod, ...]
) -> dict[str, datetime]:
    """When pods were told to go that no look has seen going.

    A while before the look, and after those that came. Of a Deployment that is rolled out, one pod goes for
    each that is ready, or that comes where nobody says so. Pods of an owner end in the order in which they
    were told to: one that is gone was told before those that are still going.
    """
    steps = _find_rollout_steps(come)
    came = sorted((rank_by_age(each.pod, at)[0], _find_deployment(each.pod)) for each in come)
    first: dict[str, datetime] = {}
    for uid, time in ended.items():
        owner = _find_owner(left[uid])
        first[owner] = min(time, first.get(owner, time))
    found: dict[str, datetime] = {}
    paired: dict[str, int] = {}
    for uid, pod in left.items():
        if uid in ended:
            continue
        owner = _find_owner(pod)
        limit, number = first.get(owner, at), paired.get(owner, 0)
        before = [(time, name) for time, name in came if time < limit]
        replaced = [time for time in steps.get(_find_deployment(pod), ()) if time < limit]
        replaced = replaced or [time for time, name in before if name and name == _find_deployment(pod)]
        if replaced:
            found[uid] = replaced[min(number, len(replaced) - 1)]
        else:
            times = [time for time in (at - UNSEEN, *(each for each, _ in before)) if time < limit]
            found[uid] = max(times, default=limit)
        paired[owner] = number + 1
    return found


def _find_rollout_steps(come: Iterable[ComingPod]) -> dict[str, list[datetime]]:
    """By Deployment: when its rollout let one pod of the template before go, as new ones were ready.

    A rollout begins with as many new pods as may be there beyond those wanted and as may be missing, half
    of them each unless a person says otherwise: so many old ones go at once.
    """
    made: dict[str, list[datetime]] = {}
    steps: dict[str, list[datetime]] = {}
    for each in come:
        name, created = _find_deployment(each.pod), each.pod.metadata.creation_timestamp
        if not name or created is None:
            continue
        if not each.owned:
            made.setdefault(name, []).append(created)
        ready = _find_ready_time(each.pod)
        if ready is not None and (each.before is None or _find_ready_time(each.before) is None):
            steps.setdefault(name, []).append(ready)
    for name, times in steps.items():
        first = min(made.get(name, ()), default=None)
        at_once = made[name].count(first) // 2 if first is not None else 0
        times += [first] * at_once if first is not None else []
        times.sort()
    return steps


def _find_ready_time(pod: Pod) -> datetime | None:
    found = pod.status.find_condition(conditions.READY)
    return found.last_transition_time if found is not None and found.status == conditions.TRUE else None


def _find_owner(pod: Pod) -> str:
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    return f"{pod.namespace}/{owner.kind}/{owner.name}" if owner is not None else pod.full_name


def _find_deployment(pod: Pod) -> str:
    """The Deployment that a pod is of, by the name of its ReplicaSet; empty for pods of other owners."""
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    if owner is None or owner.kind != "ReplicaSet":
        return ""
    return f"{pod.namespace}/{owner.name.rpartition('-')[0]}"
