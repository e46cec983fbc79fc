"""Spread, affinity and anti-affinity as kube-scheduler judges them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dovetail.sim.world import World
from support.cluster import HOST, REQUIRED, ZONE, cluster, in_virtual_time, node_of, pod, refusal, workload

SPREAD = "node(s) didn't match pod topology spread constraints"
APP = {"matchLabels": {"app": "web"}}


def spread(key: str = ZONE, skew: int = 1, **parts: Any) -> dict[str, Any]:
    constraint = {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": APP,
    }
    return {**constraint, **parts}


def term(key: str = ZONE, selector: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": APP if selector is None else selector, **parts}


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAffinity": {REQUIRED: list(terms)}}


def far(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def web(name: str, node: str = "", **spec: Any) -> dict[str, Any]:
    labels = {"app": "web", **spec.pop("labels", {})}
    if node:
        spec["nodeName"] = node
    return pod(name, labels=labels, **spec)


async def place(world: World, *pods: dict[str, Any]) -> None:
    for body in pods:
        world.api.create("pods", body)
        await world.settle(1.5)


@in_virtual_time
async def test_spread_keeps_zones_within_the_skew() -> None:
    async with cluster(6) as world:
        pods = {"topologySpreadConstraints": [spread()]}
        world.api.create("deployments.apps", workload("web", 7, pods=pods))
        await world.settle(5)
        zones = Counter("abcdef".index(p["spec"]["nodeName"]) % 3 for p in world.api.list("pods"))
        assert sorted(zones.values()) == [2, 2, 3]


@in_virtual_time
async def test_a_zone_that_cannot_take_more_stops_the_others() -> None:
    async with cluster(3) as world:
        world.api.patch("nodes", "c", {"spec": {"unschedulable": True}})
        pods = {"topologySpreadConstraints": [spread()]}
        world.api.create("replicasets.apps", workload("web", 4, pods=pods))
        await world.settle(5)
        waiting = [p for p in world.api.list("pods") if not p["spec"].get("nodeName")]
        assert len(waiting) == 2
        name = waiting[0]["metadata"]["name"]
        assert refusal(world, name) == f"0/3 nodes are available: 1 node(s) were unschedulable, 2 {SPREAD}."


@in_virtual_time
async def test_a_tainted_zone_counts_unless_the_constraint_honours_taints() -> None:
    async with cluster(3) as world:
        world.api.patch("nodes", "c", {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}})
        await place(world, web("one", "a"), web("two", "b"))
        await place(world, web("strict", topologySpreadConstraints=[spread()]))
        honest = spread(nodeTaintsPolicy="Honor")
        await place(world, web("honours", topologySpreadConstraints=[honest]))
        assert "2 " + SPREAD in refusal(world, "strict")
        assert node_of(world, "honours") in ("a", "b")


@in_virtual_time
async def test_nodes_the_pod_does_not_select_count_only_when_affinity_is_ignored() -> None:
    async with cluster(3) as world:
        await place(world, web("one", "a"), web("two", "a"))
        choose: dict[str, Any] = {"nodeSelector": {ZONE: "zone-1"}}
        await place(world, web("honours", topologySpreadConstraints=[spread()], **choose))
        ignoring = spread(nodeAffinityPolicy="Ignore")
        await place(world, web("ignores", topologySpreadConstraints=[ignoring], **choose))
        assert node_of(world, "honours") == "a"
        assert "1 " + SPREAD in refusal(world, "ignores")


@in_virtual_time
async def test_with_fewer_domains_than_asked_for_the_least_counts_as_none() -> None:
    async with cluster(2) as world:
        constraint = spread(minDomains=3)
        await place(world, *(web(f"w{n}", topologySpreadConstraints=[constraint]) for n in range(3)))
        assert {node_of(world, "w0"), node_of(world, "w1")} == {"a", "b"}
        assert refusal(world, "w2") == f"0/2 nodes are available: 2 {SPREAD}."
        world.add_node("late", {ZONE: "zone-3"})
        await world.settle(15)
        assert node_of(world, "w2") == "late"


@in_virtual_time
async def test_match_label_keys_count_only_pods_of_the_same_revision() -> None:
    async with cluster(2) as world:
        constraint = spread(HOST, matchLabelKeys=["rev"])
        await place(world, web("old-1", "a", labels={"rev": "1"}), web("old-2", "a", labels={"rev": "1"}))
        await place(
            world,
            web("new", labels={"rev": "2"}, nodeSelector={HOST: "a"}, topologySpreadConstraints=[constraint]),
        )
        assert node_of(world, "new") == "a"
        ignoring = spread(HOST, matchLabelKeys=["rev"], nodeAffinityPolicy="Ignore")
        await place(
            world,
            web("again", labels={"rev": "2"}, nodeSelector={HOST: "a"}, topologySpreadConstraints=[ignoring]),
        )
        assert SPREAD in refusal(world, "again")


@in_virtual_time
async def test_nodes_without_the_label_are_refused_by_name() -> None:
    async with cluster(1) as world:
        await place(world, web("w", topologySpreadConstraints=[spread("rack")]))
        assert refusal(world, "w") == f"0/1 nodes are available: 1 {SPREAD} (missing required label)."


@in_virtual_time
async def test_pods_on_their_way_out_are_not_counted() -> None:
    async with cluster(2) as world:
        slow = {"sim.dovetail.dev/stop-after": "100s"}
        await place(world, web("old", "a", annotations=slow, terminationGracePeriodSeconds=200))
        world.api.delete("pods", "old", "default")
        await place(world, web("one", "b"), web("new", topologySpreadConstraints=[spread()]))
        assert node_of(world, "new") == "a"


@in_virtual_time
async def test_a_waiting_pod_is_helped_by_the_arrival_of_another() -> None:
    async with cluster(2) as world:
        await place(world, web("one", "a"))
        await place(world, web("two", topologySpreadConstraints=[spread()], nodeSelector={"go": "a"}))
        world.api.patch("nodes", "a", {"metadata": {"labels": {"go": "a"}}})
        await world.settle(3)
        ignoring = spread(nodeAffinityPolicy="Ignore")
        await place(world, web("three", topologySpreadConstraints=[ignoring], nodeSelector={HOST: "a"}))
        assert SPREAD in refusal(world, "three")
        await place(world, web("four", "b"), web("five", "b"))
        await world.settle(12)
        assert node_of(world, "three") == "a"


@in_virtual_time
async def test_affinity_goes_where_the_others_are_and_waits_for_the_first() -> None:
    async with cluster(3) as world:
        follower = pod("follower", labels={"app": "cache"}, affinity=near(term()))
        await place(world, follower)
        words = "node(s) didn't match pod affinity rules"
        assert refusal(world, "follower") == f"0/3 nodes are available: 3 {words}."
        await place(world, web("leader", "b"))
        await world.settle(10)
        assert node_of(world, "follower") == "b"


@in_virtual_time
async def test_the_first_of_a_set_that_wants_to_be_together_may_start_anywhere_and_the_rest_follow() -> None:
    async with cluster(3) as world:
        for number in range(4):
            await place(world, web(f"w{number}", affinity=near(term())))
        assert len({node_of(world, f"w{n}") for n in range(4)} - {""}) == 1


@in_virtual_time
async def test_several_affinity_terms_must_be_met_by_the_same_pods() -> None:
    async with cluster(2) as world:
        both = near(term(HOST), term(HOST, {"matchLabels": {"tier": "1"}}))
        await place(world, web("half", "a"), pod("other-half", labels={"tier": "1"}, nodeName="a"))
        await place(world, pod("choosy", affinity=both))
        assert "pod affinity rules" in refusal(world, "choosy")
        await place(world, web("whole", "b", labels={"tier": "1"}))
        await world.settle(10)
        assert node_of(world, "choosy") == "b"


@in_virtual_time
async def test_anti_affinity_holds_both_ways() -> None:
    async with cluster(3) as world:
        await place(world, web("one", "a"))
        await place(world, pod("shy", affinity=far(term()), nodeSelector={ZONE: "zone-1"}))
        assert refusal(world, "shy") == (
            "0/3 nodes are available: 1 node(s) didn't match pod anti-affinity rules, "
            "2 node(s) didn't match Pod's node affinity/selector."
        )
        await place(world, pod("guard", affinity=far(term()), nodeName="b"))
        await place(world, web("two", nodeSelector={ZONE: "zone-2"}))
        assert "1 node(s) didn't satisfy existing pods anti-affinity rules" in refusal(world, "two")
        world.api.delete("pods", "guard", "default")
        await world.settle(15)
        assert node_of(world, "two") == "b"


@in_virtual_time
async def test_one_per_host_means_one_per_host() -> None:
    async with cluster(3) as world:
        pods = {"affinity": far(term(HOST))}
        world.api.create("deployments.apps", workload("web", 4, pods=pods))
        await world.settle(5)
        homes = sorted(p["spec"].get("nodeName", "") for p in world.api.list("pods"))
        assert homes == ["", "a", "b", "c"]


@in_virtual_time
async def test_namespaces_are_the_pods_own_those_named_or_those_selected() -> None:
    async with cluster(2) as world:
        for name, labels in (("blue", {"team": "x"}), ("red", {})):
            world.api.create("namespaces", {"metadata": {"name": name, "labels": labels}})
        await place(world, web("target", "b", namespace="blue"))
        await place(world, pod("own", affinity=near(term())))
        await place(world, pod("named", affinity=near(term(namespaces=["blue"]))))
        chosen = term(namespaceSelector={"matchLabels": {"team": "x"}})
        await place(world, pod("selected", affinity=near(chosen)))
        await place(world, pod("all", affinity=near(term(namespaceSelector={}))))
        none = term(namespaceSelector={"matchLabels": {"team": "y"}})
        await place(world, pod("none", affinity=near(none)))
        assert [node_of(world, n) for n in ("own", "named", "selected", "all", "none")] == [
            "",
            "b",
            "b",
            "b",
            "",
        ]
        world.api.patch("namespaces", "blue", {"metadata": {"labels": {"team": "y"}}})
        await world.settle(12)
        assert node_of(world, "none") == "b"


@in_virtual_time
async def test_mismatch_label_keys_keep_tenants_apart() -> None:
    async with cluster(1) as world:
        rule = term(
            HOST,
            {"matchExpressions": [{"key": "tenant", "operator": "Exists"}]},
            mismatchLabelKeys=["tenant"],
        )
        await place(world, pod("one", labels={"tenant": "1"}, affinity=far(rule)))
        await place(world, pod("same", labels={"tenant": "1"}, affinity=far(rule)))
        await place(world, pod("other", labels={"tenant": "2"}, affinity=far(rule)))
        assert [bool(node_of(world, n)) for n in ("one", "same", "other")] == [True, True, False]


@in_virtual_time
async def test_soft_wishes_are_followed_while_nothing_stands_against_them() -> None:
    async with cluster(3) as world:
        soft = "preferredDuringSchedulingIgnoredDuringExecution"
        labels = {"matchExpressions": [{"key": HOST, "operator": "In", "values": ["b"]}]}
        liking = {"nodeAffinity": {soft: [{"weight": 100, "preference": labels}]}}
        await place(world, web("liked", affinity=liking))
        company = {"podAffinity": {soft: [{"weight": 100, "podAffinityTerm": term(HOST)}]}}
        await place(world, pod("friend", affinity=company))
        apart = {"podAntiAffinity": {soft: [{"weight": 100, "podAffinityTerm": term(HOST)}]}}
        await place(world, pod("loner", affinity=apart))
        assert (node_of(world, "liked"), node_of(world, "friend")) == ("b", "b")
        assert node_of(world, "loner") != "b"


@in_virtual_time
async def test_pods_of_one_workload_spread_over_hosts_without_being_asked() -> None:
    async with cluster(3) as world:
        world.api.create("deployments.apps", workload("web", 3))
        await world.settle(5)
        assert {p["spec"]["nodeName"] for p in world.api.list("pods")} == {"a", "b", "c"}
