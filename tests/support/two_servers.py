"""The same requests to two servers, the embedded one and a real one, and what each answered.

What differs between any two runs (uids, times, versions, the words of messages, generated names) is
left out, so that two transcripts are equal when the servers behave alike.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from dovetail.runtime.clock import SystemClock
from dovetail.sim.world import World

Json = dict[str, Any]
HACK = Path(__file__).parents[2] / "hack" / "real-cluster"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
NOISE = frozenset(
    (
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
        "selfLink",
        "message",
        "continue",
        "node.alpha.kubernetes.io/ttl",  # a controller we do not play
        "terminatingReplicas",  # newer than what we speak
        "deprecated.daemonset.template.generation",
    )
)


class Api:
    """One server as a script sees it: every request is a line of the transcript."""

    def __init__(self, session: aiohttp.ClientSession, base: str, headers: dict[str, str], run: str) -> None:
        self._session = session
        self._base = base
        self._headers = headers
        # Names of cluster-scoped things carry the run, so that a lasting cluster can be used again.
        self.run = run
        self.namespace = f"ns-{run}"
        self.transcript: list[Any] = []

    async def raw(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: str
    ) -> tuple[int, Any]:
        """One request that leaves no line."""
        data = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": kind, "Accept": "application/json"}
        url = self._base + path.replace("{ns}", self.namespace).replace("{run}", self.run)
        if data is not None:
            data = data.replace(b"{ns}", self.namespace.encode()).replace(b"{run}", self.run.encode())
        async with self._session.request(method, url, data=data, headers=headers, params=query) as reply:
            text = await reply.text()
            try:
                return reply.status, json.loads(text)
            except json.JSONDecodeError:
                return reply.status, {"text": text}

    async def ask(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: str
    ) -> Any:
        """One request; code and answer go into the transcript, the answer comes back whole."""
        code, answer = await self.raw(method, path, body, kind, **query)
        asked = " ".join([method, path, *(f"{k}={v}" for k, v in query.items() if k != "continue")])
        self.transcript.append({"asked": asked, "code": code, "answer": self.plain(answer)})
        return answer

    def plain(self, answer: Any) -> Any:
        """An answer without what no two servers agree on."""
        if isinstance(answer, dict):
            if answer.get("kind") == "Status" and answer.get("apiVersion") == "v1":
                return _status(answer, self)
            plain = {key: self.plain(value) for key, value in answer.items() if key not in NOISE}
            return {key: value for key, value in plain.items() if value not in (None, {}, [])}
        if isinstance(answer, list):
            listed = [self.plain(each) for each in answer]
            typed = all(isinstance(each, dict) and {"type", "status"} <= each.keys() for each in listed)
            return sorted(listed, key=lambda each: str(each["type"])) if typed else listed
        if isinstance(answer, str):
            text = TIME.sub("<time>", answer)
            return text.replace(self.namespace, "{ns}").replace(self.run, "{run}")
        return answer

    async def until(self, path: str, holds: Callable[[Any], bool], seconds: float = 120.0) -> Any:
        """Read again and again until something holds; leaves no line."""
        answer: Any = None
        for _ in range(int(seconds * 20)):
            _, answer = await self.raw("GET", path)
            if holds(answer):
                return answer
            await asyncio.sleep(0.05)
        last = json.dumps(answer.get("status", answer))[:1500]
        raise AssertionError(f"{self._base}{path} never came to hold: {last}")

    @asynccontextmanager
    async def watching(self, path: str, **query: str) -> AsyncIterator[list[Any]]:
        """Events of a stream while the block lasts; they become one line of the transcript."""
        _, listed = await self.raw("GET", path)
        query = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"], **query}
        events: list[Any] = []
        url = self._base + path.replace("{ns}", self.namespace)

        async def follow() -> None:
            async with self._session.get(url, headers=self._headers, params=query) as reply:
                async for line in reply.content:
                    events.append(json.loads(line))

        task = asyncio.create_task(follow())
        await asyncio.sleep(0.2)
        try:
            yield events
            await asyncio.sleep(0.4)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self.transcript.append({"watched": path, "events": [_event(self, each) for each in events]})


def _status(answer: Json, api: Api) -> Json:
    details = {k: v for k, v in (answer.get("details") or {}).items() if k != "uid"}
    if "causes" in details:
        # Real servers sometimes complain twice about the same thing.
        causes = {(c.get("field", ""), c.get("reason", "")) for c in details["causes"]}
        details["causes"] = [list(cause) for cause in sorted(causes)]
    kept = {key: answer.get(key) for key in ("status", "reason", "code")}
    return {**kept, "details": json.loads(api.plain(json.dumps(details)))}


def _event(api: Api, event: Json) -> Json:
    obj = event["object"]
    if obj.get("kind") == "Status":
        return {"type": event["type"], "object": _status(obj, api)}
    return {"type": event["type"], "object": api.plain(obj)}


Script = Callable[[Api], Awaitable[None]]


@contextmanager
def real_cluster(folder: Path, port: int) -> Iterator[Path]:
    """A control plane from hack/real-cluster while the block lasts; its kubeconfig comes back."""
    env = {**os.environ, "CLUSTER_PORT": str(port), "CLUSTER_QPS": "200"}
    up = subprocess.run([HACK / "up", folder], env=env, capture_output=True, text=True, check=False)
    if up.returncode:
        raise RuntimeError(up.stderr.strip() or "hack/real-cluster/up failed")
    try:
        yield folder / "kubeconfig"
    finally:
        subprocess.run([HACK / "down", folder], env=env, capture_output=True, check=False)


_numbers = itertools.count()


def _run_name() -> str:
    return f"r{os.getpid()}x{next(_numbers)}"


def _read(kubeconfig: Path) -> Json:
    found: Json = yaml.safe_load(kubeconfig.read_text())
    return found


@asynccontextmanager
async def real_api(kubeconfig: Path) -> AsyncIterator[Api]:
    """A client of the real server, with a namespace of its own."""
    config = _read(kubeconfig)
    where, who = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cafile=where["certificate-authority"])
    connector = aiohttp.TCPConnector(ssl=context)
    # A busy machine answers late; that is no finding.
    patient = aiohttp.ClientTimeout(total=300, sock_connect=120)
    async with aiohttp.ClientSession(connector=connector, timeout=patient) as session:
        api = Api(session, where["server"], {"Authorization": f"Bearer {who['token']}"}, _run_name())
        await api.raw("POST", "/api/v1/namespaces", {"metadata": {"name": "{ns}"}})
        await api.until(
            "/api/v1/namespaces/{ns}/serviceaccounts/default", lambda a: a.get("kind") == "ServiceAccount"
        )
        try:
            yield api
        finally:
            await api.raw("DELETE", "/api/v1/namespaces/{ns}")


@asynccontextmanager
async def embedded_api() -> AsyncIterator[Api]:
    """A client of a fresh embedded world, over HTTP and the wall's clock."""
    world = World(SystemClock(), 1)
    async with world.running(), world.server.serve() as running, aiohttp.ClientSession() as session:
        api = Api(session, running.url.rstrip("/"), {}, _run_name())
        await api.raw("POST", "/api/v1/namespaces", {"metadata": {"name": "{ns}"}})
        yield api


async def both(kubeconfig: Path, script: Script) -> tuple[list[Any], list[Any]]:
    """What the embedded and the real server answer to the same script."""
    async with embedded_api() as ours:
        await script(ours)
    async with real_api(kubeconfig) as theirs:
        await script(theirs)
    return ours.transcript, theirs.transcript


def free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    chance = random.Random(os.getpid())
    while True:
        first = chance.randrange(20000, 50000)
        sockets = [socket.socket() for _ in range(count)]
        try:
            for offset, each in enumerate(sockets):
                each.bind(("127.0.0.1", first + offset))
            return first
        except OSError:
            continue
        finally:
            for each in sockets:
                each.close()
