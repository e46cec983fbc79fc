"""A real Prometheus, with a folder and a port of its own, and its promtool.

with prometheus(folder, {"karpenter": [8080]}) as server:
    assert server.ask("up")
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

__all__ = ["Prometheus", "QueryRefused", "open_ports", "prometheus", "promtool", "tool"]

Json = dict[str, Any]
PATIENCE = 60.0


class QueryRefused(Exception):
    """Prometheus could not make sense of a query; the text says why."""


def open_ports(count: int) -> list[int]:
    """So many ports nobody listens on, as the system hands them out."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def tool(name: str) -> str:
    """Where a program of Prometheus is."""
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(
            f"{name} is not on the PATH; install Prometheus (Debian and Ubuntu: apt-get install prometheus)"
        )
    return found


def promtool(*arguments: str) -> str:
    """What promtool prints; an AssertionError with it if something is wrong."""
    ended = subprocess.run(
        [tool("promtool"), *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@dataclass(frozen=True)
class Prometheus:
    """One that runs."""

    url: str

    def ask(self, query: str) -> list[Json]:
        """The series an expression has now."""
        found: list[Json] = self._get("query", query=query)["result"]
        return found

    def label_values(self, metric: str, label: str) -> list[str]:
        """What a dashboard's `label_values(metric, label)` offers to choose from."""
        return sorted({each["metric"].get(label, "") for each in self.ask(metric)} - {""})

    def rules(self) -> list[Json]:
        """Every rule it evaluates, and how that goes."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str, **parameters: str) -> Any:
        asked = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise QueryRefused(json.load(error).get("error", str(error))) from error

    def wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5):
                    return
            except OSError:
                time.sleep(0.2)
        raise AssertionError("prometheus did not start; its log is beside its configuration")


def _configuration(jobs: Mapping[str, Sequence[int]], rules: Sequence[Path]) -> Json:
    """Every few seconds: all numbers in full take a while on a busy machine.

    Whoever scrapes many clusters adds a label `cluster`; so do we.
    """
    scraped = [
        {
            "job_name": job,
            "static_configs": [
                {"targets": [f"127.0.0.1:{port}" for port in ports], "labels": {"cluster": "embedded"}}
            ],
        }
        for job, ports in jobs.items()
    ]
    pace = {"scrape_interval": "5s", "scrape_timeout": "5s", "evaluation_interval": "5s"}
    return {"global": pace, "rule_files": [str(path) for path in rules], "scrape_configs": scraped}


@contextmanager
def prometheus(
    folder: Path, jobs: Mapping[str, Sequence[int]], rules: Sequence[Path] = ()
) -> Iterator[Prometheus]:
    """One that scrapes these ports, by job, until the block ends."""
    configuration = folder / "prometheus.yaml"
    configuration.write_text(yaml.safe_dump(_configuration(jobs, rules)), encoding="utf-8")
    address = f"127.0.0.1:{open_ports(1)[0]}"
    command = [
        *(tool("prometheus"), f"--config.file={configuration}"),
        *(f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"),
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        server = Prometheus(f"http://{address}")
        server.wait_ready(process)
        yield server
    finally:
        process.terminate()
        process.wait(PATIENCE)
