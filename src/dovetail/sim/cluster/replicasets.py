"""ReplicaSets: as many pods as asked for, no more, no fewer."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.sim.cluster.base import (
    CommitHandler,
    Json,
    Key,
    SimController,
    SimControllerManager,
    StatusReporter,
)
from dovetail.sim.cluster.objects import controller_of, is_deleting, key_of, labels_of, needs_reconcile
from dovetail.sim.cluster.owner_index import OwnedPods, OwnerIndex
from dovetail.sim.cluster.workload_pods import (
    SelectorCache,
    adopt_pod,
    build_pod,
    count_available,
    delete_quietly,
    order_for_removal,
    release_pods,
)
from dovetail.sim.kube.meta import with_condition
from dovetail.sim.kube.status import ApiError

__all__ = ["ReplicaSetController"]

RESOURCE = "replicasets.apps"
# As the real one: never more than this many pods made or removed in one look.
BURST = 500


class ReplicaSetController(SimController):
    """Makes and removes the pods of every ReplicaSet."""

    name = "replicaset-controller"

    def __init__(self, manager: SimControllerManager, owned: OwnerIndex) -> None:
        super().__init__(manager)
        self.owned = owned
        self._matchers = SelectorCache()
        self._reporter = StatusReporter(manager, self.name, self._report_status)
        self._refusals: dict[Key, str] = {}
        # Sets that may find pods to adopt: new ones, and those an orphan's labels point to.
        self._adopting: set[Key] = set()
        owned.subscribe_owner("ReplicaSet", self.enqueue)
        owned.subscribe_orphans(self._handle_orphan)

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        return {RESOURCE: self._handle_replicaset}

    def _handle_replicaset(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            assert before is not None
            self._matchers.forget(key_of(before))
            self._refusals.pop(key_of(before), None)
            self._adopting.discard(key_of(before))
        elif needs_reconcile(before, after):
            self._adopting.add(key_of(after))
            self.enqueue(key_of(after))

    def _handle_orphan(self, pod: Json) -> None:
        labels = labels_of(pod)
        for replicaset in self.list_objects(RESOURCE, pod["metadata"]["namespace"]) if labels else ():
            if self._matchers.get_matcher(replicaset)(labels):
                self._adopting.add(key_of(replicaset))
                self.enqueue(key_of(replicaset))

    def reconcile(self, key: Key) -> None:
        replicaset = self.find_object(RESOURCE, key)
        if replicaset is None:
            return
        family = self.owned.get_owned_pods(replicaset["metadata"]["uid"])
        if family.news:
            release_pods(self.api, replicaset, family, self._matchers.get_matcher(replicaset))
        if not is_deleting(replicaset):
            if key in self._adopting:
                self._adopting.discard(key)
                self._adopt_orphans(replicaset)
            self._scale_pods(key, replicaset)
        self._reporter.enqueue(key)

    def _adopt_orphans(self, replicaset: Json) -> None:
        orphans, namespace = self.owned.get_owned_pods(""), replicaset["metadata"]["namespace"]
        matches = self._matchers.get_matcher(replicaset)
        for facts in orphans.list_active():
            if facts.pod["metadata"]["namespace"] == namespace and matches(labels_of(facts.pod)):
                adopt_pod(self.api, facts.pod, replicaset)

    def _scale_pods(self, key: Key, replicaset: Json) -> None:
        family = self.owned.get_owned_pods(replicaset["metadata"]["uid"])
        missing = replicaset["spec"].get("replicas", 1) - family.active
        if missing > 0:
            self._create_pods(key, replicaset, missing)
        elif missing < 0:
            pods = [facts.pod for facts in family.list_active()]
            for pod in order_for_removal(pods, self._list_related_pods(replicaset, family))[:-missing][
                :BURST
            ]:
                delete_quietly(self.api, pod)
        if abs(missing) > BURST:
            self.enqueue(key)

    def _create_pods(self, key: Key, replicaset: Json, missing: int) -> None:
        try:
            for _ in range(min(missing, BURST)):
                self.api.create_pod(build_pod(replicaset["spec"]["template"], replicaset))
            self._refusals.pop(key, None)
        except ApiError as error:
            self._refusals[key] = str(error)
            self._reporter.enqueue(key)
            raise

    def _list_related_pods(self, replicaset: Json, family: OwnedPods) -> list[Json]:
        owner = controller_of(replicaset)
        families = [family]
        if owner is not None:
            families = [
                self.owned.get_owned_pods(s["metadata"]["uid"])
                for s in self.owned.list_replicasets(owner["uid"])
            ]
        return [facts.pod for each in families for facts in each.list_active()]

    def _report_status(self, key: Key) -> None:
        replicaset = self.find_object(RESOURCE, key)
        if replicaset is None:
            return
        family = self.owned.get_owned_pods(replicaset["metadata"]["uid"])
        labels = ((replicaset["spec"]["template"].get("metadata") or {}).get("labels") or {}).items()
        counts = {
            "fullyLabeledReplicas": sum(n for worn, n in family.by_labels.items() if labels <= worn),
            "readyReplicas": family.ready,
            "availableReplicas": self._count_available(replicaset, family),
        }
        status: Json = {"replicas": family.active, **{k: v for k, v in counts.items() if v}}
        status["observedGeneration"] = replicaset["metadata"].get("generation", 1)
        before = replicaset.get("status") or {}
        status |= self._describe_failure(key, before)
        if status != before:
            self.api.report_status(RESOURCE, replicaset, status)

    def _describe_failure(self, key: Key, before: Json) -> Json:
        """Whether pods are refused is a condition, there only while it is so."""
        others = [c for c in before.get("conditions") or () if c["type"] != "ReplicaFailure"]
        if key not in self._refusals:
            return {"conditions": others} if others else {}
        refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
        kept = {"conditions": before.get("conditions") or []}
        return with_condition(kept, refused | {"message": self._refusals[key]}, self.format_now())

    def _count_available(self, replicaset: Json, family: OwnedPods) -> int:
        least = replicaset["spec"].get("minReadySeconds", 0)
        if not least:
            return family.ready
        pods = [facts.pod for facts in family.list_active()]
        count, soonest = count_available(pods, least, self.clock.now())
        if soonest:
            self._reporter.enqueue(key_of(replicaset), soonest)
        return count
