"""`dovetail dashboard` as a process: on a snapshot, and live before a real browser."""

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
import pytest

from dovetail.cli.seen import to_file
from support.browser import browser
from support.commands import dovetail
from support.pictures import disrupted
from support.up import up

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
            rows: list[Any] = (await twin(address, path)).get(table, [])
            if len(rows) == count:
                return rows
            await asyncio.sleep(0.2)


async def test_a_snapshot_is_shown_without_a_cluster(tmp_path: Path) -> None:
    file = tmp_path / "world.json"
    file.write_bytes(to_file(disrupted()))

    async with dashboard(tmp_path, "--snapshot", str(file)) as address:
        nodes = (await twin(address, "nodes"))["nodes"]
        decisions = (await twin(address, "events"))["decisions"]

    assert {row["name"] for row in nodes} == {"idle", "stale", "roomy", "guarded", "busy", "pinned"}
    assert len(decisions) == 3


async def test_a_live_cluster_is_followed_in_a_browser_without_loading_a_page_again(tmp_path: Path) -> None:
    manifest = tmp_path / "pool.yaml"
    manifest.write_text(POOL)
    async with (
        up(tmp_path, "--cloud", "kwok", "--no-controller") as cluster,
        dashboard(tmp_path, KUBECONFIG=str(cluster.kubeconfig)) as address,
        browser(tmp_path / "browser") as tab,
    ):
        await cluster.kubectl("apply", "-f", str(manifest))
        (row,) = await until(address, "pods", "pods", 1)
        assert row["explanation"].startswith("default/stuck has no place: ")

        await tab.open(f"{address}pods")
        await tab.run("window.kept = true")
        assert await tab.until("document.getElementById('state').textContent") == "live"
        assert "default/stuck" in await tab.run("document.querySelector('tbody').textContent")
        await cluster.kubectl("create", "deployment", "web", "--image=web", "--replicas=20")
        await tab.until("document.querySelectorAll('tbody tr').length === 21")
        assert await tab.run("window.kept"), "the page was loaded again"

        # Rows can be searched, and stay so when the page changes under the words.
        await tab.run(
            "(() => { const f = document.querySelector('.filter'); f.value = 'stuck'; f.focus();"
            " f.dispatchEvent(new Event('input')) })()"
        )
        seen = "[...document.querySelectorAll('tbody tr')].filter(r => !r.hidden).length"
        assert await tab.run(seen) == 1
        await cluster.kubectl("scale", "deployment", "web", "--replicas=15")
        await tab.until("document.querySelectorAll('tbody tr').length === 16")
        assert await tab.run(seen) == 1
        assert await tab.run("document.activeElement.className") == "filter"
        assert tab.complaints == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--bind", "8090"), "say it as ADDRESS:PORT"),
        (("--bind", "localhost:99999"), "say it as ADDRESS:PORT"),
        (("--kubeconfig", "/nonexistent"), "/nonexistent"),
        (("--snapshot", "/nonexistent"), "/nonexistent"),
        (("--snapshot", "x", "--context", "y"), "exclude each other"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(arguments: tuple[str, ...], told: str) -> None:
    ended = dovetail("dashboard", *arguments)

    assert ended.code in (1, 2)
    assert told in ended.err
    assert len(ended.err.strip().splitlines()) == 1
