"""The objects of an installation, as the chart renders them, made without helm.

One page for who may do what and what runs; a test holds it against the chart, object by object.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from dovetail.api import crds, manifests
from dovetail.app import install_shapes as shapes
from dovetail.app import install_zonal as zonal
from dovetail.app.install_shapes import NAME, PARTS, READ, Installation, InstallPart, Json

__all__ = ["PART_BUILDERS", "Installation", "build_objects"]

PORT = 8090
ALONE: shapes.Rules = (
    ("", ("nodes",), (*READ, "patch")),
    ("karpenter.sh", ("nodepools",), (*READ, "patch", "create", "delete")),
    ("karpenter.sh", ("nodeclaims",), READ),
    ("karpenter.k8s.aws", ("ec2nodeclasses",), READ),
    ("", ("events",), ("create", "patch")),
    *zonal.SHIFTS,
)
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
    # The settings that the leader decides by stand on its Lease.
    ("coordination.k8s.io", ("leases",), ("list",)),
)


def _build_spread_term(part: InstallPart, topology: str) -> Json:
    return {"topologyKey": topology, "labelSelector": {"matchLabels": part.selector}}


def _build_router(given: Installation) -> list[Json]:
    part, text = InstallPart(given, "router"), manifests.write_manifest({"bus": dict(given.bus)})
    arguments = (
        *("interruption-router", "run", "--config=/etc/dovetail/bus.yaml"),
        *("--metrics-port=8080", "--health-port=8081"),
        f"--log-level={given.settings.get('LOG_LEVEL') or 'info'}",
    )
    container = shapes.build_container("router", given.image, arguments, {"http-metrics": 8080, "http": 8081})
    container["volumeMounts"].append({"name": "config", "mountPath": "/etc/dovetail", "readOnly": True})
    wishes = [
        {"weight": weight, "podAffinityTerm": _build_spread_term(part, topology)}
        for weight, topology in ((100, shapes.HOST), (50, shapes.ZONE))
    ]
    volume = {"name": "config", "configMap": {"name": part.name}}
    pod = (
        shapes.build_pod_spec(part, container | shapes.build_probes(), token=False, volumes=[volume])
        | shapes.CRITICAL
    )
    pod |= {
        "terminationGracePeriodSeconds": 40,
        "affinity": {"podAntiAffinity": {shapes.PREFERRED: wishes}},
        "annotations": {"checksum/config": sha256(text.encode()).hexdigest()},
    }
    return [
        shapes.build_service_account(part, part.annotations),
        shapes.build_config_map(part, part.name, {"bus.yaml": text}),
        shapes.build_service(part, {"http-metrics": 8080}),
        shapes.build_pod_disruption_budget(part, part.name),
        shapes.build_network_policy(part, f"{part.name}-metrics", part.selector, ((8080,),)),
        shapes.build_deployment(part, 2, pod, rolling={"maxUnavailable": 1}),
    ]


def _build_zonal_shift(given: Installation) -> list[Json]:
    part = InstallPart(given, "zonal-shift")
    own = shapes.build_role(part, part.name, (), part.namespace)
    own["rules"] = [*shapes.build_lease_rules("dovetail-zonal-shift"), zonal.build_map_rule(given)]
    ports = {"http-metrics": 8080, "http": 8081} | zonal.https_port(given)
    container = shapes.build_container("zonal-shift", given.image, ("zonal-shift", "run"), ports)
    container["volumeMounts"] += zonal.tls_mounts(given)
    container |= {"env": zonal.build_environment(given)} | shapes.build_probes()
    pod = (
        shapes.build_pod_spec(part, container, token=True, volumes=zonal.tls_volumes(given)) | shapes.CRITICAL
    )
    pod["affinity"] = {"podAntiAffinity": {shapes.REQUIRED: [_build_spread_term(part, shapes.ZONE)]}}
    return [
        shapes.build_service_account(part, part.annotations),
        *shapes.bind_role(part, shapes.build_role(part, part.name, ALONE)),
        *shapes.bind_role(part, own),
        shapes.build_service(part, {"http-metrics": 8080} | ({"https-sns": 443} if given.sns else {})),
        shapes.build_pod_disruption_budget(part, part.name),
        *zonal.build_endpoint_policy(given, part.name, part.selector),
        shapes.build_network_policy(part, f"{part.name}-metrics", part.selector, ((8080,),)),
        # No surge: where there is a replica in every zone, there is no place for one more.
        shapes.build_deployment(part, 2, pod, rolling={"maxSurge": 0, "maxUnavailable": 1}),
    ]


def _build_dashboard(given: Installation) -> list[Json]:
    part = InstallPart(given, "dashboard")
    classes = crds.find_provider_api(given.provider).kind
    rules = (
        ("karpenter.sh", ("nodepools", "nodeclaims", "nodeoverlays"), READ),
        (classes.group, (classes.plural,), READ),
        *SEEN,
        *(SPEND[:1] if _follows_spend_limits(given) else ()),
        *(COMMITMENTS[:1] if _counts_commitments(given) else ()),
    )
    names = (part.name, f"{part.name}.{part.namespace}", f"{part.name}.{part.namespace}.svc")
    arguments = (
        *("dashboard", f"--bind=0.0.0.0:{PORT}", f"--provider={given.provider}"),
        *(f"--host={name}" for name in names),
    )
    # What the leader remembers is asked for behind the controller's own Service, and no other.
    own = shapes.build_role(part, part.name, (), part.namespace)
    own["rules"] = [shapes.build_named_rule("services/proxy", [f"{given.name}:http-metrics"], ["get"])]
    container = shapes.build_container("dashboard", given.image, arguments, {"http": PORT})
    container |= {"env": shapes.build_variables(given.settings)} | shapes.build_probes()
    return [
        shapes.build_service_account(part, part.annotations),
        *shapes.bind_role(part, shapes.build_role(part, part.name, rules)),
        *shapes.bind_role(part, own),
        shapes.build_service(part, {"http": PORT}),
        # Nobody but kubectl port-forward and the kubelet, which come in by the node.
        shapes.build_network_policy(part, part.name, part.selector, ()),
        shapes.build_deployment(part, 1, shapes.build_pod_spec(part, container, token=True)),
    ]


PART_BUILDERS: dict[str, Callable[[Installation], list[Json]]] = {
    "router": _build_router,
    "zonal-shift": _build_zonal_shift,
    "dashboard": _build_dashboard,
}


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
# Only where spend limits are followed.
SPEND = (
    ("dovetail.sh", ("spendlimits",), READ),
    ("dovetail.sh", ("spendlimits/status",), ("patch",)),
)
# Only where commitments are shown or followed; the last where a provider mirrors those of its account.
COMMITMENTS = (
    ("dovetail.sh", ("commitments",), READ),
    ("dovetail.sh", ("commitments/status",), ("patch",)),
    ("dovetail.sh", ("commitments",), ("create", "delete", "patch")),
)
# Where zonal shift was never on there is nothing to restore, and no right to look.
OFF = {"ZONAL_SHIFT_ON_DISABLE": "leave"}
ALL_BUT_UPDATE = (*READ, "create", "delete", "patch")
ADMIN = (
    ("karpenter.sh", ("nodepools", "nodepools/status", "nodeclaims", "nodeclaims/status"), ALL_BUT_UPDATE),
    ("karpenter.k8s.aws", ("ec2nodeclasses",), ALL_BUT_UPDATE),
)


def build_objects(given: Installation) -> list[Json]:
    """Everything but the definitions, in an order in which it can be created."""
    return [
        *([crds.build_zonal_manifest()] if given.shifts and given.definition else []),
        *([zonal.build_shift_map(given)] if given.shifts else []),
        *(_build_controller(given) if given.controller else []),
        *(each for name in PARTS if name in given.parts for each in PART_BUILDERS[name](given)),
    ]


def _follows_spend_limits(given: Installation) -> bool:
    return given.settings.get("SPEND_LIMITS", "").lower() == "true"


def _build_commitment_role(given: Installation) -> tuple[Json, ...]:
    if not _counts_commitments(given):
        return ()
    rules = COMMITMENTS if given.provider == "aws" else COMMITMENTS[:2]
    return tuple(shapes.bind_role(given, shapes.build_role(given, f"{given.name}-commitments", rules)))


def _counts_commitments(given: Installation) -> bool:
    return given.settings.get("COMMITMENTS", "Off") in ("Show", "Follow")


def _build_controller(given: Installation) -> list[Json]:
    name = given.name
    admin = shapes.build_role(given, f"{name}-admin", ADMIN)
    admin["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"] = "true"
    sns = {"https-sns": 443} if given.sns else {}
    return [
        shapes.build_service_account(given, given.account_annotations),
        *shapes.bind_role(given, shapes.build_role(given, f"{name}-core", CORE)),
        *shapes.bind_role(given, shapes.build_role(given, f"{name}-planning", PLANNING)),
        *(
            shapes.bind_role(given, shapes.build_role(given, f"{name}-spend", SPEND))
            if _follows_spend_limits(given)
            else ()
        ),
        *_build_commitment_role(given),
        *shapes.bind_role(given, shapes.build_role(given, name, _list_provider_rules(given))),
        admin,
        *shapes.bind_role(given, _build_own_role(given)),
        *shapes.bind_role(given, _build_dns_role(given)),
        shapes.build_service(given, {"http-metrics": 8080} | sns),
        shapes.build_pod_disruption_budget(given, NAME),
        *zonal.build_endpoint_policy(given, f"{name}-sns", given.selector),
        shapes.build_network_policy(given, f"{name}-metrics", given.selector, ((8080,),)),
        shapes.build_deployment(
            given, given.replicas, _build_pod(given), rolling={"maxUnavailable": 1}, also=CONTROLLER_PODS
        ),
    ]


def _list_provider_rules(given: Installation) -> shapes.Rules:
    provider = crds.find_provider_api(given.provider)
    group, plural = provider.kind.group, provider.kind.plural
    edited = given.settings.get("ZONAL_SHIFT_MODE") in ("NodePoolEdit", "Both")
    followed = given.shifts_inside or given.settings.get("ZONAL_SHIFT_ON_DISABLE") == "restore"
    bought = given.settings.get("ZONAL_SHIFT_PRESCALE") == "true"
    return (
        (group, (plural,), READ),
        (group, (plural, f"{plural}/status"), ("patch", "update")),
        *provider.rights,
        *(zonal.SHIFTS if followed else ()),
        *(zonal.CLONES if edited else ()),
        *(zonal.BUFFERS if bought else ()),
    )


def _build_own_role(given: Installation) -> Json:
    made = shapes.build_role(given, given.name, (), given.namespace)
    lease = given.settings.get("LEADER_ELECTION_NAME", "karpenter-leader-election")
    made["rules"] = [
        *shapes.build_lease_rules(lease),
        *([zonal.build_map_rule(given)] if given.shifts_inside else []),
    ]
    return made


def _build_dns_role(given: Installation) -> Json:
    made = shapes.build_role(given, f"{given.name}-dns", (), "kube-system")
    made["rules"] = [shapes.build_named_rule("services", ["kube-dns"], ["get"])]
    return made


def _build_pod(given: Installation) -> Json:
    own = {"labelSelector": {"matchLabels": given.selector}}
    elsewhere = {"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]}
    zones = {"maxSkew": 1, "topologyKey": shapes.ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    made = shapes.build_pod_spec(given, _build_container(given), token=True, volumes=zonal.tls_volumes(given))
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


def _build_container(given: Installation) -> Json:
    ports = {"http-metrics": 8080, "http": 8081} | zonal.https_port(given)
    made = shapes.build_container(
        "controller", given.image, ("controller", "--provider", given.provider), ports
    )
    made["volumeMounts"] += zonal.tls_mounts(given)
    made |= {"env": _build_environment(given)} | shapes.build_probes()
    return made | ({"resources": dict(given.resources)} if given.resources else {})


def _build_environment(given: Installation) -> list[Json]:
    own = {"containerName": "controller"}
    requests = {"resourceFieldRef": own | {"divisor": "1m", "resource": "requests.cpu"}}
    limits = {"resourceFieldRef": own | {"divisor": "0", "resource": "limits.memory"}}
    return [
        {"name": "KARPENTER_SERVICE", "value": given.name},
        {"name": "SYSTEM_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "CPU_REQUESTS", "valueFrom": requests},
        {"name": "MEMORY_LIMIT", "valueFrom": limits},
        *(
            zonal.build_environment(given)
            if given.shifts_inside
            else shapes.build_variables({**OFF, **given.settings})
        ),
    ]
