"""kube-scheduler and our judge agree: what it places we would let in, what it refuses fits nowhere."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dovetail.sim.cluster.scheduler.judge import judge
from support.two_servers import Api, real_api

Json = dict[str, Any]
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PODS = "/api/v1/namespaces/{ns}/pods"
PROBES = 30


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


def verdict(pod: Json) -> str | None:
    """Where a pod went, empty if nowhere, None while undecided."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return ""
    return None


def allowed(
    nodes: Sequence[Json], bound: Sequence[Json], pod: Json, spaces: Sequence[Json]
) -> dict[str, list[str]]:
    """Each node's objections, by our reading."""
    bare = {**pod, "spec": {k: v for k, v in pod["spec"].items() if k != "nodeName"}}
    return {
        n["metadata"]["name"]: judge(nodes, bound, [(bare, n["metadata"]["name"])], namespaces=spaces)
        for n in nodes
    }


async def compare(api: Api, chance: random.Random) -> list[str]:
    """One set of nodes and many pods, one after the other; where we part."""
    names = [f"{api.run}-{number}" for number in range(chance.choice([3, 5, 7]))]
    for name in names:
        await api.raw("POST", "/api/v1/nodes", node(name, chance))
    wanted = f"/api/v1/nodes?labelSelector=set%3D{api.run}"

    def settled(listed: Any) -> bool:
        taints = [t["key"] for n in listed["items"] for t in n["spec"].get("taints") or ()]
        return len(listed["items"]) == len(names) and "node.kubernetes.io/not-ready" not in taints

    await api.until(wanted, settled)
    _, spaces = await api.raw("GET", "/api/v1/namespaces")
    found = []
    for number in range(PROBES):
        _, nodes = await api.raw("GET", wanted)
        _, before = await api.raw("GET", PODS)
        bound = [p for p in before["items"] if p["spec"].get("nodeName")]
        body = probe(f"p{number}", chance)
        code, made = await api.raw("POST", PODS, body)
        assert code == 201, made
        pod = await api.until(f"{PODS}/p{number}", lambda p: verdict(p) is not None)
        place, objections = verdict(pod), allowed(nodes["items"], bound, pod, spaces["items"])
        free = sorted(name for name, why in objections.items() if not why)
        if (place and place not in free) or (not place and free):
            told = [c.get("message") for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"]
            found.append(
                f"{body['spec']} {body['metadata']['labels']}: real {place or told}, ours {objections}"
            )
        if not place:
            # Out of the way, or it would be tried again and change the board between our two looks.
            await api.raw("DELETE", f"{PODS}/p{number}", None, gracePeriodSeconds="0")
    for name in names:
        await api.raw("DELETE", f"/api/v1/nodes/{name}")
    return found


@pytest.mark.parametrize("seed", range(8))
async def test_a_generated_cluster_is_judged_alike(seed: int, kubeconfig: Path) -> None:
    async with real_api(kubeconfig) as api:
        found = await compare(api, random.Random(seed))
    assert not found, "\n" + "\n\n".join(found)
