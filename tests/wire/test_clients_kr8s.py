"""kr8s against the embedded server, over HTTPS: it discovers everything, and pages by hundreds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import httpx
import kr8s
import pytest
from kr8s.asyncio.objects import ConfigMap, Deployment, Pod, new_class

from support.apiserver import config_map, deployment, pod
from support.https_apiserver import Secured, node_pool, own_namespace, secured

NodePool: Any = new_class(kind="NodePool", version="karpenter.sh/v1", namespaced=False)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("kr8s")) as running:
        yield running


@pytest.fixture
async def api(served: Secured) -> AsyncIterator[Any]:
    made = await kr8s.asyncio.api(kubeconfig=str(served.kubeconfig))
    yield made
    if made._session is not None:
        await made._session.aclose()


@pytest.fixture
def namespace(served: Secured, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    return own_namespace(served, request)


async def test_it_finds_out_what_the_server_serves(api: Any) -> None:
    assert (await api.version())["gitVersion"].startswith("v1.")
    kinds = {(each["kind"], each["version"]) for each in await api.api_resources()}
    assert {("Pod", "v1"), ("Deployment", "apps/v1"), ("NodePool", "karpenter.sh/v1")} <= kinds


async def test_a_pod_is_created_found_and_deleted(api: Any, namespace: str) -> None:
    made = await Pod(pod("web", namespace), api=api)
    await made.create()
    assert made.status.phase == "Pending"
    assert await made.exists()
    await made.delete()
    assert not await made.exists()


async def test_more_than_a_page_is_listed_whole(served: Secured, api: Any, namespace: str) -> None:
    for number in range(230):
        served.create("configmaps", config_map(f"c{number:03}", namespace))
    names = [each.name async for each in api.get("configmaps", namespace=namespace)]
    assert [name for name in names if name.startswith("c")] == [f"c{number:03}" for number in range(230)]


async def test_a_watch_cut_off_is_resumed_from_its_last_revision(
    served: Secured, api: Any, namespace: str
) -> None:
    served.create("configmaps", config_map("a0", namespace))
    seen: list[str] = []
    since, cuts = None, 0
    async with asyncio.timeout(30):
        while len(seen) < 4:
            try:
                watched = api.watch(
                    "configmaps",
                    namespace=namespace,
                    field_selector="metadata.name!=kube-root-ca.crt",
                    since=since,
                )
                async with aclosing(watched):
                    async for _, found in watched:
                        seen.append(found.name)
                        since = found.metadata.resourceVersion
                        if len(seen) == 4:
                            break
                        served.create("configmaps", config_map(f"a{len(seen)}", namespace))
                        served.cut_streams()
            except httpx.TransportError:
                cuts += 1
    assert seen == ["a0", "a1", "a2", "a3"]
    assert cuts >= 1


async def test_a_forgotten_revision_is_410_in_the_stream_and_a_new_watch_recovers(
    served: Secured, api: Any, namespace: str
) -> None:
    """kr8s itself would ask for the same revision for ever, so its caller has to begin anew."""
    first = await ConfigMap(config_map("a", namespace), api=api)
    await first.create()
    await (await ConfigMap(config_map("b", namespace), api=api)).create()
    served.forget()
    query = {"watch": "true", "resourceVersion": first.metadata.resourceVersion}
    asked = api.call_api("GET", url="configmaps", namespace=namespace, params=query, stream=True)
    async with asked as response:
        event = json.loads(await anext(response.aiter_lines()))
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    names = set()
    async with asyncio.timeout(10), aclosing(api.watch("configmaps", namespace=namespace)) as watched:
        async for _, found in watched:
            names.add(found.name)
            if {"a", "b"} <= names:
                break
    assert {"a", "b"} <= names


async def test_patches_labels_and_scale(api: Any, namespace: str) -> None:
    made = await Deployment({**deployment("web", 1)}, namespace=namespace, api=api)
    await made.create()
    await made.label(team="blue")
    assert made.labels["team"] == "blue"
    await made.patch([{"op": "replace", "path": "/spec/replicas", "value": 4}], type="json")
    assert made.spec.replicas == 4
    sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}]}}}}
    await made.patch(sidecar)
    assert [each.name for each in made.spec.template.spec.containers] == ["side"]


async def test_a_conflicting_patch_is_refused_and_the_second_try_wins(api: Any, namespace: str) -> None:
    mine = await ConfigMap(config_map("shared", namespace, who="nobody"), api=api)
    await mine.create()
    old = mine.metadata.resourceVersion
    await mine.patch({"data": {"other": "1"}})
    with pytest.raises(kr8s.ServerError) as conflict:
        await mine.patch({"metadata": {"resourceVersion": old}, "data": {"who": "me"}})
    assert conflict.value.response is not None
    assert conflict.value.response.status_code == 409
    await mine.refresh()
    await mine.patch({"metadata": {"resourceVersion": mine.metadata.resourceVersion}, "data": {"who": "me"}})
    assert mine.data == {"who": "me", "other": "1"}


async def test_pools_are_objects_like_any_other(api: Any) -> None:
    made = await NodePool(node_pool("general"), api=api)
    await made.create()
    await made.patch({"spec": {"weight": 7}})
    assert made.spec.weight == 7
    await made.patch({"status": {"resources": {"cpu": "1"}}}, subresource="status")
    assert made.status.resources.cpu == "1"
    with pytest.raises(kr8s.ServerError) as refused:
        await made.patch({"spec": {"weight": 1000}})
    assert refused.value.response is not None
    assert refused.value.response.status_code == 422
    await made.delete()
    assert not await made.exists()
