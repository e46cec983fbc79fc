"""The asyncio client against the embedded server, over HTTPS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.exceptions import ApiException

from support.apiserver import config_map, deployment, pod
from support.https_apiserver import Secured, node_pool, own_namespace, secured, until


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("asyncio")) as running:
        yield running


@pytest.fixture
async def api(served: Secured) -> AsyncIterator[Any]:
    async with await config.new_client_from_config(str(served.kubeconfig)) as made:
        yield made


@pytest.fixture
async def core(api: Any) -> Any:
    return client.CoreV1Api(api)


@pytest.fixture
def namespace(served: Secured, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    return own_namespace(served, request)


async def test_a_pod_is_created_read_evicted_and_gone(core: Any, namespace: str) -> None:
    made = await core.create_namespaced_pod(namespace, pod("web", namespace))
    assert made.status.phase == "Pending"
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="web", namespace=namespace))
    await core.create_namespaced_pod_eviction("web", namespace, eviction)
    with pytest.raises(ApiException) as gone:
        await core.read_namespaced_pod("web", namespace)
    assert gone.value.status == 404


async def test_a_long_list_comes_in_pages(core: Any, namespace: str) -> None:
    for number in range(12):
        await core.create_namespaced_config_map(namespace, config_map(f"c{number:02}", namespace))
    names, token, left = [], None, []
    while True:
        page = await core.list_namespaced_config_map(
            namespace, limit=5, _continue=token, label_selector="!none"
        )
        names += [each.metadata.name for each in page.items]
        left.append(page.metadata.remaining_item_count)
        token = page.metadata._continue
        if not token:
            break
    assert [name for name in names if name.startswith("c")] == [f"c{number:02}" for number in range(12)]
    assert left[-1] is None


async def test_a_watch_resumes_after_its_stream_ended(served: Secured, core: Any, namespace: str) -> None:
    start = (await core.list_namespaced_config_map(namespace)).metadata.resource_version
    await core.create_namespaced_config_map(namespace, config_map("first", namespace))
    seen = []
    async with asyncio.timeout(20), watch.Watch() as stream:
        async for event in stream.stream(core.list_namespaced_config_map, namespace, resource_version=start):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 1:
                await core.create_namespaced_config_map(namespace, config_map("second", namespace))
                served.end_streams()
            elif len(seen) == 2:
                break
    assert seen == [("ADDED", "first"), ("ADDED", "second")]


async def test_a_watch_cut_off_is_taken_up_from_its_last_revision(
    served: Secured, core: Any, namespace: str
) -> None:
    revision = (await core.list_namespaced_config_map(namespace)).metadata.resource_version
    seen: list[str] = []
    cuts = 0
    await core.create_namespaced_config_map(namespace, config_map("a0", namespace))
    async with asyncio.timeout(30):
        while len(seen) < 3:
            stream = watch.Watch()
            try:
                async for event in stream.stream(
                    core.list_namespaced_config_map, namespace, resource_version=revision
                ):
                    seen.append(event["object"].metadata.name)
                    revision = event["object"].metadata.resource_version
                    if len(seen) == 3:
                        break
                    await core.create_namespaced_config_map(namespace, config_map(f"a{len(seen)}", namespace))
                    served.cut_streams()
            except aiohttp.ClientError:
                cuts += 1
            finally:
                await stream.close()
    assert seen == ["a0", "a1", "a2"]
    assert cuts >= 1


async def test_a_forgotten_revision_is_410_and_a_new_list_recovers(
    served: Secured, core: Any, namespace: str
) -> None:
    old = (await core.list_namespaced_config_map(namespace)).metadata.resource_version
    await core.create_namespaced_config_map(namespace, config_map("a", namespace))
    served.forget()
    async with watch.Watch() as stream:
        with pytest.raises(ApiException) as expired:
            await anext(
                aiter(stream.stream(core.list_namespaced_config_map, namespace, resource_version=old))
            )
    assert expired.value.status == 410
    fresh = await core.list_namespaced_config_map(namespace)
    assert "a" in [each.metadata.name for each in fresh.items]


async def test_each_kind_of_patch_is_understood(api: Any, namespace: str) -> None:
    apps: Any = client.AppsV1Api(api)
    await apps.create_namespaced_deployment(namespace, deployment("web", 1))
    sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}]}}}}
    merged = await apps.patch_namespaced_deployment(
        "web", namespace, sidecar, _content_type="application/strategic-merge-patch+json"
    )
    assert sorted(each.name for each in merged.spec.template.spec.containers) == ["main", "side"]
    steps = [{"op": "replace", "path": "/spec/replicas", "value": 4}]
    changed = await apps.patch_namespaced_deployment(
        "web", namespace, steps, _content_type="application/json-patch+json"
    )
    assert changed.spec.replicas == 4
    replaced = await apps.patch_namespaced_deployment(
        "web", namespace, sidecar, _content_type="application/merge-patch+json"
    )
    assert [each.name for each in replaced.spec.template.spec.containers] == ["side"]
    scaled = await apps.patch_namespaced_deployment_scale(
        "web", namespace, {"spec": {"replicas": 2}}, _content_type="application/merge-patch+json"
    )
    assert scaled.spec.replicas == 2


async def test_a_conflict_is_409_and_the_second_try_wins(core: Any, namespace: str) -> None:
    mine = await core.create_namespaced_config_map(namespace, config_map("shared", namespace, who="nobody"))
    await core.patch_namespaced_config_map("shared", namespace, {"data": {"other": "1"}})
    mine.data["who"] = "me"
    with pytest.raises(ApiException) as conflict:
        await core.replace_namespaced_config_map("shared", namespace, mine)
    assert conflict.value.status == 409
    again = await core.read_namespaced_config_map("shared", namespace)
    again.data["who"] = "me"
    assert (await core.replace_namespaced_config_map("shared", namespace, again)).data["who"] == "me"


async def test_pools_are_custom_objects_like_any_other(api: Any) -> None:
    custom: Any = client.CustomObjectsApi(api)
    place = ("karpenter.sh", "v1", "nodepools")
    await custom.create_cluster_custom_object(*place, node_pool("general"))
    with pytest.raises(ApiException) as refused:
        await custom.create_cluster_custom_object(
            *place, {**node_pool("bad"), "spec": {"template": {"spec": {}}}}
        )
    assert refused.value.status == 422
    found = await custom.list_cluster_custom_object(*place)
    assert [each["metadata"]["name"] for each in found["items"]] == ["general"]
    changed = await custom.patch_cluster_custom_object(
        *place, "general", {"spec": {"weight": 3}}, _content_type="application/merge-patch+json"
    )
    assert changed["spec"]["weight"] == 3


async def test_hundreds_of_idle_watches_are_carried_at_once(
    served: Secured, core: Any, namespace: str
) -> None:
    """One connection each, as clients of this kind do; all of them hear the same change."""
    core.api_client.rest_client.pool_manager._connector._limit = 0
    start = (await core.list_namespaced_config_map(namespace)).metadata.resource_version
    before = served.streams()

    async def first() -> str:
        response = await core.list_namespaced_config_map(
            namespace, watch=True, resource_version=start, _preload_content=False
        )
        event = json.loads(await response.content.readline())
        response.close()
        return str(event["object"]["metadata"]["name"])

    async with asyncio.timeout(60):
        waiting = [asyncio.create_task(first()) for _ in range(200)]
        await until(lambda: served.streams() - before >= 200)
        await core.create_namespaced_config_map(namespace, config_map("heard", namespace))
        assert set(await asyncio.gather(*waiting)) == {"heard"}
        await until(lambda: served.streams() == before)
    assert served.streams() == before
