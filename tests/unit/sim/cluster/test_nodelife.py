from __future__ import annotations

from typing import Any

from dovetail.sim.world import World
from support.cluster import annotate, cluster, condition, in_virtual_time, names, node_of, pod, workload

LEASES = "leases.coordination.k8s.io"


def taints(world: World, node: str = "a") -> set[tuple[str, str]]:
    found = world.api.get("nodes", node)["spec"].get("taints") or ()
    return {(t["key"].removeprefix("node.kubernetes.io/"), t["effect"]) for t in found}


def set_condition(world: World, node: str, kind: str, status: str) -> None:
    found = world.api.get("nodes", node)
    conditions = [c for c in found["status"]["conditions"] if c["type"] != kind]
    new = {"type": kind, "status": status, "reason": "Test", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    patch = {"status": {"conditions": [*conditions, new]}}
    world.api.patch("nodes", node, patch, subresource="status")


@in_virtual_time
async def test_a_new_node_is_tainted_until_its_kubelet_says_it_is_ready() -> None:
    async with cluster(0) as world:
        world.add_node("slow")
        annotate(world, "nodes", "slow", ready_after="30s")
        await world.settle(10)
        assert taints(world, "slow") == {("not-ready", "NoSchedule"), ("not-ready", "NoExecute")}
        assert condition(world.api.get("nodes", "slow"), "Ready")["status"] == "False"
        await world.settle(25)
        assert taints(world, "slow") == set()
        node = world.api.get("nodes", "slow")
        assert condition(node, "Ready")["reason"] == "KubeletReady"
        assert condition(node, "MemoryPressure")["status"] == "False"
        assert node["status"]["nodeInfo"]["kubeletVersion"]
        assert {a["type"] for a in node["status"]["addresses"]} == {"InternalIP", "Hostname"}


@in_virtual_time
async def test_a_lease_is_kept_for_every_node_and_goes_with_it() -> None:
    async with cluster(1) as world:
        lease = world.api.get(LEASES, "a", "kube-node-lease")
        assert lease["spec"]["holderIdentity"] == "a"
        assert lease["metadata"]["ownerReferences"][0]["kind"] == "Node"
        await world.settle(35)
        renewed = world.api.get(LEASES, "a", "kube-node-lease")
        assert renewed["spec"]["renewTime"] > lease["spec"]["renewTime"]
        world.api.delete("nodes", "a")
        await world.settle(30)
        assert world.api.list(LEASES, "kube-node-lease") == []
        assert world.api.list("csinodes.storage.k8s.io") == []


@in_virtual_time
async def test_silence_becomes_unknown_after_fifty_seconds_then_taints_then_evictions() -> None:
    async with cluster(2) as world:
        world.api.create("pods", pod("web", nodeSelector={"kubernetes.io/hostname": "a"}))
        await world.settle(5)
        annotate(world, "nodes", "a", heartbeat="stopped")
        await world.settle(40)
        assert condition(world.api.get("nodes", "a"), "Ready")["status"] == "True"
        await world.settle(25)
        node = world.api.get("nodes", "a")
        assert (condition(node, "Ready")["status"], condition(node, "Ready")["reason"]) == (
            "Unknown",
            "NodeStatusUnknown",
        )
        assert condition(node, "MemoryPressure")["status"] == "Unknown"
        assert taints(world) == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
        assert condition(world.api.get("pods", "web", "default"), "Ready")["reason"] == "NodeNotReady"
        await world.settle(270)
        assert not world.api.get("pods", "web", "default")["metadata"].get("deletionTimestamp")
        await world.settle(30)
        left = world.api.get("pods", "web", "default")
        assert condition(left, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
        await world.settle(600)
        assert world.api.get("pods", "web", "default")["metadata"]["deletionTimestamp"], "no kubelet ends it"


@in_virtual_time
async def test_a_node_that_speaks_again_is_well_and_so_are_its_pods() -> None:
    async with cluster(1) as world:
        world.api.create("pods", pod("web"))
        await world.settle(5)
        annotate(world, "nodes", "a", heartbeat="stopped")
        await world.settle(70)
        annotate(world, "nodes", "a", heartbeat=None)
        await world.settle(15)
        assert taints(world) == set()
        assert condition(world.api.get("nodes", "a"), "DiskPressure")["status"] == "False"
        assert condition(world.api.get("pods", "web", "default"), "Ready")["status"] == "True"


@in_virtual_time
async def test_a_node_that_never_spoke_is_given_a_minute() -> None:
    async with cluster(0) as world:
        world.api.create("nodes", {"metadata": {"name": "mute"}, "status": {"capacity": {"cpu": "1"}}})
        await world.settle(50)
        assert condition(world.api.get("nodes", "mute"), "Ready") == {}
        assert taints(world, "mute") == {("not-ready", "NoSchedule")}
        await world.settle(20)
        assert condition(world.api.get("nodes", "mute"), "Ready")["reason"] == "NodeStatusNeverUpdated"


@in_virtual_time
async def test_each_condition_has_its_taint_and_takes_it_away_again() -> None:
    async with cluster(1) as world:
        for kind, key in (
            ("MemoryPressure", "memory-pressure"),
            ("DiskPressure", "disk-pressure"),
            ("PIDPressure", "pid-pressure"),
            ("NetworkUnavailable", "network-unavailable"),
        ):
            set_condition(world, "a", kind, "True")
            await world.settle(1)
            assert taints(world) == {(key, "NoSchedule")}
            set_condition(world, "a", kind, "False")
            await world.settle(1)
            assert taints(world) == set()
        world.api.patch("nodes", "a", {"spec": {"unschedulable": True}})
        await world.settle(1)
        assert taints(world) == {("unschedulable", "NoSchedule")}
        world.api.patch("nodes", "a", {"spec": {"unschedulable": None}})
        await world.settle(1)
        assert taints(world) == set()


@in_virtual_time
async def test_foreign_taints_are_left_alone() -> None:
    async with cluster(1) as world:
        mine = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
        world.api.patch("nodes", "a", {"spec": {"taints": [mine], "unschedulable": True}})
        await world.settle(1)
        world.api.patch("nodes", "a", {"spec": {"unschedulable": None}})
        await world.settle(1)
        assert world.api.get("nodes", "a")["spec"]["taints"] == [mine]


def tolerating(name: str, *seconds: int | None) -> dict[str, Any]:
    tolerations = [
        {"key": "out", "operator": "Exists", "effect": "NoExecute"}
        | ({} if s is None else {"tolerationSeconds": s})
        for s in seconds
    ]
    return pod(name, tolerations=tolerations)


@in_virtual_time
async def test_the_taint_manager_removes_at_once_in_time_or_never_and_asks_no_budget() -> None:
    async with cluster(1) as world:
        for body in (
            pod("none", labels={"app": "x"}),
            tolerating("ten", 10),
            tolerating("least", 30, 10),
            tolerating("ever", None),
            tolerating("negative", -5),
        ):
            world.api.create("pods", body)
        selector = {"matchLabels": {"app": "x"}}
        spec = {"selector": selector, "minAvailable": 1}
        meta = {"name": "none", "namespace": "default"}
        world.api.create("poddisruptionbudgets.policy", {"metadata": meta, "spec": spec})
        await world.settle(5)
        world.api.patch("nodes", "a", {"spec": {"taints": [{"key": "out", "effect": "NoExecute"}]}})
        await world.settle(0.1)

        def going() -> set[str]:
            return {
                p["metadata"]["name"]
                for p in world.api.list("pods")
                if p["metadata"].get("deletionTimestamp")
            }

        assert going() == {"none", "negative"}
        await world.settle(9)
        assert set(names(world.api.list("pods"))) == {"ten", "least", "ever"}
        assert going() == set()
        await world.settle(1)
        assert going() == {"ten", "least"}
        await world.settle(60)
        assert names(world.api.list("pods")) == ["ever"]


@in_virtual_time
async def test_a_taint_taken_away_in_time_spares_the_pod() -> None:
    async with cluster(1) as world:
        world.api.create("pods", tolerating("ten", 10))
        await world.settle(5)
        world.api.patch("nodes", "a", {"spec": {"taints": [{"key": "out", "effect": "NoExecute"}]}})
        await world.settle(8)
        world.api.patch("nodes", "a", {"spec": {"taints": None}})
        await world.settle(30)
        world.api.patch("nodes", "a", {"spec": {"taints": [{"key": "out", "effect": "NoExecute"}]}})
        await world.settle(8)
        assert not world.api.get("pods", "ten", "default")["metadata"].get("deletionTimestamp")


@in_virtual_time
async def test_pods_of_a_node_that_is_gone_are_collected_after_quarantine() -> None:
    async with cluster(2) as world:
        world.api.create("pods", pod("held", finalizers=["example.com/keep"], nodeName="b"))
        world.api.create("replicasets.apps", workload("web", 2, pods={"nodeName": "b"}))
        await world.settle(5)
        world.api.delete("nodes", "b")
        await world.settle(38)
        assert node_of(world, "held") == "b"
        assert world.api.get("pods", "held", "default")["status"]["phase"] == "Running"
        await world.settle(30)
        held = world.api.get("pods", "held", "default")
        assert held["status"]["phase"] == "Failed"
        assert condition(held, "DisruptionTarget")["reason"] == "DeletionByPodGC"
        world.api.patch("pods", "held", {"metadata": {"finalizers": None}}, "default")
        await world.settle(30)
        assert "held" not in names(world.api.list("pods"))


@in_virtual_time
async def test_an_unbound_pod_that_waits_for_a_finalizer_is_ended_when_it_is_let_go() -> None:
    async with cluster(0) as world:
        world.api.create("pods", pod("waiting", finalizers=["example.com/keep"]))
        world.api.delete("pods", "waiting", "default")
        await world.settle(30)
        assert names(world.api.list("pods")) == ["waiting"]
        world.api.patch("pods", "waiting", {"metadata": {"finalizers": None}}, "default")
        await world.settle(30)
        assert world.api.list("pods") == []
