"""What the other built-in kinds must be, and what of them may change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dovetail.api.schema.causes import Cause
from dovetail.api.validation.cron import find_cron_problem
from dovetail.sim.kube.builtin.rules_pods import (
    forbidden_cause,
    invalid_cause,
    pod_spec_causes,
    required_cause,
    unsupported_cause,
)
from dovetail.sim.kube.schema.crd_checks import validate_crd
from dovetail.sim.kube.selectors import build_label_matcher, is_label_value, is_qualified_name

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}\Z")
_PERCENT = re.compile(r"[0-9]+%\Z")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SYSTEM_PRIORITY = 1_000_000_000
Old = dict[str, Any] | None


def immutable_causes(obj: dict[str, Any], old: Old, *path: str) -> Iterator[Cause]:
    """A complaint if a field is not what it was."""
    if old is None:
        return
    mine: Any = obj
    theirs: Any = old
    for part in path:
        mine, theirs = (mine or {}).get(part), (theirs or {}).get(part)
    if mine != theirs:
        yield invalid_cause(".".join(path), mine if isinstance(mine, str) else "", "field is immutable")


def workload_causes(obj: dict[str, Any], old: Old) -> Iterator[Cause]:
    """Rules of Deployments, ReplicaSets, StatefulSets and DaemonSets."""
    spec = obj["spec"]
    if spec.get("replicas", 0) < 0:
        yield invalid_cause("spec.replicas", spec["replicas"], "must be greater than or equal to 0")
    if "selector" not in spec:
        yield required_cause("spec.selector")
    elif not has_selector_terms(spec["selector"]):
        yield invalid_cause("spec.selector", "{}", "empty selector is invalid for workloads")
    else:
        yield from selector_causes(spec["selector"], "spec.selector")
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not build_label_matcher(spec.get("selector"))(labels):
        detail = "`selector` does not match template `labels`"
        yield invalid_cause("spec.template.metadata.labels", labels or None, detail)
    claims = [(each.get("metadata") or {}).get("name", "") for each in spec.get("volumeClaimTemplates") or ()]
    yield from pod_spec_causes(template.get("spec") or {}, "spec.template.spec", claims)
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy in ("OnFailure", "Never"):
        yield unsupported_cause("spec.template.spec.restartPolicy", policy, ("Always",))
    yield from immutable_causes(obj, old, "spec", "selector")


def has_selector_terms(selector: dict[str, Any]) -> bool:
    """Whether a selector selects anything away."""
    return bool(selector.get("matchLabels") or selector.get("matchExpressions"))


def selector_causes(selector: dict[str, Any], path: str) -> Iterator[Cause]:
    """What is wrong with a label selector."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if not is_qualified_name(key) or not is_label_value(value):
            yield invalid_cause(f"{path}.matchLabels", key, "must be a label key and value")
    for index, term in enumerate(selector.get("matchExpressions") or ()):
        operator = term.get("operator", "")
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            detail = "not a valid selector operator"
            yield invalid_cause(f"{path}.matchExpressions[{index}].operator", operator, detail)
        elif operator in ("In", "NotIn") and not term.get("values"):
            yield required_cause(f"{path}.matchExpressions[{index}].values")


def stateful_set_causes(obj: dict[str, Any], old: Old) -> Iterator[Cause]:
    """Rules of StatefulSets: most of the spec is fixed for life."""
    yield from workload_causes(obj, old)
    changeable = {
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
        "revisionHistoryLimit",
        "selector",
    }
    if old is not None and any(
        obj["spec"].get(key) != old["spec"].get(key)
        for key in {*obj["spec"], *old["spec"]}
        if key not in changeable
    ):
        yield forbidden_cause("spec", "updates to statefulset spec for most fields are forbidden")


def job_causes(obj: dict[str, Any], old: Old) -> Iterator[Cause]:
    """Rules of Jobs."""
    spec = obj["spec"]
    for name in ("parallelism", "completions", "backoffLimit"):
        if (spec.get(name) or 0) < 0:
            yield invalid_cause(f"spec.{name}", spec[name], "must be greater than or equal to 0")
    if "template" not in spec:
        yield required_cause("spec.template")
        return
    yield from job_template_causes(spec, "spec")
    if old is None:
        return
    yield from immutable_causes(obj, old, "spec", "selector")
    if not spec.get("suspend") and not old["spec"].get("suspend"):
        yield from immutable_causes(obj, old, "spec", "template")
    yield from immutable_causes(obj, old, "spec", "completionMode")


def job_template_causes(spec: dict[str, Any], path: str) -> Iterator[Cause]:
    """What is wrong with the pods of a job."""
    pod = spec.get("template", {}).get("spec") or {}
    yield from pod_spec_causes(pod, f"{path}.template.spec")
    if pod.get("restartPolicy") == "Always":
        yield required_cause(f"{path}.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')


def cron_job_causes(obj: dict[str, Any], old: Old) -> Iterator[Cause]:
    """Rules of CronJobs."""
    spec = obj["spec"]
    schedule = spec.get("schedule", "")
    if not schedule:
        yield required_cause("spec.schedule")
    elif complaint := find_cron_problem(schedule):
        yield invalid_cause("spec.schedule", schedule, complaint)
    if spec.get("concurrencyPolicy") not in ("Allow", "Forbid", "Replace"):
        yield unsupported_cause(
            "spec.concurrencyPolicy", spec["concurrencyPolicy"], ("Allow", "Forbid", "Replace")
        )
    if "jobTemplate" not in spec:
        yield required_cause("spec.jobTemplate")
    else:
        yield from job_template_causes(spec["jobTemplate"].get("spec") or {}, "spec.jobTemplate.spec")


def node_causes(obj: dict[str, Any], old: Old) -> Iterator[Cause]:
    """Rules of Nodes."""
    seen = set()
    for index, taint in enumerate(obj.get("spec", {}).get("taints") or ()):
        path = f"metadata.taints[{index}]"  # kube-apiserver looks for taints there when it complains
        if not is_qualified_name(taint.get("key", "")):
            yield invalid_cause(f"{path}.key", taint.get("key", ""), "name part must be non-empty")
        if not is_label_value(taint.get("value", "")):
            yield invalid_cause(f"{path}.value", taint["value"], "a valid label must be alphanumeric")
        if taint.get("effect") not in _EFFECTS:
            yield unsupported_cause(f"{path}.effect", taint.get("effect", ""), _EFFECTS)
        identity = (taint.get("key"), taint.get("effect"))
        if identity in seen:
            yield Cause(path, "FieldValueDuplicate", f"Duplicate value: {identity[0]}:{identity[1]}")
        seen.add(identity)
    for name in ("providerID", "podCIDR"):
        before = (old or {}).get("spec", {}).get(name)
        if before and obj.get("spec", {}).get(name) != before:
            yield forbidden_cause(
                f"spec.{name}", f"node updates may not change {name} except from empty to valid"
            )


def lease_causes(obj: dict[str, Any], old: Old) -> Iterator[Cause]:
    """Rules of Leases."""
    spec = obj.get("spec") or {}
    if isinstance(seconds := spec.get("leaseDurationSeconds"), int) and seconds <= 0:
        yield invalid_cause("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    if isinstance(times := spec.get("leaseTransitions"), int) and times < 0:
        yield invalid_cause("spec.leaseTransitions", times, "must be greater than or equal to 0")


def budget_causes(obj: dict[str, Any], old: Old) -> Iterator[Cause]:
    """Rules of PodDisruptionBudgets."""
    spec = obj.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        yield invalid_cause("spec", "", "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        value = spec.get(name)
        if isinstance(value, str) and not (_PERCENT.match(value) and int(value[:-1]) <= 100):
            yield invalid_cause(f"spec.{name}", value, "must be an integer or percentage up to 100%")
        elif isinstance(value, int) and value < 0:
            yield invalid_cause(f"spec.{name}", value, "must be greater than or equal to 0")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy not in (None, "IfHealthyBudget", "AlwaysAllow"):
        yield unsupported_cause("spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget"))
    yield from selector_causes(spec.get("selector") or {}, "spec.selector")


def data_causes(obj: dict[str, Any], old: Old) -> Iterator[Cause]:
    """Rules of ConfigMaps and Secrets: tame keys, and a promise of immutability is kept."""
    for part in ("data", "binaryData"):
        for key in obj.get(part) or {}:
            if not _KEY.match(key) or key in (".", ".."):
                yield invalid_cause(
                    f"{part}[{key}]", key, "a valid config key must consist of alphanumeric characters"
                )
    if old is None:
        return
    if obj["kind"] == "Secret":
        yield from immutable_causes(obj, old, "type")
    if old.get("immutable"):
        if not obj.get("immutable"):
            yield forbidden_cause("immutable", "field is immutable when `immutable` is set")
        for part in ("data", "binaryData"):
            if obj.get(part) != old.get(part):
                yield forbidden_cause(part, "field is immutable when `immutable` is set")


def service_causes(obj: dict[str, Any], old: Old) -> Iterator[Cause]:
    """Rules of Services."""
    spec = obj["spec"]
    kinds = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
    if spec["type"] not in kinds:
        yield unsupported_cause("spec.type", spec["type"], kinds)
    ports = spec.get("ports") or []
    if not ports and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
        yield required_cause("spec.ports")
    for index, port in enumerate(ports):
        if not 0 < port.get("port", 0) < 65536:
            detail = "must be between 1 and 65535, inclusive"
            yield invalid_cause(f"spec.ports[{index}].port", port.get("port", 0), detail)
        if len(ports) > 1 and not port.get("name"):
            yield required_cause(f"spec.ports[{index}].name")
    address = (old or {}).get("spec", {}).get("clusterIP")
    if address and spec["type"] != "ExternalName" and spec.get("clusterIP") != address:
        yield invalid_cause("spec.clusterIP", spec.get("clusterIP", ""), "field is immutable")


def event_causes(obj: dict[str, Any], old: Old) -> Iterator[Cause]:
    """Rules of Events: they live beside the object they are about."""
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    home = about.get("namespace") or "default"
    namespace = obj["metadata"]["namespace"]
    alone = not about.get("namespace") and namespace in ("default", "kube-system")
    if namespace != home and not alone:
        yield invalid_cause(
            "involvedObject.namespace", about.get("namespace", ""), "does not match event.namespace"
        )


def claim_causes(obj: dict[str, Any], old: Old) -> Iterator[Cause]:
    """Rules of PersistentVolumeClaims."""
    spec = obj["spec"]
    if not spec.get("accessModes"):
        yield required_cause("spec.accessModes", "at least 1 access mode is required")
    if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
        yield required_cause("spec.resources[storage]")
    if old is None:
        return
    free = {"resources", "volumeAttributesClassName"}
    before = old["spec"]
    if not before.get("volumeName"):
        free.add("volumeName")
    if "storageClassName" not in before:
        free.add("storageClassName")
    if any(spec.get(key) != before.get(key) for key in {*spec, *before} if key not in free):
        yield forbidden_cause("spec", "spec is immutable after creation except resources.requests")


def storage_class_causes(obj: dict[str, Any], old: Old) -> Iterator[Cause]:
    """Rules of StorageClasses."""
    if not obj.get("provisioner"):
        yield required_cause("provisioner")
    if obj["volumeBindingMode"] not in ("Immediate", "WaitForFirstConsumer"):
        choices = ("Immediate", "WaitForFirstConsumer")
        yield unsupported_cause("volumeBindingMode", obj["volumeBindingMode"], choices)
    for name in ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"):
        yield from immutable_causes(obj, old, name)


def priority_class_causes(obj: dict[str, Any], old: Old) -> Iterator[Cause]:
    """Rules of PriorityClasses."""
    name, value = obj["metadata"]["name"], obj.get("value", 0)
    if name.startswith("system-") and name not in ("system-node-critical", "system-cluster-critical"):
        yield forbidden_cause("metadata.name", "priority class names with 'system-' prefix are reserved")
    elif value > _SYSTEM_PRIORITY and not name.startswith("system-"):
        yield forbidden_cause(
            "value", f"maximum allowed value of a user defined priority is {_SYSTEM_PRIORITY}"
        )
    if old is not None and value != old.get("value", 0):
        yield forbidden_cause("value", "may not be changed in an update.")
    if old is not None:
        yield from immutable_causes(obj, old, "preemptionPolicy")


def definition_causes(obj: dict[str, Any], old: Old) -> Iterator[Cause]:
    """Rules of CustomResourceDefinitions."""
    yield from validate_crd(obj)
    for name in ("group", "scope"):
        yield from immutable_causes(obj, old, "spec", name)
    yield from immutable_causes(obj, old, "spec", "names", "plural")
    yield from immutable_causes(obj, old, "spec", "names", "kind")


def role_binding_causes(obj: dict[str, Any], old: Old) -> Iterator[Cause]:
    """Rules of RoleBindings and ClusterRoleBindings."""
    role = obj.get("roleRef") or {}
    kinds = ("ClusterRole",) if obj["kind"] == "ClusterRoleBinding" else ("Role", "ClusterRole")
    if role.get("kind") not in kinds:
        yield unsupported_cause("roleRef.kind", role.get("kind", ""), kinds)
    if not role.get("name"):
        yield required_cause("roleRef.name")
    if old is not None and obj.get("roleRef") != old.get("roleRef"):
        yield invalid_cause("roleRef", "", "cannot change roleRef")
