"""The client over real HTTP and TLS: every way to sign in, and every way it can go wrong."""

from __future__ import annotations

import asyncio
import base64
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web

from dovetail import __version__
from dovetail.api.core import Node
from dovetail.api.meta import ObjectMeta
from dovetail.api.pod import Pod
from dovetail.errors import Gone, NotAuthorized, Retry
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.credentials import Anonymous, MintedToken, StaticToken
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.kubeconfig import connect, in_cluster
from dovetail.runtime.transport import REQUESTS_AT_ONCE, ApiRequest, HttpTransport
from dovetail.sim.certificates import ClusterCertificates
from dovetail.sim.faults import FaultRule, FaultStorm
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.http.server import ListeningServer
from support.apiserver import node, pod
from support.certificates import client_pair, demanding

TOKEN = "s3cret-token"


class Served:
    """A server over TLS, and kubeconfigs for it."""

    def __init__(self, server: ApiServer, running: ListeningServer, authority: bytes, folder: Path) -> None:
        self.server = server
        self.url = running.url
        self.authority = authority
        self._folder = folder

    def kubeconfig(self, user: Mapping[str, Any], **cluster: Any) -> str:
        place = {"server": self.url, "certificate-authority-data": encoded(self.authority)} | cluster
        document = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": place}],
            "users": [{"name": "u", "user": dict(user)}],
        }
        path = self._folder / "kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    @asynccontextmanager
    async def client(self, user: Mapping[str, Any], **cluster: Any) -> AsyncIterator[KubeClient]:
        transport = connect(SystemClock(), self.kubeconfig(user, **cluster)).open_transport()
        try:
            yield KubeClient(transport, SystemClock())
        finally:
            await transport.close()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@asynccontextmanager
async def served(
    folder: Path,
    token: str = "",
    storm: FaultStorm | None = None,
    certificates: ClusterCertificates | None = None,
) -> AsyncIterator[Served]:
    certificates = certificates or ClusterCertificates()
    server = ApiServer(SystemClock(), Random(1), faults=storm)
    server.build_local_client("someone").create("nodes", node("n1"))
    async with server.serve(token=token, tls=certificates.context) as running:
        yield Served(server, running, certificates.authority, folder)


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path, TOKEN) as found:
        yield found


async def test_a_token_opens_the_door_and_a_wrong_one_does_not(guarded: Served) -> None:
    async with guarded.client({"token": TOKEN}) as kube:
        assert (await kube.get(Node, "n1")).name == "n1"
    async with guarded.client({"token": "wrong"}) as kube:
        with pytest.raises(NotAuthorized, match="reading Node n1: Unauthorized") as caught:
            await kube.get(Node, "n1")
        assert "wrong" not in f"{caught.value} {caught.value.__cause__} {kube.transport!r}"


async def test_a_token_that_was_rotated_is_read_again_when_the_old_one_is_refused(
    guarded: Served, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("old")
    async with guarded.client({"tokenFile": "token"}) as kube:
        with pytest.raises(NotAuthorized):
            await kube.get(Node, "n1")
        (tmp_path / "token").write_text(TOKEN)
        assert (await kube.get(Node, "n1")).name == "n1"
        (tmp_path / "token").write_text("newer")
        async with kube.watch(Node.KIND, "", {"timeoutSeconds": "1"}) as lines:
            assert lines.status == 200, "the good token is kept as long as it is taken"


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_plugins_refused_token_makes_it_run_again_for_calls_and_watches(
    guarded: Served, tmp_path: Path, version: str
) -> None:
    token = tmp_path / "given"
    token.write_text("stale")
    said = (
        f'import json; print(json.dumps({{"kind": "ExecCredential", '
        f'"apiVersion": "client.authentication.k8s.io/{version}", '
        f'"status": {{"token": open({str(token)!r}).read()}}}}))'
    )
    block = {
        "apiVersion": f"client.authentication.k8s.io/{version}",
        "command": sys.executable,
        "args": ["-c", said],
    }
    async with guarded.client({"exec": block}) as kube:
        with pytest.raises(NotAuthorized):
            await kube.get(Node, "n1")
        token.write_text(TOKEN)
        async with kube.watch(Node.KIND, "", {"timeoutSeconds": "1"}) as lines:
            first = await anext(aiter(lines))
        assert b'"n1"' in first[0]
        assert (await kube.get(Node, "n1")).name == "n1"


@pytest.mark.parametrize("inline", [True, False])
async def test_a_client_certificate_opens_the_door(tmp_path: Path, inline: bool) -> None:
    certificates = ClusterCertificates()
    demanding(certificates.context)
    certificate, key = client_pair()
    user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
    if not inline:
        (tmp_path / "me.crt").write_bytes(certificate)
        (tmp_path / "me.key").write_bytes(key)
        user = {"client-certificate": "me.crt", "client-key": str(tmp_path / "me.key")}
    async with served(tmp_path, certificates=certificates) as found:
        async with found.client(user) as kube:
            assert (await kube.get(Node, "n1")).name == "n1"
        async with found.client({}) as kube:
            with pytest.raises(Retry):
                await kube.get(Node, "n1")


async def test_a_server_is_trusted_by_its_authority_alone(guarded: Served) -> None:
    stranger = encoded(ClusterCertificates().authority)
    async with guarded.client({"token": TOKEN}, **{"certificate-authority-data": stranger}) as kube:
        with pytest.raises(Retry, match="certificate verify failed"):
            await kube.get(Node, "n1")
    skipped = {"insecure-skip-tls-verify": True, "certificate-authority-data": ""}
    async with guarded.client({"token": TOKEN}, **skipped) as kube:
        assert (await kube.get(Node, "n1")).name == "n1"


async def test_the_name_to_expect_can_differ_from_the_address(guarded: Served) -> None:
    named: dict[str, Any] = {"tls-server-name": "kubernetes.default.svc"}
    async with guarded.client({"token": TOKEN}, **named) as kube:
        assert (await kube.get(Node, "n1")).name == "n1"
    wrong: dict[str, Any] = {"tls-server-name": "elsewhere.example"}
    async with guarded.client({"token": TOKEN}, **wrong) as kube:
        with pytest.raises(Retry, match="certificate"):
            await kube.get(Node, "n1")


async def test_a_pod_signs_in_with_its_own_token(guarded: Served, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "ca.crt").write_bytes(guarded.authority)
    host, port = guarded.url.removeprefix("https://").split(":")
    env = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    kube = KubeClient(in_cluster(SystemClock(), tmp_path, env).open_transport(), SystemClock())
    assert (await kube.get(Node, "n1")).name == "n1"
    await kube.transport.close()


async def test_a_proxy_is_gone_through(tmp_path: Path) -> None:
    asked: list[str] = []

    async def proxied(request: web.BaseRequest) -> web.Response:
        asked.append(str(request.url))
        return web.json_response({"metadata": {"name": "through the proxy"}})

    runner = web.ServerRunner(web.Server(proxied))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    proxy = f"http://127.0.0.1:{runner.addresses[0][1]}"
    transport = HttpTransport("http://cluster.example:8080", StaticToken(TOKEN), proxy=proxy)
    found = await KubeClient(transport, SystemClock()).get(Node, "n1")
    assert found.name == "through the proxy"
    assert asked == ["http://cluster.example:8080/api/v1/nodes/n1"]
    await transport.close()
    await runner.cleanup()


async def test_the_server_learns_who_calls() -> None:
    agents: list[str] = []

    async def noting(request: web.BaseRequest) -> web.Response:
        agents.append(request.headers["User-Agent"])
        return web.json_response({"metadata": {"name": "n1"}})

    runner = web.ServerRunner(web.Server(noting))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    transport = HttpTransport(f"http://127.0.0.1:{runner.addresses[0][1]}", Anonymous())
    await KubeClient(transport, SystemClock()).get(Node, "n1")
    assert agents == [f"karpenter/{__version__}"]
    await transport.close()
    await runner.cleanup()


async def test_a_minted_token_is_minted_again_when_it_is_refused(guarded: Served) -> None:
    tokens = iter(["stale", TOKEN])

    async def mint() -> tuple[str, timedelta]:
        return next(tokens), timedelta(hours=1)

    tls = ssl.create_default_context(cadata=guarded.authority.decode())
    transport = HttpTransport(guarded.url, MintedToken(mint, SystemClock()), tls=tls)
    assert (await KubeClient(transport, SystemClock()).get(Node, "n1")).name == "n1"
    await transport.close()


async def test_every_verb_goes_over_the_wire(guarded: Served) -> None:
    async with guarded.client({"token": TOKEN}) as kube:
        made = await kube.create(Node(metadata=ObjectMeta(name="n2", labels={"zone": "a"})))
        labelled = msgspec.structs.replace(
            made, metadata=msgspec.structs.replace(made.metadata, labels={"zone": "b"})
        )
        patched = await kube.patch(made, labelled, guarded=True)
        assert patched.labels == {"zone": "b"}
        await kube.json_patch(patched, [{"op": "add", "path": "/metadata/labels/json", "value": "1"}])
        applied = Node(metadata=ObjectMeta(name="n2", labels={"applied": "3"}))
        final = await kube.apply(applied, manager="tester", force=True)
        assert final.labels == {"zone": "b", "json": "1", "applied": "3"}
        assert [n.name for n in await kube.list(Node)] == ["n1", "n2"]
        assert await kube.serves_kind(Node.KIND)
        await kube.delete(final, guarded=True)
        with pytest.raises(Gone):
            await kube.get(Node, "n2")


async def test_a_large_list_comes_in_pages_over_the_wire(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        api = found.server.build_local_client("someone")
        for number in range(1100):
            api.create("pods", pod(f"web-{number:04d}"))
        async with found.client({}) as kube:
            sizes = [len(page.items) async for page in kube.list_pages(Pod)]
            assert sizes == [500, 500, 100]
            assert len(await kube.list(Pod)) == 1100


async def test_faults_on_the_wire_are_errors_by_their_meaning(tmp_path: Path) -> None:
    storm = FaultStorm(SystemClock(), [FaultRule(trouble="reset", clients=("karpenter",), verbs=("create",))])
    async with served(tmp_path, storm=storm) as found, found.client({}) as kube:
        with pytest.raises(Retry, match="POST /api/v1/nodes"):
            await kube.create(Node(metadata=ObjectMeta(name="n2")))
        storm.rules = (FaultRule(trouble="lost-reply", verbs=("create",)),)
        with pytest.raises(Retry):
            await kube.create(Node(metadata=ObjectMeta(name="n3")))
        assert [n.name for n in await kube.list(Node)] == ["n1", "n3"], "the second one was done"
        storm.rules = (FaultRule(trouble="throttled", amount=1, count=1),)
        assert (await kube.get(Node, "n1")).name == "n1", "and it waited as it was asked to"
        assert storm.record[-1].rule.trouble == "throttled"


async def test_a_server_that_takes_a_request_and_says_nothing_is_given_up() -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = HttpTransport(f"http://127.0.0.1:{port}", Anonymous())
    with pytest.raises(Retry, match="no answer in time"):
        await transport.send(ApiRequest("GET", "/api/v1/nodes/n1", timeout=0.2))
    with pytest.raises(Retry, match="no answer in time"):
        async with transport.stream(ApiRequest("GET", "/api/v1/nodes", timeout=0.2)):
            pytest.fail("there was an answer")
    server.close()
    with pytest.raises(Retry, match="GET /api/v1/nodes: Cannot connect"):
        await transport.send(ApiRequest("GET", "/api/v1/nodes"))
    await transport.close()


async def test_many_requests_at_once_share_a_few_connections() -> None:
    served, callers, busy = 0, set[object](), asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.Response:
        nonlocal served
        assert request.transport is not None
        callers.add(request.transport.get_extra_info("peername"))
        if len(callers) >= REQUESTS_AT_ONCE:
            busy.set()
        await busy.wait()
        served += 1
        return web.Response(text="{}")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    transport = HttpTransport(f"http://127.0.0.1:{runner.addresses[0][1]}", Anonymous())
    try:
        count = 5 * REQUESTS_AT_ONCE
        await asyncio.gather(*(transport.send(ApiRequest("GET", "/")) for _ in range(count)))
    finally:
        await transport.close()
        await runner.cleanup()
    assert (served, len(callers)) == (count, REQUESTS_AT_ONCE)
