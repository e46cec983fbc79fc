"""The chart's optional parts before a server that enforces permissions, with what the chart grants alone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from support.helm import rendered
from support.kubectl import kubectl_binary
from support.up_process import up

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0
HOME = "kube-system"
DASHBOARD = {"provider": "kwok", "controller": {"enabled": False}, "dashboard": {"enabled": True}}
SHIFTS = {
    "controller": {"enabled": False},
    "settings": {"clusterName": "dovetail"},
    "zonalShift": {"debounce": "0s", "standalone": {"enabled": True}},
}
POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "guarded"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [
                    {
                        "key": "topology.kubernetes.io/zone",
                        "operator": "In",
                        "values": ["us-west-2a", "us-west-2b"],
                    }
                ],
            }
        }
    },
}


async def kubectl(kubeconfig: Path, *arguments: str, stdin: str = "") -> str:
    process = await asyncio.create_subprocess_exec(
        *(str(kubectl_binary()), "--kubeconfig", str(kubeconfig), *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(stdin.encode()), PATIENCE)
    assert process.returncode == 0, out.decode()
    return out.decode()


async def applied(kubeconfig: Path, *objects: dict[str, Any]) -> None:
    text = yaml.safe_dump_all(objects)
    await kubectl(kubeconfig, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)


def definitions(*folders: str) -> list[dict[str, Any]]:
    return [
        yaml.safe_load(path.read_text())
        for folder in folders
        for path in sorted((ROOT / "deploy" / "crds" / folder).glob("*.yaml"))
    ]


async def as_account(kubeconfig: Path, name: str, folder: Path) -> Path:
    """A kubeconfig of the account's own token, in the namespace its pod would be in."""
    token = (await kubectl(kubeconfig, "create", "token", name, "-n", HOME)).strip()
    document = yaml.safe_load(_read(kubeconfig))
    document["users"][0]["user"] = {"token": token}
    document["contexts"][0]["context"]["namespace"] = HOME
    return _written(folder / f"{name}.yaml", yaml.safe_dump(document))


def _read(path: Path) -> str:
    return path.read_text()


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@asynccontextmanager
async def running(
    *arguments: str, env: dict[str, str], log: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    with log.open("wb") as said:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dovetail", *arguments),
            env={"PATH": os.environ["PATH"], "HOME": str(log.parent), **env},
            stdout=asyncio.subprocess.PIPE,
            stderr=said,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), PATIENCE)


async def test_the_dashboard_needs_no_more_than_the_chart_grants(kubeconfig: Path, tmp_path: Path) -> None:
    await applied(kubeconfig, *definitions("kwok", "zonal"))
    await applied(kubeconfig, *rendered(DASHBOARD))
    own = await as_account(kubeconfig, "karpenter-dashboard", tmp_path)

    arguments = ("dashboard", "--bind", "127.0.0.1:0", "--provider", "kwok")
    async with running(*arguments, env={"KUBECONFIG": str(own)}, log=tmp_path / "log") as process:
        assert process.stdout is not None
        address = (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode().strip()
        found = await _picture(address)

    assert found["title"] == "Overview"
    assert [row for row in found["problems"] if row["about"] == "this page"] == []
    for right in (
        "create pods",
        "patch nodes",
        "delete nodeclaims.karpenter.sh",
        "get secrets",
        "list configmaps",
    ):
        verb, resource = right.split()
        asked = ("auth", "can-i", verb, resource, "--all-namespaces")
        process = await asyncio.create_subprocess_exec(
            *(str(kubectl_binary()), "--kubeconfig", str(own), *asked),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        out, _ = await process.communicate()
        assert out.strip() == b"no", right


async def _picture(address: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{address}overview.json") as answer:
                found: dict[str, Any] = await answer.json()
            if "facts" in found:
                return found
            await asyncio.sleep(0.2)


@pytest.fixture
async def account(tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """The variables of a simulated AWS account with an EKS cluster called dovetail."""
    file = tmp_path / "env"
    async with up(tmp_path, "--env", str(file), "--no-controller"):
        lines = [line for line in _read(file).splitlines() if line.startswith("export AWS")]
        known = dict(line.removeprefix("export ").split("=", 1) for line in lines)
        yield {name: value.strip("'\"") for name, value in known.items()}


async def test_zonal_shift_alone_needs_no_more_than_the_chart_grants(
    kubeconfig: Path, account: dict[str, str], tmp_path: Path
) -> None:
    await applied(kubeconfig, *definitions("aws", "zonal"))
    objects = rendered(SHIFTS)
    await applied(kubeconfig, *(each for each in objects if each["kind"] != "Deployment"), POOL)
    own = await as_account(kubeconfig, "karpenter-zonal-shift", tmp_path)
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    env |= account | {
        "KUBECONFIG": str(own),
        "METRICS_PORT": "0",
        "HEALTH_PROBE_PORT": "0",
        "LOG_OUTPUT_PATHS": "stderr",
    }
    log = tmp_path / "log"
    shift = ("zonal-shift", "{}", "--zone", "usw2-az1", "--kubeconfig", str(kubeconfig))

    async with running(*container["args"], env=env, log=log):
        started = tuple(each.format("start") for each in shift)
        async with running(
            *started, "--local", "--for", "1h", env=account, log=tmp_path / "start"
        ) as process:
            assert await asyncio.wait_for(process.wait(), PATIENCE) == 0, _read(tmp_path / "start")
        await _edited(kubeconfig, log)
        async with running(
            *(each.format("cancel") for each in shift), env=account, log=log.with_suffix(".c")
        ) as process:
            assert await asyncio.wait_for(process.wait(), PATIENCE) == 0
        # What follows takes minutes of holding and settling; that it was heard is enough.

    assert "forbidden" not in _read(log).lower()


async def _edited(kubeconfig: Path, log: Path) -> None:
    """Wait until the pool keeps out of the zone, by a requirement of its own."""
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                pool = json.loads(await kubectl(kubeconfig, "get", "nodepool", "guarded", "-o", "json"))
                listed = pool["spec"]["template"]["spec"]["requirements"]
                if any(each["operator"] == "NotIn" and "us-west-2a" in each["values"] for each in listed):
                    return
                await asyncio.sleep(0.5)
    except TimeoutError:
        pytest.fail(f"the pool is not edited: {_read(log)[-3000:]}")
