"""`dovetail dashboard` as a process of its own, and an example cluster for it to show."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

__all__ = ["PATIENCE", "POOL", "dashboard", "probed", "twin", "until"]

PATIENCE = 120.0
POOL = """
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: default}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements: []
---
apiVersion: v1
kind: Pod
metadata: {name: stuck, namespace: default}
spec:
  nodeSelector: {planet: mars}
  containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]
"""


@asynccontextmanager
async def dashboard(home: Path, *options: str, **env: str) -> AsyncIterator[str]:
    """The address of a dashboard in a process of its own, which ends well."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dovetail", "dashboard", "--bind", "127.0.0.1:0", *options),
        env={"PATH": os.environ["PATH"], "HOME": str(home), **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    address = (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode().strip()
    try:
        assert address.startswith("http://127.0.0.1:"), await process.stderr.read()
        yield address
    finally:
        process.send_signal(signal.SIGINT)
        code = await asyncio.wait_for(process.wait(), PATIENCE)
        said = (await process.stderr.read()).decode()
    assert (code, said) == (0, "Ctrl-C stops it.\n")


async def twin(address: str, path: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"{address}{path}.json") as answer:
        found: dict[str, Any] = await answer.json()
        return found


async def until(address: str, path: str, table: str, count: int) -> list[Any]:
    async with asyncio.timeout(PATIENCE):
        while True:
            rows: list[Any] | None = (await twin(address, path)).get(table)
            if rows is not None and len(rows) == count:
                return rows
            await asyncio.sleep(0.2)


async def probed(address: str, status: int) -> str:
    """What /readyz says once it answers with this status."""
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{address}readyz") as answer:
                if answer.status == status:
                    return await answer.text()
            await asyncio.sleep(0.2)
