"""Commands that look at a cluster need its kubeconfig and nothing else: it says the rest of itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail.runtime.clock import SystemClock
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.wire.server import serve_aws
from support.commands import Ended, process
from support.dashboards import dashboard, until
from support.https_apiserver import Secured, secured
from support.up_process import Up, up

HUGE = """
apiVersion: v1
kind: Pod
metadata: {name: huge, namespace: default}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: "5000"}}}]}
"""
# What people have in their shells for other clusters and other accounts.
ELSEWHERE = {
    "AWS_PROFILE": "gone",
    "AWS_REGION": "eu-west-3",
    "CLUSTER_NAME": "other",
    "AWS_ENDPOINT_URL": "http://[::1]:9",
}


async def ask(cluster: Up, *arguments: str, **env: str) -> Ended:
    environment = {"HOME": str(cluster.home), "KUBECONFIG": str(cluster.kubeconfig), **env}
    return await asyncio.to_thread(process, *arguments, env=environment, cwd=cluster.home)


@pytest.mark.parametrize("environment", [{}, ELSEWHERE], ids=["bare", "elsewhere"])
async def test_after_up_every_command_that_looks_works(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "huge.yaml").write_text(HUGE)
    async with up(tmp_path, "--boot", "1", "--cluster-name", "shop") as cluster:
        await cluster.kubectl("create", "deployment", "web", "--image=web", "--replicas=2")
        await cluster.kubectl("rollout", "status", "deployment/web", "--timeout=110s")
        await cluster.kubectl("apply", "-f", str(tmp_path / "huge.yaml"))
        await cluster.kubectl("wait", "pod/huge", "--for=condition=PodScheduled=false", "--timeout=60s")

        explained = await ask(cluster, "explain", "huge", **environment)
        assert (explained.code, explained.err) == (3, "")
        assert explained.out.startswith("default/huge fits none of ")
        planned = await ask(cluster, "plan", "--live", **environment)
        assert (planned.code, planned.err) == (3, "")
        assert "default/huge fits none of " in planned.out
        disrupted = await ask(cluster, "plan", "--disruption", "-o", "json", **environment)
        assert (disrupted.code, disrupted.err) == (0, "")
        (standing,) = json.loads(disrupted.out)["staying"]
        assert standing["price"] > 0
        saved = await ask(cluster, "snapshot", "-o", "world.json", **environment)
        assert (saved.code, saved.out) == (0, "")
        assert saved.err.startswith("world.json: 1 node, 1 ")
        async with dashboard(tmp_path, KUBECONFIG=str(cluster.kubeconfig), **environment) as address:
            (row,) = await until(address, "nodes", "nodes", 1)
            assert row["name"] == standing["node"]


@asynccontextmanager
async def account(cluster: str) -> AsyncIterator[dict[str, str]]:
    """A simulated AWS, and the environment in which an SDK finds it."""
    aws = SimulatedAws(SystemClock(), cluster=cluster)
    async with serve_aws(aws, moto=False) as there:
        yield {
            "AWS_ENDPOINT_URL": there.url,
            "AWS_ACCESS_KEY_ID": f"AKIA{aws.account}",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


def karpenter(**env: str) -> dict[str, Any]:
    """Karpenter's Deployment, as its chart makes it."""
    labels = {"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"}
    container = {
        "name": "controller",
        "image": "controller",
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "metadata": {"name": "karpenter", "namespace": "kube-system", "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


async def asked(server: Secured, *arguments: str, **env: str) -> Ended:
    environment = {"HOME": "/nonexistent", "KUBECONFIG": str(server.kubeconfig), **env}
    return await asyncio.to_thread(process, *arguments, env=environment)


async def test_of_a_real_cluster_karpenters_own_deployment_tells(tmp_path: Path) -> None:
    with secured(tmp_path, "aws") as server:
        node = {"metadata": {"name": "n"}, "spec": {"providerID": "aws:///us-west-2a/i-1"}}
        server.create("nodes", node)
        server.create("deployments.apps", karpenter(CLUSTER_NAME="shop", BATCH_IDLE_DURATION="2s"))
        async with account("shop") as reach:
            ended = await asked(server, "plan", "--live", **reach)
    assert (ended.code, ended.err) == (
        0,
        "note: no pod is pending in this cluster, so there is nothing to plan\n",
    )


async def test_a_setting_of_the_controller_that_cannot_be_read_names_where_it_stands(tmp_path: Path) -> None:
    with secured(tmp_path, "aws") as server:
        server.create("deployments.apps", karpenter(CLUSTER_NAME="shop", BATCH_IDLE_DURATION="soon"))
        ended = await asked(server, "plan", "--live", AWS_REGION="us-west-2")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert 'BATCH_IDLE_DURATION is "soon", but must be ' in ended.err
    assert "(as Deployment kube-system/karpenter has it)" in ended.err


@pytest.mark.parametrize(
    ("env", "told", "missing"),
    [
        ({}, "its name or its AWS region", "--cluster-name and --region"),
        ({"CLUSTER_NAME": "shop"}, "its AWS region", "--region"),
        ({"AWS_REGION": "us-west-2"}, "its name", "--cluster-name"),
    ],
)
async def test_what_nobody_says_is_asked_for_by_its_flag(
    tmp_path: Path, env: dict[str, str], told: str, missing: str
) -> None:
    """One sentence, and nothing of connections that were left open."""
    with secured(tmp_path, "aws") as server:
        for command in (("explain", "x"), ("plan", "--live"), ("snapshot", "-o", "x"), ("dashboard",)):
            ended = await asked(server, *command, AWS_EC2_METADATA_DISABLED="true", **env)
            assert (ended.code, ended.out) == (2, "")
            assert ended.err == (
                f"dovetail: the cluster at {server.url} does not say {told}: no Deployment or lease of "
                f"Dovetail or Karpenter that tells can be read; give {missing}\n"
            )


async def test_flags_say_what_the_cluster_does_not(tmp_path: Path) -> None:
    with secured(tmp_path, "aws") as server:
        async with account("shop") as reach:
            flags = ("--cluster-name", "shop", "--region", "us-west-2")
            ended = await asked(server, "plan", "--live", *flags, **reach)
    assert (ended.code, ended.err) == (
        0,
        "note: no pod is pending in this cluster, so there is nothing to plan\n",
    )
