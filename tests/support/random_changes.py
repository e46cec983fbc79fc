"""Random little clusters with running nodes, and random changes of them, as manifests."""

from __future__ import annotations

from random import Random
from typing import Any

from dovetail.api.labels import (
    CAPACITY_TYPE,
    HOSTNAME,
    INITIALIZED,
    INSTANCE_TYPE,
    NODEPOOL,
    REGISTERED,
    ZONE,
)

__all__ = [
    "budget",
    "build_change",
    "build_world",
    "claimed_node",
    "deployment",
    "listed",
    "pool",
    "running_pod",
]

Json = dict[str, Any]
ZONES = ("test-zone-a", "test-zone-b")
SIZES = {"2": ("c-2x-amd64-linux", 2, 4), "4": ("s-4x-amd64-linux", 4, 16), "8": ("c-8x-amd64-linux", 8, 16)}
REFERENCE = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}


def thing(api: str, kind: str, name: str, namespace: str = "", **more: Any) -> Json:
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api, "kind": kind, "metadata": meta, **more}


def listed(*objects: Json) -> Json:
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}


def pool(name: str, bought: tuple[str, ...] = ("on-demand",), **spec: Any) -> Json:
    """A NodePool that buys in these ways."""
    labels = spec.pop("labels", {})
    requirements = [{"key": CAPACITY_TYPE, "operator": "In", "values": list(bought)}]
    inner = {"nodeClassRef": REFERENCE, "requirements": requirements, "taints": spec.pop("taints", [])}
    template = {"metadata": {"labels": labels}, "spec": inner}
    return thing("karpenter.sh/v1", "NodePool", name, spec={"template": template, **spec})


def claimed_node(name: str, of: str, size: str, zone: str, bought: str = "on-demand") -> list[Json]:
    """A running Node and its NodeClaim."""
    kind, cpu, memory = SIZES[size]
    labels = {
        NODEPOOL: of,
        INSTANCE_TYPE: kind,
        ZONE: zone,
        CAPACITY_TYPE: bought,
        HOSTNAME: name,
        REGISTERED: "true",
        INITIALIZED: "true",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    }
    has = {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "32", "ephemeral-storage": "20Gi"}
    status = {
        "capacity": has,
        "allocatable": {**has, "cpu": f"{cpu * 1000 - 100}m"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    node = thing("v1", "Node", name, spec={"providerID": f"kwok://{name}"}, status=status)
    claim = thing(
        "karpenter.sh/v1",
        "NodeClaim",
        f"{name}-claim",
        spec={"nodeClassRef": REFERENCE, "requirements": []},
        status={
            "providerID": f"kwok://{name}",
            "nodeName": name,
            "capacity": status["capacity"],
            "allocatable": status["allocatable"],
            "conditions": [
                {"type": each, "status": "True", "lastTransitionTime": "2026-06-01T08:00:00Z"}
                for each in ("Launched", "Registered", "Initialized", "Consolidatable")
            ],
        },
    )
    node["metadata"]["labels"], claim["metadata"]["labels"] = dict(labels), dict(labels)
    return [node, claim]


def _containers(cpu: int, memory: int) -> list[Json]:
    requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    return [{"name": "a", "image": "x", "resources": {"requests": requests}}]


def deployment(name: str, replicas: int | None, cpu: int, memory: int, **spec: Any) -> Json:
    """A Deployment in the namespace shop; `spec` goes into its pods."""
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": _containers(cpu, memory), **spec},
    }
    counted = {} if replicas is None else {"replicas": replicas}
    inner = {**counted, "selector": {"matchLabels": {"app": name}}, "template": template}
    return thing("apps/v1", "Deployment", name, "shop", spec=inner)


def running_pod(name: str, app: str, node: str, cpu: int, memory: int, **spec: Any) -> Json:
    """A pod of a ReplicaSet of the Deployment, ready on a node."""
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"{app}-5d9c",
        "uid": app,
        "controller": True,
    }
    inner = {"containers": _containers(cpu, memory), "nodeName": node, **spec}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-06-01T08:05:00Z"}
    made = thing("v1", "Pod", name, "shop", spec=inner, status={"phase": "Running", "conditions": [ready]})
    made["metadata"] |= {"labels": {"app": app, "pod-template-hash": "5d9c"}, "ownerReferences": [owner]}
    return made


def budget(name: str, app: str, **spec: Any) -> Json:
    selector = {"matchLabels": {"app": app}}
    return thing("policy/v1", "PodDisruptionBudget", name, "shop", spec={"selector": selector, **spec})


def build_world(seed: int) -> Json:
    """Pools, nodes, the pods of up to three Deployments on them, and some that wait: a List."""
    chance = Random(f"world {seed}")
    bought = chance.choice([("on-demand",), ("spot", "on-demand")])
    pools = [pool("general", bought, weight=chance.choice([None, 5]))]
    if chance.random() < 0.4:
        taints = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
        pools.append(pool("team", taints=taints, labels={"team": "a"}))
    nodes: list[Json] = []
    room: dict[str, int] = {}
    for number in range(chance.choice([1, 2, 3, 5])):
        size = chance.choice(tuple(SIZES))
        nodes += claimed_node(f"node-{number}", "general", size, chance.choice(ZONES), chance.choice(bought))
        room[f"node-{number}"] = int(size) * 1000 - 100
    pods: list[Json] = []
    for app in ("web", "api", "worker")[: chance.choice([1, 2, 3])]:
        cpu, memory = chance.choice([200, 500, 900]), chance.choice([128, 512, 1024])
        for number in range(chance.choice([1, 3, 6])):
            at = next((name for name, free in room.items() if free >= cpu), "")
            if at:
                room[at] -= cpu
                pods.append(running_pod(f"{app}-5d9c-{number}", app, at, cpu, memory))
        if chance.random() < 0.3:
            pods.append(budget(app, app, maxUnavailable=1) | {"status": {"disruptionsAllowed": 1}})
    if chance.random() < 0.5:
        waiting = running_pod("late", "late", "", 700, 256)
        del waiting["spec"]["nodeName"], waiting["status"]
        pods.append(waiting)
    return listed(*pools, *nodes, *pods)


def build_change(seed: int) -> tuple[Json, list[str]]:
    """Objects to apply to such a world, and what to delete of it: drawn until there is some of either."""
    chance = Random(f"change {seed}")
    while True:
        objects, deleted = _draw_change(chance)
        if objects["items"] or deleted:
            return objects, deleted


def _draw_change(chance: Random) -> tuple[Json, list[str]]:
    objects: list[Json] = []
    deleted: list[str] = []
    for _ in range(chance.choice([1, 1, 2, 3])):
        match chance.randrange(9):
            case 0:
                objects.append(pool("general", chance.choice([("spot",), ("on-demand",)]), weight=5))
            case 1:
                objects.append(pool("general", labels={"tier": "x"}))
            case 2:
                objects.append(pool("general", limits={"cpu": str(chance.choice([0, 8, 64]))}))
            case 3:
                objects.append(pool("fresh", ("spot",), weight=chance.choice([None, 50])))
            case 4:
                objects.append(deployment("web", chance.choice([0, 2, 9, None]), 500, 512))
            case 5:
                strategy = chance.choice([{}, {"nodeSelector": {ZONE: chance.choice(ZONES)}}])
                objects.append(deployment("api", chance.choice([1, 4]), 1500, 256, **strategy))
            case 6:
                objects.append(budget("guard", "web", maxUnavailable=chance.choice([0, 1, "50%"])))
            case 7:
                template = {
                    "metadata": {"labels": {"app": "logs"}},
                    "spec": {"containers": _containers(100, 64)},
                }
                objects.append(thing("apps/v1", "DaemonSet", "logs", "shop", spec={"template": template}))
            case _:
                deleted.append(chance.choice(["nodepool/general", "node/node-0", "deployment/shop/web"]))
    named = {(each["kind"].lower(), each["metadata"]["name"]): each for each in objects}
    gone = {name for name in deleted if (name.partition("/")[0], name.rpartition("/")[2]) not in named}
    return listed(*named.values()), sorted(gone)
