"""The optional parts of an installation: the router, zonal shift by itself, and the dashboard."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from dovetail.api import manifests
from dovetail.cli import installshapes as shapes
from dovetail.cli import installzonal as zonal
from dovetail.cli.installation import Installation, Part
from dovetail.cli.installshapes import READ, Json

__all__ = ["MADE"]

PORT = 8090
ALONE: shapes.Rules = (
    ("", ("nodes",), (*READ, "patch")),
    ("karpenter.sh", ("nodepools",), (*READ, "patch", "create", "delete")),
    ("karpenter.sh", ("nodeclaims",), READ),
    ("karpenter.k8s.aws", ("ec2nodeclasses",), READ),
    ("", ("events",), ("create", "patch")),
    *zonal.SHIFTS,
)
CLASSES = {"aws": ("karpenter.k8s.aws", "ec2nodeclasses"), "kwok": ("karpenter.kwok.sh", "kwoknodeclasses")}
SEEN: shapes.Rules = (
    ("autoscaling.x-k8s.io", ("capacitybuffers",), READ),
    ("dovetail.sh", ("zoneshifts",), READ),
    (
        "",
        (
            *("pods", "podtemplates", "nodes", "persistentvolumes", "persistentvolumeclaims"),
            *("replicationcontrollers", "namespaces", "events", "limitranges", "services"),
        ),
        READ,
    ),
    ("storage.k8s.io", ("storageclasses", "csinodes", "volumeattachments"), READ),
    ("apps", ("daemonsets", "deployments", "replicasets", "statefulsets"), READ),
    ("policy", ("poddisruptionbudgets",), READ),
)


def _apart(part: Part, topology: str) -> Json:
    return {"topologyKey": topology, "labelSelector": {"matchLabels": part.selector}}


def _router(given: Installation) -> list[Json]:
    part, text = Part(given, "router"), manifests.write({"bus": dict(given.bus)})
    arguments = (
        *("interruption-router", "run", "--config=/etc/dovetail/bus.yaml"),
        *("--metrics-port=8080", "--health-port=8081"),
        f"--log-level={given.settings.get('LOG_LEVEL') or 'info'}",
    )
    container = shapes.container("router", given.image, arguments, {"http-metrics": 8080, "http": 8081})
    container["volumeMounts"].append({"name": "config", "mountPath": "/etc/dovetail", "readOnly": True})
    wishes = [
        {"weight": weight, "podAffinityTerm": _apart(part, topology)}
        for weight, topology in ((100, shapes.HOST), (50, shapes.ZONE))
    ]
    volume = {"name": "config", "configMap": {"name": part.name}}
    pod = shapes.pod(part, container | shapes.probes(), token=False, volumes=[volume]) | shapes.CRITICAL
    pod |= {
        "terminationGracePeriodSeconds": 40,
        "affinity": {"podAntiAffinity": {shapes.PREFERRED: wishes}},
        "annotations": {"checksum/config": sha256(text.encode()).hexdigest()},
    }
    return [
        shapes.account(part, part.annotations),
        shapes.config_map(part, part.name, {"bus.yaml": text}),
        shapes.service(part, {"http-metrics": 8080}),
        shapes.budget(part, part.name),
        shapes.network_policy(part, f"{part.name}-metrics", part.selector, ((8080,),)),
        shapes.deployment(part, 2, pod, rolling={"maxUnavailable": 1}),
    ]


def _zonal_shift(given: Installation) -> list[Json]:
    part = Part(given, "zonal-shift")
    own = shapes.role(part, part.name, (), part.namespace)
    own["rules"] = [*shapes.leases("dovetail-zonal-shift"), zonal.map_rule(given)]
    ports = {"http-metrics": 8080, "http": 8081} | zonal.https_port(given)
    container = shapes.container("zonal-shift", given.image, ("zonal-shift", "run"), ports)
    container["volumeMounts"] += zonal.tls_mounts(given)
    container |= {"env": zonal.environment(given)} | shapes.probes()
    pod = shapes.pod(part, container, token=True, volumes=zonal.tls_volumes(given)) | shapes.CRITICAL
    pod["affinity"] = {"podAntiAffinity": {shapes.REQUIRED: [_apart(part, shapes.ZONE)]}}
    return [
        shapes.account(part, part.annotations),
        *shapes.bound(part, shapes.role(part, part.name, ALONE)),
        *shapes.bound(part, own),
        shapes.service(part, {"http-metrics": 8080} | ({"https-sns": 443} if given.sns else {})),
        shapes.budget(part, part.name),
        *zonal.endpoint_policy(given, part.name, part.selector),
        shapes.network_policy(part, f"{part.name}-metrics", part.selector, ((8080,),)),
        # No surge: where there is a replica in every zone, there is no place for one more.
        shapes.deployment(part, 2, pod, rolling={"maxSurge": 0, "maxUnavailable": 1}),
    ]


def _dashboard(given: Installation) -> list[Json]:
    part = Part(given, "dashboard")
    group, plural = CLASSES[given.provider]
    rules = (
        ("karpenter.sh", ("nodepools", "nodeclaims", "nodeoverlays"), READ),
        (group, (plural,), READ),
        *SEEN,
    )
    names = (part.name, f"{part.name}.{part.namespace}", f"{part.name}.{part.namespace}.svc")
    arguments = (
        *("dashboard", f"--bind=0.0.0.0:{PORT}", f"--provider={given.provider}"),
        *(f"--host={name}" for name in names),
    )
    container = shapes.container("dashboard", given.image, arguments, {"http": PORT})
    container |= {"env": shapes.variables(given.settings)} | shapes.probes()
    return [
        shapes.account(part, part.annotations),
        *shapes.bound(part, shapes.role(part, part.name, rules)),
        shapes.service(part, {"http": PORT}),
        # Nobody but kubectl port-forward and the kubelet, which come in by the node.
        shapes.network_policy(part, part.name, part.selector, ()),
        shapes.deployment(part, 1, shapes.pod(part, container, token=True)),
    ]


MADE: dict[str, Callable[[Installation], list[Json]]] = {
    "router": _router,
    "zonal-shift": _zonal_shift,
    "dashboard": _dashboard,
}
