"""Deployments: one ReplicaSet per template, and a rolling change from the old to the new."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from dovetail.sim.cluster.base import CommitHandler, Json, Key, SimController, SimControllerManager
from dovetail.sim.cluster.objects import (
    controller_of,
    has_pod_ended,
    is_deleting,
    key_of,
    labels_of,
    needs_reconcile,
    owner_reference,
    parse_time,
)
from dovetail.sim.cluster.owner_index import OwnerIndex
from dovetail.sim.cluster.rollout import (
    DESIRED,
    MOST,
    DeploymentRollout,
    compute_surge,
    compute_unavailable,
    read_size,
)
from dovetail.sim.cluster.workload_pods import SelectorCache, hash_template
from dovetail.sim.kube.meta import find_condition, with_condition

__all__ = ["DeploymentController"]

RESOURCE, SETS = "deployments.apps", "replicasets.apps"
HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"


class DeploymentController(SimController):
    """Steers the ReplicaSets of every Deployment."""

    name = "deployment-controller"
    reports = True

    def __init__(self, manager: SimControllerManager, owned: OwnerIndex) -> None:
        super().__init__(manager)
        self.owned = owned
        self._matchers = SelectorCache()
        self._current: dict[Key, tuple[Json, str]] = {}

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        return {RESOURCE: self._handle_deployment, SETS: self._handle_replicaset, "pods": self._handle_pod}

    def _handle_deployment(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            assert before is not None
            self._matchers.forget(key_of(before))
            self._current.pop(key_of(before), None)
        elif needs_reconcile(before, after):
            self.enqueue(key_of(after))

    def _handle_replicaset(self, before: Json | None, after: Json | None) -> None:
        replicaset = after or before
        owner = controller_of(replicaset) if replicaset is not None else None
        if replicaset is not None and owner is not None and owner["kind"] == "Deployment":
            self.enqueue((replicaset["metadata"]["namespace"], owner["name"]))

    def _handle_pod(self, before: Json | None, after: Json | None) -> None:
        """Recreate waits for the last old pod to be gone, which changes no ReplicaSet's status."""
        if after is not None or before is None:
            return
        owner = controller_of(before)
        if owner is not None and owner["kind"] == "ReplicaSet":
            replicaset = self.find_object(SETS, (before["metadata"]["namespace"], owner["name"]))
            if replicaset is not None and read_size(replicaset) == 0:
                self._handle_replicaset(None, replicaset)

    def reconcile(self, key: Key) -> None:
        deployment = self.find_object(RESOURCE, key)
        if deployment is None:
            return
        if not is_deleting(deployment):
            self._adopt_replicasets(deployment)
            self._steer_rollout(key, deployment)
            deployment = self.find_object(RESOURCE, key) or deployment
        self._report_status(key, deployment)

    def _list_replicasets(self, deployment: Json) -> list[Json]:
        return self.owned.list_replicasets(deployment["metadata"]["uid"])

    def _adopt_replicasets(self, deployment: Json) -> None:
        namespace = deployment["metadata"]["namespace"]
        for replicaset in self.owned.list_replicasets(""):
            meta = replicaset["metadata"]
            near = meta["namespace"] == namespace and not is_deleting(replicaset)
            if near and self._matchers.get_matcher(deployment)(labels_of(replicaset)):
                owners = [*(meta.get("ownerReferences") or ()), owner_reference(deployment)]
                patch = {"metadata": {"ownerReferences": owners, "uid": meta["uid"]}}
                self.api.patch(SETS, meta["name"], patch, namespace)

    def _steer_rollout(self, key: Key, deployment: Json) -> None:
        current = self._find_current(key, deployment)
        paused = bool(deployment["spec"].get("paused"))
        if current is None and not paused:
            current = self._create_replicaset(key, deployment)
        if current is not None:
            current = self._renumber_revision(deployment, current)
        name = current["metadata"]["name"] if current is not None else ""
        old = [s for s in self._list_replicasets(deployment) if s["metadata"]["name"] != name]
        rollout = DeploymentRollout(deployment, current, old)
        if paused or rollout.was_resized():
            changes = rollout.plan_resize()
        elif (deployment["spec"].get("strategy") or {}).get("type") == "Recreate":
            changes = rollout.plan_recreate(old_running=any(self._has_running_pods(s) for s in old))
        else:
            changes = rollout.plan_rolling_update()
        for replicaset, size in changes:
            self._resize_replicaset(replicaset, size, deployment)
        if not paused:
            self._trim_history(deployment, name)

    def _has_running_pods(self, replicaset: Json) -> bool:
        return any(not has_pod_ended(pod) for pod in self.owned.list_pods(replicaset["metadata"]["uid"]))

    def _find_current(self, key: Key, deployment: Json) -> Json | None:
        """The set of the present template; remembered for as long as the template is the same document."""
        template = deployment["spec"]["template"]
        known = self._current.get(key)
        if known is not None and known[0] is template:
            found = self.find_object(SETS, (key[0], known[1]))
            if found is not None:
                return found
        wanted = _comparable_template(template)
        by_age = sorted(self._list_replicasets(deployment), key=lambda s: s["metadata"]["creationTimestamp"])
        found = next((s for s in by_age if _comparable_template(s["spec"]["template"]) == wanted), None)
        if found is not None:
            self._current[key] = (template, found["metadata"]["name"])
        return found

    def _create_replicaset(self, key: Key, deployment: Json) -> Json:
        meta, spec = deployment["metadata"], deployment["spec"]
        template = spec["template"]
        mark = hash_template(msgspec.json.encode(template, order="deterministic"))
        labelled = {**(template.get("metadata") or {})}
        labelled["labels"] = {**(labelled.get("labels") or {}), HASH: mark}
        selector = {**spec["selector"]}
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH: mark}
        notes = _copy_annotations(meta.get("annotations") or {}) | _build_annotations(spec)
        body = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{meta['name']}-{mark}",
                "namespace": meta["namespace"],
                "labels": labelled["labels"],
                "annotations": notes | {REVISION: str(self._find_newest_revision(deployment) + 1)},
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
        self._current[key] = (template, created["metadata"]["name"])
        return created

    def _find_newest_revision(self, deployment: Json, apart: str = "") -> int:
        sets = self._list_replicasets(deployment)
        return max((_read_revision(s) for s in sets if s["metadata"]["name"] != apart), default=0)

    def _renumber_revision(self, deployment: Json, current: Json) -> Json:
        """The present template's set carries the newest revision, also when it is an old one come back."""
        name, namespace = current["metadata"]["name"], current["metadata"]["namespace"]
        newest = self._find_newest_revision(deployment, apart=name)
        number = _read_revision(current)
        if number <= newest:
            number = newest + 1
            note = {"metadata": {"annotations": {REVISION: str(number)}}}
            current = self.api.patch(SETS, name, note, namespace)
        meta = deployment["metadata"]
        if (meta.get("annotations") or {}).get(REVISION) != str(number):
            note = {"metadata": {"annotations": {REVISION: str(number)}}}
            self.api.patch(RESOURCE, meta["name"], note, meta["namespace"])
        return current

    def _resize_replicaset(self, replicaset: Json, size: int, deployment: Json) -> None:
        notes = _build_annotations(deployment["spec"])
        have = replicaset["metadata"].get("annotations") or {}
        if read_size(replicaset) == size and notes.items() <= have.items():
            return
        meta = {**replicaset["metadata"], "annotations": have | notes}
        spec = {**replicaset["spec"], "replicas": size}
        self.api.amend(SETS, key_of(replicaset), metadata=meta, spec=spec)

    def _trim_history(self, deployment: Json, current: str) -> None:
        """Forget the oldest empty ReplicaSets beyond the history limit."""
        limit = deployment["spec"].get("revisionHistoryLimit", 10)
        empty = [
            s
            for s in self._list_replicasets(deployment)
            if read_size(s) == 0
            and (s.get("status") or {}).get("replicas", 0) == 0
            and s["metadata"]["name"] != current
            and not is_deleting(s)
        ]
        for each in sorted(empty, key=_read_revision)[: max(len(empty) - limit, 0)]:
            self.api.delete(SETS, each["metadata"]["name"], each["metadata"]["namespace"])

    def _report_status(self, key: Key, deployment: Json) -> None:
        sets, spec = self._list_replicasets(deployment), deployment["spec"]
        current = self._find_current(key, deployment)
        total, available = _sum_counts(sets, "replicas"), _sum_counts(sets, "availableReplicas")
        replicas = spec.get("replicas", 1)
        counts = {
            "replicas": total,
            "updatedReplicas": _sum_counts([current] if current else [], "replicas"),
            "readyReplicas": _sum_counts(sets, "readyReplicas"),
            "availableReplicas": available,
            "unavailableReplicas": max(sum(map(read_size, sets)) - available, 0),
        }
        before = deployment.get("status") or {}
        status: Json = {k: v for k, v in counts.items() if v}
        status["observedGeneration"] = deployment["metadata"].get("generation", 1)
        status["conditions"] = before.get("conditions", [])
        enough = available >= replicas - compute_unavailable(spec)
        good, bad = "MinimumReplicasAvailable", "MinimumReplicasUnavailable"
        status = self._set_condition(
            status, "Available", "True" if enough else "False", good if enough else bad
        )
        done = counts["updatedReplicas"] == replicas == total == available and current is not None
        status = self._report_progress(key, deployment, status, done=done)
        if status != before:
            self.api.report_status(RESOURCE, deployment, status)

    def _report_progress(self, key: Key, deployment: Json, status: Json, *, done: bool) -> Json:
        """Progressing: complete, on the way, or without any movement for longer than allowed."""
        if done:
            return self._set_condition(status, "Progressing", "True", "NewReplicaSetAvailable")
        before, have = deployment.get("status") or {}, find_condition({"status": status}, "Progressing")
        if deployment["spec"].get("paused"):
            return self._set_condition(status, "Progressing", "Unknown", "DeploymentPaused")
        if (
            have is not None
            and have["reason"] == "NewReplicaSetAvailable"
            and not _has_new_work(before, status)
        ):
            return status  # a finished rollout stays finished when pods come and go
        patience = timedelta(seconds=deployment["spec"].get("progressDeadlineSeconds", 600))
        if have is None or _has_progressed(before, status) or have["reason"] == "NewReplicaSetAvailable":
            self.enqueue(key, patience.total_seconds())
            return self._set_condition(status, "Progressing", "True", "ReplicaSetUpdated", again=True)
        waited = self.clock.now() - parse_time(have["lastUpdateTime"])
        if waited < patience:
            self.enqueue(key, (patience - waited).total_seconds())
            return status
        return self._set_condition(status, "Progressing", "False", "ProgressDeadlineExceeded")

    def _set_condition(
        self, status: Json, kind: str, state: str, reason: str, *, again: bool = False
    ) -> Json:
        have = find_condition({"status": status}, kind) or {}
        if (have.get("status"), have.get("reason")) == (state, reason) and not again:
            return status
        now = self.format_now()
        condition = {"type": kind, "status": state, "reason": reason, "lastUpdateTime": now}
        return with_condition(status, condition, now)


def _comparable_template(template: Json) -> Json:
    meta = template.get("metadata") or {}
    labels = {k: v for k, v in (meta.get("labels") or {}).items() if k != HASH}
    return {"labels": labels, "annotations": meta.get("annotations") or {}, "spec": template["spec"]}


def _read_revision(replicaset: Json) -> int:
    text = (replicaset["metadata"].get("annotations") or {}).get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def _build_annotations(spec: Json) -> dict[str, str]:
    replicas = spec.get("replicas", 1)
    return {DESIRED: str(replicas), MOST: str(replicas + compute_surge(spec))}


def _copy_annotations(annotations: dict[str, str]) -> dict[str, str]:
    """A ReplicaSet takes over its Deployment's annotations, but for those about applying and revisions."""
    apart = ("kubectl.kubernetes.io/last-applied-configuration", REVISION, DESIRED, MOST)
    return {name: value for name, value in annotations.items() if name not in apart}


def _sum_counts(sets: list[Json], count: str) -> int:
    return sum((s.get("status") or {}).get(count, 0) for s in sets)


def _has_progressed(before: Json, after: Json) -> bool:
    """More of the new, fewer of the old, or more of them available."""

    def old_ones(status: Json) -> int:
        return int(status.get("replicas", 0)) - int(status.get("updatedReplicas", 0))

    grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return old_ones(after) < old_ones(before) or any(after.get(c, 0) > before.get(c, 0) for c in grown)


def _has_new_work(before: Json, after: Json) -> bool:
    """A finished Deployment was given something new to do."""
    return bool(before.get("observedGeneration") != after["observedGeneration"])
