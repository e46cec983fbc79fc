"""An embedded API server to test against: in process with a clock moved by hand, or over HTTP."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp

from dovetail.runtime.clock import SystemClock
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.faults import ApiFaults
from dovetail.sim.kube.local import LocalApi

START = datetime(2030, 1, 1, tzinfo=UTC)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.seconds + seconds, waiter))
        await waiter

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        for end, waiter in self._sleepers:
            if end <= self.seconds and not waiter.done():
                waiter.set_result(None)


def local_server(seed: int = 1, faults: ApiFaults | None = None, history: int = 20_000) -> ApiServer:
    """A server whose time the test moves."""
    return ApiServer(HandClock(), random.Random(seed), faults=faults, history=history)


def hand_clock(server: ApiServer) -> HandClock:
    """The clock of a local server."""
    assert isinstance(server.clock, HandClock)
    return server.clock


def local_api(seed: int = 1) -> LocalApi:
    """A client of a fresh local server."""
    return local_server(seed).build_local_client()


def pod(name: str = "", namespace: str = "default", **spec: Any) -> dict[str, Any]:
    """A small pod; without a name it gets one generated."""
    labels = spec.pop("labels", {"app": "web"})
    metadata: dict[str, Any] = {"name": name} if name else {"generateName": "web-"}
    metadata |= {"namespace": namespace, "labels": labels}
    for key in ("annotations", "finalizers", "ownerReferences"):
        if key in spec:
            metadata[key] = spec.pop(key)
    spec.setdefault("containers", [{"name": "main", "image": "web:1"}])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def node(name: str, **metadata: Any) -> dict[str, Any]:
    """A node with capacity."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **metadata},
        "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    }


def deployment(name: str, replicas: int = 1, **spec: Any) -> dict[str, Any]:
    """A deployment of small pods."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
    body = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body}


def config_map(name: str, namespace: str = "default", **data: str) -> dict[str, Any]:
    """A config map."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def budget(name: str, **spec: Any) -> dict[str, Any]:
    """A disruption budget over the small pods."""
    spec.setdefault("selector", {"matchLabels": {"app": "web"}})
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


def definition(plural: str = "widgets", schema: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A CRD of `Widget` in example.com with a status subresource."""
    properties = {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "minimum": 0, "maximum": 100},
                "colour": {"type": "string", "default": "red", "enum": ["red", "blue"]},
                "replicas": {"type": "integer"},
            },
            "x-kubernetes-validations": [
                {"rule": "!has(oldSelf.size) || self.size >= oldSelf.size", "message": "size may not shrink"}
            ],
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema or {"type": "object", "properties": properties}},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        "selectableFields": [{"jsonPath": ".spec.colour"}],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": "Widget", "shortNames": ["wd"]},
            "versions": [version],
            **spec,
        },
    }


def widget(name: str, **spec: Any) -> dict[str, Any]:
    """An object of that definition."""
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": spec}


class Lines:
    """The lines of a watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> dict[str, Any]:
        """The next event, within a few seconds."""
        line = await asyncio.wait_for(self.response.content.readline(), 5)
        event: dict[str, Any] = json.loads(line) if line else {}
        return event

    async def take(self, count: int) -> list[tuple[str, str]]:
        """The next events as their types and the names they are about."""
        found = [await self.next() for _ in range(count)]
        return [(each["type"], each["object"]["metadata"].get("name", "")) for each in found]


class Http:
    """A client that knows what it expects."""

    def __init__(self, session: aiohttp.ClientSession, server: ApiServer, url: str) -> None:
        self.session = session
        self.server = server
        self.url = url
        self.headers: Any = {}

    async def ask(self, method: str, path: str, code: int = 200, **more: Any) -> Any:
        """One request; asserts its status code and gives back the document (or text)."""
        async with self.session.request(method, path, **more) as response:
            body = await response.text()
            self.headers = response.headers
            assert response.status == code, f"{method} {path}: {response.status} {body[:500]}"
            is_json = response.content_type == "application/json"
            return json.loads(body) if is_json and body else body

    async def get(self, path: str, code: int = 200, **more: Any) -> Any:
        return await self.ask("GET", path, code, **more)

    async def post(self, path: str, body: Any, code: int = 201, **more: Any) -> Any:
        return await self.ask("POST", path, code, json=body, **more)

    async def put(self, path: str, body: Any, code: int = 200, **more: Any) -> Any:
        return await self.ask("PUT", path, code, json=body, **more)

    async def patch(self, path: str, body: Any, code: int = 200, kind: str = MERGE, **more: Any) -> Any:
        data = body if isinstance(body, str | bytes) else json.dumps(body)
        return await self.ask("PATCH", path, code, data=data, headers={"Content-Type": kind}, **more)

    async def delete(self, path: str, code: int = 200, **more: Any) -> Any:
        return await self.ask("DELETE", path, code, **more)

    @asynccontextmanager
    async def watch(self, path: str, **more: Any) -> AsyncIterator[Lines]:
        """A watch, open while the context is."""
        async with self.session.get(path, **more) as response:
            assert response.status == 200, await response.text()
            yield Lines(response)


@asynccontextmanager
async def serving(
    server: ApiServer | None = None, token: str = "", headers: dict[str, str] | None = None
) -> AsyncIterator[Http]:
    """A server on a free port of the loopback, and a client of it."""
    server = server or ApiServer(SystemClock(), random.Random(1))
    async with (
        server.serve(token=token) as running,
        aiohttp.ClientSession(running.url, headers=headers) as session,
    ):
        yield Http(session, server, running.url)
