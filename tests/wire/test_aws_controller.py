"""`dovetail controller --provider aws` as a process: boto3 for real, AWS and the cluster simulated."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from dovetail.api.crds import build_manifests
from dovetail.runtime.clock import SystemClock
from dovetail.sim.aws.ec2.node_join import NodeJoiner
from dovetail.sim.aws.wire.server import serve_aws
from dovetail.sim.world import World
from support.aws import CLUSTER
from support.aws_world import CLAIMS, CLASSES, AwsObjects
from support.commands import dovetail
from support.ec2 import Shop

# Machines that run tests are busy with other things, too.
PATIENCE = 180.0
Json = dict[str, Any]


class Site:
    """A cluster and an account, each behind an address."""

    def __init__(self) -> None:
        clock = SystemClock()
        self.world = World(clock, 1)
        self.api = self.world.server.build_local_client("someone")
        for each in build_manifests("aws"):
            self.api.create("customresourcedefinitions.apiextensions.k8s.io", each)
        self.objects = AwsObjects(self.api)
        self.aws = Shop(clock, 1, cluster=CLUSTER)
        self.aws.sells = ("m5.large", "m5.xlarge")
        self.aws.instances.starts = self.aws.instances.ends = (0.2, 0.5)
        self.joining = NodeJoiner(self.aws, self.world, CLUSTER, boots=(0.6, 1.0))
        self.env: dict[str, str] = {}

    @asynccontextmanager
    async def open(self, folder: Path) -> AsyncIterator[Site]:
        async with (
            self.world.running(),
            self.world.server.serve() as kube,
            serve_aws(self.aws, moto=False) as aws,
        ):
            self.env = {
                "PATH": os.environ["PATH"],
                "HOME": str(folder),
                "KUBECONFIG": str(_kubeconfig(folder, kube.url)),
                "AWS_ENDPOINT_URL": aws.url,
                "AWS_REGION": "us-west-2",
                "AWS_ACCESS_KEY_ID": f"AKIA{self.aws.account}",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "CLUSTER_NAME": CLUSTER,
            }
            yield self

    def class_ready(self) -> bool:
        return [self.objects.says(each, "Ready") for each in self.api.list(CLASSES)] == ["True"]

    async def until(self, true: Callable[[], object], process: asyncio.subprocess.Process) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE
        while not true():
            assert process.returncode is None, "the controller has ended"
            assert loop.time() < end, self.objects.told()
            await asyncio.sleep(0.1)


def _kubeconfig(folder: Path, url: str) -> Path:
    named = {"name": "test"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{**named, "cluster": {"server": url}}],
        "users": [{**named, "user": {"token": "token"}}],
        "contexts": [{**named, "context": {"cluster": "test", "user": "test"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


@asynccontextmanager
async def controller(site: Site, folder: Path, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    ports = ("--metrics-port=0", "--health-probe-port=0", "--disable-leader-election=true")
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dovetail", "controller", "--provider", "aws", *ports, *flags),
            env=site.env,
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def test_a_pod_gets_a_machine_through_boto3_and_the_process_stops_when_told(tmp_path: Path) -> None:
    async with Site().open(tmp_path) as site, controller(site, tmp_path) as process:
        site.objects.default()
        await site.until(site.class_ready, process)
        site.objects.pods(1, cpu="1")
        await site.until(lambda: site.objects.ready() == 1 and site.objects.placed() == 1, process)
        (machine,) = site.aws.list_running()
        (claim,) = site.api.list(CLAIMS)
        assert claim["status"]["providerID"] == f"aws:///{machine.zone}/{machine.id}"
        assert "fits none of" in await explained_giant(site, process)
        site.objects.scale(0)
        site.api.delete(CLAIMS, claim["metadata"]["name"])
        await site.until(lambda: not site.aws.list_running(), process)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0


async def explained_giant(site: Site, process: asyncio.subprocess.Process) -> str:
    """What `dovetail explain` says of a pod that no machine of EC2 could hold."""
    site.objects.pods(1, name="giant", cpu="1000")

    def waiting() -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in site.api.list("pods")
            for each in pod.get("status", {}).get("conditions", ())
            if (each["type"], each["status"]) == ("PodScheduled", "False")
        ]

    await site.until(waiting, process)
    (name,) = waiting()
    ended = await asyncio.to_thread(dovetail, "explain", name, "--provider", "aws", env=site.env)
    return ended.out + ended.err


async def test_a_cloud_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    async with Site().open(tmp_path) as site:
        site.aws.refuse("UnauthorizedOperation", "DescribeInstanceTypes", None, "You are not authorized")
        async with controller(site, tmp_path) as process:
            assert await asyncio.wait_for(process.wait(), PATIENCE) == 2
    said = (tmp_path / "log").read_text()
    assert said.count("\n") == 1
    assert said.startswith(
        "dovetail: starting the aws provider: EC2 in us-west-2 cannot be used (Unauthorized"
    )
    assert "ec2:DescribeInstanceTypes" in said


async def test_a_class_nobody_has_resolved_offers_nothing_and_is_named(tmp_path: Path) -> None:
    async with Site().open(tmp_path) as site:
        site.objects.default()
        site.objects.pods(1, cpu="1")
        await asyncio.sleep(0.5)
        (pod,) = site.api.list("pods")
        name = pod["metadata"]["name"]
        ended = await asyncio.to_thread(dovetail, "explain", name, "--provider", "aws", env=site.env)
        assert "EC2NodeClass default: it has no subnets yet" in ended.err
        assert name in ended.out
