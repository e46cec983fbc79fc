from __future__ import annotations

from typing import Any

from dovetail.sim.world import World
from support.cluster import ZONE, cluster, in_virtual_time, names, node_of, pod, refusal

CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"
CLASSES, ATTACHMENTS = "storageclasses.storage.k8s.io", "volumeattachments.storage.k8s.io"
DRIVER = "ebs.csi.aws.com"


def storage_class(name: str = "fast", mode: str = "WaitForFirstConsumer", **parts: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "provisioner": DRIVER, "volumeBindingMode": mode, **parts}


def claim(name: str = "data", storage: str = "fast", size: str = "1Gi", **spec: Any) -> dict[str, Any]:
    body = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage,
        "resources": {"requests": {"storage": size}},
        **spec,
    }
    return {"metadata": {"name": name, "namespace": "default"}, "spec": body}


def using(name: str, *claims: str, **spec: Any) -> dict[str, Any]:
    volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": c}} for i, c in enumerate(claims)]
    return pod(name, volumes=volumes, **spec)


def volume(name: str, size: str = "5Gi", storage: str = "hand", **spec: Any) -> dict[str, Any]:
    body = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage,
        "hostPath": {"path": "/x"},
        **spec,
    }
    return {"metadata": {"name": name}, "spec": body}


def zones_of(volume: dict[str, Any]) -> list[str]:
    terms = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    return [v for t in terms for e in t["matchExpressions"] if e["key"] == ZONE for v in e["values"]]


def phase(world: World, name: str = "data") -> str:
    return str(world.api.get(CLAIMS, name, "default")["status"]["phase"])


@in_virtual_time
async def test_a_claim_that_waits_gets_its_volume_where_its_first_pod_goes() -> None:
    async with cluster(3) as world:
        world.api.create(CLASSES, storage_class())
        world.api.create(CLAIMS, claim())
        await world.settle(5)
        assert phase(world) == "Pending"
        world.api.create("pods", using("web", "data", nodeSelector={"kubernetes.io/hostname": "b"}))
        await world.settle(5)
        found = world.api.get(CLAIMS, "data", "default")
        notes = found["metadata"]["annotations"]
        assert notes["volume.kubernetes.io/selected-node"] == "b"
        assert notes["volume.kubernetes.io/storage-provisioner"] == DRIVER
        assert notes["pv.kubernetes.io/bind-completed"] == "yes"
        made = world.api.get(VOLUMES, found["spec"]["volumeName"])
        assert made["metadata"]["name"] == f"pvc-{found['metadata']['uid']}"
        assert (phase(world), made["status"]["phase"], zones_of(made)) == ("Bound", "Bound", ["zone-2"])
        assert made["spec"]["claimRef"]["uid"] == found["metadata"]["uid"]
        assert made["spec"]["csi"]["driver"] == DRIVER
        assert found["status"]["capacity"] == {"storage": "1Gi"}
        assert world.api.get("pods", "web", "default")["status"]["phase"] == "Running"


@in_virtual_time
async def test_a_claim_that_does_not_wait_is_bound_at_once_in_an_allowed_zone_and_its_pod_must_follow() -> (
    None
):
    async with cluster(3) as world:
        topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["zone-3"]}]}]
        world.api.create(CLASSES, storage_class(mode="Immediate", allowedTopologies=topologies))
        world.api.create(CLAIMS, claim())
        await world.settle(1)
        assert phase(world) == "Bound"
        world.api.create("pods", using("web", "data"))
        world.api.create("pods", using("wrong", "data", nodeSelector={ZONE: "zone-1"}))
        await world.settle(3)
        assert node_of(world, "web") == "c"
        assert "2 node(s) didn't match Pod's node affinity/selector" in refusal(world, "wrong")
        assert "1 node(s) had volume node affinity conflict" in refusal(world, "wrong")


@in_virtual_time
async def test_allowed_topologies_keep_the_first_pod_out_of_other_zones() -> None:
    async with cluster(3) as world:
        topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["zone-2"]}]}]
        world.api.create(CLASSES, storage_class(allowedTopologies=topologies))
        world.api.create(CLAIMS, claim())
        world.api.create("pods", using("web", "data"))
        await world.settle(3)
        assert node_of(world, "web") == "b"


@in_virtual_time
async def test_a_pod_without_its_claim_or_with_an_unbound_one_waits_and_says_why() -> None:
    async with cluster(2) as world:
        world.api.create("pods", using("early", "later"))
        world.api.create(CLAIMS, claim("stuck", "nowhere"))
        world.api.create("pods", using("waiting", "stuck"))
        await world.settle(3)
        assert refusal(world, "early") == '0/2 nodes are available: persistentvolumeclaim "later" not found.'
        assert "pod has unbound immediate PersistentVolumeClaims" in refusal(world, "waiting")
        world.api.create(CLASSES, storage_class())
        world.api.create(CLAIMS, claim("later"))
        world.api.create(CLASSES, storage_class("nowhere", "Immediate"))
        await world.settle(15)
        assert node_of(world, "early")
        assert node_of(world, "waiting")


@in_virtual_time
async def test_when_the_chosen_node_goes_before_the_volume_is_made_another_is_chosen() -> None:
    async with cluster(2) as world:
        world.api.create(CLASSES, storage_class())
        body = claim()
        body["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": "gone"}
        world.api.create(CLAIMS, body)
        world.api.create("pods", using("web", "data"))
        await world.settle(5)
        assert node_of(world, "web") in ("a", "b")


@in_virtual_time
async def test_a_volume_made_by_hand_is_taken_when_it_fits_the_smallest_first() -> None:
    async with cluster(1) as world:
        world.api.create(VOLUMES, volume("big", "50Gi"))
        world.api.create(VOLUMES, volume("right", "5Gi"))
        world.api.create(VOLUMES, volume("small", "1Gi"))
        world.api.create(CLAIMS, claim("data", "hand", "4Gi"))
        await world.settle(1)
        assert world.api.get(CLAIMS, "data", "default")["spec"]["volumeName"] == "right"
        assert world.api.get(VOLUMES, "big")["status"]["phase"] == "Available"
        world.api.create(VOLUMES, volume("mine", claimRef={"namespace": "default", "name": "kept"}))
        world.api.create(CLAIMS, claim("kept", "hand"))
        await world.settle(1)
        assert world.api.get(CLAIMS, "kept", "default")["spec"]["volumeName"] == "mine"


@in_virtual_time
async def test_without_a_provisioner_the_pod_goes_where_a_free_volume_is() -> None:
    async with cluster(3) as world:
        world.api.create(CLASSES, storage_class("local") | {"provisioner": "kubernetes.io/no-provisioner"})
        on_c = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["c"]}]}
        affinity = {"required": {"nodeSelectorTerms": [on_c]}}
        world.api.create(CLAIMS, claim("data", "local"))
        world.api.create("pods", using("web", "data"))
        await world.settle(2)
        assert "3 node(s) didn't find available persistent volumes to bind" in refusal(world, "web")
        world.api.create(VOLUMES, volume("disk", storage="local", nodeAffinity=affinity))
        await world.settle(15)
        assert node_of(world, "web") == "c"
        assert world.api.get(CLAIMS, "data", "default")["spec"]["volumeName"] == "disk"


@in_virtual_time
async def test_volumes_are_attached_with_the_pod_and_detached_seconds_after_it_is_gone() -> None:
    async with cluster(1) as world:
        world.api.create(CLASSES, storage_class())
        world.api.create(CLAIMS, claim())
        world.api.create("pods", using("web", "data"))
        await world.settle(5)
        (attachment,) = world.api.list(ATTACHMENTS)
        assert (attachment["spec"]["nodeName"], attachment["status"]["attached"]) == ("a", True)
        world.api.delete("pods", "web", "default")
        await world.settle(4)
        assert world.api.list("pods") == []
        assert len(world.api.list(ATTACHMENTS)) == 1
        await world.settle(6)
        assert world.api.list(ATTACHMENTS) == []


@in_virtual_time
async def test_an_attachment_that_another_pod_on_the_node_needs_stays() -> None:
    async with cluster(1) as world:
        world.api.create(CLASSES, storage_class())
        world.api.create(CLAIMS, claim())
        world.api.create("pods", using("one", "data"))
        world.api.create("pods", using("two", "data"))
        await world.settle(5)
        world.api.delete("pods", "one", "default")
        await world.settle(20)
        assert len(world.api.list(ATTACHMENTS)) == 1


@in_virtual_time
async def test_an_ephemeral_claim_comes_and_goes_with_its_pod() -> None:
    async with cluster(1) as world:
        world.api.create(CLASSES, storage_class())
        inner = {"volumeClaimTemplate": {"spec": claim()["spec"]}}
        world.api.create("pods", pod("web", volumes=[{"name": "scratch", "ephemeral": inner}]))
        await world.settle(5)
        assert names(world.api.list(CLAIMS)) == ["web-scratch"]
        assert world.api.get("pods", "web", "default")["status"]["phase"] == "Running"
        world.api.delete("pods", "web", "default")
        await world.settle(15)
        assert [world.api.list(r) for r in (CLAIMS, VOLUMES, ATTACHMENTS)] == [[], [], []]


@in_virtual_time
async def test_a_claim_in_use_outlives_its_deletion_until_the_pod_is_gone() -> None:
    async with cluster(1) as world:
        world.api.create(CLASSES, storage_class())
        world.api.create(CLAIMS, claim())
        world.api.create("pods", using("web", "data"))
        await world.settle(5)
        world.api.delete(CLAIMS, "data", "default")
        await world.settle(5)
        assert world.api.get(CLAIMS, "data", "default")["metadata"]["deletionTimestamp"]
        world.api.create("pods", using("late", "data"))
        await world.settle(2)
        assert 'persistentvolumeclaim "data" is being deleted' in refusal(world, "late")
        world.api.delete("pods", "late", "default")
        world.api.delete("pods", "web", "default")
        await world.settle(10)
        assert world.api.list(CLAIMS) == []
        assert world.api.list(VOLUMES) == []


@in_virtual_time
async def test_a_retained_volume_is_released_and_not_given_to_the_next_claim() -> None:
    async with cluster(1) as world:
        world.api.create(CLASSES, storage_class(mode="Immediate", reclaimPolicy="Retain"))
        world.api.create(CLAIMS, claim())
        await world.settle(1)
        world.api.delete(CLAIMS, "data", "default")
        await world.settle(1)
        (kept,) = world.api.list(VOLUMES)
        assert kept["status"]["phase"] == "Released"
        world.api.create(CLAIMS, claim())
        await world.settle(1)
        assert len(world.api.list(VOLUMES)) == 2


@in_virtual_time
async def test_a_node_takes_no_more_volumes_than_its_driver_says() -> None:
    async with cluster(1) as world:
        csi = world.api.get("csinodes.storage.k8s.io", "a")
        csi = {**csi, "spec": {"drivers": [{**csi["spec"]["drivers"][0], "allocatable": {"count": 2}}]}}
        world.api.update("csinodes.storage.k8s.io", csi)
        world.api.create(CLASSES, storage_class())
        for number in range(3):
            world.api.create(CLAIMS, claim(f"data-{number}"))
            world.api.create("pods", using(f"web-{number}", f"data-{number}"))
            await world.settle(3)
        assert node_of(world, "web-0") == node_of(world, "web-1") == "a"
        assert refusal(world, "web-2") == "0/1 nodes are available: 1 node(s) exceed max volume count."
        world.api.create("pods", using("shares", "data-1"))
        await world.settle(3)
        assert node_of(world, "shares") == "a"


@in_virtual_time
async def test_a_read_write_once_pod_claim_serves_one_pod_at_a_time() -> None:
    async with cluster(2) as world:
        world.api.create(CLASSES, storage_class())
        world.api.create(CLAIMS, claim(accessModes=["ReadWriteOncePod"]))
        world.api.create("pods", using("one", "data"))
        await world.settle(3)
        world.api.create("pods", using("two", "data"))
        await world.settle(3)
        assert "ReadWriteOncePod access mode" in refusal(world, "two")
        world.api.delete("pods", "one", "default")
        await world.settle(20)
        assert node_of(world, "two")


@in_virtual_time
async def test_a_volume_whose_labels_name_a_zone_keeps_its_pod_there() -> None:
    async with cluster(3) as world:
        body = volume("zonal", storage="hand")
        body["metadata"]["labels"] = {ZONE: "zone-2"}
        world.api.create(VOLUMES, body)
        world.api.create(CLAIMS, claim("data", "hand"))
        world.api.create("pods", using("web", "data"))
        world.api.create("pods", using("wrong", "data", nodeSelector={ZONE: "zone-1"}))
        await world.settle(3)
        assert node_of(world, "web") == "b"
        assert "node(s) had no available volume zone" in refusal(world, "wrong")
