"""Which objects belong to whom: kept up to date with every commit, so that nobody searches.

What workload controllers ask of a pod again and again (is it active, is it ready) is worked out once
per commit and kept beside it.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.objects import controller_of, deleting, ended, key_of, ready

__all__ = ["Owned", "PodFacts"]

SETS = "replicasets.apps"


class PodFacts:
    """One state of a pod, and what follows from it."""

    __slots__ = ("active", "claimed", "pod", "ready")

    def __init__(self, pod: Json) -> None:
        self.pod = pod
        self.active = not ended(pod) and not deleting(pod)
        self.ready = ready(pod)
        # Set once its owner has looked at its labels in this state.
        self.claimed = False


class Owned(Neighbour):
    """Pods and ReplicaSets by the uid of their controller; pods without one are filed under nothing."""

    name = "owned"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._pods: dict[str, dict[Key, PodFacts]] = {}
        self._sets: dict[str, dict[Key, Json]] = {}
        self.orphans_changed = 0

    def hears(self) -> Mapping[str, Heard]:
        return {"pods": self._pod_heard, SETS: self._set_heard}

    def _pod_heard(self, before: Json | None, after: Json | None) -> None:
        old, new = owner_uid(before), owner_uid(after)
        if before is not None and (after is None or old != new):
            _drop(self._pods, old, key_of(before))
        if after is not None:
            self._pods.setdefault(new, {})[key_of(after)] = PodFacts(after)
            if not new:
                self.orphans_changed += 1

    def _set_heard(self, before: Json | None, after: Json | None) -> None:
        if before is not None:
            _drop(self._sets, owner_uid(before), key_of(before))
        if after is not None:
            self._sets.setdefault(owner_uid(after), {})[key_of(after)] = after

    def facts(self, uid: str) -> list[PodFacts]:
        """The pods of an owner, with what is known of each."""
        return list(self._pods.get(uid, {}).values())

    def pods(self, uid: str) -> list[Json]:
        """The pods of an owner."""
        return [facts.pod for facts in self._pods.get(uid, {}).values()]

    def sets(self, uid: str) -> list[Json]:
        """The ReplicaSets of an owner."""
        return list(self._sets.get(uid, {}).values())


def owner_uid(obj: Json | None) -> str:
    """The uid of the controller an object belongs to, or nothing."""
    owner = controller_of(obj) if obj is not None else None
    return owner["uid"] if owner else ""


def _drop(files: dict[str, dict[Key, PodFacts]] | dict[str, dict[Key, Json]], uid: str, key: Key) -> None:
    file = files.get(uid)
    if file is not None:
        file.pop(key, None)
        if not file:
            files.pop(uid)
