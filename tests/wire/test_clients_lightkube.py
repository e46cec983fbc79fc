"""lightkube against the embedded server, over HTTPS: no discovery, server-side apply, resource classes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx2 as httpx
import pytest
from lightkube import ApiError, Client, KubeConfig
from lightkube.generic_resource import create_global_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.operators import not_equal
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Pod
from lightkube.types import OnErrorAction, OnErrorResult, PatchType

from support.apiserver import config_map, deployment, pod
from support.https_apiserver import Secured, node_pool, own_namespace, secured

NodePool: Any = create_global_resource("karpenter.sh", "v1", "NodePool", "nodepools")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("lightkube")) as running:
        yield running


@pytest.fixture
def kube(served: Secured, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client whose default namespace is the test's own."""
    name = own_namespace(served, request)
    made = Client(config=KubeConfig.from_file(served.kubeconfig), namespace=name, field_manager="test")
    yield made
    made.close()


def _map(name: str, **data: str) -> Any:
    return ConfigMap(metadata=ObjectMeta(name=name), data=data)


def test_a_pod_is_created_read_and_deleted(kube: Any) -> None:
    made = kube.create(Pod.from_dict(pod("web", kube.namespace)))
    assert made.status.phase == "Pending"
    kube.delete(Pod, "web")
    with pytest.raises(ApiError) as gone:
        kube.get(Pod, "web")
    assert gone.value.status.code == 404


def test_a_list_in_chunks_gives_everything_once(kube: Any) -> None:
    for number in range(12):
        kube.create(_map(f"c{number:02}"))
    names = [each.metadata.name for each in kube.list(ConfigMap, chunk_size=5) if each.metadata]
    assert [name for name in names if str(name).startswith("c")] == [f"c{number:02}" for number in range(12)]


def test_a_watch_resumes_after_a_cut_and_misses_nothing(served: Secured, kube: Any) -> None:
    kube.create(_map("a0"))
    seen: list[str] = []
    again: list[Exception] = []

    def on_error(error: Exception, count: int) -> OnErrorResult:
        again.append(error)
        return OnErrorResult(OnErrorAction.RETRY)

    fields = {"metadata.name": not_equal("kube-root-ca.crt")}
    with closing(kube.watch(ConfigMap, fields=fields, on_error=on_error)) as events:
        for _, found in events:
            seen.append(str(found.metadata.name))
            if len(seen) == 4:
                break
            kube.create(_map(f"a{len(seen)}"))
            served.cut_streams()
    assert seen == ["a0", "a1", "a2", "a3"]
    assert again
    assert all(isinstance(error, httpx.RemoteProtocolError | httpx.ReadError) for error in again)


def test_a_forgotten_revision_starts_the_watch_anew(served: Secured, kube: Any) -> None:
    first = kube.create(_map("a"))
    kube.create(_map("b"))
    served.forget()
    told: list[int] = []

    def on_error(error: Exception, count: int) -> OnErrorResult:
        assert isinstance(error, ApiError)
        told.append(error.status.code or 0)
        return OnErrorResult(OnErrorAction.RETRY)

    old = first.metadata.resourceVersion
    fields = {"metadata.name": not_equal("kube-root-ca.crt")}
    stream = kube.watch(ConfigMap, fields=fields, resource_version=old, on_error=on_error)
    with closing(stream):
        names = [next(stream)[1].metadata.name for _ in range(2)]
    assert told == [410]
    assert names == ["a", "b"]


def test_each_kind_of_patch_is_understood(kube: Any) -> None:
    kube.create(Deployment.from_dict(deployment("web", 1)))
    sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}]}}}}
    assert _containers(kube.patch(Deployment, "web", sidecar)) == ["main", "side"]
    steps = [{"op": "replace", "path": "/spec/replicas", "value": 4}]
    changed = kube.patch(Deployment, "web", steps, patch_type=PatchType.JSON)
    assert changed.spec.replicas == 4
    assert _containers(kube.patch(Deployment, "web", sidecar, patch_type=PatchType.MERGE)) == ["side"]


def _containers(found: Any) -> list[str]:
    return sorted(each.name for each in found.spec.template.spec.containers)


def test_apply_owns_its_fields_and_says_who_else_does(kube: Any) -> None:
    kube.apply(ConfigMap.from_dict(config_map("shared", kube.namespace, who="me")))
    with pytest.raises(ApiError) as conflict:
        kube.apply(
            ConfigMap.from_dict(config_map("shared", kube.namespace, who="you")), field_manager="other"
        )
    assert conflict.value.status.code == 409
    forced = kube.apply(
        ConfigMap.from_dict(config_map("shared", kube.namespace, who="you")),
        field_manager="other",
        force=True,
    )
    assert forced.data == {"who": "you"}


def test_a_conflicting_replace_is_409_and_the_second_try_wins(kube: Any) -> None:
    mine = kube.create(_map("shared", who="nobody"))
    kube.patch(ConfigMap, "shared", {"data": {"other": "1"}})
    mine.data = {"who": "me"}
    with pytest.raises(ApiError) as conflict:
        kube.replace(mine)
    assert conflict.value.status.reason == "Conflict"
    again = kube.get(ConfigMap, "shared")
    again.data = {**(again.data or {}), "who": "me"}
    assert kube.replace(again).data == {"who": "me", "other": "1"}


def test_pools_work_as_generic_resources(kube: Any) -> None:
    made = kube.create(NodePool(**node_pool("general")))
    assert made.spec["disruption"]["consolidateAfter"] == "0s"
    status = kube.patch(
        NodePool.Status, "general", {"status": {"resources": {"cpu": "1"}}}, patch_type=PatchType.MERGE
    )
    assert status.status["resources"] == {"cpu": "1"}
    with pytest.raises(ApiError) as refused:
        kube.patch(NodePool, "general", {"spec": {"weight": 1000}}, patch_type=PatchType.MERGE)
    assert refused.value.status.reason == "Invalid"
    assert [pool.metadata.name for pool in kube.list(NodePool) if pool.metadata] == ["general"]
