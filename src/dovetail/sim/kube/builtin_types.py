"""The table of built-in kinds the server offers from the start."""

from __future__ import annotations

from typing import Any

from dovetail.sim.kube.types import (
    CREATE_ONLY,
    Generation,
    Registry,
    StatusSplit,
    Subresource,
    TypeInfo,
)

SCALE = Subresource("scale", "Scale", group="autoscaling", version="v1")
ALL = ("all",)

_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS = (
    *tuple(f"involvedObject.{name}" for name in _REFERENCE),
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_EVENTS_V1_FIELDS = (
    *tuple(f"regarding.{name}" for name in _REFERENCE),
    "reason",
    "reportingController",
    "type",
)


def _row(
    group_version: str,
    kind: str,
    plural: str,
    *short_names: str,
    cluster: bool = False,
    gen: bool = False,
    status: bool | StatusSplit = False,
    subs: tuple[Subresource, ...] = (),
    **more: Any,
) -> TypeInfo:
    group, _, version = group_version.rpartition("/")
    split = status if isinstance(status, StatusSplit) else (StatusSplit.SPEC if status else StatusSplit.NONE)
    if split is not StatusSplit.NONE:
        subs = (Subresource("status", kind), *subs)
    return TypeInfo(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        short_names=short_names,
        namespaced=not cluster,
        generation=Generation.SPEC if gen else Generation.NONE,
        status=split,
        subresources=subs,
        merge_keys=kind,
        **more,
    )


def _review(group_version: str, kind: str, namespaced: bool = False) -> TypeInfo:
    return _row(group_version, kind, kind.lower() + "s", cluster=not namespaced, verbs=CREATE_ONLY)


def _pods() -> TypeInfo:
    pod_subs = (
        Subresource("binding", "Binding", CREATE_ONLY),
        Subresource("eviction", "Eviction", CREATE_ONLY, "policy", "v1"),
        Subresource("ephemeralcontainers", "Pod"),
        Subresource("resize", "Pod"),
        Subresource("log", "Pod", ("get",)),
        Subresource("attach", "PodAttachOptions", ("create", "get")),
        Subresource("exec", "PodExecOptions", ("create", "get")),
        Subresource("portforward", "PodPortForwardOptions", ("create", "get")),
    )
    return _row(
        "v1",
        "Pod",
        "pods",
        "po",
        gen=True,
        categories=ALL,
        status=StatusSplit.OPEN,
        subs=pod_subs,
        selectable_fields=_POD_FIELDS,
        graceful_delete=True,
    )


def _namespaces() -> TypeInfo:
    finalize = Subresource("finalize", "Namespace", ("update",))
    return _row(
        "v1",
        "Namespace",
        "namespaces",
        "ns",
        cluster=True,
        status=True,
        subs=(finalize,),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        selectable_fields=("status.phase",),
    )


def _core() -> tuple[TypeInfo, ...]:
    token = Subresource("token", "TokenRequest", CREATE_ONLY, "authentication.k8s.io", "v1")
    return (
        _row("v1", "Binding", "bindings", verbs=CREATE_ONLY),
        _row("v1", "ConfigMap", "configmaps", "cm"),
        _row(
            "v1",
            "Endpoints",
            "endpoints",
            "ep",
            singular="endpoints",
            create_on_update=True,
            deprecation_warning="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ),
        _row("v1", "Event", "events", "ev", selectable_fields=_EVENT_FIELDS, create_on_update=True),
        _row("v1", "LimitRange", "limitranges", "limits", create_on_update=True),
        _namespaces(),
        _row(
            "v1",
            "Node",
            "nodes",
            "no",
            cluster=True,
            status=StatusSplit.OPEN,
            selectable_fields=("spec.unschedulable",),
        ),
        _row("v1", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", status=True),
        _row("v1", "PersistentVolume", "persistentvolumes", "pv", cluster=True, status=True),
        _pods(),
        _row("v1", "PodTemplate", "podtemplates", gen=True),
        _row(
            "v1",
            "ReplicationController",
            "replicationcontrollers",
            "rc",
            gen=True,
            categories=ALL,
            status=True,
            subs=(SCALE,),
            selectable_fields=("status.replicas",),
        ),
        _row("v1", "ResourceQuota", "resourcequotas", "quota", status=True),
        _row("v1", "Secret", "secrets", selectable_fields=("type",)),
        _row(
            "v1",
            "Service",
            "services",
            "svc",
            categories=ALL,
            status=True,
            selectable_fields=("spec.clusterIP", "spec.type"),
            create_on_update=True,
        ),
        _row("v1", "ServiceAccount", "serviceaccounts", "sa", subs=(token,)),
    )


def _workloads() -> tuple[TypeInfo, ...]:
    apps: dict[str, Any] = {"gen": True, "status": True, "categories": ALL}
    return (
        _row("apps/v1", "ControllerRevision", "controllerrevisions"),
        _row("apps/v1", "DaemonSet", "daemonsets", "ds", **apps),
        _row("apps/v1", "Deployment", "deployments", "deploy", subs=(SCALE,), **apps),
        _row(
            "apps/v1",
            "ReplicaSet",
            "replicasets",
            "rs",
            subs=(SCALE,),
            selectable_fields=("status.replicas",),
            **apps,
        ),
        _row("apps/v1", "StatefulSet", "statefulsets", "sts", subs=(SCALE,), **apps),
        _row("autoscaling/v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", **apps),
        _row("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", **apps),
        _row("batch/v1", "CronJob", "cronjobs", "cj", **apps),
        _row("batch/v1", "Job", "jobs", selectable_fields=("status.successful",), **apps),
        _row("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", gen=True, status=True),
    )


def _storage() -> tuple[TypeInfo, ...]:
    group = "storage.k8s.io/v1"
    return (
        _row(group, "CSIDriver", "csidrivers", cluster=True),
        _row(group, "CSINode", "csinodes", cluster=True),
        _row(group, "CSIStorageCapacity", "csistoragecapacities"),
        _row(group, "StorageClass", "storageclasses", "sc", cluster=True),
        _row(group, "VolumeAttachment", "volumeattachments", cluster=True, status=True),
        _row(group, "VolumeAttributesClass", "volumeattributesclasses", "vac", cluster=True),
    )


def _access() -> tuple[TypeInfo, ...]:
    rbac = "rbac.authorization.k8s.io/v1"
    authorization, authentication = "authorization.k8s.io/v1", "authentication.k8s.io/v1"
    return (
        _review(authentication, "SelfSubjectReview"),
        _review(authentication, "TokenReview"),
        _review(authorization, "LocalSubjectAccessReview", namespaced=True),
        _review(authorization, "SelfSubjectAccessReview"),
        _review(authorization, "SelfSubjectRulesReview"),
        _review(authorization, "SubjectAccessReview"),
        _row(rbac, "ClusterRoleBinding", "clusterrolebindings", cluster=True, create_on_update=True),
        _row(rbac, "ClusterRole", "clusterroles", cluster=True, create_on_update=True),
        _row(rbac, "RoleBinding", "rolebindings", create_on_update=True),
        _row(rbac, "Role", "roles", create_on_update=True),
    )


def _extensions() -> tuple[TypeInfo, ...]:
    group = "admissionregistration.k8s.io/v1"
    common: dict[str, Any] = {"cluster": True, "gen": True, "categories": ("api-extensions",)}
    return (
        _row(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            "crd",
            "crds",
            status=True,
            **common,
        ),
        _row(group, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", **common),
        _row(group, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", status=True, **common),
        _row(group, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", **common),
        _row(group, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", **common),
    )


def _rest() -> tuple[TypeInfo, ...]:
    resource = "resource.k8s.io/v1"
    network = "networking.k8s.io/v1"
    return (
        _row("coordination.k8s.io/v1", "Lease", "leases", create_on_update=True),
        _row("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", gen=True),
        _row(
            "events.k8s.io/v1",
            "Event",
            "events",
            "ev",
            selectable_fields=_EVENTS_V1_FIELDS,
            create_on_update=True,
            storage="events",
        ),
        _row(network, "IngressClass", "ingressclasses", cluster=True, gen=True),
        _row(network, "Ingress", "ingresses", "ing", gen=True, status=True),
        _row(network, "NetworkPolicy", "networkpolicies", "netpol", gen=True),
        _row("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", cluster=True, create_on_update=True),
        _row(resource, "DeviceClass", "deviceclasses", cluster=True, gen=True),
        _row(resource, "ResourceClaim", "resourceclaims", status=True),
        _row(resource, "ResourceClaimTemplate", "resourceclaimtemplates"),
        _row(resource, "ResourceSlice", "resourceslices", cluster=True, gen=True),
        _row("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", "pc", cluster=True, gen=True),
    )


def builtin_types() -> tuple[TypeInfo, ...]:
    """Every built-in kind, core group first."""
    return (*_core(), *_workloads(), *_storage(), *_access(), *_extensions(), *_rest())


def builtin_registry() -> Registry:
    """A registry that serves the built-in kinds."""
    return Registry(builtin_types())
