"""ReplicaSets: as many pods as asked for, no more, no fewer."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour, Reporter
from dovetail.sim.cluster.objects import controller_of, deleting, key_of, labels_of, rethought
from dovetail.sim.cluster.owned import Family, Owned
from dovetail.sim.cluster.pods_of import (
    Matchers,
    adopt,
    available,
    delete_quietly,
    pod_from,
    release,
    removal_order,
)
from dovetail.sim.kube.conditions import with_condition
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
        self._matchers = Matchers()
        self._reporter = Reporter(desk, self.name, self._report)
        self._refusals: dict[Key, str] = {}
        # Sets that may find pods to adopt: new ones, and those an orphan's labels point to.
        self._adopting: set[Key] = set()
        owned.tell("ReplicaSet", self.enqueue)
        owned.tell_orphans(self._orphan_heard)

    def hears(self) -> Mapping[str, Heard]:
        return {RESOURCE: self._heard}

    def _heard(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            assert before is not None
            self._matchers.forget(key_of(before))
            self._refusals.pop(key_of(before), None)
            self._adopting.discard(key_of(before))
        elif rethought(before, after):
            self._adopting.add(key_of(after))
            self.enqueue(key_of(after))

    def _orphan_heard(self, pod: Json) -> None:
        labels = labels_of(pod)
        for replicaset in self.every(RESOURCE, pod["metadata"]["namespace"]) if labels else ():
            if self._matchers.of(replicaset)(labels):
                self._adopting.add(key_of(replicaset))
                self.enqueue(key_of(replicaset))

    def work(self, key: Key) -> None:
        replicaset = self.find(RESOURCE, key)
        if replicaset is None:
            return
        family = self.owned.family(replicaset["metadata"]["uid"])
        if family.news:
            release(self.api, replicaset, family, self._matchers.of(replicaset))
        if not deleting(replicaset):
            if key in self._adopting:
                self._adopting.discard(key)
                self._adopt(replicaset)
            self._scale(key, replicaset)
        self._reporter.enqueue(key)

    def _adopt(self, replicaset: Json) -> None:
        orphans, namespace = self.owned.family(""), replicaset["metadata"]["namespace"]
        matches = self._matchers.of(replicaset)
        for facts in orphans.living():
            if facts.pod["metadata"]["namespace"] == namespace and matches(labels_of(facts.pod)):
                adopt(self.api, facts.pod, replicaset)

    def _scale(self, key: Key, replicaset: Json) -> None:
        family = self.owned.family(replicaset["metadata"]["uid"])
        missing = replicaset["spec"].get("replicas", 1) - family.active
        if missing > 0:
            self._grow(key, replicaset, missing)
        elif missing < 0:
            pods = [facts.pod for facts in family.living()]
            for pod in removal_order(pods, self._related(replicaset, family))[:-missing][:BURST]:
                delete_quietly(self.api, pod)
        if abs(missing) > BURST:
            self.enqueue(key)

    def _grow(self, key: Key, replicaset: Json, missing: int) -> None:
        try:
            for _ in range(min(missing, BURST)):
                self.api.spawn(pod_from(replicaset["spec"]["template"], replicaset))
            self._refusals.pop(key, None)
        except ApiError as error:
            self._refusals[key] = str(error)
            self._reporter.enqueue(key)
            raise

    def _related(self, replicaset: Json, family: Family) -> list[Json]:
        owner = controller_of(replicaset)
        families = [family]
        if owner is not None:
            families = [self.owned.family(s["metadata"]["uid"]) for s in self.owned.sets(owner["uid"])]
        return [facts.pod for each in families for facts in each.living()]

    def _report(self, key: Key) -> None:
        replicaset = self.find(RESOURCE, key)
        if replicaset is None:
            return
        family = self.owned.family(replicaset["metadata"]["uid"])
        labels = ((replicaset["spec"]["template"].get("metadata") or {}).get("labels") or {}).items()
        counts = {
            "fullyLabeledReplicas": sum(n for worn, n in family.wearing.items() if labels <= worn),
            "readyReplicas": family.ready,
            "availableReplicas": self._available(replicaset, family),
        }
        status: Json = {"replicas": family.active, **{k: v for k, v in counts.items() if v}}
        status["observedGeneration"] = replicaset["metadata"].get("generation", 1)
        before = replicaset.get("status") or {}
        status |= self._trouble(key, before)
        if status != before:
            self.api.report(RESOURCE, replicaset, status)

    def _trouble(self, key: Key, before: Json) -> Json:
        """Whether pods are refused is a condition, there only while it is so."""
        others = [c for c in before.get("conditions") or () if c["type"] != "ReplicaFailure"]
        if key not in self._refusals:
            return {"conditions": others} if others else {}
        refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
        kept = {"conditions": before.get("conditions") or []}
        return with_condition(kept, refused | {"message": self._refusals[key]}, self.now())

    def _available(self, replicaset: Json, family: Family) -> int:
        least = replicaset["spec"].get("minReadySeconds", 0)
        if not least:
            return family.ready
        pods = [facts.pod for facts in family.living()]
        count, soonest = available(pods, least, self.clock.now())
        if soonest:
            self._reporter.enqueue(key_of(replicaset), soonest)
        return count
