"""Paths, verbs, negotiation, bodies and headers."""

from __future__ import annotations

import gzip
import io
import json

import aiohttp
import pytest
import yaml

from support.apiserver import TABLE, config_map, definition, deployment, pod, serving, widget

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


async def test_health_and_version_answer_with_and_without_a_trailing_slash() -> None:
    async with serving() as http:
        for path in ("/healthz", "/livez", "/readyz", "/readyz/"):
            assert await http.get(path) == "ok"
        for path in ("/version", "/version/"):
            assert (await http.get(path))["minor"].isdigit()


async def test_discovery_answers_legacy_paths_with_trailing_slashes() -> None:
    async with serving() as http:
        assert (await http.get("/api/"))["versions"] == ["v1"]
        groups = [group["name"] for group in (await http.get("/apis/"))["groups"]]
        assert "apps" in groups
        assert (await http.get("/apis/apps"))["kind"] == "APIGroup"
        core = await http.get("/api/v1")
        eviction = next(each for each in core["resources"] if each["name"] == "pods/eviction")
        assert (eviction["group"], eviction["kind"]) == ("policy", "Eviction")


async def test_aggregated_discovery_names_its_type_and_answers_304_without_a_body() -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    async with serving() as http:
        document = await http.get("/apis", headers={"Accept": accept})
        assert document["kind"] == "APIGroupDiscoveryList"
        assert "as=APIGroupDiscoveryList" in http.headers["Content-Type"]
        tag = http.headers["ETag"]
        assert await http.get("/apis", 304, headers={"Accept": accept, "If-None-Match": tag}) == ""
        assert await http.get("/healthz") == "ok"  # the connection is still in step
        await http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())
        changed = await http.get("/apis", headers={"Accept": accept, "If-None-Match": tag})
        assert "example.com" in [item["metadata"]["name"] for item in changed["items"]]


async def test_openapi_hashes_change_with_the_definitions() -> None:
    async with serving() as http:
        before = (await http.get("/openapi/v3"))["paths"]
        assert "apis/example.com/v1" not in before
        await http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())
        after = (await http.get("/openapi/v3"))["paths"]
        document = await http.get(after["apis/example.com/v1"]["serverRelativeURL"])
        assert "com.example.v1.Widget" in document["components"]["schemas"]
        assert after["api/v1"] == before["api/v1"]


@pytest.mark.parametrize("path", ["/nope", "/apis/nope.io/v1/things", "/api/v2/pods"])
async def test_unknown_roots_and_groups_are_plain_text_404s(path: str) -> None:
    async with serving() as http:
        assert "not found" in await http.get(path, 404)
        assert http.headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/things",
        "/apis/apps/v1/pods",
        "/apis/apps/v9/deployments",
        "/api/v1/namespaces/default/nodes/n1",
        "/api/v1/pods/p1",
        "/api/v1/namespaces/default/pods/p1/nothing",
        "/api/v1/namespaces/default/pods/p1/log/more",
    ],
)
async def test_unknown_resources_of_a_served_group_are_status_404s_with_empty_details(path: str) -> None:
    async with serving() as http:
        answer = await http.get(path, 404)
        assert (answer["kind"], answer["reason"], answer["details"]) == ("Status", "NotFound", {})


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/pods"),
        ("DELETE", "/api/v1/pods"),
        ("PUT", PODS),
        ("POST", f"{PODS}/p1"),
        ("DELETE", "/api/v1/namespaces"),
        ("GET", f"{PODS}/p1/eviction"),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ("POST", "/version"),
    ],
)
async def test_wrong_verbs_are_405(method: str, path: str) -> None:
    async with serving() as http:
        answer = await http.ask(method, path, 405, json={})
        assert answer["reason"] == "MethodNotAllowed"


async def test_a_namespace_is_an_object_and_a_prefix() -> None:
    async with serving() as http:
        assert (await http.get("/api/v1/namespaces/default"))["kind"] == "Namespace"
        assert (await http.get("/api/v1/namespaces/default/status"))["status"]["phase"] == "Active"
        assert (await http.get(PODS))["kind"] == "PodList"


async def test_the_watch_prefix_means_a_watch_of_one_object_or_all() -> None:
    async with serving() as http:
        await http.post(MAPS, config_map("a"))
        await http.post(MAPS, config_map("b"))
        async with http.watch("/api/v1/watch/namespaces/default/configmaps/b") as lines:
            assert await lines.take(1) == [("ADDED", "b")]
        async with http.watch("/api/v1/watch/configmaps") as lines:
            assert await lines.take(2) == [("ADDED", "a"), ("ADDED", "b")]


async def test_tokens_are_ignored_unless_one_is_required() -> None:
    async with serving(headers={"Authorization": "Bearer anything"}) as http:
        await http.get("/api/v1/pods")
    async with serving(token="secret") as http:
        assert (await http.get("/api/v1/pods", 401))["reason"] == "Unauthorized"
        await http.get("/api/v1/pods", headers={"Authorization": "Bearer secret"})


@pytest.mark.parametrize("accept", ["", "*/*", "application/*", "application/json", "application/json, */*"])
async def test_json_is_what_most_clients_get(accept: str) -> None:
    async with serving() as http:
        assert (await http.get(PODS, headers={"Accept": accept}))["kind"] == "PodList"


async def test_protobuf_with_a_json_alternative_gets_json_and_alone_is_refused() -> None:
    protobuf = "application/vnd.kubernetes.protobuf"
    async with serving() as http:
        assert (await http.get(PODS, headers={"Accept": f"{protobuf},application/json"}))["kind"] == "PodList"
        assert (await http.get(PODS, 406, headers={"Accept": protobuf}))["reason"] == "NotAcceptable"
        # A write whose answer could not be shown must not happen.
        await http.post(MAPS, config_map("a"), 406, headers={"Accept": protobuf})
        await http.get(f"{MAPS}/a", 404)


async def test_tables_and_partial_metadata_come_in_any_parameter_order() -> None:
    async with serving() as http:
        await http.post(PODS, pod("a"))
        table = await http.get(PODS, headers={"Accept": TABLE})
        assert table["kind"] == "Table"
        assert [row["cells"][0] for row in table["rows"]] == ["a"]
        assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
        one = await http.get(f"{PODS}/a?includeObject=Object", headers={"Accept": TABLE})
        assert one["rows"][0]["object"]["spec"]["containers"][0]["image"] == "web:1"
        accept = "application/json;g=meta.k8s.io;v=v1;as=PartialObjectMetadataList"
        partial = await http.get(PODS, headers={"Accept": accept})
        assert partial["kind"] == "PartialObjectMetadataList"
        assert set(partial["items"][0]) == {"kind", "apiVersion", "metadata"}
        accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        assert "spec" not in await http.get(f"{PODS}/a", headers={"Accept": accept})


async def test_yaml_goes_in_and_comes_out() -> None:
    body = yaml.safe_dump(config_map("a", on="off", version="1.10"))
    async with serving() as http:
        await http.ask("POST", MAPS, 201, data=body, headers={"Content-Type": "application/yaml"})
        text = await http.get(f"{MAPS}/a", headers={"Accept": "application/yaml"})
        assert yaml.safe_load(text)["data"] == {"on": "off", "version": "1.10"}
        assert http.headers["Content-Type"] == "application/yaml"


async def test_a_body_without_a_content_type_is_json() -> None:
    async with serving() as http:
        skip = ["Content-Type"]
        data = json.dumps(config_map("a", on="off")).encode()
        await http.ask("POST", MAPS, 201, data=data, skip_auto_headers=skip)
        assert (await http.get(f"{MAPS}/a"))["data"] == {"on": "off"}


async def test_other_body_types_are_415() -> None:
    async with serving() as http:
        answer = await http.ask("POST", MAPS, 415, data=b"<a/>", headers={"Content-Type": "text/xml"})
        assert answer["reason"] == "UnsupportedMediaType"
        answer = await http.ask(
            "PATCH", f"{MAPS}/a", 415, data=b"{}", headers={"Content-Type": "application/json"}
        )
        assert answer["reason"] == "UnsupportedMediaType"


async def test_a_body_beyond_three_mebibytes_is_413() -> None:
    async with serving() as http:
        body = io.BytesIO(json.dumps(config_map("a", big="x" * (3 * 1024 * 1024 + 1))).encode())
        headers = {"Content-Type": "application/json"}
        answer = await http.ask("POST", MAPS, 413, data=body, headers=headers)
        assert answer["reason"] == "RequestEntityTooLarge"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"text"', b'{"metadata": 1}', b"\xff\xfe", b"1e999"]
)
async def test_malformed_bodies_are_400(body: bytes) -> None:
    async with serving() as http:
        for method, path in (("POST", MAPS), ("PUT", f"{MAPS}/a")):
            answer = await http.ask(
                method, path, 400, data=body, headers={"Content-Type": "application/json"}
            )
            assert answer["reason"] == "BadRequest"


@pytest.mark.parametrize("kind", ["application/json", "application/yaml", "application/apply-patch+yaml"])
async def test_bodies_meant_to_overwhelm_are_400(kind: str) -> None:
    laughs = b"a: &a [x, x]\nb: &b [*a, *a]\nmetadata: {name: a}\ndata: {x: *b}\n"
    deep = b'{"metadata":{"name":"a"},"data":' + b'{"a":' * 300 + b"1" + b"}" * 300 + b"}"
    async with serving() as http:
        for body in (b"[" * 1_000_000, deep, laughs):
            method, path = ("PATCH", f"{MAPS}/a?fieldManager=me") if "patch" in kind else ("POST", MAPS)
            answer = await http.ask(method, path, 400, data=body, headers={"Content-Type": kind})
            assert answer["reason"] == "BadRequest"


async def test_built_in_list_items_carry_no_kind_and_custom_ones_do() -> None:
    async with serving() as http:
        await http.post(MAPS, config_map("a", x="1"))
        await http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())
        await http.post("/apis/example.com/v1/namespaces/default/widgets", widget("w"))
        (item,) = [i for i in (await http.get(MAPS))["items"] if i["metadata"]["name"] == "a"]
        assert "kind" not in item
        assert "apiVersion" not in item
        assert item["data"] == {"x": "1"}
        (item,) = (await http.get("/apis/example.com/v1/widgets"))["items"]
        assert (item["kind"], item["apiVersion"]) == ("Widget", "example.com/v1")


async def test_pretty_printing_is_on_request() -> None:
    async with serving() as http, http.session.get("/version?pretty=true") as response:
        assert (await response.text()).startswith('{\n  "major"')


async def test_every_answer_has_an_audit_id_and_forbids_caching() -> None:
    async with serving() as http:
        await http.get(PODS)
        first = http.headers["Audit-Id"]
        assert http.headers["Cache-Control"] == "no-cache, private"
        await http.get(PODS)
        assert http.headers["Audit-Id"] != first


async def test_large_lists_are_compressed_for_those_who_accept_it() -> None:
    async with serving() as http:
        for index in range(700):
            http.server.build_local_client().create("configmaps", config_map(f"m{index:04}", text="x" * 300))
        async with aiohttp.ClientSession(http.url, auto_decompress=False) as session:
            async with session.get(MAPS, headers={"Accept-Encoding": "gzip"}) as response:
                assert response.headers["Content-Encoding"] == "gzip"
                items = json.loads(gzip.decompress(await response.read()))["items"]
                assert len(items) == 700
            async with session.get(MAPS, headers={"Accept-Encoding": "identity"}) as response:
                assert "Content-Encoding" not in response.headers
                assert json.loads(await response.read())["items"] == items


async def test_a_protobuf_body_is_read() -> None:
    # The namespace "foo" as kubectl sends it.
    body = bytes.fromhex("6b3873000a0f0a02763112094e616d657370616365120b0a070a03666f6f120012001a00")
    headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    async with serving() as http:
        created = await http.ask("POST", "/api/v1/namespaces", 201, data=body, headers=headers)
        assert created["metadata"]["name"] == "foo"
        await http.ask("POST", "/api/v1/namespaces", 400, data=body[:-4] + b"\xff", headers=headers)


async def test_hundreds_of_idle_connections_are_fine() -> None:
    async with serving() as http:
        await http.post("/apis/apps/v1/namespaces/default/deployments", deployment("web"))
        connector = aiohttp.TCPConnector(limit=300)
        async with aiohttp.ClientSession(http.url, connector=connector) as session:
            watches = [await session.get("/apis/apps/v1/deployments?watch=1") for _ in range(200)]
            lines = [json.loads(await each.content.readline()) for each in watches]
            assert {line["object"]["metadata"]["name"] for line in lines} == {"web"}
            for each in watches:
                each.close()
