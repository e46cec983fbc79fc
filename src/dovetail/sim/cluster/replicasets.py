"""ReplicaSets: as many pods as asked for, no more, no fewer."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.objects import controller_of, deleting, key_of, labels_of, parse_time, ready
from dovetail.sim.cluster.owned import Owned
from dovetail.sim.cluster.pods_of import active, claimed_pods, delete_quietly, pod_from, removal_order
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

    def work(self, key: Key) -> None:
        try:
            replicaset = self.api.get(RESOURCE, key[1], key[0])
        except ApiError as error:
            if error.code == 404:
                return
            raise
        pods = [p for p in claimed_pods(self.api, replicaset, self.owned.pods) if active(p)]
        if not deleting(replicaset):
            self._scale(replicaset, pods)
            pods = [p for p in self.owned.pods(replicaset["metadata"]["uid"]) if active(p)]
        self._report(replicaset, pods)

    def _scale(self, replicaset: Json, pods: list[Json]) -> None:
        missing = replicaset["spec"].get("replicas", 1) - len(pods)
        if missing > 0:
            for _ in range(min(missing, BURST)):
                self.api.create("pods", pod_from(replicaset["spec"]["template"], replicaset))
            if missing > BURST:
                self.enqueue(key_of(replicaset))
        elif missing < 0:
            for pod in removal_order(pods)[:-missing][:BURST]:
                delete_quietly(self.api, pod)

    def _report(self, replicaset: Json, pods: list[Json]) -> None:
        labels = (replicaset["spec"]["template"].get("metadata") or {}).get("labels") or {}
        up = [p for p in pods if ready(p)]
        status: Json = {
            "replicas": len(pods),
            "fullyLabeledReplicas": sum(labels.items() <= labels_of(p).items() for p in pods),
            "readyReplicas": len(up),
            "availableReplicas": self._available(replicaset, up),
            "observedGeneration": replicaset["metadata"].get("generation", 1),
        }
        status = {k: v for k, v in status.items() if v or k in ("replicas", "observedGeneration")}
        have = {k: v for k, v in (replicaset.get("status") or {}).items() if k != "conditions"}
        if status != have:
            kept = {"conditions": c} if (c := (replicaset.get("status") or {}).get("conditions")) else {}
            whole = {**replicaset, "status": status | kept}
            self.api.update(RESOURCE, whole, "status")

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
