"""The official Python client against the embedded server, over HTTPS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import kubernetes
import kubernetes.dynamic
import pytest
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import ProtocolError

from support.apiserver import config_map, deployment, node, pod
from support.https_apiserver import Secured, node_pool, own_namespace, secured

# Its annotations do not cover what it accepts and returns.
client: Any = kubernetes.client
config: Any = kubernetes.config
watch: Any = kubernetes.watch
dynamic: Any = kubernetes.dynamic
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:kubernetes")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("kubernetes")) as running:
        yield running


@pytest.fixture(scope="module")
def api(served: Secured) -> Iterator[Any]:
    with config.new_client_from_config(str(served.kubeconfig)) as made:
        yield made


@pytest.fixture(scope="module")
def core(api: Any) -> Any:
    return client.CoreV1Api(api)


@pytest.fixture
def namespace(served: Secured, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    return own_namespace(served, request)


def test_objects_are_created_read_and_deleted_as_typed_models(core: Any, api: Any, namespace: str) -> None:
    made = core.create_namespaced_pod(namespace, pod("web", namespace))
    assert made.spec.containers[0].image_pull_policy == "IfNotPresent"
    assert made.metadata.uid
    assert core.read_namespaced_pod("web", namespace).status.phase == "Pending"
    apps = client.AppsV1Api(api)
    apps.create_namespaced_deployment(namespace, {**deployment("web", 2)})
    assert apps.read_namespaced_deployment_scale("web", namespace).spec.replicas == 2
    core.create_node(node(namespace))
    assert core.read_node(namespace).status.capacity["cpu"] == "4"
    assert core.delete_namespaced_pod("web", namespace).metadata.name == "web"
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_pod("web", namespace)
    assert gone.value.status == 404


def test_a_long_list_comes_in_pages_of_one_moment(core: Any, namespace: str) -> None:
    for number in range(25):
        core.create_namespaced_config_map(namespace, config_map(f"c{number:02}", namespace))
    names, token, pages, revisions = [], None, 0, set()
    while True:
        page = core.list_namespaced_config_map(namespace, limit=10, _continue=token)
        names += [each.metadata.name for each in page.items]
        revisions.add(page.metadata.resource_version)
        pages, token = pages + 1, page.metadata._continue
        core.create_namespaced_config_map(namespace, config_map(f"late{pages}", namespace))
        if not token:
            break
    assert [name for name in names if name.startswith("c")] == [f"c{number:02}" for number in range(25)]
    assert not any(name.startswith("late") for name in names)
    assert len(revisions) == 1


def test_a_watch_that_the_server_ends_resumes_where_it_was(
    served: Secured, core: Any, namespace: str
) -> None:
    start = core.list_namespaced_config_map(namespace).metadata.resource_version
    seen, stream = [], watch.Watch()
    core.create_namespaced_config_map(namespace, config_map("first", namespace))
    for event in stream.stream(core.list_namespaced_config_map, namespace, resource_version=start):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 1:
            core.create_namespaced_config_map(namespace, config_map("second", namespace))
            assert served.end_streams() >= 1
        elif len(seen) == 2:
            core.delete_namespaced_config_map("first", namespace)
        elif len(seen) == 3:
            stream.stop()
    assert seen == [("ADDED", "first"), ("ADDED", "second"), ("DELETED", "first")]


def test_a_watch_cut_off_mid_stream_can_be_resumed_from_its_last_revision(
    served: Secured, core: Any, namespace: str
) -> None:
    start = core.list_namespaced_config_map(namespace).metadata.resource_version
    seen: list[str] = []
    stream, cuts = watch.Watch(), 0
    core.create_namespaced_config_map(namespace, config_map("a0", namespace))
    revision = start
    while len(seen) < 4:
        try:
            with closing(
                stream.stream(
                    core.list_namespaced_config_map, namespace, resource_version=revision, timeout_seconds=10
                )
            ) as events:
                for event in events:
                    seen.append(event["object"].metadata.name)
                    revision = event["object"].metadata.resource_version
                    if len(seen) == 4:
                        break
                    core.create_namespaced_config_map(namespace, config_map(f"a{len(seen)}", namespace))
                    served.cut_streams()
        except ProtocolError:
            cuts += 1
    assert seen == ["a0", "a1", "a2", "a3"]
    assert cuts >= 1


def test_a_forgotten_revision_is_410_and_a_new_list_recovers(
    served: Secured, core: Any, namespace: str
) -> None:
    old = core.list_namespaced_config_map(namespace).metadata.resource_version
    core.create_namespaced_config_map(namespace, config_map("a", namespace))
    served.forget()
    stale = watch.Watch().stream(core.list_namespaced_config_map, namespace, resource_version=old)
    with closing(stale), pytest.raises(ApiException) as expired:
        next(stale)
    assert expired.value.status == 410
    fresh = core.list_namespaced_config_map(namespace)
    assert "a" in [each.metadata.name for each in fresh.items]
    core.create_namespaced_config_map(namespace, config_map("b", namespace))
    stream = watch.Watch().stream(
        core.list_namespaced_config_map, namespace, resource_version=fresh.metadata.resource_version
    )
    with closing(stream):
        assert next(stream)["object"].metadata.name == "b"


def test_each_kind_of_patch_does_what_its_media_type_says(api: Any, namespace: str) -> None:
    apps = client.AppsV1Api(api)
    apps.create_namespaced_deployment(namespace, deployment("web", 1))
    sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}]}}}}
    merged = apps.patch_namespaced_deployment("web", namespace, sidecar)
    assert sorted(each.name for each in merged.spec.template.spec.containers) == ["main", "side"]
    steps = [{"op": "replace", "path": "/spec/replicas", "value": 4}]
    assert apps.patch_namespaced_deployment("web", namespace, steps).spec.replicas == 4
    replaced = apps.patch_namespaced_deployment(
        "web", namespace, sidecar, _content_type="application/merge-patch+json"
    )
    assert [each.name for each in replaced.spec.template.spec.containers] == ["side"]
    applied = apps.patch_namespaced_deployment(
        "web",
        namespace,
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": {"by": "apply"}}},
        field_manager="test",
        _content_type="application/apply-patch+yaml",
    )
    assert applied.metadata.labels == {"by": "apply"}
    assert any(entry.operation == "Apply" for entry in applied.metadata.managed_fields)


def test_a_conflicting_update_is_409_and_succeeds_when_tried_again(core: Any, namespace: str) -> None:
    mine = core.create_namespaced_config_map(namespace, config_map("shared", namespace, who="nobody"))
    core.patch_namespaced_config_map("shared", namespace, {"data": {"other": "1"}})
    mine.data["who"] = "me"
    with pytest.raises(ApiException) as conflict:
        core.replace_namespaced_config_map("shared", namespace, mine)
    assert conflict.value.status == 409
    again = core.read_namespaced_config_map("shared", namespace)
    again.data["who"] = "me"
    assert core.replace_namespaced_config_map("shared", namespace, again).data == {"who": "me", "other": "1"}


def test_custom_objects_are_checked_defaulted_and_watched(api: Any) -> None:
    custom = client.CustomObjectsApi(api)
    place = ("karpenter.sh", "v1", "nodepools")
    made = custom.create_cluster_custom_object(*place, node_pool("general"))
    assert made["spec"]["disruption"]["consolidateAfter"] == "0s"
    with pytest.raises(ApiException) as refused:
        custom.patch_cluster_custom_object(*place, "general", {"spec": {"weight": 1000}})
    assert refused.value.status == 422
    changed = custom.patch_cluster_custom_object(*place, "general", {"spec": {"weight": 7}})
    assert (changed["spec"]["weight"], changed["metadata"]["generation"]) == (7, 2)
    status = custom.patch_cluster_custom_object_status(
        *place, "general", {"status": {"resources": {"cpu": "1"}}}
    )
    assert status["metadata"]["generation"] == 2
    with closing(watch.Watch().stream(custom.list_cluster_custom_object, *place)) as stream:
        event = next(stream)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "general")


def test_the_dynamic_client_discovers_and_applies(api: Any, tmp_path: Path) -> None:
    found = dynamic.DynamicClient(api, cache_file=str(tmp_path / "discovery"))
    pools = found.resources.get(api_version="karpenter.sh/v1", kind="NodePool")
    applied = pools.server_side_apply(body=node_pool("dynamic"), name="dynamic", field_manager="test")
    assert applied.spec.template.spec.nodeClassRef.kind == "KWOKNodeClass"
    assert "dynamic" in [each.metadata.name for each in pools.get().items]
    pools.delete(name="dynamic")
    assert "dynamic" not in [each.metadata.name for each in pools.get().items]


def test_a_wrong_token_is_401(served: Secured) -> None:
    settings = client.Configuration(host=served.url)
    settings.ssl_ca_cert = str(served.authority)
    settings.api_key = {"authorization": "Bearer wrong"}
    with client.ApiClient(settings) as stranger, pytest.raises(ApiException) as refused:
        client.CoreV1Api(stranger).list_namespace()
    assert refused.value.status == 401
