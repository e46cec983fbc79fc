"""The machinery against a real kube-apiserver: the same promises, without the embedded server's word for it.

DOVETAIL_TEST_KUBECONFIG names a cluster to use; without it one is started. Everything made here is in a
namespace of its own, or carries its name.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec
import pytest

from dovetail.api.core import Deployment, Lease, Namespace, Node, NodeSpec
from dovetail.api.meta import ObjectMeta
from dovetail.api.pod import Pod
from dovetail.errors import AlreadyExists, Conflict, Gone, Invalid, KubeStatus, Throttled
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.informer import Informer
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.kubeconfig import Connection, connect
from dovetail.runtime.leader import ElectionTerms, Elector, ElectorThread
from dovetail.runtime.transport import ApiRequest, HttpTransport, Lines
from dovetail.runtime.watch import Follower, WatchOptions, WatchPace
from support.apiserver import budget, pod

CLOCK = SystemClock()
HASTE = WatchPace(first_delay=0.05, last_delay=0.5)


@pytest.fixture
def connection(request: pytest.FixtureRequest) -> Connection:
    given = os.environ.get("DOVETAIL_TEST_KUBECONFIG") or request.getfixturevalue("kubeconfig")
    return connect(CLOCK, str(given))


@pytest.fixture
async def transport(connection: Connection) -> AsyncIterator[HttpTransport]:
    found = connection.open_transport()
    yield found
    await found.close()


@pytest.fixture
async def kube(transport: HttpTransport) -> KubeClient:
    return KubeClient(transport, CLOCK, page=20)


@pytest.fixture
async def space(kube: KubeClient) -> AsyncIterator[str]:
    """A namespace of the test's own."""
    made = await kube.create(Namespace(metadata=ObjectMeta(name=f"runtime-{uuid.uuid4().hex[:8]}")))
    yield made.name
    await kube.delete(made)


async def send(kube: KubeClient, method: str, path: str, body: Any) -> dict[str, Any]:
    reply = await kube.transport.send(ApiRequest(method, path, body=msgspec.json.encode(body)))
    assert reply.status < 300, reply.body
    found: dict[str, Any] = msgspec.json.decode(reply.body)
    return found


async def new_pod(kube: KubeClient, space: str, name: str, **more: Any) -> Pod:
    more.setdefault("schedulerName", "nobody")
    # The service account of a new namespace takes a moment to appear, and a pod needs one.
    more.setdefault("serviceAccountName", "default")
    for _ in range(100):
        reply = await kube.transport.send(
            ApiRequest(
                "POST",
                f"/api/v1/namespaces/{space}/pods",
                body=msgspec.json.encode(pod(name, space, **more)),
            )
        )
        if reply.status == 201:
            return await kube.get(Pod, name, space)
        await asyncio.sleep(0.1)
    raise AssertionError(reply.body)


async def until(true: Callable[[], bool]) -> None:
    for _ in range(3000):
        if true():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not come true in 30 s")


@pytest.fixture
async def node(kube: KubeClient) -> AsyncIterator[Node]:
    name = f"runtime-{uuid.uuid4().hex[:8]}"
    made = await kube.create(Node(metadata=ObjectMeta(name=name, labels={"zone": "a"})))
    yield made
    await kube.delete(made)


async def test_what_is_there_and_what_is_not_have_their_errors(kube: KubeClient, node: Node) -> None:
    with pytest.raises(AlreadyExists):
        await kube.create(Node(metadata=ObjectMeta(name=node.name)))
    with pytest.raises(Gone) as caught:
        await kube.get(Node, "no-such-node")
    assert isinstance(caught.value.__cause__, KubeStatus)
    assert (caught.value.__cause__.code, caught.value.__cause__.reason) == (404, "NotFound")
    with pytest.raises(Invalid):
        await kube.create(Node(metadata=ObjectMeta(name="No Such Name")))
    assert await kube.serves_kind(Deployment.KIND)
    assert not await kube.serves_kind(msgspec.structs.replace(Deployment.KIND, group="nowhere.example"))


async def test_every_kind_of_patch_is_taken(kube: KubeClient, node: Node) -> None:
    tainted = msgspec.structs.replace(node, spec=NodeSpec(unschedulable=True))
    assert (await kube.patch(node, tainted)).spec.unschedulable
    labelled = msgspec.structs.replace(node.metadata, labels={"zone": "b"})
    with pytest.raises(Conflict):
        await kube.patch(node, msgspec.structs.replace(node, metadata=labelled), guarded=True)
    await kube.json_patch(node, [{"op": "add", "path": "/metadata/labels/json", "value": "1"}])
    applied = Node(metadata=ObjectMeta(name=node.name, labels={"applied": "3"}))
    found = await kube.apply(applied, manager="one")
    assert {"json": "1", "applied": "3"}.items() <= found.labels.items()
    other = Node(metadata=ObjectMeta(name=node.name, labels={"applied": "4"}))
    with pytest.raises(Conflict) as caught:
        await kube.apply(other, manager="two")
    assert isinstance(caught.value.__cause__, KubeStatus)
    assert caught.value.__cause__.causes == ("FieldManagerConflict",)
    assert (await kube.apply(other, manager="two", force=True)).labels["applied"] == "4"


async def test_status_is_written_apart(kube: KubeClient, node: Node) -> None:
    condition = {"type": "Ready", "status": "True", "reason": "Test", "message": "ready"}
    found = await kube.merge_patch(node, {"status": {"conditions": [condition]}}, subresource="status")
    ready = next(c for c in found.status.conditions if c.type == "Ready")
    assert ready.status == "True"


async def test_a_guarded_delete_spares_the_namesake(kube: KubeClient, space: str) -> None:
    old = await new_pod(kube, space, "web")
    await kube.delete(old, grace=0)
    new = await new_pod(kube, space, "web")
    assert new.uid != old.uid
    with pytest.raises(Conflict):
        await kube.delete(old, guarded=True)
    await kube.delete(new, grace=0, guarded=True)
    with pytest.raises(Gone):
        await kube.get(Pod, "web", space)


async def test_a_budget_refuses_an_eviction(kube: KubeClient, space: str) -> None:
    web = await new_pod(kube, space, "web")
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await kube.merge_patch(web, status, subresource="status")
    document = budget("b", minAvailable=1)
    document["metadata"]["namespace"] = space
    path = f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets"
    await send(kube, "POST", path, document)
    with pytest.raises(Throttled) as caught:
        await kube.evict(web, grace=0)
    assert isinstance(caught.value.__cause__, KubeStatus)
    assert "DisruptionBudget" in caught.value.__cause__.causes
    await send(kube, "DELETE", f"{path}/b", {})
    await kube.evict(web, grace=0)
    with pytest.raises(Gone):
        await kube.get(Pod, "web", space)


async def test_lists_come_in_pages(kube: KubeClient, space: str) -> None:
    for number in range(45):
        await new_pod(kube, space, f"web-{number:02d}")
    sizes = [len(page.items) async for page in kube.list_pages(Pod, space)]
    assert sizes == [20, 20, 5]
    assert len(await kube.list(Pod, space, fields="metadata.name=web-07")) == 1


class Paged(HttpTransport):
    """As if the server refused to stream lists."""

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        query = {k: v for k, v in request.query.items() if k != "resourceVersionMatch"}
        async with super().stream(ApiRequest(request.method, request.path, query)) as lines:
            yield lines


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_cache_fills_and_follows(
    connection: Connection, kube: KubeClient, space: str, streamed: bool
) -> None:
    for number in range(45):
        await new_pod(kube, space, f"web-{number:02d}")
    kind = HttpTransport if streamed else Paged
    own = kind(connection.server, connection.sign_in(), tls=connection.tls)
    informer, troubles = Informer(Pod, {"app": lambda p: p.labels.get("app", "").split()}), list[Exception]()
    follower = Follower(
        KubeClient(own, CLOCK, page=20),
        Pod,
        informer,
        clock=CLOCK,
        rng=Random(1),
        options=WatchOptions(namespace=space, pace=HASTE, on_trouble=troubles.append),
    )
    task = asyncio.create_task(follower.run())
    await until(lambda: informer.synced)
    assert len(informer) == 45
    assert follower._streams_lists is streamed
    victim = informer.get("web-07", space)
    assert victim is not None
    await kube.merge_patch(victim, {"metadata": {"labels": {"app": "db"}}})
    await until(lambda: [p.name for p in informer.by("app", "db")] == ["web-07"])
    await new_pod(kube, space, "late")
    await until(lambda: informer.get("late", space) is not None)
    for gone in await kube.list(Pod, space):
        await kube.delete(gone, grace=0)
    await until(lambda: len(informer) == 0)
    assert troubles == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await own.close()


async def test_leadership_passes_on_at_once_when_it_is_given_back(
    connection: Connection, kube: KubeClient, space: str
) -> None:
    terms = ElectionTerms(name="runtime-test", namespace=space, lease=3, deadline=2, retry=0.25)

    def standing(name: str) -> ElectorThread:
        def make(tell: Callable[[bool], None]) -> Elector:
            own = KubeClient(connection.open_transport(), CLOCK)
            return Elector(own, terms, name, clock=CLOCK, rng=Random(name), on_change=tell)

        return ElectorThread(make)

    first, second = standing("first"), standing("second")
    first.start()
    await asyncio.wait_for(first.wait_leading(), 10)
    second.start()
    await asyncio.sleep(4)
    assert first.leading
    assert not second.leading
    lease = await kube.get(Lease, terms.name, space)
    assert lease.spec.holder_identity == "first"
    await first.stop()
    started = CLOCK.monotonic()
    await asyncio.wait_for(second.wait_leading(), 10)
    assert CLOCK.monotonic() - started < 1.5
    assert (await kube.get(Lease, terms.name, space)).spec.lease_transitions == 1
    await second.stop()


async def test_events_are_told_and_counted(kube: KubeClient, space: str) -> None:
    web = await new_pod(kube, space, "web")
    recorder = EventRecorder(kube, CLOCK, Random(1), instance="test")
    task = asyncio.create_task(recorder.run())
    for _ in range(3):
        recorder.publish_event(web, "Nominated", "expected on n1", dedupe=("web",), window=0.0)
        await asyncio.sleep(0.3)
    path = f"/api/v1/namespaces/{space}/events"
    reply = await kube.transport.send(ApiRequest("GET", path))
    events = [e for e in msgspec.json.decode(reply.body)["items"] if e["reason"] == "Nominated"]
    assert [(e["count"], e["source"]["component"]) for e in events] == [(3, "karpenter")]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
