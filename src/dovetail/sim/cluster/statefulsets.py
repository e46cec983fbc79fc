"""StatefulSets: pods with names, in order, each with claims of its own."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.objects import controller_of, deleting, ended, key_of, ready
from dovetail.sim.cluster.owned import Owned
from dovetail.sim.cluster.pods_of import delete_quietly, pod_from, template_hash
from dovetail.sim.kube.status import ApiError

__all__ = ["StatefulSets"]

RESOURCE, CLAIMS = "statefulsets.apps", "persistentvolumeclaims"
HASH = "controller-revision-hash"


class StatefulSets(Neighbour):
    """Makes, orders and replaces the pods of every StatefulSet."""

    name = "statefulset-controller"

    def __init__(self, desk: Desk, owned: Owned) -> None:
        super().__init__(desk)
        self.owned = owned

    def hears(self) -> Mapping[str, Heard]:
        return {RESOURCE: self._heard, "pods": self._pod_heard}

    def _heard(self, before: Json | None, after: Json | None) -> None:
        if after is not None:
            self.enqueue(key_of(after))

    def _pod_heard(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        owner = controller_of(pod) if pod is not None else None
        if pod is not None and owner is not None and owner["kind"] == "StatefulSet":
            self.enqueue((pod["metadata"]["namespace"], owner["name"]))

    def work(self, key: Key) -> None:
        try:
            statefulset = self.api.get(RESOURCE, key[1], key[0])
        except ApiError as error:
            if error.code == 404:
                return
            raise
        if not deleting(statefulset):
            self._order(statefulset, self._pods(statefulset))
        self._report(statefulset, self._pods(statefulset))

    def _pods(self, statefulset: Json) -> dict[int, Json]:
        prefix = statefulset["metadata"]["name"] + "-"
        found = {}
        for pod in self.owned.pods(statefulset["metadata"]["uid"]):
            number = pod["metadata"]["name"].removeprefix(prefix)
            if number.isdigit():
                found[int(number)] = pod
        return found

    def _order(self, statefulset: Json, pods: dict[int, Json]) -> None:
        spec = statefulset["spec"]
        first = (spec.get("ordinals") or {}).get("start", 0)
        wanted = range(first, first + spec.get("replicas", 1))
        at_once = spec.get("podManagementPolicy", "OrderedReady") == "Parallel"
        for ordinal in wanted:
            pod = pods.get(ordinal)
            if pod is None:
                self._create(statefulset, ordinal)
            elif ended(pod) and not deleting(pod):
                delete_quietly(self.api, pod)
            if not at_once and (pod is None or deleting(pod) or not ready(pod)):
                return  # the next one waits until this one is up
        for ordinal in sorted((o for o in pods if o not in wanted), reverse=True):
            if not deleting(pods[ordinal]):
                delete_quietly(self.api, pods[ordinal])
            if not at_once:
                return
        self._replace_outdated(statefulset, pods, wanted)

    def _replace_outdated(self, statefulset: Json, pods: dict[int, Json], wanted: range) -> None:
        strategy = statefulset["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
        mark = _mark(statefulset)
        if any(o not in pods or deleting(pods[o]) or not ready(pods[o]) for o in wanted):
            return
        for ordinal in sorted(wanted, reverse=True):
            if ordinal >= partition and (pods[ordinal]["metadata"].get("labels") or {}).get(HASH) != mark:
                delete_quietly(self.api, pods[ordinal])
                return

    def _create(self, statefulset: Json, ordinal: int) -> None:
        meta, spec = statefulset["metadata"], statefulset["spec"]
        name = f"{meta['name']}-{ordinal}"
        pod = pod_from(spec["template"], statefulset, name)
        pod["metadata"]["labels"] |= {
            HASH: _mark(statefulset),
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(ordinal),
        }
        claims = {t["metadata"]["name"]: t for t in spec.get("volumeClaimTemplates") or ()}
        volumes = [v for v in pod["spec"].get("volumes") or () if v["name"] not in claims]
        for volume, template in claims.items():
            claim = f"{volume}-{name}"
            self._ensure_claim(claim, template, statefulset)
            volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim}})
        pod["spec"] = {
            **pod["spec"],
            "hostname": name,
            "subdomain": spec.get("serviceName", ""),
            "volumes": volumes,
        }
        self.api.create("pods", pod)

    def _ensure_claim(self, name: str, template: Json, statefulset: Json) -> None:
        namespace = statefulset["metadata"]["namespace"]
        labels = {
            **(template["metadata"].get("labels") or {}),
            **(statefulset["spec"]["selector"].get("matchLabels") or {}),
        }
        meta = {"name": name, "namespace": namespace, "labels": labels}
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": meta,
            "spec": template["spec"],
        }
        try:
            self.api.create(CLAIMS, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def _report(self, statefulset: Json, pods: dict[int, Json]) -> None:
        alive = [p for p in pods.values() if not deleting(p) and not ended(p)]
        mark = _mark(statefulset)
        updated = sum((p["metadata"].get("labels") or {}).get(HASH) == mark for p in alive)
        up = sum(ready(p) for p in alive)
        status: Json = {
            "replicas": len(alive),
            "readyReplicas": up,
            "availableReplicas": up,
            "currentReplicas": updated,
            "updatedReplicas": updated,
            "currentRevision": f"{statefulset['metadata']['name']}-{mark}",
            "updateRevision": f"{statefulset['metadata']['name']}-{mark}",
            "collisionCount": 0,
            "observedGeneration": statefulset["metadata"].get("generation", 1),
        }
        if status != statefulset.get("status"):
            self.api.update(RESOURCE, {**statefulset, "status": status}, "status")


def _mark(statefulset: Json) -> str:
    return template_hash(msgspec.json.encode(statefulset["spec"]["template"], order="deterministic"))
