"""kube-scheduler and our judge agree: what it places we would let in, what it refuses fits nowhere."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dovetail.sim.cluster.scheduler.plan_check import find_refused_placements
from support.random_pods import Json, node, probe
from support.two_servers import Api, real_api

PODS = "/api/v1/namespaces/{ns}/pods"
PROBES = 30


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
        n["metadata"]["name"]: find_refused_placements(
            nodes, bound, [(bare, n["metadata"]["name"])], namespaces=spaces
        )
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
