from __future__ import annotations

from typing import Any

from dovetail.sim.world import World
from support.cluster import cluster, in_virtual_time, names, pods_of, running, workload

SETS, CLAIMS = "statefulsets.apps", "persistentvolumeclaims"


def stateful(replicas: int = 3, **spec: Any) -> dict[str, Any]:
    return workload("db", replicas, serviceName="db", **spec)


def versions(world: World) -> dict[str, str]:
    return {
        p["metadata"]["name"]: p["metadata"].get("annotations", {}).get("v", "1")
        for p in pods_of(world, "db")
    }


def renew(world: World, version: str) -> None:
    patch = {"spec": {"template": {"metadata": {"annotations": {"v": version}}}}}
    world.api.patch(SETS, "db", patch, "default")


@in_virtual_time
async def test_pods_come_one_after_the_other_each_with_its_name_and_index() -> None:
    async with cluster(2) as world:
        world.api.create(SETS, stateful())
        seen = []
        for _ in range(60):
            await world.settle(0.1)
            seen.append((len(pods_of(world, "db")), len(running(pods_of(world, "db")))))
        assert all(total <= up + 1 for total, up in seen)
        assert names(pods_of(world, "db")) == ["db-0", "db-1", "db-2"]
        first = world.api.get("pods", "db-1", "default")
        assert first["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "db-1"
        assert first["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "1"
        assert (first["spec"]["hostname"], first["spec"]["subdomain"]) == ("db-1", "db")
        status = world.api.get(SETS, "db", "default")["status"]
        counts = ("replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas")
        assert [status[c] for c in counts] == [3] * 5
        assert status["currentRevision"] == status["updateRevision"]
        assert first["metadata"]["labels"]["controller-revision-hash"] == status["updateRevision"]


@in_virtual_time
async def test_parallel_management_makes_all_at_once() -> None:
    async with cluster(1) as world:
        world.api.create(SETS, stateful(podManagementPolicy="Parallel", ordinals={"start": 5}))
        await world.settle(0.1)
        assert names(pods_of(world, "db")) == ["db-5", "db-6", "db-7"]


@in_virtual_time
async def test_a_pod_comes_back_under_its_name_only_after_the_old_one_is_gone_with_another_uid() -> None:
    async with cluster(1) as world:
        world.api.create(SETS, stateful(1, annotations={"sim.dovetail.dev/stop-after": "5s"}))
        await world.settle(5)
        uid = world.api.get("pods", "db-0", "default")["metadata"]["uid"]
        world.api.delete("pods", "db-0", "default")
        await world.settle(4)
        assert world.api.get("pods", "db-0", "default")["metadata"]["uid"] == uid
        await world.settle(4)
        assert world.api.get("pods", "db-0", "default")["metadata"]["uid"] != uid


@in_virtual_time
async def test_scaling_down_goes_from_the_last_to_the_first_and_keeps_the_claims() -> None:
    async with cluster(1) as world:
        storage = {"metadata": {"name": "fast"}, "provisioner": "ebs.csi.aws.com"}
        world.api.create("storageclasses.storage.k8s.io", storage)
        claim = {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        world.api.create(SETS, stateful(volumeClaimTemplates=[claim]))
        await world.settle(20)
        assert names(running(pods_of(world, "db"))) == ["db-0", "db-1", "db-2"]
        assert names(world.api.list(CLAIMS)) == ["data-db-0", "data-db-1", "data-db-2"]
        volumes = world.api.get("pods", "db-1", "default")["spec"]["volumes"]
        assert {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-1"}} in volumes
        world.api.patch(SETS, "db", {"spec": {"replicas": 1}}, "default")
        order = []
        for _ in range(60):
            await world.settle(0.1)
            order.append(tuple(names(pods_of(world, "db"))))
        stages = list(dict.fromkeys(order))
        assert stages == [("db-0", "db-1", "db-2"), ("db-0", "db-1"), ("db-0",)]
        assert len(world.api.list(CLAIMS)) == 3


@in_virtual_time
async def test_a_new_template_rolls_from_the_last_to_the_first_one_at_a_time() -> None:
    async with cluster(1) as world:
        world.api.create(SETS, stateful())
        await world.settle(10)
        renew(world, "2")
        seen = []
        for _ in range(150):
            await world.settle(0.1)
            assert len(running(pods_of(world, "db"))) >= 2
            seen.append(tuple(sorted(n for n, v in versions(world).items() if v == "2")))
        order = list(dict.fromkeys(seen))
        assert order == [(), ("db-2",), ("db-1", "db-2"), ("db-0", "db-1", "db-2")]
        status = world.api.get(SETS, "db", "default")["status"]
        assert status["currentRevision"] == status["updateRevision"]
        assert len(world.api.list("controllerrevisions.apps", "default")) == 2


@in_virtual_time
async def test_a_partition_holds_the_lower_pods_back_even_when_they_are_made_anew() -> None:
    async with cluster(1) as world:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
        world.api.create(SETS, stateful(updateStrategy=strategy))
        await world.settle(10)
        renew(world, "2")
        await world.settle(20)
        assert versions(world) == {"db-0": "1", "db-1": "1", "db-2": "2"}
        status = world.api.get(SETS, "db", "default")["status"]
        assert (status["currentReplicas"], status["updatedReplicas"]) == (2, 1)
        assert status["currentRevision"] != status["updateRevision"]
        world.api.delete("pods", "db-0", "default")
        await world.settle(10)
        assert versions(world)["db-0"] == "1"


@in_virtual_time
async def test_on_delete_leaves_the_choice_to_a_person() -> None:
    async with cluster(1) as world:
        world.api.create(SETS, stateful(2, updateStrategy={"type": "OnDelete"}))
        await world.settle(10)
        renew(world, "2")
        await world.settle(10)
        assert set(versions(world).values()) == {"1"}
        world.api.delete("pods", "db-1", "default")
        await world.settle(10)
        assert versions(world) == {"db-0": "1", "db-1": "2"}


@in_virtual_time
async def test_an_unready_pod_stops_everything_behind_it() -> None:
    async with cluster(1) as world:
        world.api.create(SETS, stateful(annotations={"sim.dovetail.dev/never-ready": "true"}))
        await world.settle(30)
        assert names(pods_of(world, "db")) == ["db-0"]
