"""StatefulSets: pods with names, in order, each with claims of its own."""

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
from dovetail.sim.cluster.objects import (
    has_pod_ended,
    is_deleting,
    is_pod_ready,
    key_of,
    labels_of,
    needs_reconcile,
)
from dovetail.sim.cluster.owner_index import OwnerIndex
from dovetail.sim.cluster.workload_pods import (
    HASH,
    RevisionHistory,
    build_pod,
    count_available,
    delete_quietly,
)
from dovetail.sim.kube.status import ApiError

__all__ = ["StatefulSetController"]

RESOURCE, CLAIMS = "statefulsets.apps", "persistentvolumeclaims"


class StatefulSetController(SimController):
    """Makes, orders and replaces the pods of every StatefulSet."""

    name = "statefulset-controller"

    def __init__(self, manager: SimControllerManager, owned: OwnerIndex) -> None:
        super().__init__(manager)
        self.owned = owned
        self._revisions = RevisionHistory(self)
        self._reporter = StatusReporter(manager, self.name, self._report_status)
        owned.subscribe_owner("StatefulSet", self.enqueue)

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        return {RESOURCE: self._handle_statefulset}

    def _handle_statefulset(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            assert before is not None
            self._revisions.forget(key_of(before))
        elif needs_reconcile(before, after):
            self.enqueue(key_of(after))

    def reconcile(self, key: Key) -> None:
        statefulset = self.find_object(RESOURCE, key)
        if statefulset is None:
            return
        if not is_deleting(statefulset):
            self._reconcile_pods(statefulset, self._index_pods(statefulset))
        self._reporter.enqueue(key)

    def _index_pods(self, statefulset: Json) -> dict[int, Json]:
        prefix = statefulset["metadata"]["name"] + "-"
        found = {}
        for pod in self.owned.list_pods(statefulset["metadata"]["uid"]):
            number = pod["metadata"]["name"].removeprefix(prefix)
            if number.isdigit():
                found[int(number)] = pod
        return found

    def _reconcile_pods(self, statefulset: Json, pods: dict[int, Json]) -> None:
        at_once = statefulset["spec"].get("podManagementPolicy", "OrderedReady") == "Parallel"
        wanted = _list_ordinals(statefulset)
        for ordinal in wanted:
            pod = pods.get(ordinal)
            if pod is None:
                self._create_pod(statefulset, ordinal)
            elif has_pod_ended(pod) and not is_deleting(pod):
                delete_quietly(self.api, pod)
            if not at_once and (pod is None or not _is_healthy(pod)):
                return  # the next one waits until this one is up
        for ordinal in sorted((o for o in pods if o not in wanted), reverse=True):
            if not is_deleting(pods[ordinal]):
                delete_quietly(self.api, pods[ordinal])
            if not at_once:
                return
        self._replace_outdated(statefulset, pods, wanted)

    def _replace_outdated(self, statefulset: Json, pods: dict[int, Json], wanted: range) -> None:
        """From the last to the first: replace one, and wait for it."""
        strategy = statefulset["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        newest = self._find_newest_revision(statefulset)
        for ordinal in sorted(wanted, reverse=True):
            pod = pods.get(ordinal)
            if ordinal < _read_partition(statefulset) or pod is None:
                return
            if labels_of(pod).get(HASH) != newest and not is_deleting(pod):
                delete_quietly(self.api, pod)
                return
            if not _is_healthy(pod):
                return

    def _find_newest_revision(self, statefulset: Json) -> str:
        """The name of the present template's revision, which its pods carry as a label."""
        return f"{statefulset['metadata']['name']}-{self._revisions.get_template_hash(statefulset)}"

    def _choose_revision(self, statefulset: Json, ordinal: int) -> str:
        """Which revision a pod made now is of: still the one before, below the partition and among
        pods that a rollout under way has not reached."""
        newest, status = self._find_newest_revision(statefulset), statefulset.get("status") or {}
        before = status.get("currentRevision") or newest
        strategy = statefulset["spec"].get("updateStrategy") or {}
        if before == newest or strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return newest
        first, reached = _list_ordinals(statefulset).start, _read_partition(statefulset)
        if reached <= first:
            reached = first + int(status.get("currentReplicas", 0))
        return str(before if ordinal < reached else newest)

    def _create_pod(self, statefulset: Json, ordinal: int) -> None:
        meta, spec = statefulset["metadata"], statefulset["spec"]
        name, revision = f"{meta['name']}-{ordinal}", self._choose_revision(statefulset, ordinal)
        template = spec["template"]
        if revision != self._find_newest_revision(statefulset):
            template = self._revisions.find_template(statefulset, revision) or template
        pod = build_pod(template, statefulset, name)
        pod["metadata"]["labels"] |= {
            HASH: revision,
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(ordinal),
        }
        claims = {t["metadata"]["name"]: t for t in spec.get("volumeClaimTemplates") or ()}
        volumes = [v for v in pod["spec"].get("volumes") or () if v["name"] not in claims]
        for volume, claim_template in claims.items():
            claim = f"{volume}-{name}"
            self._ensure_claim(claim, claim_template, statefulset)
            volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim}})
        named = {"hostname": name, "subdomain": spec.get("serviceName", ""), "volumes": volumes}
        pod["spec"] = {**pod["spec"], **named}
        self.api.create("pods", pod)

    def _ensure_claim(self, name: str, template: Json, statefulset: Json) -> None:
        namespace = statefulset["metadata"]["namespace"]
        if self.find_object(CLAIMS, (namespace, name)) is not None:
            return
        selector = statefulset["spec"]["selector"].get("matchLabels") or {}
        labels = {**(template["metadata"].get("labels") or {}), **selector}
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": template["spec"],
        }
        try:
            self.api.create(CLAIMS, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def _report_status(self, key: Key) -> None:
        statefulset = self.find_object(RESOURCE, key)
        if statefulset is None:
            return
        newest = self._find_newest_revision(statefulset)
        before = statefulset.get("status") or {}
        pods = {o: p for o, p in self._index_pods(statefulset).items() if not has_pod_ended(p)}
        alive = [p for p in pods.values() if not is_deleting(p)]
        up, soonest = count_available(alive, statefulset["spec"].get("minReadySeconds", 0), self.clock.now())
        if soonest:
            self._reporter.enqueue(key, soonest)
        current = before.get("currentRevision") or newest
        updated = sum(labels_of(p).get(HASH) == newest for p in alive)
        if updated == len(pods) == len(_list_ordinals(statefulset)) == sum(map(_is_healthy, alive)):
            current = newest
            self._revisions.trim_history(statefulset)
        at_current = sum(labels_of(p).get(HASH) == current for p in alive)
        status: Json = {
            "replicas": len(pods),
            "readyReplicas": sum(map(is_pod_ready, alive)),
            "availableReplicas": up,
            "currentReplicas": at_current,
            "updatedReplicas": updated,
        }
        status = {n: count for n, count in status.items() if count or n in ("replicas", "availableReplicas")}
        status |= {
            "currentRevision": current,
            "updateRevision": newest,
            "collisionCount": 0,
            "observedGeneration": statefulset["metadata"].get("generation", 1),
        }
        if status != before:
            self.api.report_status(RESOURCE, statefulset, status)


def _list_ordinals(statefulset: Json) -> range:
    spec = statefulset["spec"]
    first = (spec.get("ordinals") or {}).get("start", 0)
    return range(first, first + spec.get("replicas", 1))


def _read_partition(statefulset: Json) -> int:
    spec = statefulset["spec"]
    first = (spec.get("ordinals") or {}).get("start", 0)
    rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    return int(first + rolling.get("partition", 0))


def _is_healthy(pod: Json) -> bool:
    return is_pod_ready(pod) and not is_deleting(pod) and not has_pod_ended(pod)
