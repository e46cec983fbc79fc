"""The proxy below a Service of the embedded API server, asked as kubectl asks it."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import msgspec
import pytest

from dovetail.runtime.clock import SystemClock
from dovetail.runtime.transport import ApiReply, ApiRequest
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.http.replies import ServerReply, build_text_reply
from dovetail.sim.transport import LocalTransport

PREFIX = "/api/v1/namespaces/kube-system/services"


def echo(path: str, query: Iterable[tuple[str, str]], known: str) -> ServerReply:
    return build_text_reply(f"{path}?{sorted(query)}#{known}")


@pytest.fixture
def server() -> ApiServer:
    made = ApiServer(SystemClock(), Random(1))
    ports = [{"name": "http-metrics", "port": 8080}, {"name": "webhook", "port": 8443}]
    document = {"metadata": {"name": "dovetail", "namespace": "kube-system"}, "spec": {"ports": ports}}
    made.build_local_client("someone").create("services", document)
    made.backends["kube-system", "dovetail", "http-metrics"] = echo
    return made


async def ask(server: ApiServer, path: str, method: str = "GET", **more: Any) -> ApiReply:
    return await LocalTransport(server).send(ApiRequest(method, PREFIX + path, **more))


@pytest.mark.parametrize("name", ["dovetail:http-metrics", "dovetail:8080", "http:dovetail:http-metrics"])
async def test_a_service_is_asked_by_the_name_or_number_of_its_port(server: ApiServer, name: str) -> None:
    reply = await ask(server, f"/{name}/proxy/a/b", query={"kind": "x"}, known='"7"')
    assert (reply.status, reply.body) == (200, b"a/b?[('kind', 'x')]#\"7\"")


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/nobody:http-metrics/proxy/history", 404, 'services "nobody" not found'),
        ("/dovetail:webhook/proxy/history", 503, 'no endpoints available for service "dovetail:webhook"'),
        ("/dovetail:other/proxy/history", 503, 'no service port "other" found for service "dovetail"'),
        ("/dovetail/proxy/history", 503, 'no service port "" found for service "dovetail"'),
        ("/a:b:c:d/proxy/history", 400, 'invalid service request "a:b:c:d"'),
    ],
)
async def test_who_is_not_there_cannot_be_asked(server: ApiServer, path: str, status: int, said: str) -> None:
    reply = await ask(server, path)
    told = msgspec.json.decode(reply.body)
    assert (reply.status, told["kind"], told["message"]) == (status, "Status", said)


async def test_it_only_reads(server: ApiServer) -> None:
    assert (await ask(server, "/dovetail:http-metrics/proxy/history", "DELETE")).status == 405


async def test_other_kinds_have_no_such_path(server: ApiServer) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/a/proxy/b"
    reply = await LocalTransport(server).send(ApiRequest("GET", path))
    assert reply.status == 404
