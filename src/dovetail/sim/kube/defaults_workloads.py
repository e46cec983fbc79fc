"""Defaults of the kinds that make pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube.defaults_pods import default_pod_spec

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core

_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_CONTROLLER_UID, _JOB_NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"

# Counters a typed server always prints, and typed clients insist on, even when they are zero.
_COUNTERS = {
    "replicasets.apps": ("replicas",),
    "replicationcontrollers": ("replicas",),
    "statefulsets.apps": ("availableReplicas", "replicas"),
    "horizontalpodautoscalers.autoscaling": ("currentReplicas", "desiredReplicas"),
    "daemonsets.apps": (
        "currentNumberScheduled",
        "desiredNumberScheduled",
        "numberMisscheduled",
        "numberReady",
    ),
    "poddisruptionbudgets.policy": (
        "currentHealthy",
        "desiredHealthy",
        "disruptionsAllowed",
        "expectedPods",
    ),
}


def default_status(resource: str, obj: dict[str, Any]) -> None:
    """A status with the counters its kind always shows."""
    counters = _COUNTERS.get(resource, ())
    state = obj.get("status") or {}
    if "status" not in obj or any(name not in state for name in counters):
        obj["status"] = {**state, **{name: state.get(name, 0) for name in counters}}


def default_template(spec: dict[str, Any]) -> None:
    """Defaults of the pods a workload makes."""
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    default_pod_spec(template.setdefault("spec", {}))


def count_templates(core: Core, obj: dict[str, Any], old: dict[str, Any]) -> None:
    """A DaemonSet counts the templates it has had, in an annotation its pods are labelled with."""
    before = (old.get("metadata", {}).get("annotations") or {}).get(_TEMPLATE_GENERATION, "0")
    count = int(before) if before.isdigit() else 0
    if obj["spec"].get("template") != old.get("spec", {}).get("template"):
        count += 1
    annotations = obj["metadata"].get("annotations") or {}
    obj["metadata"]["annotations"] = {**annotations, _TEMPLATE_GENERATION: str(count)}


def default_deployment(obj: dict[str, Any]) -> None:
    """Defaults of a Deployment."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    default_template(spec)


def default_replica_set(obj: dict[str, Any]) -> None:
    """Defaults of a ReplicaSet."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    default_template(spec)


def default_replication_controller(obj: dict[str, Any]) -> None:
    """Defaults of a ReplicationController: its selector is its template's labels."""
    default_replica_set(obj)
    spec = obj["spec"]
    labels = (spec.get("template") or {}).get("metadata", {}).get("labels") or {}
    if labels and not spec.get("selector"):
        spec["selector"] = dict(labels)
    if labels and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = dict(labels)


def default_stateful_set(obj: dict[str, Any]) -> None:
    """Defaults of a StatefulSet."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("serviceName", "")
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    spec.setdefault("revisionHistoryLimit", 10)
    for claim in spec.get("volumeClaimTemplates") or ():
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
        claim["kind"], claim["apiVersion"] = "PersistentVolumeClaim", "v1"
        claim.setdefault("status", {}).setdefault("phase", "Pending")
    default_template(spec)


def default_daemon_set(obj: dict[str, Any]) -> None:
    """Defaults of a DaemonSet."""
    spec = obj.setdefault("spec", {})
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    default_template(spec)


def default_job_spec(spec: dict[str, Any]) -> None:
    """Defaults of a job, on its own or inside a CronJob."""
    if "parallelism" not in spec:
        spec.setdefault("completions", 1)
        spec["parallelism"] = 1
    # With a limit for each index, there is none for all.
    spec.setdefault("backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else 2**31 - 1)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    policy = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", policy)
    default_template(spec)


def default_job(obj: dict[str, Any]) -> None:
    """Defaults of a Job."""
    spec = obj.setdefault("spec", {})
    default_job_spec(spec)
    spec.setdefault("manualSelector", False)


def select_new_job(obj: dict[str, Any]) -> None:
    """Give a new job a selector nobody else has, and its pods the labels to match."""
    spec, metadata = obj["spec"], obj["metadata"]
    if spec.get("manualSelector") or "template" not in spec:
        return
    labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    for key, value in (
        (_CONTROLLER_UID, metadata["uid"]),
        (_JOB_NAME, metadata["name"]),
        ("controller-uid", metadata["uid"]),
        ("job-name", metadata["name"]),
    ):
        labels[key] = value
    selector = spec.setdefault("selector", {})
    selector.setdefault("matchLabels", {})[_CONTROLLER_UID] = metadata["uid"]
    if not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def default_cron_job(obj: dict[str, Any]) -> None:
    """Defaults of a CronJob."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    template = spec.get("jobTemplate")
    if template is not None:
        template.setdefault("metadata", {})
        job = template.setdefault("spec", {})
        default_template(job)
