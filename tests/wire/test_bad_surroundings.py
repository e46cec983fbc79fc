"""What is missing around the controller is told in one sentence that says what to do."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from dovetail.api.crds import build_manifests
from dovetail.runtime.clock import SystemClock
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.wire.server import serve_aws
from dovetail.sim.kube.apiserver import ApiServer
from support.helm import rendered
from support.rbac import Rbac, grants

PATIENCE = 60.0


def kubeconfig(folder: Path, url: str) -> str:
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return str(path)


def a_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Around:
    """A cluster and an account for a controller in a process of its own."""

    def __init__(self, *, definitions: bool = True) -> None:
        self.server = ApiServer(SystemClock(), random.Random(1))
        self.aws = SimulatedAws(SystemClock(), cluster="shop")
        for each in build_manifests("aws") if definitions else ():
            self.server.build_local_client("someone").create(
                "customresourcedefinitions.apiextensions.k8s.io", each
            )
        self.probe = a_port()
        self.log = Path()

    @asynccontextmanager
    async def controller(self, folder: Path, cluster: str) -> AsyncIterator[asyncio.subprocess.Process]:
        self.log = folder / "log"
        flags = ("--disable-leader-election=true", f"--health-probe-port={self.probe}", "--metrics-port=0")
        async with self.server.serve() as kube, serve_aws(self.aws, moto=False) as there:
            environment = {
                "PATH": os.environ["PATH"],
                "HOME": str(folder),
                "AWS_ENDPOINT_URL": there.url,
                "AWS_REGION": "us-west-2",
                "AWS_ACCESS_KEY_ID": f"AKIA{self.aws.account}",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "KUBECONFIG": kubeconfig(folder, kube.url),
                "CLUSTER_NAME": cluster,
            }
            with self.log.open("wb") as log:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "dovetail", "controller", "--provider", "aws", *flags),
                    env=environment,
                    stdout=log,
                    stderr=log,
                )
                try:
                    yield process
                finally:
                    if process.returncode is None:
                        process.kill()
                    await process.wait()

    async def ready(self, until: str) -> tuple[int, str]:
        """What the readiness probe is told, once it is told something with this in it."""
        end = asyncio.get_running_loop().time() + PATIENCE
        said = (0, "")
        async with aiohttp.ClientSession() as session:
            while until not in said[1] and asyncio.get_running_loop().time() < end:
                await asyncio.sleep(0.2)
                try:
                    async with session.get(f"http://127.0.0.1:{self.probe}/readyz") as reply:
                        said = (reply.status, await reply.text())
                except aiohttp.ClientConnectionError:
                    continue
        return said


async def test_a_wrong_cluster_name_is_one_sentence(tmp_path: Path) -> None:
    around = Around()
    async with around.controller(tmp_path, "shpo") as process:
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 2

    said = around.log.read_text()
    assert said.count("\n") == 1
    assert "EKS knows no cluster shpo in us-west-2; set CLUSTER_NAME and AWS_REGION" in said


@pytest.mark.spec("operations-18.4")
async def test_missing_definitions_keep_it_from_being_ready_and_are_named(tmp_path: Path) -> None:
    around = Around(definitions=False)
    async with around.controller(tmp_path, "shop"):
        status, said = await around.ready("install the CRDs")

    assert status == 500
    assert "the API server does not serve" in said
    assert "nodepools.karpenter.sh" in said
    (sentence,) = (line for line in said.splitlines() if "install the CRDs" in line)
    assert "nodeclaims.karpenter.sh" in sentence


async def test_a_missing_permission_is_named_with_what_to_grant(tmp_path: Path) -> None:
    around = Around()
    objects = rendered({"settings": {"clusterName": "shop"}})
    granted = [each for each in grants(objects, "karpenter", "kube-system") if each.resource != "nodepools"]
    around.server.faults = Rbac(granted)
    async with around.controller(tmp_path, "shop") as process:
        end = asyncio.get_running_loop().time() + PATIENCE
        while "nodepools" not in around.log.read_text() and asyncio.get_running_loop().time() < end:
            assert process.returncode is None, around.log.read_text()
            await asyncio.sleep(0.2)
        status, _ = await around.ready("caches")

    (line, *_) = (each for each in around.log.read_text().splitlines() if "nodepools" in each)
    assert "grant get, list and watch on it to the controller's service account" in line
    assert "cannot watch nodepools.karpenter.sh" in line
    assert status == 500
