"""`dovetail record` beside a controller: the cluster is read and never written to, and no secret is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dovetail.api.crds import build_manifests, build_zonal_manifest
from dovetail.app.cluster_recorder import ClusterRecorder, RecordingPace, record_cluster
from dovetail.app.cluster_source import ClusterSource
from dovetail.app.live_cluster import LiveCluster, build_sight
from dovetail.app.published_settings import read_published
from dovetail.history.recording.reader import RecordingReader
from dovetail.providers.factory import choose_provider
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.kubeconfig import Connection, from_kubeconfig
from dovetail.runtime.recording import RecordingOptions, RecordingWriter
from dovetail.runtime.recording_folder import RecordingFolder, read_recording
from dovetail.runtime.transport import HttpTransport
from dovetail.scheduling.model import state_node as views
from dovetail.settings import read_settings
from dovetail.settings.decision_log import LogPlace
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.transport import LocalTransport
from support.apiserver import deployment
from support.apiserver_thread import served_elsewhere
from support.builders import nodepool
from support.decision_logs import virtual
from support.helm import rendered
from support.https_apiserver import DEFINITIONS, node_pool, until
from support.rbac import Rbac, grants
from support.read_only import READ_VERBS, ReadOnlyTransport, ReadVerbsOnly
from support.recordings import unzip
from support.world import Scene

Json = dict[str, Any]
RECORDER = "recorder"
# What the dashboard shows and a recording does not hold, or is known without asking for it.
DASHBOARDS_ALONE = {"events", "replicationcontrollers"}
GATES = "NodeOverlay=true,CapacityBuffer=true"


def write_kubeconfig(folder: Path, url: str) -> Path:
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": {"server": url}}],
        "users": [{"name": "it", "user": {}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "current-context": "it",
    }
    path.write_text(json.dumps(document))
    return path


class Recording:
    """A recorder beside a running cluster. Its guard against writes is off, so that an attempt is seen."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self.transport = ReadOnlyTransport(LocalTransport(scene.world.server, f"{RECORDER}/1"))
        settings = read_settings((), {"FEATURE_GATES": GATES}, provider="kwok")
        sight = build_sight(self.transport, settings, choose_provider("kwok"), clock=scene.true_clock)
        sight.kube._may_write = lambda: True
        connection = Connection("http://it.example", lambda: pytest.fail("nobody signs in"))
        self.folder, self.remarks = folder, list[str]()
        self.writer = RecordingWriter(
            RecordingFolder(folder, run_at_once), scene.true_clock, run_at_once, RecordingOptions()
        )
        cluster = LiveCluster(connection, "it", sight)
        self.recorder = ClusterRecorder(cluster, self.writer, self.remarks.append)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Recording]:
        task = asyncio.create_task(self.recorder.run())
        try:
            yield self
        finally:
            task.cancel()
            (end,) = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(end, asyncio.CancelledError), end

    def read(self) -> RecordingReader:
        return read_recording(str(self.folder))


async def run_at_once(work: Any) -> Any:
    return work()


@pytest.mark.spec("TA-7")
@virtual
async def test_a_cluster_at_work_is_recorded_with_get_list_and_watch_alone(tmp_path: Path) -> None:
    scene = Scene(kwok=True)
    scene.api.create(DEFINITIONS, build_zonal_manifest())
    rbac = scene.world.server.faults = ReadVerbsOnly(RECORDER)
    recording = Recording(scene, tmp_path / "recording")
    async with scene.running(), recording.running():
        scene.apply(nodepool(consolidate_after="0s"))
        for number in range(4):
            scene.api.create("deployments.apps", deployment(f"app-{number}", replicas=3), "default")
            await scene.settle(60)
        scene.api.delete("deployments.apps", "app-0", "default")
        # Long enough for prices to be asked for again, and for streams to be begun anew.
        await scene.settle(1500)
        nodes = {each["metadata"]["name"] for each in scene.api.list("nodes")}

    assert recording.transport.attempts == []
    assert recording.transport.carried > 20
    assert (rbac.used <= READ_VERBS, rbac.refused) == (True, set())
    assert rbac.used
    assert recording.remarks == []
    reader = recording.read()
    looks = list(reader.looks())
    assert len(looks) >= 5
    assert reader.list_gaps() == []
    assert {views.read_name(state) for state in looks[-1].situation.snapshot.nodes} == nodes != set()


@pytest.mark.spec("TA-7")
@virtual
async def test_the_role_of_the_charts_recorder_is_enough_and_no_more_than_the_dashboards(
    tmp_path: Path,
) -> None:
    objects = rendered({"provider": "kwok", "recorder": {"enabled": True}})
    scene = Scene(kwok=True)
    scene.api.create(DEFINITIONS, build_zonal_manifest())
    granted = grants(objects, "karpenter-recorder", "kube-system")
    rbac = scene.world.server.faults = Rbac(granted, client=RECORDER)
    recording = Recording(scene, tmp_path / "recording")
    async with scene.running(), recording.running():
        scene.apply(nodepool())
        scene.api.create("deployments.apps", deployment("app", replicas=2), "default")
        # As the command does at first, to know the settings of the controller.
        await read_published(recording.transport)
        await scene.settle(60)
    assert rbac.refused == {"get configmaps"}, "only an embedded cluster tells of itself in one"
    assert recording.remarks == []
    unused = {each.resource for each in granted} - {each.resource for each in rbac.used}
    assert unused == DASHBOARDS_ALONE
    assert len(list(recording.read().looks())) >= 2


@pytest.mark.spec("TA-7")
async def test_the_command_reaches_a_cluster_without_ever_writing_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ApiServer(SystemClock(), Random(1))
    api = server.build_local_client("test")
    for definition in build_manifests("kwok"):
        api.create(DEFINITIONS, definition)
    api.create("kwoknodeclasses.karpenter.kwok.sh", {"metadata": {"name": "default"}, "spec": {}})
    api.create("nodepools.karpenter.sh", node_pool())
    rbac = server.faults = ReadVerbsOnly("karpenter")
    opened: list[ReadOnlyTransport] = []
    open_transport = Connection.open_transport

    def open_read_only(connection: Connection, user_agent: str) -> ReadOnlyTransport:
        transport = open_transport(connection, user_agent)
        assert isinstance(transport, HttpTransport)
        opened.append(ReadOnlyTransport(transport))
        return opened[-1]

    monkeypatch.setattr(Connection, "open_transport", open_read_only)
    remarks: list[str] = []
    with served_elsewhere(server) as url:
        kubeconfig = write_kubeconfig(tmp_path, url)
        assert from_kubeconfig([kubeconfig], SystemClock()).server == url
        stop = asyncio.Event()
        place = LogPlace("file", folder=str(tmp_path / "recording"))
        source = ClusterSource(kubeconfig=str(kubeconfig))
        pace = RecordingPace(timedelta(seconds=1))
        work = asyncio.create_task(record_cluster(source, place, pace, stop, remarks.append))
        async with asyncio.timeout(60):
            await until(lambda: any(tmp_path.glob("recording/*.gz")))
            stop.set()
            looks = await work

    assert [transport.attempts for transport in opened] == [[]]
    assert rbac.refused == set()
    assert rbac.used <= READ_VERBS
    assert looks >= 1
    (look, *_) = read_recording(str(tmp_path / "recording")).looks()
    assert [pool.nodepool.name for pool in look.situation.snapshot.pools] == ["default"]


SECRETS = {
    "environment": "hunter2-in-an-environment-value",
    "argument": "--password=hunter2-in-an-argument",
    "command": "hunter2-in-a-command",
    "image": "registry.example/hunter2-in-an-image:1",
    "annotation": "hunter2-in-an-annotation",
    "applied": '{"token":"hunter2-in-last-applied"}',
    "probe": "hunter2-in-a-header-of-a-probe",
    "hook": "hunter2-in-a-hook",
    "finalizer": "example.com/hunter2-in-a-message",
    "volume": "hunter2-in-a-volume-attribute",
    "node": "hunter2-on-a-node",
    "pool": "hunter2-on-a-nodepool",
    "claim": "hunter2-on-a-volume-claim",
    "budget": "hunter2-on-a-budget",
    "namespace": "hunter2-on-a-namespace",
    "workload": "hunter2-on-a-deployment",
}
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def build_hostile_pod(name: str) -> Json:
    annotations = {"vault.example.com/token": SECRETS["annotation"], LAST_APPLIED: SECRETS["applied"]}
    probe = {"httpGet": {"port": 1, "httpHeaders": [{"name": "Authorization", "value": SECRETS["probe"]}]}}
    container = {
        "name": "main",
        "image": SECRETS["image"],
        "command": [SECRETS["command"]],
        "args": [SECRETS["argument"]],
        "env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": SECRETS["environment"]}],
        "livenessProbe": probe,
        "lifecycle": {"preStop": {"exec": {"command": ["echo", SECRETS["hook"]]}}},
        "resources": {"requests": {"cpu": "100m"}},
    }
    volumes = [
        {
            "name": "data",
            "csi": {"driver": "csi.example.com", "volumeAttributes": {"password": SECRETS["volume"]}},
        },
        {"name": "claimed", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": annotations,
            "labels": {"app": "x"},
        },
        "spec": {
            "containers": [container],
            "initContainers": [container | {"name": "init"}],
            "volumes": volumes,
        },
    }


@virtual
async def test_nothing_secret_of_pods_and_other_objects_is_in_a_recording(tmp_path: Path) -> None:
    scene = Scene(kwok=True)
    recording = Recording(scene, tmp_path / "recording")
    noted = {name: {"example.com/secret": secret} for name, secret in SECRETS.items()}
    async with scene.running(), recording.running():
        scene.apply(nodepool(annotations=noted["pool"]))
        claim = {
            "metadata": {"name": "data", "namespace": "default", "annotations": noted["claim"]},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
        scene.api.create("persistentvolumeclaims", claim)
        budget = {"metadata": {"name": "x", "namespace": "default", "annotations": noted["budget"]}}
        selected = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
        scene.api.create("poddisruptionbudgets.policy", budget | {"spec": selected})
        scene.api.create("namespaces", {"metadata": {"name": "shop", "annotations": noted["namespace"]}})
        made = deployment("work", replicas=2)
        made["metadata"]["annotations"] = noted["workload"]
        scene.api.create("deployments.apps", made, "default")
        for number in range(3):
            scene.api.create("pods", build_hostile_pod(f"pod-{number}"))
        await scene.settle(60)
        for node in scene.api.list("nodes"):
            patch = {"metadata": {"annotations": noted["node"]}}
            scene.api.patch("nodes", node["metadata"]["name"], patch)
        await scene.settle(60)
        assert scene.api.list("nodes")
    text = b"".join(unzip(path.read_bytes()) for path in (tmp_path / "recording").iterdir())
    assert b"pod-2" in text
    assert b"kwok" in text
    found = [secret for secret in (*SECRETS.values(), "hunter2", "AWS_SECRET") if secret.encode() in text]
    assert found == []
