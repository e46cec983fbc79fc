from __future__ import annotations

from dovetail.sim.cluster.controllers import SimClusterOptions
from dovetail.sim.cluster.kubelet import KubeletOptions
from support.cluster import annotate, cluster, condition, in_virtual_time, names, pod


@in_virtual_time
async def test_a_bound_pod_starts_and_shows_all_that_clients_require() -> None:
    async with cluster(1) as world:
        sidecar = {"name": "proxy", "image": "p", "restartPolicy": "Always"}
        world.api.create("pods", pod("web", initContainers=[sidecar, {"name": "init", "image": "i"}]))
        await world.settle(0.5)
        assert world.api.get("pods", "web", "default")["status"]["phase"] == "Pending"
        await world.settle(1)
        status = world.api.get("pods", "web", "default")["status"]
        assert status["phase"] == "Running"
        kinds = ("PodScheduled", "Initialized", "PodReadyToStartContainers", "ContainersReady", "Ready")
        found = {c["type"]: c["status"] for c in status["conditions"]}
        assert [found[k] for k in kinds] == ["True"] * 5
        assert status["podIP"]
        assert status["hostIP"]
        assert status["startTime"]
        (main,) = status["containerStatuses"]
        assert (main["ready"], main["restartCount"], main["image"]) == (True, 0, "example.com/app:1")
        states = {s["name"]: next(iter(s["state"])) for s in status["initContainerStatuses"]}
        assert states == {"proxy": "running", "init": "terminated"}


@in_virtual_time
async def test_annotations_slow_a_pod_down_end_it_or_keep_it_unready() -> None:
    async with cluster(1) as world:
        for name, notes in (
            ("slow", {"start-after": "20s"}),
            ("brief", {"run-for": "5s"}),
            ("bad", {"run-for": "5s", "fails": "true"}),
            ("never", {"never-ready": "true"}),
        ):
            keyed = {f"sim.dovetail.dev/{k}": v for k, v in notes.items()}
            world.api.create("pods", pod(name, annotations=keyed, restartPolicy="Never"))
        await world.settle(12)
        phases = {p["metadata"]["name"]: p["status"]["phase"] for p in world.api.list("pods")}
        assert phases == {"slow": "Pending", "brief": "Succeeded", "bad": "Failed", "never": "Running"}
        assert condition(world.api.get("pods", "never", "default"), "Ready")["status"] == "False"
        ended = world.api.get("pods", "bad", "default")["status"]["containerStatuses"][0]
        assert ended["state"]["terminated"]["exitCode"] == 1
        await world.settle(10)
        assert world.api.get("pods", "slow", "default")["status"]["phase"] == "Running"


@in_virtual_time
async def test_stopping_takes_its_time_but_never_longer_than_the_grace_period() -> None:
    async with cluster(1) as world:
        slow = {"sim.dovetail.dev/stop-after": "20s"}
        world.api.create("pods", pod("patient", annotations=slow, terminationGracePeriodSeconds=60))
        world.api.create("pods", pod("hurried", annotations=slow, terminationGracePeriodSeconds=5))
        world.api.create("pods", pod("cut", annotations=slow, terminationGracePeriodSeconds=60))
        await world.settle(5)
        for name in ("patient", "hurried", "cut"):
            world.api.delete("pods", name, "default")
        await world.settle(6)
        assert names(world.api.list("pods")) == ["cut", "patient"]
        world.api.delete("pods", "cut", "default", grace_seconds=1)
        await world.settle(2)
        assert names(world.api.list("pods")) == ["patient"]
        await world.settle(13)
        assert world.api.list("pods") == []


@in_virtual_time
async def test_whoever_holds_a_finalizer_sees_the_pod_end_before_it_goes() -> None:
    async with cluster(1) as world:
        world.api.create("pods", pod("web", finalizers=["example.com/hold"]))
        await world.settle(5)
        world.api.delete("pods", "web", "default")
        await world.settle(5)
        assert world.api.get("pods", "web", "default")["status"]["phase"] == "Failed"
        world.api.patch("pods", "web", {"metadata": {"finalizers": None}}, "default")
        assert world.api.list("pods") == []


@in_virtual_time
async def test_a_silent_kubelet_neither_starts_nor_stops_pods_until_it_speaks_again() -> None:
    async with cluster(1) as world:
        world.api.create("pods", pod("old"))
        await world.settle(5)
        annotate(world, "nodes", "a", heartbeat="stopped")
        world.api.create("pods", pod("new"))
        world.api.delete("pods", "old", "default")
        await world.settle(20)
        assert names(world.api.list("pods")) == ["new", "old"]
        assert world.api.get("pods", "new", "default")["status"]["phase"] == "Pending"
        annotate(world, "nodes", "a", heartbeat=None)
        await world.settle(5)
        assert names(world.api.list("pods")) == ["new"]
        assert world.api.get("pods", "new", "default")["status"]["phase"] == "Running"


@in_virtual_time
async def test_nodes_of_others_are_left_alone() -> None:
    async with cluster(0) as world:
        status = {"capacity": {"cpu": "4", "pods": "10"}}
        world.api.create("nodes", {"metadata": {"name": "real"}, "status": status})
        world.api.create("pods", pod("web", nodeName="real"))
        await world.settle(20)
        assert world.api.list("leases.coordination.k8s.io", "kube-node-lease") == []
        assert world.api.get("pods", "web", "default")["status"]["phase"] == "Pending"
        world.api.patch("nodes", "real", {"metadata": {"labels": {"kwok.x-k8s.io/node": "fake"}}})
        await world.settle(5)
        assert world.api.get("pods", "web", "default")["status"]["phase"] == "Running"


@in_virtual_time
async def test_options_set_the_pace_and_the_volumes_a_node_takes() -> None:
    options = SimClusterOptions(KubeletOptions(node_ready=30, csi_limits={"disk.example.com": 3}))
    async with cluster(1, options=options) as world:
        await world.settle(20)
        assert condition(world.api.get("nodes", "a"), "Ready")["status"] == "False"
        await world.settle(20)
        assert condition(world.api.get("nodes", "a"), "Ready")["status"] == "True"
        (driver,) = world.api.get("csinodes.storage.k8s.io", "a")["spec"]["drivers"]
        assert (driver["name"], driver["allocatable"]["count"]) == ("disk.example.com", 3)
