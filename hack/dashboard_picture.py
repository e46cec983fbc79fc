#!/usr/bin/env python3
"""Draw docs/images/dashboard.png: the dashboard of a real `dovetail up` with two pools, in Chromium."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "dashboard.png"
sys.path[:0] = [str(ROOT / "tests")]

from support.browser import browser  # noqa: E402
from support.dashboards import dashboard  # noqa: E402
from support.up_process import Up, up  # noqa: E402

# Name, replicas, cpu, memory, and labels it must run by.
WORKLOADS: tuple[tuple[str, int, str, str, dict[str, str]], ...] = (
    ("web", 14, "1500m", "2Gi", {}),
    ("api", 9, "2", "6Gi", {}),
    ("cache", 4, "1", "7Gi", {}),
    ("batch", 12, "3500m", "6Gi", {"team": "batch"}),
    ("gpu-job", 1, "4", "8Gi", {"gpu": "yes"}),
)
PENDING = 1


def batch_pool(default: dict[str, Any]) -> dict[str, Any]:
    """A second pool like the first, for spot instances and pods of one team."""
    template = default["spec"]["template"]
    template["metadata"] = {"labels": {"team": "batch"}}
    return {
        "apiVersion": default["apiVersion"],
        "kind": default["kind"],
        "metadata": {"name": "spot-batch"},
        "spec": {**default["spec"], "weight": 10, "template": template},
    }


def deployment(name: str, replicas: int, cpu: str, memory: str, selector: dict[str, str]) -> dict[str, Any]:
    container = {"name": "app", "image": "app", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [container], "nodeSelector": selector}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod},
    }


async def fill(cluster: Up, home: Path) -> None:
    """Apply the second pool and the workloads, and wait until all but the one that cannot run do."""
    default = json.loads(await cluster.kubectl("get", "nodepool", "default", "-o", "json"))
    documents = [batch_pool(default), *(deployment(*each) for each in WORKLOADS)]
    manifest = home / "workloads.json"
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
    await cluster.kubectl("apply", "-f", str(manifest))
    async with asyncio.timeout(180):
        while True:
            pods = json.loads(await cluster.kubectl("get", "pods", "-o", "json"))["items"]
            phases = [pod["status"].get("phase") for pod in pods]
            if len(phases) == sum(each[1] for each in WORKLOADS) and phases.count("Pending") == PENDING:
                return
            await asyncio.sleep(1)


async def draw() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        async with up(home) as cluster:
            await fill(cluster, home)
            async with (
                dashboard(home, KUBECONFIG=str(cluster.kubeconfig)) as address,
                browser(home / "browser") as tab,
            ):
                await tab.open(address)
                await tab.until("document.querySelectorAll('table').length > 2")
                await tab.media("light")
                await tab.picture(PICTURE)
    print(f"drawn: {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    asyncio.run(draw())
