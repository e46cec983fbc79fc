"""The command line: what it costs to ask for help, and for a plan."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from .registry import Figure, scenario

COMMAND = Path(sys.executable).with_name("dovetail")
ROOT = Path(__file__).resolve().parents[2]


@scenario("cli: help")
def help_text() -> Iterator[Figure]:
    cost = min(_cpu_seconds([str(COMMAND), "--help"]) for _ in range(5))
    yield Figure("dovetail --help, processor time", cost, "s", 0.35)


@scenario("cli: plan")
def plan_of_a_hundred_pods() -> Iterator[Figure]:
    """Start-up, reading, planning and printing, as a person waits for them."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "shop.yaml"
        path.write_text(_write_shop())
        command = [str(COMMAND), "plan", "-f", str(path)]
        cost = min(_cpu_seconds(command) for _ in range(5))
    yield Figure("dovetail plan of 100 pods, processor time", cost, "s", 1.5)


def _write_shop() -> str:
    """A pool of simulated nodes and 20 Deployments of five pods, all of another size."""
    pool = (ROOT / "examples" / "kwok.yaml").read_text()
    shops = (_DEPLOYMENT.format(name=f"app-{i}", cpu=100 + 90 * i, memory=128 + 200 * i) for i in range(20))
    return "---\n".join((pool.rstrip() + "\n", *shops))


_DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: 5
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
        - name: app
          image: app
          resources: {{requests: {{cpu: {cpu}m, memory: {memory}Mi}}}}
"""


def _cpu_seconds(command: list[str]) -> float:
    """User and system time of one command, its children included."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} failed with {child.returncode}; run it to see why")
    return usage.ru_utime + usage.ru_stime
