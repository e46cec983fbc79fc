"""The objects of an installation, as the chart renders them, made without helm.

One page for who may do what and what runs; a test holds it against the chart, object by object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dovetail import __version__

__all__ = ["Installation", "objects"]

Json = dict[str, Any]
READ = ("get", "list", "watch")
CHART = "dovetail"
NAME = "karpenter"
USER = 65532

# Group, resources, verbs. The order is that of the chart.
CORE: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "karpenter.sh",
        (
            *("nodepools", "nodepools/status", "nodeclaims", "nodeclaims/status"),
            *("nodeoverlays", "nodeoverlays/status"),
        ),
        READ,
    ),
    ("autoscaling.x-k8s.io", ("capacitybuffers", "capacitybuffers/status"), READ),
    (
        "",
        (
            *("podtemplates", "pods", "nodes", "persistentvolumes", "persistentvolumeclaims"),
            *("replicationcontrollers", "namespaces", "events"),
        ),
        READ,
    ),
    ("storage.k8s.io", ("storageclasses", "csinodes", "volumeattachments"), READ),
    ("apps", ("daemonsets", "deployments", "replicasets", "statefulsets"), READ),
    ("policy", ("poddisruptionbudgets",), READ),
    ("karpenter.sh", ("nodeclaims", "nodeclaims/status"), ("create", "delete", "update", "patch")),
    ("karpenter.sh", ("nodepools", "nodepools/status", "nodeoverlays/status"), ("update", "patch")),
    ("autoscaling.x-k8s.io", ("capacitybuffers/status",), ("update", "patch")),
    ("", ("events",), ("create", "patch")),
    ("", ("nodes",), ("patch", "update", "delete")),
    ("", ("pods/eviction",), ("create",)),
    ("", ("pods",), ("delete",)),
)
PLANNING = (("", ("limitranges", "services"), READ),)
PROVIDER = {
    "aws": (
        ("karpenter.k8s.aws", ("ec2nodeclasses",), READ),
        ("karpenter.k8s.aws", ("ec2nodeclasses", "ec2nodeclasses/status"), ("patch", "update")),
    ),
    "kwok": (
        ("karpenter.kwok.sh", ("kwoknodeclasses",), READ),
        ("karpenter.kwok.sh", ("kwoknodeclasses", "kwoknodeclasses/status"), ("patch", "update")),
        ("", ("nodes",), ("create",)),
        ("apiextensions.k8s.io", ("customresourcedefinitions",), ("list", "watch")),
    ),
}
ALL_BUT_UPDATE = (*READ, "create", "delete", "patch")
ADMIN = (
    ("karpenter.sh", ("nodepools", "nodepools/status", "nodeclaims", "nodeclaims/status"), ALL_BUT_UPDATE),
    ("karpenter.k8s.aws", ("ec2nodeclasses",), ALL_BUT_UPDATE),
)


@dataclass(frozen=True, slots=True)
class Installation:
    """What a person may say about an installation; the rest is as the chart has it."""

    provider: str = "aws"
    release: str = NAME
    namespace: str = "kube-system"
    image: str = f"dovetail/controller:{__version__}"
    replicas: int = 2
    account_annotations: Mapping[str, str] = field(default_factory=dict)
    # Variables of settings, such as CLUSTER_NAME.
    settings: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.release if NAME in self.release else f"{self.release}-{NAME}"

    @property
    def selector(self) -> dict[str, str]:
        return {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": self.release}

    @property
    def labels(self) -> dict[str, str]:
        return {
            "helm.sh/chart": f"{CHART}-{__version__}",
            **self.selector,
            "app.kubernetes.io/version": __version__,
            "app.kubernetes.io/managed-by": "dovetail",
        }


def objects(given: Installation) -> list[Json]:
    """Everything but the definitions, in an order in which it can be created."""
    name = given.name
    admin = _role(given, "ClusterRole", f"{name}-admin", ADMIN)
    admin["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"] = "true"
    return [
        _account(given),
        *_bound(given, "ClusterRole", f"{name}-core", CORE),
        *_bound(given, "ClusterRole", f"{name}-planning", PLANNING),
        *_bound(given, "ClusterRole", name, PROVIDER[given.provider]),
        admin,
        *_leases(given),
        *_dns(given),
        _service(given),
        _budget(given),
        _deployment(given),
    ]


def _meta(given: Installation, name: str, namespace: str = "") -> Json:
    return {"name": name, "labels": given.labels} | ({"namespace": namespace} if namespace else {})


def _rules(rules: Sequence[tuple[str, Sequence[str], Sequence[str]]]) -> list[Json]:
    return [{"apiGroups": [g], "resources": list(r), "verbs": list(v)} for g, r, v in rules]


def _role(
    given: Installation,
    kind: str,
    name: str,
    rules: Sequence[tuple[str, Sequence[str], Sequence[str]]],
    namespace: str = "",
) -> Json:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": _meta(given, name, namespace),
        "rules": _rules(rules),
    }


def _binding(given: Installation, role: Json) -> Json:
    meta = role["metadata"]
    account = {"kind": "ServiceAccount", "name": given.name, "namespace": given.namespace}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": f"{role['kind']}Binding",
        "metadata": _meta(given, meta["name"], meta.get("namespace", "")),
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": role["kind"],
            "name": meta["name"],
        },
        "subjects": [account],
    }


def _bound(
    given: Installation, kind: str, name: str, rules: Sequence[tuple[str, Sequence[str], Sequence[str]]]
) -> list[Json]:
    role = _role(given, kind, name, rules)
    return [role, _binding(given, role)]


def _leases(given: Installation) -> list[Json]:
    role = _role(given, "Role", given.name, (), given.namespace)
    lease = given.settings.get("LEADER_ELECTION_NAME", "karpenter-leader-election")
    about = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    role["rules"] = [
        about | {"verbs": ["get", "watch", "create"]},
        about | {"resourceNames": [lease], "verbs": ["patch", "update"]},
    ]
    return [role, _binding(given, role)]


def _dns(given: Installation) -> list[Json]:
    role = _role(given, "Role", f"{given.name}-dns", (), "kube-system")
    role["rules"] = [
        {"apiGroups": [""], "resources": ["services"], "resourceNames": ["kube-dns"], "verbs": ["get"]}
    ]
    return [role, _binding(given, role)]


def _account(given: Installation) -> Json:
    meta = _meta(given, given.name, given.namespace)
    if given.account_annotations:
        meta["annotations"] = dict(given.account_annotations)
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": meta,
        "automountServiceAccountToken": False,
    }


def _service(given: Installation) -> Json:
    port = {"name": "http-metrics", "port": 8080, "targetPort": "http-metrics", "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(given, given.name, given.namespace),
        "spec": {"type": "ClusterIP", "ports": [port], "selector": given.selector},
    }


def _budget(given: Installation) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _meta(given, NAME, given.namespace),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": given.selector}},
    }


def _deployment(given: Installation) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta(given, given.name, given.namespace),
        "spec": {
            "replicas": given.replicas,
            "revisionHistoryLimit": 10,
            "strategy": {"rollingUpdate": {"maxUnavailable": 1}},
            "selector": {"matchLabels": given.selector},
            "template": {"metadata": {"labels": given.selector}, "spec": _pod(given)},
        },
    }


def _pod(given: Installation) -> Json:
    own = {"labelSelector": {"matchLabels": given.selector}}
    elsewhere = {"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    zones = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone"}
    return {
        "serviceAccountName": given.name,
        "automountServiceAccountToken": True,
        "securityContext": {"fsGroup": USER, "seccompProfile": {"type": "RuntimeDefault"}},
        "priorityClassName": "system-cluster-critical",
        "schedulerName": "default-scheduler",
        "dnsPolicy": "ClusterFirst",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "affinity": {
            "nodeAffinity": {required: {"nodeSelectorTerms": [elsewhere]}},
            "podAntiAffinity": {required: [own | {"topologyKey": "kubernetes.io/hostname"}]},
        },
        "topologySpreadConstraints": [own | zones | {"whenUnsatisfiable": "DoNotSchedule"}],
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "containers": [_container(given)],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    }


def _container(given: Installation) -> Json:
    container = {
        "name": "controller",
        "image": given.image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["controller", "--provider", given.provider],
        "securityContext": {
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "capabilities": {"drop": ["ALL"]},
        },
        "env": _environment(given),
        "ports": [
            {"name": "http-metrics", "containerPort": 8080, "protocol": "TCP"},
            {"name": "http", "containerPort": 8081, "protocol": "TCP"},
        ],
        "livenessProbe": _probe("/healthz", 30),
        "readinessProbe": _probe("/readyz", 5),
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    }
    return container | ({"resources": dict(given.resources)} if given.resources else {})


def _probe(path: str, delay: int) -> Json:
    return {
        "initialDelaySeconds": delay,
        "timeoutSeconds": 30,
        "httpGet": {"path": path, "port": "http"},
    }


def _environment(given: Installation) -> list[Json]:
    own = {"containerName": "controller"}
    requests = {"resourceFieldRef": own | {"divisor": "1m", "resource": "requests.cpu"}}
    limits = {"resourceFieldRef": own | {"divisor": "0", "resource": "limits.memory"}}
    return [
        {"name": "KARPENTER_SERVICE", "value": given.name},
        {"name": "SYSTEM_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "CPU_REQUESTS", "valueFrom": requests},
        {"name": "MEMORY_LIMIT", "valueFrom": limits},
        *({"name": name, "value": value} for name, value in sorted(given.settings.items())),
    ]
