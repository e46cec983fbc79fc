"""`dovetail up` with its simulated AWS: instances become nodes, and boto3 can look at them."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import boto3

from support.commands import process
from support.two_servers import free_ports
from support.up_process import Up, up

ROOT = Path(__file__).parents[2]


def _sourced(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^export (\w+)=(\S+)$", path.read_text(), re.MULTILINE))


def _client(service: str, env: dict[str, str]) -> Any:
    return boto3.client(
        service,
        endpoint_url=env["AWS_ENDPOINT_URL"],
        region_name=env["AWS_REGION"],
        aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
    )


async def _running(cluster: Up, replicas: int) -> None:
    await cluster.kubectl("create", "deployment", "web", "--image=web", f"--replicas={replicas}")
    await cluster.kubectl("rollout", "status", "deployment/web", "--timeout=110s")


async def test_pods_get_instances_that_boto3_sees_and_that_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "shell.env"
    options = ("--boot", "2", "--env", str(path), "--data-dir", str(tmp_path / "data"))
    async with up(tmp_path, *options) as cluster:
        env = _sourced(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert env["KUBECONFIG"] == str(cluster.kubeconfig)
        assert env["AWS_ENDPOINT_URL"] in cluster.said
        await _running(cluster, 3)
        (found,) = await asyncio.to_thread(_instances, env)
        providers = await cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[*].spec.providerID}")
        assert providers == f"aws:///{found['Placement']['AvailabilityZone']}/{found['InstanceId']}"
        tags = {each["Key"]: each["Value"] for each in found["Tags"]}
        assert tags["karpenter.sh/nodepool"] == "default"
        async with aiohttp.ClientSession(env["AWS_ENDPOINT_URL"]) as person:
            wrong = await person.post("/_simulation/explode/i-1")
            assert wrong.status == 404
            there = await person.post(f"/_simulation/rebalance/{found['InstanceId']}")
            assert there.status == 200
        assert (await cluster.stop())[0] == 0
    async with up(tmp_path, *options) as cluster:
        (again,) = await asyncio.to_thread(_instances, _sourced(path))
        assert (again["InstanceId"], again["State"]["Name"]) == (found["InstanceId"], "running")
        await asyncio.sleep(3)
        claims = await cluster.kubectl("get", "nodeclaims", "-o", "jsonpath={.items[*].status.providerID}")
        assert claims == providers


def _instances(env: dict[str, str]) -> list[dict[str, Any]]:
    answer = _client("ec2", env).describe_instances()
    return [each for entry in answer["Reservations"] for each in entry["Instances"]]


async def test_a_controller_of_its_own_process_works_over_the_endpoint_and_survives_a_reclaim(
    tmp_path: Path,
) -> None:
    path = tmp_path / "shell.env"
    async with up(tmp_path, "--no-controller", "--boot", "2", "--env", str(path)) as cluster:
        env = _sourced(path)
        pool = (ROOT / "examples" / "aws.yaml").read_text().replace("my-cluster", env["CLUSTER_NAME"])
        (tmp_path / "pool.yaml").write_text(pool)
        await cluster.kubectl("apply", "-f", str(tmp_path / "pool.yaml"))
        async with _controller(env, tmp_path / "log"):
            await _running(cluster, 2)
            (victim,) = await asyncio.to_thread(_instances, env)
            async with aiohttp.ClientSession(env["AWS_ENDPOINT_URL"]) as person:
                await person.post(f"/_simulation/reclaim/{victim['InstanceId']}")
            providers = victim["InstanceId"]
            while victim["InstanceId"] in providers:
                await asyncio.sleep(1)
                wanted = "jsonpath={.items[*].status.providerID}"
                providers = await cluster.kubectl("get", "nodeclaims", "-o", wanted)
            await cluster.kubectl("rollout", "status", "deployment/web", "--timeout=110s")
            left = [
                each
                for each in await asyncio.to_thread(_instances, env)
                if each["State"]["Name"] == "running"
            ]
            assert [each["InstanceId"] in providers for each in left] == [True]


@asynccontextmanager
async def _controller(env: dict[str, str], log: Path) -> AsyncIterator[None]:
    port = free_ports(2)
    settings = {
        "PATH": os.environ["PATH"],
        "METRICS_PORT": str(port),
        "HEALTH_PROBE_PORT": str(port + 1),
        "LEADER_ELECTION_NAMESPACE": "default",
        "EKS_CONTROL_PLANE": "true",
    }
    with log.open("wb") as said:
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dovetail", "controller", "--provider", "aws"),
            env={**settings, **env},
            stdout=said,
            stderr=said,
        )
        try:
            yield
            running.terminate()
            assert await asyncio.wait_for(running.wait(), 30) == 0
        finally:
            if running.returncode is None:
                running.kill()
                await running.wait()


def test_an_env_file_that_is_not_ours_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.write_text("export PATH=/mine\n")
    ended = process("up", "--no-controller", "--env", str(path), env={"HOME": str(tmp_path)})
    assert ended.code == 2
    assert ended.err == f"dovetail: writing {path}: it holds something else; choose another --env\n"
    assert path.read_text() == "export PATH=/mine\n"
