"""ReplicaSets: as many pods as asked for, no more, no fewer."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.objects import controller_of, deleting, key_of, labels_of, parse_time
from dovetail.sim.cluster.owned import Owned, PodFacts
from dovetail.sim.cluster.pods_of import claim, delete_quietly, pod_from, removal_order
from dovetail.sim.kube.selectors import from_selector
from dovetail.sim.kube.status import ApiError

__all__ = ["ReplicaSets"]

RESOURCE = "replicasets.apps"
# As the real one: never more than this many pods made or removed in one look.
BURST = 500


class ReplicaSets(Neighbour):
    """Makes and removes the pods of every ReplicaSet."""

    name = "replicaset-controller"

    def __init__(self, desk: Desk, owned: Owned) -> None:
        super().__init__(desk)
        self.owned = owned
        self._orphans_seen: dict[Key, int] = {}

    def hears(self) -> Mapping[str, Heard]:
        return {RESOURCE: self._heard, "pods": self._pod_heard}

    def _heard(self, before: Json | None, after: Json | None) -> None:
        if after is not None:
            self.enqueue(key_of(after))

    def _pod_heard(self, before: Json | None, after: Json | None) -> None:
        for pod in (before, after):
            owner = controller_of(pod) if pod is not None else None
            if pod is not None and owner is not None and owner["kind"] == "ReplicaSet":
                self.enqueue((pod["metadata"]["namespace"], owner["name"]))
        if after is not None and controller_of(after) is None and after["metadata"].get("labels"):
            self._orphan_heard(after)

    def _orphan_heard(self, pod: Json) -> None:
        for replicaset in self.api.list(RESOURCE, pod["metadata"]["namespace"]):
            if from_selector(replicaset["spec"].get("selector"))(labels_of(pod)):
                self.enqueue(key_of(replicaset))

    def work(self, key: Key) -> None:
        try:
            replicaset = self.api.get(RESOURCE, key[1], key[0])
        except ApiError as error:
            self._orphans_seen.pop(key, None)
            if error.code == 404:
                return
            raise
        self._claim(key, replicaset)
        if not deleting(replicaset):
            self._scale(replicaset)
        self._report(replicaset)

    def _claim(self, key: Key, replicaset: Json) -> None:
        changed = self.owned.orphans_changed
        claim(self.api, replicaset, self.owned, orphans=self._orphans_seen.get(key) != changed)
        self._orphans_seen[key] = changed

    def _active(self, replicaset: Json) -> list[PodFacts]:
        return [facts for facts in self.owned.facts(replicaset["metadata"]["uid"]) if facts.active]

    def _scale(self, replicaset: Json) -> None:
        pods = self._active(replicaset)
        missing = replicaset["spec"].get("replicas", 1) - len(pods)
        if missing > 0:
            for _ in range(min(missing, BURST)):
                self.api.create("pods", pod_from(replicaset["spec"]["template"], replicaset))
            if missing > BURST:
                self.enqueue(key_of(replicaset))
        elif missing < 0:
            for pod in removal_order([facts.pod for facts in pods])[:-missing][:BURST]:
                delete_quietly(self.api, pod)

    def _report(self, replicaset: Json) -> None:
        labels = (replicaset["spec"]["template"].get("metadata") or {}).get("labels") or {}
        pods = self._active(replicaset)
        up = [facts.pod for facts in pods if facts.ready]
        status: Json = {
            "replicas": len(pods),
            "fullyLabeledReplicas": sum(labels.items() <= labels_of(facts.pod).items() for facts in pods),
            "readyReplicas": len(up),
            "availableReplicas": self._available(replicaset, up),
            "observedGeneration": replicaset["metadata"].get("generation", 1),
        }
        status = {k: v for k, v in status.items() if v or k in ("replicas", "observedGeneration")}
        before = replicaset.get("status") or {}
        if status != {k: v for k, v in before.items() if k != "conditions"}:
            kept = {"conditions": before["conditions"]} if before.get("conditions") else {}
            self.api.update(RESOURCE, {**replicaset, "status": status | kept}, "status")

    def _available(self, replicaset: Json, up: list[Json]) -> int:
        least = replicaset["spec"].get("minReadySeconds", 0)
        if not least:
            return len(up)
        now, count, soonest = self.clock.now(), 0, 0.0
        for pod in up:
            since = next(c["lastTransitionTime"] for c in pod["status"]["conditions"] if c["type"] == "Ready")
            left = least - (now - parse_time(since)).total_seconds()
            if left <= 0:
                count += 1
            else:
                soonest = min(soonest or left, left)
        if soonest:
            self.enqueue(key_of(replicaset), soonest)
        return count
