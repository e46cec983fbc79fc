"""Which objects belong to whom: kept up to date with every commit, so that nobody searches or recounts.

A *family* is the pods of one owner, with the totals its controller asks for again and again. Pods
that nobody manages are a family too, under no uid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dovetail.sim.cluster.base import CommitHandler, Json, Key, SimController, SimControllerManager
from dovetail.sim.cluster.objects import controller_of, has_pod_ended, is_deleting, is_pod_ready, key_of

__all__ = ["OwnedPods", "OwnerIndex", "PodFacts"]

SETS = "replicasets.apps"
NO_LABELS: dict[str, str] = {}
OwnerHandler = Callable[[Key], None]


class PodFacts:
    """One state of a pod, and what follows from it."""

    __slots__ = ("active", "labels", "pod", "ready")

    def __init__(self, pod: Json, before: PodFacts | None) -> None:
        self.pod = pod
        self.active = not has_pod_ended(pod) and not is_deleting(pod)
        self.ready = self.active and is_pod_ready(pod)
        labels = pod["metadata"].get("labels") or NO_LABELS
        self.labels: frozenset[tuple[str, str]]
        if before is not None and before.pod["metadata"].get("labels") == labels:
            self.labels = before.labels
        else:
            self.labels = frozenset(labels.items())


class OwnedPods:
    """The pods of one owner."""

    __slots__ = ("active", "by_labels", "news", "pods", "ready")

    def __init__(self) -> None:
        self.pods: dict[Key, PodFacts] = {}
        self.active = 0
        self.ready = 0
        # Active pods by their labels: few sets, many pods.
        self.by_labels: dict[frozenset[tuple[str, str]], int] = {}
        # Pods that came or changed labels since their owner last looked.
        self.news: dict[Key, PodFacts] = {}

    def put(self, key: Key, pod: Json) -> None:
        before = self.pods.get(key)
        facts = self.pods[key] = PodFacts(pod, before)
        if before is not None:
            self._adjust_counts(before, -1)
        if before is None or before.labels is not facts.labels or key in self.news:
            self.news[key] = facts
        self._adjust_counts(facts, 1)

    def drop(self, key: Key) -> None:
        before = self.pods.pop(key, None)
        self.news.pop(key, None)
        if before is not None:
            self._adjust_counts(before, -1)

    def _adjust_counts(self, facts: PodFacts, by: int) -> None:
        if not facts.active:
            return
        self.active += by
        self.ready += by if facts.ready else 0
        worn = self.by_labels.get(facts.labels, 0) + by
        if worn:
            self.by_labels[facts.labels] = worn
        else:
            del self.by_labels[facts.labels]

    def list_active(self) -> list[PodFacts]:
        """Those that have not ended and are not on their way out."""
        return [facts for facts in self.pods.values() if facts.active]


class OwnerIndex(SimController):
    """Pods and ReplicaSets by the uid of their controller."""

    name = "owned"

    def __init__(self, manager: SimControllerManager) -> None:
        super().__init__(manager)
        self._families: dict[str, OwnedPods] = {"": OwnedPods()}
        self._sets: dict[str, dict[Key, Json]] = {}
        self._by_kind: dict[str, OwnerHandler] = {}
        self._orphan_heard: list[Callable[[Json], None]] = []

    def subscribe_owner(self, kind: str, heard: OwnerHandler) -> None:
        """Have owners of a kind named, by key, whenever something happens to a pod of theirs."""
        self._by_kind[kind] = heard

    def subscribe_orphans(self, heard: Callable[[Json], None]) -> None:
        """Be told of pods that nobody manages, when they come or change labels."""
        self._orphan_heard.append(heard)

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        return {"pods": self._handle_pod, SETS: self._handle_replicaset}

    def _handle_pod(self, before: Json | None, after: Json | None) -> None:
        old = controller_of(before) if before is not None else None
        new = controller_of(after) if after is not None else None
        if before is not None and (after is None or _read_uid(old) != _read_uid(new)):
            self._remove_pod(_read_uid(old), key_of(before))
        if after is not None:
            self._add_pod(_read_uid(new), after)
        if old is not None and before is not None:
            self._notify_owner(old, before)
        if new is not None and after is not None and (old is None or old["uid"] != new["uid"]):
            self._notify_owner(new, after)

    def _add_pod(self, uid: str, pod: Json) -> None:
        family = self._families.get(uid)
        if family is None:
            family = self._families[uid] = OwnedPods()
        key = key_of(pod)
        family.put(key, pod)
        if not uid and key in family.news:
            del family.news[key]
            for heard in self._orphan_heard:
                heard(pod)

    def _remove_pod(self, uid: str, key: Key) -> None:
        family = self._families.get(uid)
        if family is not None:
            family.drop(key)
            if not family.pods and uid:
                del self._families[uid]

    def _notify_owner(self, owner: Json, pod: Json) -> None:
        heard = self._by_kind.get(owner["kind"])
        if heard is not None:
            heard((pod["metadata"]["namespace"], owner["name"]))

    def _handle_replicaset(self, before: Json | None, after: Json | None) -> None:
        old, new = find_owner_uid(before), find_owner_uid(after)
        if before is not None and (after is None or old != new):
            file = self._sets.get(old, {})
            file.pop(key_of(before), None)
            if not file:
                self._sets.pop(old, None)
        if after is not None:
            self._sets.setdefault(new, {})[key_of(after)] = after

    def get_owned_pods(self, uid: str) -> OwnedPods:
        """The pods of an owner; a family of none if it has none."""
        return self._families.get(uid) or OwnedPods()

    def list_pods(self, uid: str) -> list[Json]:
        """The pods of an owner."""
        return [facts.pod for facts in self.get_owned_pods(uid).pods.values()]

    def list_replicasets(self, uid: str) -> list[Json]:
        """The ReplicaSets of an owner; those nobody manages under no uid."""
        return list(self._sets.get(uid, {}).values())


def find_owner_uid(obj: Json | None) -> str:
    """The uid of the controller an object belongs to, or nothing."""
    return _read_uid(controller_of(obj)) if obj is not None else ""


def _read_uid(owner: Json | None) -> str:
    return owner["uid"] if owner else ""
