"""The table of built-in kinds the server offers from the start."""

from __future__ import annotations

from typing import Any

from dovetail.sim.kube.types import (
    CREATE_ONLY,
    Generation,
    StatusSplit,
    Subresource,
    TypeInfo,
    TypeRegistry,
)

SCALE = Subresource("scale", "Scale", group="autoscaling", version="v1")
ALL = ("all",)
PROXIED = ("create", "delete", "get", "patch", "update")

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


def _build_type(
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
        **more,
    )


def _build_review_type(group_version: str, kind: str, namespaced: bool = False) -> TypeInfo:
    return _build_type(group_version, kind, kind.lower() + "s", cluster=not namespaced, verbs=CREATE_ONLY)


def _build_pod_type() -> TypeInfo:
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
    return _build_type(
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


def _build_namespace_type() -> TypeInfo:
    finalize = Subresource("finalize", "Namespace", ("update",))
    return _build_type(
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


def _list_core_types() -> tuple[TypeInfo, ...]:
    token = Subresource("token", "TokenRequest", CREATE_ONLY, "authentication.k8s.io", "v1")
    return (
        _build_type("v1", "Binding", "bindings", verbs=CREATE_ONLY),
        _build_type("v1", "ConfigMap", "configmaps", "cm"),
        _build_type(
            "v1",
            "Endpoints",
            "endpoints",
            "ep",
            singular="endpoints",
            create_on_update=True,
            deprecation_warning="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ),
        _build_type("v1", "Event", "events", "ev", selectable_fields=_EVENT_FIELDS, create_on_update=True),
        _build_type("v1", "LimitRange", "limitranges", "limits", create_on_update=True),
        _build_namespace_type(),
        _build_type(
            "v1",
            "Node",
            "nodes",
            "no",
            cluster=True,
            status=StatusSplit.OPEN,
            selectable_fields=("spec.unschedulable",),
        ),
        _build_type("v1", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", status=True),
        _build_type("v1", "PersistentVolume", "persistentvolumes", "pv", cluster=True, status=True),
        _build_pod_type(),
        _build_type("v1", "PodTemplate", "podtemplates", gen=True),
        _build_type(
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
        _build_type("v1", "ResourceQuota", "resourcequotas", "quota", status=True),
        _build_type("v1", "Secret", "secrets", selectable_fields=("type",)),
        _build_type(
            "v1",
            "Service",
            "services",
            "svc",
            categories=ALL,
            status=True,
            subs=(Subresource("proxy", "ServiceProxyOptions", PROXIED),),
            selectable_fields=("spec.clusterIP", "spec.type"),
            create_on_update=True,
        ),
        _build_type("v1", "ServiceAccount", "serviceaccounts", "sa", subs=(token,)),
    )


def _list_workload_types() -> tuple[TypeInfo, ...]:
    apps: dict[str, Any] = {"gen": True, "status": True, "categories": ALL}
    return (
        _build_type("apps/v1", "ControllerRevision", "controllerrevisions"),
        _build_type("apps/v1", "DaemonSet", "daemonsets", "ds", **apps),
        _build_type("apps/v1", "Deployment", "deployments", "deploy", subs=(SCALE,), **apps),
        _build_type(
            "apps/v1",
            "ReplicaSet",
            "replicasets",
            "rs",
            subs=(SCALE,),
            selectable_fields=("status.replicas",),
            **apps,
        ),
        _build_type("apps/v1", "StatefulSet", "statefulsets", "sts", subs=(SCALE,), **apps),
        _build_type("autoscaling/v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", **apps),
        _build_type("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", **apps),
        _build_type("batch/v1", "CronJob", "cronjobs", "cj", **apps),
        _build_type("batch/v1", "Job", "jobs", selectable_fields=("status.successful",), **apps),
        _build_type("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", gen=True, status=True),
    )


def _list_storage_types() -> tuple[TypeInfo, ...]:
    group = "storage.k8s.io/v1"
    return (
        _build_type(group, "CSIDriver", "csidrivers", cluster=True),
        _build_type(group, "CSINode", "csinodes", cluster=True),
        _build_type(group, "CSIStorageCapacity", "csistoragecapacities"),
        _build_type(group, "StorageClass", "storageclasses", "sc", cluster=True),
        _build_type(group, "VolumeAttachment", "volumeattachments", cluster=True, status=True),
        _build_type(group, "VolumeAttributesClass", "volumeattributesclasses", "vac", cluster=True),
    )


def _list_access_types() -> tuple[TypeInfo, ...]:
    rbac = "rbac.authorization.k8s.io/v1"
    authorization, authentication = "authorization.k8s.io/v1", "authentication.k8s.io/v1"
    return (
        _build_review_type(authentication, "SelfSubjectReview"),
        _build_review_type(authentication, "TokenReview"),
        _build_review_type(authorization, "LocalSubjectAccessReview", namespaced=True),
        _build_review_type(authorization, "SelfSubjectAccessReview"),
        _build_review_type(authorization, "SelfSubjectRulesReview"),
        _build_review_type(authorization, "SubjectAccessReview"),
        _build_type(rbac, "ClusterRoleBinding", "clusterrolebindings", cluster=True, create_on_update=True),
        _build_type(rbac, "ClusterRole", "clusterroles", cluster=True, create_on_update=True),
        _build_type(rbac, "RoleBinding", "rolebindings", create_on_update=True),
        _build_type(rbac, "Role", "roles", create_on_update=True),
    )


def _list_extension_types() -> tuple[TypeInfo, ...]:
    group = "admissionregistration.k8s.io/v1"
    common: dict[str, Any] = {"cluster": True, "gen": True, "categories": ("api-extensions",)}
    return (
        _build_type(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            "crd",
            "crds",
            status=True,
            **common,
        ),
        _build_type(group, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", **common),
        _build_type(group, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", status=True, **common),
        _build_type(group, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", **common),
        _build_type(group, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", **common),
    )


def _list_other_types() -> tuple[TypeInfo, ...]:
    resource = "resource.k8s.io/v1"
    network = "networking.k8s.io/v1"
    return (
        _build_type("coordination.k8s.io/v1", "Lease", "leases", create_on_update=True),
        _build_type("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", gen=True),
        _build_type(
            "events.k8s.io/v1",
            "Event",
            "events",
            "ev",
            selectable_fields=_EVENTS_V1_FIELDS,
            create_on_update=True,
            storage="events",
        ),
        _build_type(network, "IngressClass", "ingressclasses", cluster=True, gen=True),
        _build_type(network, "Ingress", "ingresses", "ing", gen=True, status=True),
        _build_type(network, "NetworkPolicy", "networkpolicies", "netpol", gen=True),
        _build_type("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", cluster=True, create_on_update=True),
        _build_type(resource, "DeviceClass", "deviceclasses", cluster=True, gen=True),
        _build_type(resource, "ResourceClaim", "resourceclaims", status=True),
        _build_type(resource, "ResourceClaimTemplate", "resourceclaimtemplates"),
        _build_type(resource, "ResourceSlice", "resourceslices", cluster=True, gen=True),
        _build_type("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", "pc", cluster=True, gen=True),
    )


def list_builtin_types() -> tuple[TypeInfo, ...]:
    """Every built-in kind, core group first."""
    return (
        *_list_core_types(),
        *_list_workload_types(),
        *_list_storage_types(),
        *_list_access_types(),
        *_list_extension_types(),
        *_list_other_types(),
    )


def build_registry() -> TypeRegistry:
    """A registry that serves the built-in kinds."""
    return TypeRegistry(list_builtin_types())
