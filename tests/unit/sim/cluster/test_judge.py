from __future__ import annotations

import random
from typing import Any

from dovetail.sim.cluster.scheduler.plan_check import find_refused_placements
from support.cluster import HOST, REQUIRED, ZONE, cluster, in_virtual_time, pod

APP = {"matchLabels": {"app": "web"}}


def node(name: str, zone: str = "1", **size: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {HOST: name, ZONE: zone}},
        "spec": {},
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10", **size}},
    }


def web(name: str, **spec: Any) -> dict[str, Any]:
    return pod(name, {"cpu": "500m"}, labels={"app": "web"}, **spec)


def spread(skew: int = 1) -> list[dict[str, Any]]:
    return [
        {"topologyKey": ZONE, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": APP}
    ]


def test_a_plan_that_holds_is_not_objected_to() -> None:
    nodes = [node("a"), node("b", "2")]
    assert find_refused_placements(nodes, [], [(web("one"), "a"), (web("two"), "b")]) == []


def test_too_much_on_one_node_is_refused_by_name_and_reason() -> None:
    placements = [(web(f"w{n}"), "a") for n in range(5)]
    assert find_refused_placements([node("a")], [], placements) == ["default/w4 on a: Insufficient cpu"]
    bound = [web("there", nodeName="a")]
    assert find_refused_placements([node("a")], bound, placements[:4]) == [
        "default/w3 on a: Insufficient cpu"
    ]


def test_a_node_that_is_not_there_is_refused() -> None:
    assert find_refused_placements([], [], [(web("one"), "x")]) == ["default/one on x: there is no such node"]


def test_pods_may_come_in_whatever_order_lets_them_in() -> None:
    nodes = [node("a"), node("b", "2"), node("c", "3")]
    pods = [web(f"w{n}", topologySpreadConstraints=spread()) for n in range(6)]
    plan = list(zip(pods, ("a", "a", "b", "b", "c", "c"), strict=True))
    assert find_refused_placements(nodes, [], plan) == []
    follower = pod("f", affinity={"podAffinity": {REQUIRED: [{"topologyKey": HOST, "labelSelector": APP}]}})
    assert find_refused_placements(nodes, [], [(follower, "b"), (web("leader"), "b")]) == []
    assert find_refused_placements(nodes, [], [(follower, "a"), (web("leader"), "b")]) == [
        "default/f on a: node(s) didn't match pod affinity rules"
    ]


def test_skew_that_no_order_allows_is_refused() -> None:
    nodes = [node("a"), node("b", "2")]
    pods = [web(f"w{n}", topologySpreadConstraints=spread()) for n in range(3)]
    refused = find_refused_placements(nodes, [], [(p, "a") for p in pods])
    assert len(refused) == 2
    assert all("topology spread" in text for text in refused)


def test_anti_affinity_of_those_already_there_counts() -> None:
    far = {"podAntiAffinity": {REQUIRED: [{"topologyKey": ZONE, "labelSelector": APP}]}}
    guard = pod("guard", nodeName="a", affinity=far)
    refused = find_refused_placements([node("a"), node("b")], [guard], [(web("one"), "b")])
    assert refused == ["default/one on b: node(s) didn't satisfy existing pods anti-affinity rules"]


def test_claims_are_judged_by_the_papers_handed_in() -> None:
    volume = {
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["2"]}]}
                    ]
                }
            }
        },
    }
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"volumeName": "pv"},
        "status": {"phase": "Bound"},
    }
    body = web("one", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    nodes, papers = [node("a"), node("b", "2")], [volume, claim]
    assert find_refused_placements(nodes, [], [(body, "b")], storage=papers) == []
    assert find_refused_placements(nodes, [], [(body, "a")], storage=papers) == [
        "default/one on a: node(s) had volume node affinity conflict"
    ]
    assert find_refused_placements(nodes, [], [(body, "b")]) == [
        'default/one on b: persistentvolumeclaim "data" not found'
    ]


@in_virtual_time
async def test_what_the_scheduler_itself_does_is_never_objected_to() -> None:
    chance = random.Random(7)
    far = {"podAntiAffinity": {REQUIRED: [{"topologyKey": HOST, "labelSelector": APP}]}}
    near = {"podAffinity": {REQUIRED: [{"topologyKey": ZONE, "labelSelector": APP}]}}
    async with cluster(6, cpu="4") as world:
        for number in range(60):
            extra: dict[str, Any] = chance.choice(
                [{}, {}, {"topologySpreadConstraints": spread(2)}, {"affinity": far}, {"affinity": near}]
            )
            labels = {"app": chance.choice(["web", "db"])}
            cpu = chance.choice(["100m", "250m", "700m"])
            world.api.create("pods", pod(f"p{number}", {"cpu": cpu}, labels=labels, **extra))
        await world.settle(5)
        placed = [p for p in world.api.list("pods") if p["spec"].get("nodeName")]
        assert len(placed) > 30
        fresh = [
            ({**p, "spec": {k: v for k, v in p["spec"].items() if k != "nodeName"}}, p["spec"]["nodeName"])
            for p in placed
        ]
        assert find_refused_placements(world.api.list("nodes"), [], fresh) == []
