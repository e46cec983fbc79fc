"""Deployments: one ReplicaSet per template, and a rolling change from the old to the new."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.objects import controller_of, deleting, key_of, owner_reference
from dovetail.sim.cluster.owned import Owned
from dovetail.sim.cluster.pods_of import template_hash
from dovetail.sim.kube.conditions import with_condition
from dovetail.sim.kube.status import ApiError

__all__ = ["Deployments"]

RESOURCE, SETS = "deployments.apps", "replicasets.apps"
HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
DESIRED, MOST = "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"


class Deployments(Neighbour):
    """Steers the ReplicaSets of every Deployment."""

    name = "deployment-controller"

    def __init__(self, desk: Desk, owned: Owned) -> None:
        super().__init__(desk)
        self.owned = owned

    def hears(self) -> Mapping[str, Heard]:
        return {RESOURCE: self._heard, SETS: self._set_heard}

    def _heard(self, before: Json | None, after: Json | None) -> None:
        if after is not None:
            self.enqueue(key_of(after))

    def _set_heard(self, before: Json | None, after: Json | None) -> None:
        replicaset = after or before
        owner = controller_of(replicaset) if replicaset is not None else None
        if replicaset is not None and owner is not None and owner["kind"] == "Deployment":
            self.enqueue((replicaset["metadata"]["namespace"], owner["name"]))

    def work(self, key: Key) -> None:
        try:
            deployment = self.api.get(RESOURCE, key[1], key[0])
        except ApiError as error:
            if error.code == 404:
                return
            raise
        sets = self._sets(deployment)
        if not deleting(deployment):
            current = self._current(deployment, sets)
            if current is None and not deployment["spec"].get("paused"):
                current = self._create_set(deployment, sets)
            self._roll(deployment, current, [s for s in self._sets(deployment) if s is not current])
            self._trim(deployment)
        self._report(deployment, self._sets(deployment))

    def _sets(self, deployment: Json) -> list[Json]:
        return self.owned.sets(deployment["metadata"]["uid"])

    def _current(self, deployment: Json, sets: list[Json]) -> Json | None:
        wanted = _comparable(deployment["spec"]["template"])
        return next((s for s in sets if _comparable(s["spec"]["template"]) == wanted), None)

    def _create_set(self, deployment: Json, sets: list[Json]) -> Json:
        meta, spec = deployment["metadata"], deployment["spec"]
        template = spec["template"]
        mark = template_hash(msgspec.json.encode(template, order="deterministic"))
        labelled = {**(template.get("metadata") or {})}
        labelled["labels"] = {**(labelled.get("labels") or {}), HASH: mark}
        selector = {**spec["selector"]}
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH: mark}
        revision = max((_revision(s) for s in sets), default=0) + 1
        replicas = spec.get("replicas", 1)
        annotations = {
            REVISION: str(revision),
            DESIRED: str(replicas),
            MOST: str(replicas + self._surge(spec)),
        }
        body = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{meta['name']}-{mark}",
                "namespace": meta["namespace"],
                "labels": labelled["labels"],
                "annotations": annotations,
                "ownerReferences": [owner_reference(deployment)],
            },
            "spec": {
                "replicas": 0,
                "selector": selector,
                "template": {**template, "metadata": labelled},
                "minReadySeconds": spec.get("minReadySeconds", 0),
            },
        }
        created = self.api.create(SETS, body)
        if (meta.get("annotations") or {}).get(REVISION) != str(revision):
            note = {"metadata": {"annotations": {REVISION: str(revision)}}}
            self.api.patch(RESOURCE, meta["name"], note, meta["namespace"])
        return created

    def _roll(self, deployment: Json, current: Json | None, old: list[Json]) -> None:
        spec = deployment["spec"]
        replicas = spec.get("replicas", 1)
        if current is None:
            self._resize_paused(deployment, old)
            return
        if (spec.get("strategy") or {}).get("type") == "Recreate":
            for each in old:
                self._resize(each, 0, deployment)
            gone = all((s.get("status") or {}).get("replicas", 0) == 0 for s in old)
            if gone:
                self._resize(current, replicas, deployment)
            return
        total = _size(current) + sum(_size(s) for s in old)
        room = replicas + self._surge(spec) - total
        if _size(current) > replicas:
            self._resize(current, replicas, deployment)
        elif room > 0 and _size(current) < replicas:
            self._resize(current, min(replicas, _size(current) + room), deployment)
        elif not old or all(_size(s) == 0 for s in old):
            self._resize(current, replicas, deployment)
        self._shrink_old(deployment, current, old)

    def _resize_paused(self, deployment: Json, old: list[Json]) -> None:
        newest = max(old, key=_revision, default=None)
        if newest is not None:
            self._resize(newest, deployment["spec"].get("replicas", 1), deployment)

    def _shrink_old(self, deployment: Json, current: Json, old: list[Json]) -> None:
        spec = deployment["spec"]
        least = spec.get("replicas", 1) - self._unavailable(spec)
        sets = [current, *old]
        available = sum((s.get("status") or {}).get("availableReplicas", 0) for s in sets)
        spare = available - least
        for each in sorted(old, key=lambda s: (s["metadata"]["creationTimestamp"], s["metadata"]["name"])):
            size = _size(each)
            if size == 0:
                continue
            # Pods of the old template that are not available go first: nobody will miss them.
            idle = max(size - (each.get("status") or {}).get("availableReplicas", 0), 0)
            drop = min(size, idle + max(spare, 0))
            spare -= drop - min(idle, drop)
            self._resize(each, size - drop, deployment)

    def _resize(self, replicaset: Json, size: int, deployment: Json) -> None:
        replicas = deployment["spec"].get("replicas", 1)
        notes = {DESIRED: str(replicas), MOST: str(replicas + self._surge(deployment["spec"]))}
        have = replicaset["metadata"].get("annotations") or {}
        if _size(replicaset) == size and notes.items() <= have.items():
            return
        meta = replicaset["metadata"]
        patch = {"metadata": {"annotations": notes}, "spec": {"replicas": size}}
        self.api.patch(SETS, meta["name"], patch, meta["namespace"])

    def _trim(self, deployment: Json) -> None:
        """Forget the oldest empty ReplicaSets beyond the history limit."""
        limit = deployment["spec"].get("revisionHistoryLimit", 10)
        current = _comparable(deployment["spec"]["template"])
        empty = [
            s
            for s in self._sets(deployment)
            if _size(s) == 0
            and (s.get("status") or {}).get("replicas", 0) == 0
            and _comparable(s["spec"]["template"]) != current
            and not deleting(s)
        ]
        for each in sorted(empty, key=_revision)[: max(len(empty) - limit, 0)]:
            self.api.delete(SETS, each["metadata"]["name"], each["metadata"]["namespace"])

    @staticmethod
    def _surge(spec: Json) -> int:
        rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
        if (spec.get("strategy") or {}).get("type") == "Recreate":
            return 0
        return _share(rolling.get("maxSurge", "25%"), spec.get("replicas", 1), up=True)

    @classmethod
    def _unavailable(cls, spec: Json) -> int:
        rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
        allowed = _share(rolling.get("maxUnavailable", "25%"), spec.get("replicas", 1), up=False)
        # Both zero would never move: then one may be missing.
        return 1 if allowed == 0 and cls._surge(spec) == 0 else allowed

    def _report(self, deployment: Json, sets: list[Json]) -> None:
        current, spec = self._current(deployment, sets), deployment["spec"]
        total = sum((s.get("status") or {}).get("replicas", 0) for s in sets)
        available = sum((s.get("status") or {}).get("availableReplicas", 0) for s in sets)
        replicas = spec.get("replicas", 1)
        counts = {
            "replicas": total,
            "updatedReplicas": (current.get("status") or {}).get("replicas", 0) if current else 0,
            "readyReplicas": sum((s.get("status") or {}).get("readyReplicas", 0) for s in sets),
            "availableReplicas": available,
            "unavailableReplicas": max(replicas - available, 0),
        }
        before = deployment.get("status") or {}
        status: Json = {k: v for k, v in counts.items() if v}
        status["observedGeneration"] = deployment["metadata"].get("generation", 1)
        status["conditions"] = before.get("conditions", [])
        enough = available >= replicas - self._unavailable(spec)
        status = self._judged(
            status, "Available", enough, "MinimumReplicasAvailable", "MinimumReplicasUnavailable"
        )
        done = current is not None and counts["updatedReplicas"] == replicas == total == available
        status = self._judged(
            status, "Progressing", True, "NewReplicaSetAvailable" if done else "ReplicaSetUpdated", ""
        )
        if status != before:
            self.api.update(RESOURCE, {**deployment, "status": status}, "status")

    def _judged(self, status: Json, kind: str, holds: bool, good: str, bad: str) -> Json:
        have: Json = next((c for c in status["conditions"] if c["type"] == kind), {})
        state, reason = ("True", good) if holds else ("False", bad)
        if (have.get("status"), have.get("reason")) == (state, reason):
            return status
        now = self.now()
        return with_condition(
            status, {"type": kind, "status": state, "reason": reason, "lastUpdateTime": now}, now
        )


def _comparable(template: Json) -> Json:
    meta = template.get("metadata") or {}
    labels = {k: v for k, v in (meta.get("labels") or {}).items() if k != HASH}
    return {"labels": labels, "annotations": meta.get("annotations") or {}, "spec": template["spec"]}


def _size(replicaset: Json) -> int:
    return int(replicaset["spec"].get("replicas", 1))


def _revision(replicaset: Json) -> int:
    text = (replicaset["metadata"].get("annotations") or {}).get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def _share(amount: int | str, whole: int, *, up: bool) -> int:
    """An absolute number, or a percentage of the whole."""
    if isinstance(amount, int):
        return amount
    part = whole * int(amount.rstrip("%")) / 100
    return math.ceil(part) if up else math.floor(part)
