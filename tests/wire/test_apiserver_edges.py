"""Edges where a server is easily wrong without anyone noticing soon."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from dovetail.runtime.clock import SystemClock
from dovetail.sim.kube.apiserver import ApiServer
from support.apiserver import APPLY, Http, definition, deployment, serving, widget

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    async with serving() as running:
        yield running


def _schema(spec: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": spec}}


async def test_a_status_applied_to_the_object_itself_is_neither_written_nor_owned(http: Http) -> None:
    body = {**deployment("web"), "status": {"replicas": 7}}
    query = {"fieldManager": "test"}
    made = await http.patch(f"{DEPLOYMENTS}/web", body, 201, APPLY, params=query)
    assert "replicas" not in made.get("status", {})
    (entry,) = made["metadata"]["managedFields"]
    assert "f:status" not in entry["fieldsV1"]
    body["status"] = {"replicas": 8}
    again = await http.patch(f"{DEPLOYMENTS}/web", body, 200, APPLY, params=query)
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_kind_that_cannot_be_read_from_protobuf_is_415(http: Http) -> None:
    inner = b"\x0a\x02v9\x12\x04Nope"
    body = b"k8s\0" + b"\x0a" + bytes([len(inner)]) + inner
    headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    answer = await http.ask("POST", "/api/v1/namespaces/default/pods", 415, data=body, headers=headers)
    assert answer["reason"] == "UnsupportedMediaType"


async def test_nulls_go_where_they_are_not_allowed_and_stay_where_anything_is(http: Http) -> None:
    loose = {"x-kubernetes-preserve-unknown-fields": True}
    properties = {
        "plain": {"type": "string"},
        "loose": loose,
        "nullable": {"type": "string", "nullable": True},
        "filled": {"type": "string", "default": "x"},
        "inside": {"type": "object", **loose},
    }
    await http.post(CRDS, definition(schema=_schema({"type": "object", "properties": properties})))
    nulls = {"plain": None, "loose": None, "nullable": None, "filled": None, "inside": {"deep": None}}
    made = await http.post(WIDGETS, widget("a", **nulls))
    assert made["spec"] == {"nullable": None, "filled": "x", "inside": {"deep": None}}


@pytest.mark.parametrize("way", ["properties", "additionalProperties", "items"])
async def test_a_deep_schema_is_served_or_refused(http: Http, way: str) -> None:
    codes = []
    for depth in (60, 90, 190, 400):
        schema: dict[str, Any] = {"type": "string"}
        value: Any = "x"
        for _ in range(depth):
            if way == "items":
                schema, value = {"type": "array", "items": schema}, [value]
            else:
                inner = {"a": schema} if way == "properties" else schema
                schema, value = {"type": "object", way: inner}, {"a": value}
        made = definition(f"deep{depth}", _schema(schema))
        made["spec"]["names"] = {"plural": f"deep{depth}", "kind": f"Deep{depth}"}
        async with http.session.post(CRDS, json=made) as response:
            codes.append(response.status)
        if codes[-1] == 201:
            body = {"metadata": {"name": "a"}, "spec": value}
            path = f"/apis/example.com/v1/namespaces/default/deep{depth}"
            kind = {"apiVersion": "example.com/v1", "kind": f"Deep{depth}"}
            assert (await http.post(path, {**kind, **body}))["spec"] == value
            applied = {"fieldManager": "test", "force": "true"}
            await http.patch(f"{path}/a", {**kind, **body}, 200, APPLY, params=applied)
    assert codes == ([201, 201, 400, 400] if way == "properties" else [201, 201, 201, 400])
    await http.get("/openapi/v3/apis/example.com/v1")


async def test_a_server_that_goes_ends_its_streams_well() -> None:
    server = ApiServer(SystemClock(), random.Random(1))
    async with aiohttp.ClientSession() as session:
        async with server.serve() as running:
            stream = await session.get(f"{running.url}/api/v1/pods?watch=true&resourceVersion=1")
        # Broken off, it would raise.
        assert await stream.content.read() == b""
