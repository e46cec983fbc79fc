"""Defaults of the kinds that make pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.api.quantity import Quantity, add_amounts
from dovetail.sim.kube import status

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


_EVICTION_DELAY = 300
_FILE_MODE = 0o644
_NOT_READY, _UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
_CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
_PRIORITIES = "priorityclasses.scheduling.k8s.io"


def default_pod_spec(spec: dict[str, Any]) -> None:
    """Defaults of a pod spec, in a pod or in a template."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    # The old name and the new one are one field.
    for one, other in (("serviceAccountName", "serviceAccount"), ("serviceAccount", "serviceAccountName")):
        if spec.get(one):
            spec[other] = spec[one]
    for name in _CONTAINER_LISTS:
        for container in spec.get(name) or ():
            _default_container(container, bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    for constraint in spec.get("topologySpreadConstraints") or ():
        constraint.setdefault("whenUnsatisfiable", "DoNotSchedule")


def _default_container(container: dict[str, Any], host_network: bool) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", _choose_pull_policy(container.get("image", "")))
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network:
            port.setdefault("hostPort", port.get("containerPort"))
    for name in _PROBES:
        if probe := container.get(name):
            _default_probe(probe)
    for variable in container.get("env") or ():
        if field := (variable.get("valueFrom") or {}).get("fieldRef"):
            field.setdefault("apiVersion", "v1")


def _choose_pull_policy(image: str) -> str:
    last = image.rpartition("/")[2]
    if "@" in last:
        return "IfNotPresent"
    tag = last.partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _default_probe(probe: dict[str, Any]) -> None:
    for name, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        probe.setdefault(name, value)
    if "httpGet" in probe:
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def _default_volume(volume: dict[str, Any]) -> None:
    if volume.keys() <= {"name"}:
        volume["emptyDir"] = {}
    for name in ("secret", "configMap", "downwardAPI", "projected"):
        if name in volume:
            volume[name].setdefault("defaultMode", _FILE_MODE)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    projected = (volume.get("projected") or {}).get("sources") or ()
    for source in (volume, *projected):
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            if "fieldRef" in item:
                item["fieldRef"].setdefault("apiVersion", "v1")
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template is not None:
        template.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def default_pod(pod: dict[str, Any]) -> None:
    """Defaults of a pod itself: what is limited and not requested is requested."""
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for name in ("initContainers", "containers"):
        for container in spec.get(name) or ():
            limits = container["resources"].get("limits") or {}
            requests = container["resources"].get("requests") or {}
            missing = {each: amount for each, amount in limits.items() if each not in requests}
            if missing:
                container["resources"]["requests"] = {**requests, **missing}


def admit_new_pod(core: Core, pod: dict[str, Any]) -> None:
    """What admission adds to a pod when it is created."""
    spec = pod["spec"]
    if not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"] = "default"
    _set_priority(core, pod)
    _apply_runtime_class(core, pod)
    _tolerate_brief_outages(spec)
    pod["status"] = {"phase": "Pending", "qosClass": compute_qos_class(spec)}
    if spec.get("schedulingGates"):
        pod["status"]["conditions"] = [{**_GATED, "lastTransitionTime": core.format_now()}]


def keep_tolerations(core: Core, pod: dict[str, Any], old: dict[str, Any]) -> None:
    """An update cannot rid a pod of its tolerance for brief outages."""
    _tolerate_brief_outages(pod["spec"])


def _set_priority(core: Core, pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    name = spec.get("priorityClassName")
    found = core.find_object(_PRIORITIES, "", name) if name else _find_global_default(core)
    if name and found is None:
        info = core.find_type("pods")
        raise status.forbidden_request(
            info, pod["metadata"]["name"], f"no PriorityClass with name {name} was found"
        )
    if found is not None:
        spec["priorityClassName"] = found["metadata"]["name"]
    spec["priority"] = found.get("value", 0) if found else 0
    spec.setdefault("preemptionPolicy", (found or {}).get("preemptionPolicy") or "PreemptLowerPriority")


def _find_global_default(core: Core) -> dict[str, Any] | None:
    """The class of pods that name none; of several, the one that weighs least."""
    classes = [each.obj for each in core.store.get_bucket(_PRIORITIES).in_namespace("")]
    defaults = [each for each in classes if each.get("globalDefault")]
    return min(defaults, key=lambda each: int(each.get("value", 0)), default=None)


def _apply_runtime_class(core: Core, pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    name = spec.get("runtimeClassName")
    if not name:
        return
    found = core.find_object("runtimeclasses.node.k8s.io", "", name)
    if found is None:
        info = core.find_type("pods")
        why = f'pod rejected: RuntimeClass "{name}" not found'
        raise status.forbidden_request(info, pod["metadata"]["name"], why)
    if overhead := (found.get("overhead") or {}).get("podFixed"):
        spec["overhead"] = overhead
    scheduling = found.get("scheduling") or {}
    if selector := scheduling.get("nodeSelector"):
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **selector}
    for toleration in scheduling.get("tolerations") or ():
        if toleration not in spec.setdefault("tolerations", []):
            spec["tolerations"].append(toleration)


def _tolerate_brief_outages(spec: dict[str, Any]) -> None:
    tolerations = spec.get("tolerations") or []
    for taint in (_NOT_READY, _UNREACHABLE):
        if not any(_covers_taint(each, taint) for each in tolerations):
            added = {
                "key": taint,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _EVICTION_DELAY,
            }
            tolerations = [*tolerations, added]
    spec["tolerations"] = tolerations


def _covers_taint(toleration: dict[str, Any], taint: str) -> bool:
    return toleration.get("key", "") in (taint, "") and toleration.get("effect", "") in ("NoExecute", "")


def compute_qos_class(spec: dict[str, Any]) -> str:
    """The quality of service a pod's requests and limits earn it."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    resources = [container.get("resources") or {} for container in containers]
    if (spec.get("resources") or {}).keys() & {"requests", "limits"}:
        resources = [spec["resources"]]
    requests = _sum_resources(each.get("requests") or {} for each in resources)
    limits = _sum_resources(each.get("limits") or {} for each in resources)
    if not requests and not limits:
        return "BestEffort"
    whole = all({"cpu", "memory"} <= (each.get("limits") or {}).keys() for each in resources)
    return "Guaranteed" if whole and requests == limits else "Burstable"


def _sum_resources(lists: Any) -> dict[str, Quantity]:
    parsed = ({name: Quantity.parse(amount) for name, amount in each.items()} for each in lists)
    total = add_amounts(*parsed)
    return {name: amount for name, amount in total.items() if name in ("cpu", "memory") and amount}
