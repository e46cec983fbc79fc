"""Random little clusters with all a scheduler looks at: volumes, ports, sidecars, daemons, namespaces."""

from __future__ import annotations

from random import Random
from typing import Any

from dovetail.api import codec
from dovetail.api.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_CPU, INSTANCE_TYPE, ZONE
from dovetail.scheduling.model.plan import Plan, PlannedNode, build_pool_labels
from dovetail.scheduling.model.snapshot import Snapshot
from support.kubernetes_rules import Cluster, daemons_of, refused
from support.random_manifests import REQUIRED, cluster

__all__ = ["furnished", "launched", "name_of", "objections"]

Json = dict[str, Any]
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
SPACES = ("default", "blue")


def furnished(seed: int) -> Json:
    """A v1 List, the same for the same seed: pods of one workload are furnished alike."""
    made, chance = cluster(seed), Random(f"furnished {seed}")
    items = made["items"]
    waiting: dict[str, list[Json]] = {}
    for each in items:
        if each["kind"] == "Pod" and not each["spec"].get("nodeName"):
            waiting.setdefault(each["metadata"]["name"].rpartition("-")[0], []).append(each)
    for name, pods in waiting.items():
        items += _furnish(name, pods, chance)
    items += [_namespace(name) for name in SPACES]
    if chance.random() < 0.4:
        items += [_daemonset(chance)]
    return made


def _furnish(app: str, pods: list[Json], chance: Random) -> list[Json]:
    """Give the pods of one workload the same more; what they need besides comes back."""
    more: list[Json] = []
    if chance.random() < 0.25:
        for pod in pods:
            pod["metadata"]["namespace"] = "blue"
    if chance.random() < 0.25:
        more = _with_volume(app, pods, chance)
    shape = chance.randrange(1_000_000)
    for number, pod in enumerate(pods):
        _decorate(pod, number, Random(shape))
    return more


def _decorate(pod: Json, number: int, chance: Random) -> None:
    spec = pod["spec"]
    first = spec["containers"][0]
    pod["metadata"]["labels"]["rev"] = str(number % 2) if chance.random() < 0.3 else "0"
    if chance.random() < 0.15:
        first["ports"] = [{"containerPort": 80, "hostPort": chance.choice([8080, 8081]), "protocol": "TCP"}]
    if chance.random() < 0.3:
        init = {"name": "init", "image": "x", "resources": {"requests": {"cpu": chance.choice(["50m", "2"])}}}
        sidecar = {"restartPolicy": "Always"} if chance.random() < 0.5 else {}
        spec["initContainers"] = [init | sidecar]
    if chance.random() < 0.1:
        spec["overhead"] = {"cpu": "250m", "memory": "120Mi"}
    if chance.random() < 0.2:
        values = [str(chance.choice([1, 3, 7]))]
        needed = {"key": INSTANCE_CPU, "operator": "Gt", "values": values}
        affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        affinity[REQUIRED] = {"nodeSelectorTerms": [{"matchExpressions": [needed]}]}
    for rule in spec.get("topologySpreadConstraints") or ():
        _qualify(rule, chance)
    for kind in ("podAffinity", "podAntiAffinity"):
        for term in (spec.get("affinity") or {}).get(kind, {}).get(REQUIRED, ()):
            if chance.random() < 0.3:
                term["namespaceSelector"] = chance.choice([{}, {"matchLabels": {"team": "blue"}}])


def _qualify(rule: Json, chance: Random) -> None:
    hard = rule["whenUnsatisfiable"] == "DoNotSchedule"
    if hard and rule["topologyKey"] == ZONE and chance.random() < 0.3:
        rule["minDomains"] = chance.choice([2, 3])
    if chance.random() < 0.25:
        rule["matchLabelKeys"] = ["rev"]
    if chance.random() < 0.25:
        rule["nodeTaintsPolicy"] = chance.choice(["Honor", "Ignore"])


def _with_volume(app: str, pods: list[Json], chance: Random) -> list[Json]:
    """One claim for all of them, bound to a volume in a zone, or to come where the first of them runs."""
    space = pods[0]["metadata"]["namespace"]
    for pod in pods:
        source = {"persistentVolumeClaim": {"claimName": app}}
        pod["spec"]["volumes"] = [{"name": "data", **source}]
    zones = chance.sample(ZONES, chance.choice([1, 1, 2]))
    inside = {"key": ZONE, "operator": "In", "values": zones}
    claim: Json = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": app, "namespace": space},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    claim["spec"] |= {"volumeName": f"pv-{app}", "storageClassName": ""}
    claim["status"] = {"phase": "Bound"}
    terms = [{"matchExpressions": [inside]}]
    volume: Json = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pv-{app}"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": space, "name": app},
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{app}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }
    return [claim, volume]


def _namespace(name: str) -> Json:
    labels = {"kubernetes.io/metadata.name": name, "team": name}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _daemonset(chance: Random) -> Json:
    requests = {"cpu": chance.choice(["50m", "400m"]), "memory": "100Mi"}
    inner: Json = {"containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}]}
    if chance.random() < 0.5:
        inner["tolerations"] = [{"operator": "Exists"}]
    labels = {"daemon": "agent"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default", "uid": "agent"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": inner},
        },
    }


def name_of(thing: Json) -> str:
    """Namespace and name."""
    return f"{thing['metadata'].get('namespace', 'default')}/{thing['metadata']['name']}"


def launched(node: PlannedNode, snapshot: Snapshot) -> Json:
    """The planned node as its cheapest offering would make it."""
    pool = next(each for each in snapshot.pools if each.name == node.pool)
    chosen = next(each for each in snapshot.list_types(pool) if each.name == node.instance_type)
    known = {key: only for key in chosen.requirements if (only := chosen.requirements[key].only) is not None}
    known |= {key: only for key in node.requirements if (only := node.requirements[key].only) is not None}
    known |= build_pool_labels(pool.nodepool)
    known |= {ZONE: node.zone, CAPACITY_TYPE: node.capacity_type, INSTANCE_TYPE: node.instance_type}
    taints = [codec.to_dict(taint) for taint in pool.nodepool.spec.template.spec.taints]
    return {
        "metadata": {"name": node.name, "labels": {**known, HOSTNAME: node.name}},
        "spec": {"taints": taints},
        "status": {"allocatable": {name: str(amount) for name, amount in chosen.allocatable().items()}},
    }


def objections(document: Json, snapshot: Snapshot, plan: Plan) -> list[str]:
    """What the documentation has against a plan, once its nodes are there and their daemons run."""
    items = document["items"]
    pods = {name_of(each): each for each in items if each["kind"] == "Pod"}
    nodes = [each for each in items if each["kind"] == "Node"]
    new = [launched(node, snapshot) for node in plan.new_nodes]
    spaces = [each for each in items if each["kind"] == "Namespace"]
    storage = [each for each in items if each["kind"] in ("PersistentVolumeClaim", "PersistentVolume")]
    board = Cluster([*nodes, *new], spaces, storage)
    for pod in pods.values():
        if pod["spec"].get("nodeName"):
            board.bind(pod, pod["spec"]["nodeName"])
    daemonsets = [each for each in items if each["kind"] == "DaemonSet"]
    for node in (*nodes, *new):
        for daemon in daemons_of(daemonsets, node):
            board.bind(daemon, node["metadata"]["name"])
    placements = [(pods[name], node.name) for node in plan.new_nodes for name in node.pods]
    placements += [(pods[name], node) for node, names in plan.existing.items() for name in names]
    return refused(board, placements)
