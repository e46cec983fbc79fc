"""A shadow beside Cluster Autoscaler: no NodePools there, so whole fleets are compared with given ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dovetail.app.cluster_recorder import ClusterRecorder
from dovetail.app.given_pools import GivenPools, read_given_pools
from dovetail.app.live_cluster import LiveCluster, build_sight
from dovetail.errors import BadInput, Misconfigured
from dovetail.history.shadow import ShadowFold
from dovetail.play.shadow_run import NO_POOLS, require_pools
from dovetail.play.shadow_twins import CALIBRATION, TWIN, ShadowTwins, replay_span
from dovetail.play.shadowing import SegmentFeed, TeePlace
from dovetail.providers.factory import choose_provider
from dovetail.runtime.kubeconfig import Connection
from dovetail.runtime.recording import RecordingOptions, RecordingWriter
from dovetail.runtime.recording_folder import RecordingFolder, read_recording
from dovetail.settings import read_settings
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from support.read_only import ReadOnlyTransport

START = datetime(2026, 1, 5, tzinfo=UTC)
TYPE = "s-16x-amd64-linux"
POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "given"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                ],
            }
        },
        "disruption": {"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]},
    },
}


async def run_at_once(work: Any) -> Any:
    return work()


def make_node(name: str) -> dict[str, Any]:
    """A node of a node group of sixteen-core machines."""
    size = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    return {
        "metadata": {
            "name": name,
            "labels": {
                "kwok.x-k8s.io/node": "fake",
                "node.kubernetes.io/instance-type": TYPE,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": "test-zone-a",
                "eks.amazonaws.com/capacityType": "ON_DEMAND",
            },
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"providerID": f"kwok://{name}"},
        "status": {"capacity": size, "allocatable": size},
    }


def make_workload(name: str, replicas: int, cpu: str) -> dict[str, Any]:
    about = {"app": name}
    asked = {"requests": {"cpu": cpu, "memory": "256Mi"}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": about},
            "template": {
                "metadata": {"labels": about},
                "spec": {"containers": [{"name": "main", "image": "it", "resources": asked}]},
            },
        },
    }


async def watch(
    folder: Path,
    given: GivenPools | None,
    play: Callable[[World], Coroutine[Any, Any, None]],
    fold: ShadowFold,
) -> ReadOnlyTransport:
    """Let a shadow watch a cluster in which nothing of Karpenter is installed."""
    world = World(VirtualClock(START), 1)
    transport = ReadOnlyTransport(LocalTransport(world.server, "shadow/1"))
    settings = read_settings((), {}, provider="kwok")
    sight = build_sight(transport, settings, choose_provider("kwok"), clock=world.clock)
    place = TeePlace(RecordingFolder(folder, run_at_once), [SegmentFeed(fold)])
    options = RecordingOptions(settings={"PROVIDER": "kwok"})
    writer = RecordingWriter(place, world.clock, run_at_once, options)
    cluster = LiveCluster(Connection("http://it", lambda: pytest.fail("nobody signs in")), "it", sight)
    recorder = ClusterRecorder(
        cluster, writer, lambda text: None, eager=True, check=require_pools, given=given
    )
    async with world.running():
        work = asyncio.create_task(recorder.run())
        try:
            playing = asyncio.create_task(play(world))
            await asyncio.wait((work, playing), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            playing.result()
            await recorder.look_last()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
    return transport


async def grow_and_shrink(world: World) -> None:
    """Four nodes for an hour; then Cluster Autoscaler adds a fifth and, an hour later, takes two away."""
    for number in range(4):
        world.api.create("nodes", make_node(f"group-{number}"))
    world.api.create("replicasets.apps", make_workload("web", 6, "2"), "default")
    await world.clock.sleep(3600)
    world.api.create("nodes", make_node("group-4"))
    await world.clock.sleep(3600)
    for name in ("group-3", "group-4"):
        world.api.delete("nodes", name)
    await world.clock.sleep(3600)


def test_whole_fleets_are_compared_with_given_pools(tmp_path: Path) -> None:
    fold = ShadowFold()
    given = read_given_pools([POOL], "pools.yaml")
    transport = run_virtual(watch(tmp_path / "recording", given, grow_and_shrink, fold))
    report = fold.build_report()
    assert transport.attempts == []
    assert report.whole_fleets
    assert (report.differences, report.pools) == ((), 1)
    # The oracle: how long each node was there, and what its type costs where it was.
    hours = 3 * 3 + 2 + 1
    assert report.paid.node_hours == pytest.approx(hours, rel=0.005)
    rate = report.paid.dollars / report.paid.node_hours
    sources = [segment.source for segment in read_recording(str(tmp_path / "recording")).segments]
    twin = replay_span(sources, TWIN, ShadowTwins())
    calibration = replay_span(sources, CALIBRATION, ShadowTwins())
    assert twin is not None
    assert calibration is not None
    assert twin.paid == pytest.approx(report.paid.dollars)
    # Six pods of two cores fit on one such machine; three or four of them stood there all the time.
    assert 0 < twin.dollars < 0.6 * hours * rate


def test_without_nodepools_the_command_says_what_to_give(tmp_path: Path) -> None:
    """The kinds are installed, and there is no NodePool."""

    async def play(world: World) -> None:
        await world.clock.sleep(60)

    with pytest.raises(BaseExceptionGroup) as caught:
        run_virtual(watch(tmp_path / "recording", GivenPools(()), play, ShadowFold()))
    assert caught.group_contains(Misconfigured, match="with --pools FILE")
    assert NO_POOLS == (
        "there is no NodePool in this cluster; give the pools Dovetail should use with --pools FILE"
    )


def test_a_file_without_a_pool_or_without_its_class_is_refused() -> None:
    with pytest.raises(BadInput, match=r"--pools a\.yaml: there is no NodePool in it"):
        read_given_pools([{"kind": "Deployment", "metadata": {"name": "a"}}], "a.yaml")
    spec = {"template": {"spec": {"nodeClassRef": {"kind": "EC2NodeClass", "name": "apps"}}}}
    pool = {**POOL, "spec": spec}
    with pytest.raises(BadInput, match="names EC2NodeClass apps, which is not in it"):
        read_given_pools([pool], "a.yaml")
