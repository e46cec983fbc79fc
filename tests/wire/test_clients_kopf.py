"""An operator written with kopf at work on the embedded server, over HTTPS."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import kopf
import pytest

from support.apiserver import definition, pod, widget
from support.https_apiserver import DEFINITIONS, Secured, node_pool, secured, until

POOLS, WIDGETS = "nodepools.karpenter.sh", "widgets.example.com"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("kopf")) as running:
        running.create(DEFINITIONS, definition())
        yield running


@dataclass
class Story:
    """What the operator was told."""

    created: list[str] = field(default_factory=list)
    updated: list[tuple[str, Any]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    pods: list[str] = field(default_factory=list)
    attempts: int = 0


def _registry(served: Secured, story: Story) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=served.url, ca_path=str(served.authority), token=served.token)

    def created(name: str, patch: kopf.Patch, body: kopf.Body, **_: Any) -> None:
        story.created.append(name)
        patch.status["resources"] = {"cpu": "8"}
        kopf.info(body, reason="Seen", message="the operator has seen this pool")

    def updated(name: str, new: Any, **_: Any) -> None:
        story.updated.append((name, new))

    def deleted(name: str, **_: Any) -> None:
        story.deleted.append(name)

    def stubborn(name: str, **_: Any) -> None:
        story.attempts += 1
        if story.attempts < 3:
            raise kopf.TemporaryError("not yet", delay=0.05)
        story.created.append(name)

    def any_pod(name: str, **_: Any) -> None:
        story.pods.append(name)

    kopf.on.login(registry=registry)(login)
    kopf.on.create("karpenter.sh", "v1", "nodepools", id="created", registry=registry)(created)
    kopf.on.field("karpenter.sh", "v1", "nodepools", field="spec.weight", id="updated", registry=registry)(
        updated
    )
    kopf.on.delete("karpenter.sh", "v1", "nodepools", id="deleted", registry=registry)(deleted)
    kopf.on.create("example.com", "v1", "widgets", id="stubborn", registry=registry)(stubborn)
    kopf.on.event("", "v1", "pods", id="any_pod", registry=registry)(any_pod)
    return registry


@asynccontextmanager
async def _operating(served: Secured) -> AsyncIterator[Story]:
    story, stop, ready = Story(), asyncio.Event(), asyncio.Event()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = True
    settings.networking.error_backoffs = [0.05, 0.1]
    settings.watching.reconnect_backoff = 0.05
    operator = asyncio.create_task(
        kopf.operator(
            registry=_registry(served, story),
            settings=settings,
            standalone=True,
            clusterwide=True,
            ready_flag=ready,
            stop_flag=stop,
        )
    )
    try:
        async with asyncio.timeout(20):
            await ready.wait()
        yield story
    finally:
        stop.set()
        await asyncio.wait_for(operator, 20)
        # Its connections say goodbye over TLS, which takes a few turns of the loop that nobody waits for.
        await asyncio.sleep(0.2)
        gc.collect()


def _object(served: Secured, resource: str, name: str, namespace: str = "") -> dict[str, Any] | None:
    found = served.call(lambda: served.server.store.get(resource, (namespace, name)))
    return found.obj if found else None


def _present(served: Secured, resource: str, name: str, namespace: str = "") -> dict[str, Any]:
    found = _object(served, resource, name, namespace)
    assert found is not None
    return found


async def test_a_custom_object_is_handled_from_creation_to_deletion(served: Secured) -> None:
    async with _operating(served) as story:
        served.create(POOLS, node_pool("general"))
        await until(lambda: bool(_present(served, POOLS, "general").get("status", {}).get("resources")))
        pool = _present(served, POOLS, "general")
        assert story.created == ["general"]
        assert pool["status"]["resources"] == {"cpu": "8"}
        assert pool["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
        assert pool["metadata"]["generation"] == 1
        _patch(served, POOLS, "general", {"spec": {"weight": 7}})
        await until(lambda: ("general", 7) in story.updated)
        _delete(served, POOLS, "general")
        await until(lambda: _object(served, POOLS, "general") is None)
        assert story.deleted == ["general"]
        await until(lambda: "Seen" in _reasons(served))


async def test_a_handler_that_fails_is_tried_again_and_its_progress_survives(served: Secured) -> None:
    async with _operating(served) as story:
        served.create(WIDGETS, widget("slow", size=1))
        await until(lambda: story.created == ["slow"])
        assert story.attempts == 3


async def test_streams_cut_and_history_forgotten_are_both_recovered_from(served: Secured) -> None:
    async with _operating(served) as story:
        served.create("pods", pod("before"))
        await until(lambda: "before" in story.pods)
        assert served.cut_streams() > 0
        served.create("pods", pod("between"))
        await until(lambda: "between" in story.pods)
        # Created and forgotten while nobody listens: only a new list can bring it.
        served.call(lambda: _blackout(served))
        await until(lambda: "unheard" in story.pods)
        served.create("pods", pod("after"))
        await until(lambda: "after" in story.pods)


def _blackout(served: Secured) -> None:
    for watch in served._watches():
        watch.broken = True
        watch.close()
    served.server.build_local_client("test").create("pods", pod("unheard"))
    served.server.store.compact()


def _patch(served: Secured, resource: str, name: str, body: dict[str, Any]) -> None:
    served.call(lambda: served.server.build_local_client("test").patch(resource, name, body))


def _delete(served: Secured, resource: str, name: str) -> None:
    served.call(lambda: served.server.build_local_client("test").delete(resource, name))


def _reasons(served: Secured) -> set[str]:
    bucket = served.call(lambda: list(served.server.store.get_bucket("events").records.values()))
    return {record.obj.get("reason", "") for record in bucket}
