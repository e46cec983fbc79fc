"""Pods as a real API server returns them: managed fields, token volumes, statuses and all, about 5 KB each.

Pods of one workload differ as they do in life: in name, uid, address, node, times, the random name of the
token volume and, for daemons, in the node they are pinned to.
"""

from __future__ import annotations

import json
import random
import string
from typing import Any

SUFFIX = string.ascii_lowercase + string.digits
PODS_PER_NODE = 30
MARK = "@@"
"""Part of every pod's name and uid. Replaced in a page's bytes, it makes other pods of the same workloads."""


def pods(count: int, shapes: int = 2_000, seed: int = 1) -> list[dict[str, Any]]:
    """`count` pods of `shapes` workloads, in the order a server lists them: by namespace and name."""
    chance = random.Random(seed)
    workloads = [workload(chance, number) for number in range(shapes)]
    every = [pod(chance, chance.choice(workloads), number) for number in range(count)]
    return sorted(every, key=lambda each: (each["metadata"]["namespace"], each["metadata"]["name"]))


def page(items: list[dict[str, Any]]) -> bytes:
    """A PodList, as the server would send it."""
    meta = {"resourceVersion": "123456789", "continue": "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ"}
    document = {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": items}
    text = json.dumps(document, separators=(",", ":"))
    return text.encode()


def workload(chance: random.Random, number: int) -> dict[str, Any]:
    daemon = chance.random() < 0.02
    name = f"service-{number:05d}"
    return {
        "name": name,
        "namespace": f"team-{number % 40}",
        "kind": "DaemonSet" if daemon else chance.choice(["ReplicaSet", "ReplicaSet", "StatefulSet", "Job"]),
        "uid": _uid(chance),
        "hash": _word(chance, 9),
        "image": f"123456789012.dkr.ecr.us-west-2.amazonaws.com/{name}:{_word(chance, 12)}",
        "cpu": f"{chance.choice([50, 100, 250, 500, 1000, 2000])}m",
        "memory": f"{chance.choice([64, 128, 256, 512, 1024, 4096])}Mi",
        "spread": chance.random() < 0.4,
        "arch": chance.random() < 0.3,
        "daemon": daemon,
    }


def pod(chance: random.Random, of: dict[str, Any], number: int) -> dict[str, Any]:
    name = f"{of['name']}-{of['hash']}-{_word(chance, 5)}{MARK}"
    host = number // PODS_PER_NODE
    node = f"ip-10-{host // 62_500}-{host // 250 % 250}-{host % 250}.us-west-2.compute.internal"
    token = f"kube-api-access-{_word(chance, 5)}"
    when = f"2026-05-{1 + number % 28:02d}T{number % 24:02d}:{number % 60:02d}:{number % 59:02d}Z"
    return {
        "metadata": _metadata(chance, of, name, when),
        "spec": _spec(of, node, token),
        "status": _status(chance, of, when, number),
    }


def _metadata(chance: random.Random, of: dict[str, Any], name: str, when: str) -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/name": of["name"],
        "app.kubernetes.io/instance": of["name"],
        "pod-template-hash": of["hash"],
        "team": of["namespace"],
    }
    annotations = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "9090",
        "kubectl.kubernetes.io/restartedAt": "2026-04-30T12:00:00Z",
        "checksum/config": "0f343b0931126a20f133d67c2b018a3b5dc7a1d2f9f0d1f0d2b7b5b0f1d2c3b4",
    }
    owner = {
        "apiVersion": "batch/v1" if of["kind"] == "Job" else "apps/v1",
        "kind": of["kind"],
        "name": f"{of['name']}-{of['hash']}",
        "uid": of["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": name,
        "generateName": f"{of['name']}-{of['hash']}-",
        "namespace": of["namespace"],
        "uid": MARK + _uid(chance)[2:],
        "resourceVersion": str(chance.randrange(10**8, 10**9)),
        "creationTimestamp": when,
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [owner],
        "managedFields": [_managed("kube-controller-manager", when), _managed("kubelet", when, "status")],
    }


def _managed(manager: str, when: str, subresource: str = "") -> dict[str, Any]:
    inner: dict[str, Any] = {
        f"f:{name}": {}
        for name in ("image", "imagePullPolicy", "name", "terminationMessagePath", "terminationMessagePolicy")
    }
    resources: dict[str, Any] = {
        ".": {},
        "f:limits": {".": {}, "f:memory": {}},
        "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}},
    }
    fields = {
        "f:metadata": {"f:labels": {".": {}, "f:app.kubernetes.io/name": {}, "f:pod-template-hash": {}}},
        "f:spec": {"f:containers": {'k:{"name":"app"}': {".": {}, **inner, "f:resources": resources}}},
    }
    entry: dict[str, Any] = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": when,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return entry | ({"subresource": subresource} if subresource else {})


def _spec(of: dict[str, Any], node: str, token: str) -> dict[str, Any]:
    app = {
        "name": "app",
        "image": of["image"],
        "args": ["--listen=:8080", "--config=/etc/service/config.yaml"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [
            {
                "name": "POD_NAME",
                "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
            },
            {"name": "LOG_LEVEL", "value": "info"},
            {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector.observability:4317"},
        ],
        "resources": {
            "limits": {"memory": of["memory"]},
            "requests": {"cpu": of["cpu"], "memory": of["memory"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/service"},
            {"name": token, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
        ],
        "livenessProbe": _probe("/healthz"),
        "readinessProbe": _probe("/readyz"),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"runAsNonRoot": True, "allowPrivilegeEscalation": False},
    }
    spec: dict[str, Any] = {
        "volumes": [
            {"name": "config", "configMap": {"name": of["name"], "defaultMode": 420}},
            {"name": token, "projected": {"sources": _token_sources(), "defaultMode": 420}},
        ],
        "containers": [app],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": of["name"],
        "serviceAccount": of["name"],
        "nodeName": node,
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": _tolerations(of["daemon"]),
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    if of["daemon"]:
        spec["affinity"] = _pinned_to(node)
    if of["arch"]:
        spec["nodeSelector"] = {"kubernetes.io/arch": "arm64"}
    if of["spread"]:
        spec["topologySpreadConstraints"] = [_spread(of, "topology.kubernetes.io/zone")]
    return spec


def _status(chance: random.Random, of: dict[str, Any], when: str, number: int) -> dict[str, Any]:
    address = f"10.{number % 250}.{number % 199}.{number % 251}"
    return {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": when}
            for kind in (
                "PodReadyToStartContainers",
                "Initialized",
                "Ready",
                "ContainersReady",
                "PodScheduled",
            )
        ],
        "hostIP": address,
        "hostIPs": [{"ip": address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": when,
        "containerStatuses": [
            {
                "name": "app",
                "state": {"running": {"startedAt": when}},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "image": of["image"],
                "imageID": f"{of['image']}@sha256:{_word(chance, 64)}",
                "containerID": f"containerd://{_word(chance, 64)}",
                "started": True,
                "allocatedResources": {"cpu": of["cpu"], "memory": of["memory"]},
                "resources": {
                    "limits": {"memory": of["memory"]},
                    "requests": {"cpu": of["cpu"], "memory": of["memory"]},
                },
            }
        ],
        "qosClass": "Burstable",
    }


def _probe(path: str) -> dict[str, Any]:
    get = {"path": path, "port": "http", "scheme": "HTTP"}
    return {
        "httpGet": get,
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


def _token_sources() -> list[dict[str, Any]]:
    field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
    ]


def _tolerations(daemon: bool) -> list[dict[str, Any]]:
    if daemon:
        return [{"operator": "Exists"}]
    return [
        {
            "key": f"node.kubernetes.io/{state}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for state in ("not-ready", "unreachable")
    ]


def _pinned_to(node: str) -> dict[str, Any]:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def _spread(of: dict[str, Any], key: str) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": of["name"]}},
    }


def _uid(chance: random.Random) -> str:
    digits = f"{chance.getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _word(chance: random.Random, length: int) -> str:
    return "".join(chance.choices(SUFFIX, k=length))
