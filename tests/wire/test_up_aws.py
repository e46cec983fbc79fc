"""`dovetail up` with its simulated AWS: instances become nodes, and boto3 can look at them."""

from __future__ import annotations

import asyncio
import re
import stat
from pathlib import Path
from typing import Any

import aiohttp
import boto3

from support.commands import process
from support.up import Up, up


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


def test_an_env_file_that_is_not_ours_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.write_text("export PATH=/mine\n")
    ended = process("up", "--no-controller", "--env", str(path), env={"HOME": str(tmp_path)})
    assert ended.code == 2
    assert ended.err == f"dovetail: writing {path}: it holds something else; choose another --env\n"
    assert path.read_text() == "export PATH=/mine\n"
