"""Drains in a living cluster: kubelets that stop pods, workloads that replace them, budgets that count."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail.api import labels
from dovetail.sim.clock import VirtualClock
from dovetail.sim.world import World
from support.stage import Stage, virtual

FAKE = {labels.KWOK_NODE: "fake"}
CLAIMS = "nodeclaims.karpenter.sh"


@asynccontextmanager
async def cluster(*nodes: str) -> AsyncIterator[Stage]:
    """A cluster at work with these nodes of ours, up and ready."""
    stage = Stage(world=World(VirtualClock()))
    async with stage.open(), stage.running():
        for name in nodes:
            stage.node(name, labels=FAKE)
        await stage.sleep(5)
        yield stage


def deployment(stage: Stage, name: str, replicas: int, **pod: Any) -> None:
    own = {"app": name}
    notes = pod.pop("annotations", {})
    spec = {"containers": [{"name": "app", "image": "app:1"}], **pod}
    template = {"metadata": {"labels": own, "annotations": notes}, "spec": spec}
    whole = {"replicas": replicas, "selector": {"matchLabels": own}, "template": template}
    stage.api.create("deployments.apps", {"metadata": {"name": name, "namespace": "default"}, "spec": whole})


def budget(stage: Stage, app: str, **spec: Any) -> None:
    spec = {"selector": {"matchLabels": {"app": app}}, **spec}
    made = {"metadata": {"name": app, "namespace": "default"}, "spec": spec}
    stage.api.create("poddisruptionbudgets.policy", made)


def homes(stage: Stage, app: str) -> list[str]:
    """Where the running pods of an app are."""
    return sorted(
        pod.node_name
        for pod in stage.pods
        if pod.labels.get("app") == app and not pod.deleting and pod.status.phase == "Running"
    )


@pytest.mark.spec("lifecycle-81")
@virtual
async def test_a_budget_holds_the_node_until_the_pod_may_go() -> None:
    async with cluster("node") as stage:
        deployment(stage, "web", 1)
        budget(stage, "web", minAvailable=1)
        await stage.sleep(5)
        assert homes(stage, "web") == ["node"]
        stage.node("spare", labels=FAKE)
        await stage.sleep(5)

        stage.delete_node()
        await stage.sleep(300)
        assert stage.has("nodes", "node")
        assert len(stage.queued()) == 1
        assert homes(stage, "web") == ["node"]
        assert stage.says("Drained") == ("Unknown", "Draining")

        stage.api.patch("deployments.apps", "web", {"spec": {"replicas": 2}}, "default")
        await stage.sleep(60)
        assert not stage.has("nodes", "node")
        assert not stage.has(CLAIMS, "node")
        assert homes(stage, "web") == ["spare", "spare"]
        assert stage.queued() == set()


@virtual
async def test_a_workload_never_has_fewer_pods_than_its_budget_asks_while_its_nodes_go() -> None:
    async with cluster("node-a", "node-b", "node-c") as stage:
        deployment(stage, "web", 6)
        budget(stage, "web", minAvailable=4)
        await stage.sleep(10)
        stage.node("fresh-1", labels=FAKE)
        stage.node("fresh-2", labels=FAKE)
        await stage.sleep(5)
        for name in ("node-a", "node-b", "node-c"):
            stage.api.delete(CLAIMS, name)

        fewest = 6
        for _ in range(600):
            await stage.sleep(0.2)
            fewest = min(fewest, len(homes(stage, "web")))

        assert [name for name in ("node-a", "node-b", "node-c") if stage.has("nodes", name)] == []
        assert len(homes(stage, "web")) == 6
        assert fewest >= 4


@virtual
async def test_a_grace_period_ends_a_node_that_nobody_wants_to_leave() -> None:
    async with cluster("spare") as stage:
        stage.node(claimed=False, labels=FAKE)
        stage.claim(termination_grace_period="60s")
        await stage.sleep(5)
        notes = {labels.DO_NOT_DISRUPT: "true", "sim.dovetail.dev/stop-after": "1h"}
        stage.pod("held", annotations=notes, labels={"app": "held"}, termination_grace_period_seconds=20)
        budget(stage, "held", maxUnavailable=0)
        began = stage.clock.monotonic()
        stage.api.delete(CLAIMS, "node")

        await stage.sleep(35)
        assert not stage.pod_now("held").deleting
        await stage.sleep(10)
        assert stage.pod_now("held").deleting
        await stage.until(lambda: not stage.has(CLAIMS, "node"), within=60)

        assert stage.clock.monotonic() - began < 75
        assert not stage.has("nodes", "node")
        assert stage.cloud.instances.keys() == {"kwok://spare"}


@virtual
async def test_a_silent_node_whose_machine_vanished_is_gone_within_seconds_of_its_deletion() -> None:
    async with cluster("node") as stage:
        deployment(stage, "web", 2)
        await stage.sleep(5)
        silent = {"metadata": {"annotations": {"sim.dovetail.dev/heartbeat": "stopped"}}}
        stage.api.patch("nodes", "node", silent)
        await stage.sleep(90)
        stage.cloud.vanish("kwok://node")

        stage.api.delete(CLAIMS, "node")
        await stage.sleep(3)

        assert not stage.has("nodes", "node")
        assert not stage.has(CLAIMS, "node")


@virtual
async def test_an_instance_that_takes_its_time_keeps_its_node_until_it_is_gone() -> None:
    async with cluster("node") as stage:
        stage.cloud.ending = 90.0
        stage.api.delete(CLAIMS, "node")
        await stage.sleep(60)
        assert stage.says("InstanceTerminating") == ("True", "InstanceTerminating")
        assert stage.has("nodes", "node")
        await stage.sleep(60)
        assert not stage.has("nodes", "node")
        assert not stage.has(CLAIMS, "node")


@virtual
async def test_a_volume_is_detached_before_its_machine_goes() -> None:
    async with cluster("node") as stage:
        stage.api.create(
            "storageclasses.storage.k8s.io",
            {"metadata": {"name": "fast"}, "provisioner": "ebs.csi.aws.com"},
        )
        asked = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        claim = {"metadata": {"name": "data", "namespace": "default"}, "spec": asked}
        stage.api.create("persistentvolumeclaims", claim)
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        deployment(stage, "db", 1, volumes=volumes)
        await stage.sleep(10)
        attachments = "volumeattachments.storage.k8s.io"
        assert len(stage.api.list(attachments)) == 1

        stage.delete_node()
        await stage.until(lambda: stage.cloud.calls["delete"] > 0, within=60)

        assert stage.api.list(attachments) == []
        assert stage.says("VolumesDetached") == ("True", "VolumesDetached")
