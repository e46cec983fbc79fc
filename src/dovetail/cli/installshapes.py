"""The shapes of installed objects: accounts, roles, services and pods, whoever they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Json = dict[str, Any]
# Group, resources, verbs.
Rules = Sequence[tuple[str, Sequence[str], Sequence[str]]]
READ = ("get", "list", "watch")
RBAC = "rbac.authorization.k8s.io"
USER = 65532
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


class Owner(Protocol):
    """Whose objects they are: the controller's, or those of one of the optional parts."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def selector(self) -> dict[str, str]: ...
    @property
    def labels(self) -> dict[str, str]: ...


def meta(owner: Owner, name: str, namespace: str = "") -> Json:
    return {"name": name, "labels": owner.labels} | ({"namespace": namespace} if namespace else {})


def role(owner: Owner, name: str, rules: Rules, namespace: str = "") -> Json:
    """A Role where a namespace is given, and else a ClusterRole."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": meta(owner, name, namespace),
        "rules": [{"apiGroups": [g], "resources": list(r), "verbs": list(v)} for g, r, v in rules],
    }


def bound(owner: Owner, made: Json) -> list[Json]:
    """The role, and its binding to the owner's account."""
    named = made["metadata"]
    account = {"kind": "ServiceAccount", "name": owner.name, "namespace": owner.namespace}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{made['kind']}Binding",
        "metadata": meta(owner, named["name"], named.get("namespace", "")),
        "roleRef": {"apiGroup": RBAC, "kind": made["kind"], "name": named["name"]},
        "subjects": [account],
    }
    return [made, binding]


def only(resources: str, names: Sequence[str], verbs: Sequence[str], group: str = "") -> Json:
    """A rule about objects of these names alone."""
    return {"apiGroups": [group], "resources": [resources], "resourceNames": list(names), "verbs": [*verbs]}


def leases(name: str) -> list[Json]:
    group = "coordination.k8s.io"
    anyone = {"apiGroups": [group], "resources": ["leases"], "verbs": ["get", "watch", "create"]}
    return [anyone, only("leases", [name], ["patch", "update"], group)]


def account(owner: Owner, annotations: Mapping[str, str]) -> Json:
    named = meta(owner, owner.name, owner.namespace)
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": named | ({"annotations": dict(annotations)} if annotations else {}),
        "automountServiceAccountToken": False,
    }


def config_map(owner: Owner, name: str, data: Mapping[str, str]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta(owner, name, owner.namespace),
        "data": dict(data),
    }


def service(owner: Owner, ports: Mapping[str, int]) -> Json:
    shown = [{"name": n, "port": p, "targetPort": n, "protocol": "TCP"} for n, p in ports.items()]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta(owner, owner.name, owner.namespace),
        "spec": {"type": "ClusterIP", "ports": shown, "selector": owner.selector},
    }


def budget(owner: Owner, name: str) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": meta(owner, name, owner.namespace),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": owner.selector}},
    }


def network_policy(owner: Owner, name: str, selector: Json, ports: Sequence[Sequence[int]]) -> Json:
    """Who may come in: anybody by these ports, one rule for each group of them; by none, nobody."""
    rules = [{"ports": [{"port": port, "protocol": "TCP"} for port in group]} for group in ports]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": meta(owner, name, owner.namespace),
        "spec": {"podSelector": {"matchLabels": selector}, "policyTypes": ["Ingress"], "ingress": rules},
    }


def deployment(
    owner: Owner, replicas: int, pod: Json, *, rolling: Json | None = None, also: Json | None = None
) -> Json:
    """Of pods with the owner's labels and `also` these; annotations of theirs stand under `annotations`."""
    noted = pod.pop("annotations", None)
    about = {"labels": {**owner.selector, **(also or {})}} | ({"annotations": noted} if noted else {})
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta(owner, owner.name, owner.namespace),
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 10,
            **({"strategy": {"rollingUpdate": rolling}} if rolling else {}),
            "selector": {"matchLabels": owner.selector},
            "template": {"metadata": about, "spec": pod},
        },
    }


def pod(owner: Owner, container: Json, *, token: bool, volumes: Sequence[Json] = ()) -> Json:
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


def container(name: str, image: str, arguments: Sequence[str], ports: Mapping[str, int]) -> Json:
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


def probes() -> Json:
    def probe(path: str, delay: int) -> Json:
        asked = {"path": path, "port": "http"}
        return {"initialDelaySeconds": delay, "timeoutSeconds": 30, "httpGet": asked}

    return {"livenessProbe": probe("/healthz", 30), "readinessProbe": probe("/readyz", 5)}


def variables(given: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in sorted(given.items())]
