"""The objects of an installation, as the chart renders them, made without helm.

One page for who may do what and what runs; a test holds it against the chart, object by object.
"""

from __future__ import annotations

from dovetail.api import crds
from dovetail.cli import installshapes as shapes
from dovetail.cli import installzonal as zonal
from dovetail.cli.installation import NAME, PARTS, Installation
from dovetail.cli.installparts import MADE
from dovetail.cli.installshapes import READ, Json

__all__ = ["Installation", "objects"]

# On the controller's pods alone: a Deployment's selector cannot be changed later.
CONTROLLER_PODS = {"karpenter": "controller"}
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
# Where zonal shift was never on there is nothing to restore, and no right to look.
OFF = {"ZONAL_SHIFT_ON_DISABLE": "leave"}
ALL_BUT_UPDATE = (*READ, "create", "delete", "patch")
ADMIN = (
    ("karpenter.sh", ("nodepools", "nodepools/status", "nodeclaims", "nodeclaims/status"), ALL_BUT_UPDATE),
    ("karpenter.k8s.aws", ("ec2nodeclasses",), ALL_BUT_UPDATE),
)


def objects(given: Installation) -> list[Json]:
    """Everything but the definitions, in an order in which it can be created."""
    return [
        *([crds.zonal_manifest()] if given.shifts and given.definition else []),
        *([zonal.shift_map(given)] if given.shifts else []),
        *(_controller(given) if given.controller else []),
        *(each for name in PARTS if name in given.parts for each in MADE[name](given)),
    ]


def _controller(given: Installation) -> list[Json]:
    name = given.name
    admin = shapes.role(given, f"{name}-admin", ADMIN)
    admin["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"] = "true"
    sns = {"https-sns": 443} if given.sns else {}
    return [
        shapes.account(given, given.account_annotations),
        *shapes.bound(given, shapes.role(given, f"{name}-core", CORE)),
        *shapes.bound(given, shapes.role(given, f"{name}-planning", PLANNING)),
        *shapes.bound(given, shapes.role(given, name, _of_provider(given))),
        admin,
        *shapes.bound(given, _own(given)),
        *shapes.bound(given, _dns(given)),
        shapes.service(given, {"http-metrics": 8080} | sns),
        shapes.budget(given, NAME),
        *zonal.endpoint_policy(given, f"{name}-sns", given.selector),
        shapes.network_policy(given, f"{name}-metrics", given.selector, ((8080,),)),
        shapes.deployment(
            given, given.replicas, _pod(given), rolling={"maxUnavailable": 1}, also=CONTROLLER_PODS
        ),
    ]


def _of_provider(given: Installation) -> shapes.Rules:
    rules: shapes.Rules = PROVIDER[given.provider]
    edited = given.settings.get("ZONAL_SHIFT_MODE") in ("NodePoolEdit", "Both")
    followed = given.shifts_inside or given.settings.get("ZONAL_SHIFT_ON_DISABLE") == "restore"
    bought = given.settings.get("ZONAL_SHIFT_PRESCALE") == "true"
    return (
        *rules,
        *(zonal.SHIFTS if followed else ()),
        *(zonal.CLONES if edited else ()),
        *(zonal.BUFFERS if bought else ()),
    )


def _own(given: Installation) -> Json:
    made = shapes.role(given, given.name, (), given.namespace)
    lease = given.settings.get("LEADER_ELECTION_NAME", "karpenter-leader-election")
    made["rules"] = [*shapes.leases(lease), *([zonal.map_rule(given)] if given.shifts_inside else [])]
    return made


def _dns(given: Installation) -> Json:
    made = shapes.role(given, f"{given.name}-dns", (), "kube-system")
    made["rules"] = [shapes.only("services", ["kube-dns"], ["get"])]
    return made


def _pod(given: Installation) -> Json:
    own = {"labelSelector": {"matchLabels": given.selector}}
    elsewhere = {"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]}
    zones = {"maxSkew": 1, "topologyKey": shapes.ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    made = shapes.pod(given, _container(given), token=True, volumes=zonal.tls_volumes(given))
    return (
        made
        | shapes.CRITICAL
        | {
            "schedulerName": "default-scheduler",
            "dnsPolicy": "ClusterFirst",
            "affinity": {
                "nodeAffinity": {shapes.REQUIRED: {"nodeSelectorTerms": [elsewhere]}},
                "podAntiAffinity": {shapes.REQUIRED: [own | {"topologyKey": shapes.HOST}]},
            },
            "topologySpreadConstraints": [own | zones],
        }
    )


def _container(given: Installation) -> Json:
    ports = {"http-metrics": 8080, "http": 8081} | zonal.https_port(given)
    made = shapes.container("controller", given.image, ("controller", "--provider", given.provider), ports)
    made["volumeMounts"] += zonal.tls_mounts(given)
    made |= {"env": _environment(given)} | shapes.probes()
    return made | ({"resources": dict(given.resources)} if given.resources else {})


def _environment(given: Installation) -> list[Json]:
    own = {"containerName": "controller"}
    requests = {"resourceFieldRef": own | {"divisor": "1m", "resource": "requests.cpu"}}
    limits = {"resourceFieldRef": own | {"divisor": "0", "resource": "limits.memory"}}
    return [
        {"name": "KARPENTER_SERVICE", "value": given.name},
        {"name": "SYSTEM_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "CPU_REQUESTS", "valueFrom": requests},
        {"name": "MEMORY_LIMIT", "valueFrom": limits},
        *(zonal.environment(given) if given.shifts_inside else shapes.variables({**OFF, **given.settings})),
    ]
