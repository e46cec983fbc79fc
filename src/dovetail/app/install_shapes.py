"""The shapes of installed objects: accounts, roles, services and pods, whoever they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dovetail import __version__

__all__ = ["NAME", "PARTS", "ROLE_ARN", "InstallPart", "Installation"]

Json = dict[str, Any]
# Group, resources, verbs.
Rules = Sequence[tuple[str, Sequence[str], Sequence[str]]]
READ = ("get", "list", "watch")
RBAC = "rbac.authorization.k8s.io"
USER = 65532
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


class ObjectOwner(Protocol):
    """Whose objects they are: the controller's, or those of one of the optional parts."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def selector(self) -> dict[str, str]: ...
    @property
    def labels(self) -> dict[str, str]: ...


def build_metadata(owner: ObjectOwner, name: str, namespace: str = "") -> Json:
    return {"name": name, "labels": owner.labels} | ({"namespace": namespace} if namespace else {})


def build_role(owner: ObjectOwner, name: str, rules: Rules, namespace: str = "") -> Json:
    """A Role where a namespace is given, and else a ClusterRole."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": build_metadata(owner, name, namespace),
        "rules": [{"apiGroups": [g], "resources": list(r), "verbs": list(v)} for g, r, v in rules],
    }


def bind_role(owner: ObjectOwner, made: Json) -> list[Json]:
    """The role, and its binding to the owner's account."""
    named = made["metadata"]
    account = {"kind": "ServiceAccount", "name": owner.name, "namespace": owner.namespace}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{made['kind']}Binding",
        "metadata": build_metadata(owner, named["name"], named.get("namespace", "")),
        "roleRef": {"apiGroup": RBAC, "kind": made["kind"], "name": named["name"]},
        "subjects": [account],
    }
    return [made, binding]


def build_named_rule(resources: str, names: Sequence[str], verbs: Sequence[str], group: str = "") -> Json:
    """A rule about objects of these names alone."""
    return {"apiGroups": [group], "resources": [resources], "resourceNames": list(names), "verbs": [*verbs]}


def build_lease_rules(name: str) -> list[Json]:
    group = "coordination.k8s.io"
    anyone = {"apiGroups": [group], "resources": ["leases"], "verbs": ["get", "watch", "create"]}
    return [anyone, build_named_rule("leases", [name], ["patch", "update"], group)]


def build_service_account(owner: ObjectOwner, annotations: Mapping[str, str]) -> Json:
    named = build_metadata(owner, owner.name, owner.namespace)
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": named | ({"annotations": dict(annotations)} if annotations else {}),
        "automountServiceAccountToken": False,
    }


def build_config_map(owner: ObjectOwner, name: str, data: Mapping[str, str]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": build_metadata(owner, name, owner.namespace),
        "data": dict(data),
    }


def build_service(owner: ObjectOwner, ports: Mapping[str, int]) -> Json:
    shown = [{"name": n, "port": p, "targetPort": n, "protocol": "TCP"} for n, p in ports.items()]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": build_metadata(owner, owner.name, owner.namespace),
        "spec": {"type": "ClusterIP", "ports": shown, "selector": owner.selector},
    }


def build_pod_disruption_budget(owner: ObjectOwner, name: str) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": build_metadata(owner, name, owner.namespace),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": owner.selector}},
    }


def build_network_policy(
    owner: ObjectOwner, name: str, selector: Json, ports: Sequence[Sequence[int]]
) -> Json:
    """Who may come in: anybody by these ports, one rule for each group of them; by none, nobody."""
    rules = [{"ports": [{"port": port, "protocol": "TCP"} for port in group]} for group in ports]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": build_metadata(owner, name, owner.namespace),
        "spec": {"podSelector": {"matchLabels": selector}, "policyTypes": ["Ingress"], "ingress": rules},
    }


def build_deployment(
    owner: ObjectOwner, replicas: int, pod: Json, *, rolling: Json | None = None, also: Json | None = None
) -> Json:
    """Of pods with the owner's labels and `also` these; annotations of theirs stand under `annotations`."""
    noted = pod.pop("annotations", None)
    about = {"labels": {**owner.selector, **(also or {})}} | ({"annotations": noted} if noted else {})
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": build_metadata(owner, owner.name, owner.namespace),
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 10,
            **({"strategy": {"rollingUpdate": rolling}} if rolling else {}),
            "selector": {"matchLabels": owner.selector},
            "template": {"metadata": about, "spec": pod},
        },
    }


def build_pod_spec(owner: ObjectOwner, container: Json, *, token: bool, volumes: Sequence[Json] = ()) -> Json:
    return {
        "serviceAccountName": owner.name,
        "automountServiceAccountToken": token,
        "securityContext": {"fsGroup": USER, "seccompProfile": {"type": "RuntimeDefault"}},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "containers": [container],
        "volumes": [{"name": "scratch", "emptyDir": {}}, *volumes],
    }


CRITICAL: Json = {
    "priorityClassName": "system-cluster-critical",
    "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
}


def build_container(name: str, image: str, arguments: Sequence[str], ports: Mapping[str, int]) -> Json:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": list(arguments),
        "securityContext": {
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "capabilities": {"drop": ["ALL"]},
        },
        "ports": [{"name": n, "containerPort": p, "protocol": "TCP"} for n, p in ports.items()],
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    }


def build_probes() -> Json:
    def probe(path: str, delay: int) -> Json:
        asked = {"path": path, "port": "http"}
        return {"initialDelaySeconds": delay, "timeoutSeconds": 30, "httpGet": asked}

    return {"livenessProbe": probe("/healthz", 30), "readinessProbe": probe("/readyz", 5)}


def build_variables(given: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in sorted(given.items())]


CHART = "dovetail"
NAME = "karpenter"
ROLE_ARN = "eks.amazonaws.com/role-arn"
OVER_HTTPS = ("ZONAL_SHIFT_TOPIC_ARN", "ZONAL_SHIFT_EVENTS_TOKEN_FILE", "ZONAL_SHIFT_EVENTS_CA_FILE")
PARTS = ("router", "zonal-shift", "dashboard")


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
    controller: bool = True
    parts: frozenset[str] = frozenset()
    # The IAM role of a part's own account.
    part_roles: Mapping[str, str] = field(default_factory=dict)
    # Whether the definition of ZoneShifts comes along where shifts are followed.
    definition: bool = True
    # The router's configuration, and the Secret with the certificate of the endpoint for SNS.
    bus: Mapping[str, Any] = field(default_factory=dict)
    tls_secret: str = ""

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

    @property
    def shifts_inside(self) -> bool:
        """Whether the controller follows zonal shifts."""
        return self.controller and self.settings.get("ENABLE_ZONAL_SHIFT") == "true"

    @property
    def shifts(self) -> bool:
        return self.shifts_inside or "zonal-shift" in self.parts

    @property
    def sns(self) -> bool:
        """Whether messages about shifts come over HTTPS."""
        return self.shifts and any(self.settings.get(name) for name in OVER_HTTPS)


@dataclass(frozen=True, slots=True)
class InstallPart:
    """One of the optional parts: its own names and labels, so that nobody else's selector finds it."""

    given: Installation
    part: str

    @property
    def name(self) -> str:
        return f"{self.given.name[:48].rstrip('-')}-{self.part}"

    @property
    def namespace(self) -> str:
        return self.given.namespace

    @property
    def annotations(self) -> dict[str, str]:
        arn = self.given.part_roles.get(self.part)
        return {ROLE_ARN: arn} if arn else {}

    @property
    def selector(self) -> dict[str, str]:
        return self.given.selector | {"app.kubernetes.io/name": f"{NAME}-{self.part}"}

    @property
    def labels(self) -> dict[str, str]:
        return self.given.labels | self.selector | {"app.kubernetes.io/component": self.part}
