"""Volumes come off a node before its machine goes, as long as there is time to wait for them."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api.pod import PersistentVolumeClaimSource, Toleration, Volume
from dovetail.controllers.base import DONE, requeue_after
from support.stage import Stage, virtual

ATTACHMENTS = "volumeattachments.storage.k8s.io"
STAYS = (Toleration(operator="Exists"),)


def attach(stage: Stage, name: str, volume: str = "", node: str = "node") -> None:
    source: dict[str, Any] = {"persistentVolumeName": volume} if volume else {"inlineVolumeSpec": _inline()}
    spec = {"attacher": "ebs.csi.aws.com", "nodeName": node, "source": source}
    stage.api.create(ATTACHMENTS, {"metadata": {"name": name}, "spec": spec})


def _inline() -> dict[str, Any]:
    return {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
    }


def bound_claim(stage: Stage, name: str, volume: str) -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "volumeName": volume,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    stage.api.create(
        "persistentvolumeclaims", {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    )


async def drained(stage: Stage) -> None:
    """The drain is over, and the five seconds too."""
    await stage.end()
    await stage.sleep(5)


@pytest.mark.spec("lifecycle-95")
@virtual
async def test_a_node_waits_for_its_volumes_and_goes_on_when_they_are_off() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        attach(stage, "csi-1", "pv-1")
        attach(stage, "csi-elsewhere", "pv-2", node="another")
        await drained(stage)

        assert await stage.end() == requeue_after(1)
        assert stage.says("Drained") == ("True", "Drained")
        assert stage.says("VolumesDetached") == ("Unknown", "AwaitingVolumeDetachment")
        assert stage.cloud.calls["delete"] == 0
        assert stage.events("AwaitingVolumeDetachment") == [
            ("Normal", "Node/node", "Awaiting deletion of bound volumeattachments (csi-1)")
        ]

        stage.api.delete(ATTACHMENTS, "csi-1")
        assert await stage.end() == requeue_after(5)
        assert stage.says("VolumesDetached") == ("True", "VolumesDetached")
        assert await stage.end() == DONE
        assert not stage.has("nodes", "node")


@virtual
async def test_of_many_attachments_five_are_named() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        for number in range(7):
            attach(stage, f"csi-{number}", f"pv-{number}")
        await drained(stage)
        await stage.end()

        ((_, _, note),) = stage.events("AwaitingVolumeDetachment")
        assert note.endswith("(csi-0, csi-1, csi-2, csi-3, csi-4 and 2 other(s))")


@pytest.mark.spec("lifecycle-96")
@virtual
async def test_volumes_of_pods_that_stay_are_not_waited_for() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        bound_claim(stage, "data", "pv-data")
        bound_claim(stage, "stays-scratch", "pv-scratch")
        volumes = (
            Volume(name="data", persistent_volume_claim=PersistentVolumeClaimSource(claim_name="data")),
            Volume(name="lost", persistent_volume_claim=PersistentVolumeClaimSource(claim_name="lost")),
        )
        stage.pod("stays", tolerations=STAYS, volumes=volumes)
        attach(stage, "csi-data", "pv-data")
        attach(stage, "csi-other", "pv-other")
        attach(stage, "csi-inline")
        await drained(stage)

        assert await stage.end() == requeue_after(1)
        ((_, _, note),) = stage.events("AwaitingVolumeDetachment")
        assert note.endswith("(csi-other)")

        stage.api.delete(ATTACHMENTS, "csi-other")
        assert await stage.end() == requeue_after(5)
        assert stage.has(ATTACHMENTS, "csi-data")


@virtual
async def test_an_ephemeral_volume_of_a_pod_that_stays_is_not_waited_for() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        bound_claim(stage, "stays-scratch", "pv-scratch")
        stage.ephemeral_pod("stays", "scratch", STAYS)
        attach(stage, "csi-scratch", "pv-scratch")
        await drained(stage)

        assert await stage.end() == requeue_after(5)
        assert stage.says("VolumesDetached") == ("True", "VolumesDetached")


@pytest.mark.spec("lifecycle-97")
@virtual
async def test_after_the_deadline_volumes_no_longer_hold_the_node() -> None:
    async with Stage().open() as stage:
        stage.doomed_node(grace=60)
        attach(stage, "csi-1", "pv-1")
        await drained(stage)
        assert await stage.end() == requeue_after(1)
        assert stage.says("VolumesDetached") == ("Unknown", "AwaitingVolumeDetachment")

        await stage.sleep(56)
        assert await stage.end() == requeue_after(5)
        assert stage.says("VolumesDetached") == ("False", "TerminationGracePeriodElapsed")
        assert await stage.end() == DONE
        assert not stage.has("nodes", "node")
        assert stage.has(ATTACHMENTS, "csi-1")


@virtual
async def test_a_node_without_a_claim_waits_for_its_volumes_too() -> None:
    async with Stage().open() as stage:
        stage.node(claimed=False)
        stage.delete_node()
        attach(stage, "csi-1", "pv-1")

        assert await stage.end() == requeue_after(1)
        await stage.sleep(3600)
        assert await stage.end() == requeue_after(1)

        stage.api.delete(ATTACHMENTS, "csi-1")
        assert await stage.end() == DONE
        assert not stage.has("nodes", "node")
