"""kube-scheduler binds what was planned, where it was planned: random plans on a real control plane.

The scheduler does not know the plan. So every planned node offers a resource of its own, and its pods ask for
one of it: that leaves them no other node, and touches no rule about labels, taints, zones or other pods.
`DOVETAIL_BOUND_PLANS` says how many plans (500).

Some plans hold only if pods are bound in an order: a pod that must share a zone with pods like itself may go
first to a zone of its own, but not once another such pod is bound elsewhere. The scheduler takes pods in the
order of their priority and age, so a plan counts as bound when an order was found in which all of it is; such
plans must be rare, and docs/compatibility.md says what happens to them in a cluster.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.solve import solve
from support.peer_workloads import snapshot_of
from support.random_clusters import launched, name_of
from support.random_manifests import cluster
from support.two_servers import Api, real_api

Json = dict[str, Any]
PLANS = int(os.environ.get("DOVETAIL_BOUND_PLANS", "500"))
PART = 25
AT_ONCE = 8
# Of the plans in one part, those that may need an order of binding.
RARE = 1
# Looks at the pods, four a second: without a change until a verdict is taken for final, and in all.
SETTLED, LONGEST = 240, 4800
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/{ns}/pods"
SLOT = "plan.test/node-{}"


def _clean(text: str) -> str:
    """A name that the API server takes."""
    return text.replace("/", "-").lower()


def _nodes(document: Json, plan: Plan, api: Api) -> Iterator[tuple[str, Json]]:
    """Every node, running or planned, by the name it has in the plan."""
    snapshot = snapshot_of(document)
    listed = [each for each in document["items"] if each["kind"] == "Node"]
    planned = [launched(node, snapshot) for node in plan.new_nodes]
    for number, each in enumerate((*listed, *planned)):
        name = each["metadata"]["name"]
        labels = {**each["metadata"]["labels"], "kwok.x-k8s.io/node": "fake", "set": api.run}
        labels["kubernetes.io/hostname"] = f"{api.run}-{_clean(name)}"
        room = {**each["status"]["allocatable"], SLOT.format(number): "1000"}
        yield (
            name,
            {
                "metadata": {"name": f"{api.run}-{_clean(name)}", "labels": labels},
                "spec": {"taints": each["spec"].get("taints") or []},
                "status": {"capacity": room, "allocatable": room},
            },
        )


def _pod(manifest: Json, slot: str) -> Json:
    spec = {**manifest["spec"], "terminationGracePeriodSeconds": 0, "schedulerName": "default-scheduler"}
    spec.pop("nodeName", None)
    spec.pop("priority", None)
    # Other plans' nodes are no domains of this one's spreads.
    spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), "set": "{run}"}
    first, *rest = spec["containers"]
    asked = {**((first.get("resources") or {}).get("requests") or {}), slot: "1"}
    resources = {"requests": asked, "limits": {slot: "1"}}
    spec["containers"] = [{**first, "image": "x", "resources": resources}, *rest]
    about = manifest["metadata"]
    return {"metadata": {"name": about["name"], "labels": about.get("labels") or {}}, "spec": spec}


def _placements(document: Json, plan: Plan) -> list[tuple[Json, str]]:
    """Pods with their node: those that run already first, then those with rules about others."""
    pods = {name_of(each): each for each in document["items"] if each["kind"] == "Pod"}
    there = [(pod, pod["spec"]["nodeName"]) for pod in pods.values() if pod["spec"].get("nodeName")]
    new = [(pods[name], node.name) for node in plan.new_nodes for name in node.pods]
    new += [(pods[name], node) for node, names in plan.existing.items() for name in names]
    return there + sorted(new, key=lambda each: "topologySpreadConstraints" not in each[0]["spec"])


def _admissible(document: Json) -> Json:
    """The same cluster with one spread for each key and severity, which is all the API server takes."""
    for each in document["items"]:
        rules = each["spec"].get("topologySpreadConstraints") if each["kind"] == "Pod" else None
        if rules:
            kept = {(rule["topologyKey"], rule["whenUnsatisfiable"]): rule for rule in rules}
            each["spec"]["topologySpreadConstraints"] = list(kept.values())
    return document


async def _bound(api: Api, seed: int) -> tuple[list[str], bool]:
    """Make a plan come true; what was not bound as planned, and whether it took an order of its own."""
    document = _admissible(cluster(seed))
    plan = solve(snapshot_of(document))
    nodes = dict(_nodes(document, plan, api))
    slots = {name: SLOT.format(number) for number, name in enumerate(nodes)}
    await asyncio.gather(*(api.raw("POST", NODES, body) for body in nodes.values()))
    wanted = f"{NODES}?labelSelector=set%3D{api.run}"

    def ready(listed: Json) -> bool:
        keys = [t["key"] for n in listed["items"] for t in n["spec"].get("taints") or ()]
        return len(listed["items"]) == len(nodes) and "node.kubernetes.io/not-ready" not in keys

    await api.until(wanted, ready, seconds=120)
    placements = _placements(document, plan)
    expected = {pod["metadata"]["name"]: nodes[node]["metadata"]["name"] for pod, node in placements}
    bodies = {pod["metadata"]["name"]: _pod(pod, slots[node]) for pod, node in placements}
    found = await _bind(api, bodies, expected)
    ordered = bool(found) and not any(found.values())
    if ordered:
        stuck = set(found)
        found = await _bind_in_order(api, placements, bodies, expected, stuck)
        if found:
            found = await _bind_in_order(api, placements, bodies, expected, stuck, kin_first=True)
    await asyncio.gather(*(api.raw("DELETE", f"{NODES}/{n['metadata']['name']}") for n in nodes.values()))
    wrong = [
        f"seed {seed}: {pod} on {at or 'no node'}, planned on {expected[pod]}" for pod, at in found.items()
    ]
    return wrong, ordered


async def _bind(api: Api, bodies: dict[str, Json], expected: dict[str, str]) -> dict[str, str]:
    """Create these pods and let the scheduler take them; those that are not where they should be."""
    for body in bodies.values():
        await _create(api, body)
    return await _settled(api, expected, bodies)


async def _create(api: Api, body: Json) -> None:
    code, made = await api.raw("POST", PODS, body)
    assert code == 201, made["message"]


async def _bind_in_order(
    api: Api,
    placements: list[tuple[Json, str]],
    bodies: dict[str, Json],
    expected: dict[str, str],
    refused: set[str],
    kin_first: bool = False,
) -> dict[str, str]:
    """Begin anew: running pods, then those that found no node and their kin, one by one, then all others."""
    await asyncio.gather(*(api.raw("DELETE", f"{PODS}/{name}") for name in expected))
    await api.until(PODS, lambda listed: not listed["items"], seconds=120)
    running = [each for each in placements if each[0]["spec"].get("nodeName")]
    others = [each for each in placements if not each[0]["spec"].get("nodeName")]
    stuck = [each for each in others if each[0]["metadata"]["name"] in refused]
    labels = [pod["metadata"].get("labels") for pod, _ in stuck]
    kin = [each for each in others if each[0]["metadata"].get("labels") in labels and each not in stuck]
    early = [*kin, *stuck] if kin_first else [*stuck, *kin]
    rest = dict(bodies)
    for pod, _ in (*running, *early):
        name = pod["metadata"]["name"]
        wrong = await _bind(api, {name: rest.pop(name)}, {name: expected[name]})
        if wrong:
            return wrong
    for body in rest.values():
        await _create(api, body)
    return await _settled(api, expected, bodies)


async def _settled(api: Api, expected: dict[str, str], bodies: dict[str, Json]) -> dict[str, str]:
    """Pods that are not where they should be, when all are or the scheduler's verdicts change no more.

    A scheduler that has not looked at a pod yet has refused nothing, however slow the machine is. There kwok
    may also delete the namesake of a pod that it saw deleted before: such a pod is created once more.
    """
    wrong, before, unchanged = dict[str, str](), dict[str, str](), 0
    for _ in range(LONGEST):
        _, listed = await api.raw("GET", PODS)
        where = {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in listed["items"]}
        wrong = {name: where.get(name, "") for name, node in expected.items() if where.get(name) != node}
        if not wrong or all(wrong.values()):
            return wrong
        for name in bodies.keys() - where.keys():
            await _create(api, bodies[name])
        judged = {each["metadata"]["name"] for each in listed["items"] if _is_judged(each)}
        unchanged = unchanged + 1 if where == before and wrong.keys() <= judged else 0
        if unchanged > SETTLED:
            return wrong
        before = where
        await asyncio.sleep(0.25)
    return wrong


def _is_judged(pod: Json) -> bool:
    """Whether the scheduler has said anything about a pod."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each["type"] == "PodScheduled" for each in conditions)


@pytest.mark.parametrize("part", range(0, PLANS, PART))
async def test_plans_are_bound_as_planned(part: int, kubeconfig: Path) -> None:
    """Several at once: each has a namespace and nodes of its own, and no rule looks beyond them."""
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(seed: int) -> tuple[list[str], bool]:
        async with at_once, real_api(kubeconfig) as api:
            return await _bound(api, seed)

    found = await asyncio.gather(*map(one, range(part, min(part + PART, PLANS))))
    assert [line for wrong, _ in found for line in wrong] == []
    assert sum(ordered for _, ordered in found) <= RARE, "too many plans need their pods bound in an order"
