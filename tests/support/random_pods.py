"""Random nodes and pods with every rule the scheduler knows: boards on which readings of it are compared."""

from __future__ import annotations

import random
from typing import Any

__all__ = ["HOST", "ZONE", "Json", "node", "probe"]

Json = dict[str, Any]
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node(name: str, chance: random.Random) -> Json:
    labels = {HOST: name, ZONE: f"zone-{chance.randrange(3)}", "kwok.x-k8s.io/node": "fake", "set": "{run}"}
    if chance.random() < 0.4:
        labels["disk"] = chance.choice(["ssd", "hdd"])
    if chance.random() < 0.3:
        labels["cores"] = str(chance.randrange(1, 9))
    taints = []
    if chance.random() < 0.25:
        effect = chance.choice(["NoSchedule", "PreferNoSchedule", "NoExecute"])
        taints.append({"key": "team", "value": chance.choice(["blue", "red"]), "effect": effect})
    size = {"cpu": chance.choice(["1", "2", "4"]), "memory": "4Gi", "pods": chance.choice(["3", "8", "20"])}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": chance.random() < 0.1},
        "status": {"capacity": size, "allocatable": size},
    }


def selector(chance: random.Random) -> Json:
    if chance.random() < 0.7:
        return {"matchLabels": {"app": chance.choice("xyz")}}
    operator = chance.choice(["In", "NotIn", "Exists"])
    values = {} if operator == "Exists" else {"values": chance.sample("xyz", 2)}
    return {"matchExpressions": [{"key": "app", "operator": operator, **values}]}


def term(chance: random.Random) -> Json:
    found: Json = {"topologyKey": chance.choice([HOST, ZONE, "disk"]), "labelSelector": selector(chance)}
    if chance.random() < 0.2:
        found["namespaceSelector"] = {}
    if chance.random() < 0.2:
        found["matchLabelKeys"] = ["rev"]
    return found


def spread(chance: random.Random) -> Json:
    found: Json = {
        "topologyKey": chance.choice([HOST, ZONE, "disk"]),
        "maxSkew": chance.choice([1, 1, 2]),
        "whenUnsatisfiable": chance.choice(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": selector(chance),
    }
    if chance.random() < 0.3 and found["whenUnsatisfiable"] == "DoNotSchedule":
        found["minDomains"] = chance.choice([2, 4])
    if chance.random() < 0.3:
        found["nodeTaintsPolicy"] = chance.choice(["Honor", "Ignore"])
    if chance.random() < 0.3:
        found["nodeAffinityPolicy"] = chance.choice(["Honor", "Ignore"])
    if chance.random() < 0.3:
        found["matchLabelKeys"] = ["rev"]
    return found


def probe(name: str, chance: random.Random) -> Json:
    spec: Json = {"containers": [container("c", chance)], "terminationGracePeriodSeconds": 0}
    affinity: Json = {}
    spec["nodeSelector"] = {"set": "{run}"}
    if chance.random() < 0.2:
        spec["nodeSelector"]["disk"] = "ssd"
    if chance.random() < 0.2:
        bound = {
            "key": "cores",
            "operator": chance.choice(["Gt", "Lt"]),
            "values": [str(chance.randrange(8))],
        }
        other = {"key": ZONE, "operator": "NotIn", "values": ["zone-1"]}
        terms = [
            {"matchExpressions": [each]} for each in chance.sample([bound, other], chance.choice([1, 2]))
        ]
        affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}}
    if chance.random() < 0.3:
        affinity["podAffinity"] = {REQUIRED: [term(chance) for _ in range(chance.choice([1, 1, 2]))]}
    if chance.random() < 0.3:
        affinity["podAntiAffinity"] = {REQUIRED: [term(chance)]}
    if affinity:
        spec["affinity"] = affinity
    if chance.random() < 0.35:
        keys: dict[str, Json] = {c["topologyKey"]: c for c in [spread(chance), spread(chance)]}
        spec["topologySpreadConstraints"] = list(keys.values())[: chance.choice([1, 2])]
    if chance.random() < 0.4:
        key, value = chance.choice(["team", "other"]), chance.choice(["blue", "red"])
        spec["tolerations"] = [{"key": key, "operator": "Equal", "value": value}]
    if chance.random() < 0.2:
        inner = container("i", chance)
        spec["initContainers"] = [inner | ({"restartPolicy": "Always"} if chance.random() < 0.5 else {})]
    labels = {"app": chance.choice("xyz"), "rev": chance.choice("12")}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def container(name: str, chance: random.Random) -> Json:
    found: Json = {
        "name": name,
        "image": "x",
        "resources": {"requests": {"cpu": chance.choice(["50m", "300m", "900m"])}},
    }
    if name == "c" and chance.random() < 0.15:
        found["ports"] = [{"containerPort": 80, "hostPort": chance.choice([80, 81])}]
    return found
