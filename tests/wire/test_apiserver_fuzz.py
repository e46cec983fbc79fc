"""Nonsense in, a Status out: never a 500, never a hang."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import aiohttp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from yarl import URL

from dovetail.sim.kube.builtin.kinds import build_registry
from dovetail.sim.kube.http.routes import find_route, split_path
from dovetail.sim.kube.schema import crd
from support.apiserver import Http, budget, config_map, definition, deployment, node, pod, serving, widget

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(("a", "default", "v1", "Pod", "", "1Gi", "25%", "2030-01-01T00:00:00Z", "app=web")),
    # What has hung or felled a server before.
    st.sampled_from(
        (
            *("^(a+)+$", "a" * 60 + "!", "\ud800", "x\r\ny\0", "1e30", "9" * 5_000, "9999-12-31T23:59:59Z"),
            *(
                "self.all(x, self.all(y, x == y))",
                "self.matches('^(a+)+$')",
                "self" + ".a" * 9_000,
                '"""' + "\\" * 40,
            ),
        )
    ),
)
KEYS = st.sampled_from(
    (
        *("metadata", "spec", "status", "name", "namespace", "labels", "annotations", "finalizers"),
        *("ownerReferences", "managedFields", "uid", "resourceVersion", "containers", "template"),
        *("selector", "matchLabels", "matchExpressions", "replicas", "resources", "requests", "limits"),
        *("tolerations", "affinity", "taints", "data", "kind", "apiVersion", "versions", "schema", "names"),
        *(
            "pattern",
            "x-kubernetes-validations",
            "rule",
            "properties",
            "openAPIV3Schema",
            "format",
            "default",
        ),
        *("conditions", "target", "op", "path", "value", "from", "$patch", "preconditions", "ports", "env"),
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=12,
)
_CORE, _HERE = "/api/v1", "/namespaces/default"
_TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "web:1"}]}}
_RULE = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["secrets"]}


def named(**body: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, **body}


# A sound object of each kind, and where it belongs.
GOOD: tuple[tuple[str, dict[str, Any]], ...] = (
    (f"{_CORE}{_HERE}/pods", pod("a")),
    (f"{_CORE}{_HERE}/pods", pod("a", tolerations=[{"operator": "Exists"}], nodeSelector={"a": "b"})),
    (f"{_CORE}/nodes", node("a")),
    (f"{_CORE}/namespaces", named(spec={"finalizers": ["kubernetes"]})),
    (f"{_CORE}{_HERE}/configmaps", config_map("a", x="1")),
    (f"{_CORE}{_HERE}/secrets", named(stringData={"a": "b"}, data={"c": "eA=="})),
    (f"{_CORE}{_HERE}/services", named(spec={"ports": [{"port": 80}], "selector": {"a": "b"}})),
    (
        f"{_CORE}{_HERE}/persistentvolumeclaims",
        named(spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}),
    ),
    (f"{_CORE}{_HERE}/limitranges", named(spec={"limits": [{"type": "Container", "max": {"cpu": "1"}}]})),
    (
        f"{_CORE}{_HERE}/events",
        named(
            involvedObject={"kind": "Pod", "name": "a", "namespace": "default"},
            eventTime="2030-01-01T00:00:00.000000Z",
        ),
    ),
    (f"/apis/events.k8s.io/v1{_HERE}/events", named(regarding={"namespace": "default"}, note="x")),
    (f"/apis/apps/v1{_HERE}/deployments", deployment("a")),
    (f"/apis/apps/v1{_HERE}/statefulsets", {**deployment("a"), "kind": "StatefulSet"}),
    (f"/apis/batch/v1{_HERE}/jobs", named(spec={"template": _TEMPLATE})),
    (
        f"/apis/batch/v1{_HERE}/cronjobs",
        named(spec={"schedule": "* * * * *", "jobTemplate": {"spec": {"template": _TEMPLATE}}}),
    ),
    (f"/apis/policy/v1{_HERE}/poddisruptionbudgets", budget("a", maxUnavailable="10%")),
    ("/apis/storage.k8s.io/v1/storageclasses", named(provisioner="x")),
    ("/apis/scheduling.k8s.io/v1/priorityclasses", named(value=7)),
    (f"/apis/coordination.k8s.io/v1{_HERE}/leases", named(spec={"renewTime": "2030-01-01T00:00:00.000001Z"})),
    ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition("gadgets")),
    (f"/apis/example.com/v1{_HERE}/widgets", widget("a", size=1)),
    (
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        named(roleRef={"name": "x", "kind": "ClusterRole"}),
    ),
    (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        named(
            spec={
                "matchConstraints": {"resourceRules": [_RULE]},
                "validations": [{"expression": "object.metadata.name != 'x'"}],
            }
        ),
    ),
    (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
        named(spec={"policyName": "a", "validationActions": ["Deny"]}),
    ),
)


@st.composite
def bent(draw: st.DrawFn) -> tuple[str, Any]:
    """Where an object belongs, and the object with something unsound put in somewhere."""
    path, sound = draw(st.sampled_from(GOOD))
    document: Any = json.loads(json.dumps(sound))
    place = document
    inner = [key for key in document if key not in ("kind", "apiVersion", "metadata")]
    if inner and draw(st.integers(0, 5)) > 0:
        place = document[draw(st.sampled_from(inner))] or document
        place = place if isinstance(place, dict) else document
    while True:
        keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key: Any = draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or draw(st.integers(0, 3)) == 0:
            place[key] = draw(VALUES)
            break
        place = place[key]
    return path, document


PATHS = st.sampled_from(
    (
        "/api/v1/pods",
        "/api/v1/nodes",
        "/api/v1/nodes/a",
        "/api/v1/nodes/a/status",
        "/api/v1/namespaces/a",
        "/api/v1/namespaces/default/finalize",
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/pods/a",
        "/api/v1/namespaces/default/pods/a/status",
        "/api/v1/namespaces/default/pods/a/binding",
        "/api/v1/namespaces/default/pods/a/eviction",
        "/api/v1/namespaces/default/pods/a/log",
        "/api/v1/namespaces/default/pods/a/resize",
        "/api/v1/namespaces/default/bindings",
        "/api/v1/namespaces/default/configmaps",
        "/api/v1/namespaces/default/configmaps/a",
        "/api/v1/namespaces/default/serviceaccounts/a/token",
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/apps/v1/namespaces/default/deployments/a",
        "/apis/apps/v1/namespaces/default/deployments/a/scale",
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        "/apis/batch/v1/namespaces/default/jobs",
        "/apis/batch/v1/namespaces/default/cronjobs",
        "/apis/storage.k8s.io/v1/storageclasses",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases/a",
        "/apis/events.k8s.io/v1/namespaces/default/events",
        "/api/v1/namespaces/default/events",
        "/api/v1/namespaces/default/services",
        "/api/v1/namespaces/default/secrets",
        "/api/v1/namespaces/default/persistentvolumeclaims",
        "/api/v1/namespaces/default/limitranges",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.example.com",
        "/apis/example.com/v1/namespaces/default/widgets",
        "/apis/example.com/v1/namespaces/default/widgets/a",
        "/apis/example.com/v1/namespaces/default/widgets/a/scale",
        "/apis/example.com/v1/namespaces/default/widgets/a/status",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        "/openapi/v3/apis/apps/v1",
        "/apis//v1/x",
        "/api/v1/namespaces//pods",
        "/%2e%2e/%00/%ff",
    )
)
TYPES = st.sampled_from(
    (
        *("application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "text/html", ""),
        *("application/json-patch+json", "application/merge-patch+json"),
        *("application/strategic-merge-patch+json", "application/apply-patch+yaml"),
    )
)
QUERIES = st.dictionaries(
    st.sampled_from(
        (
            *("watch", "limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector"),
            *("fieldSelector", "dryRun", "fieldManager", "fieldValidation", "force", "sendInitialEvents"),
            *("gracePeriodSeconds", "propagationPolicy", "pretty", "container", "tailLines", "sinceTime"),
            *("includeObject", "allowWatchBookmarks", "orphanDependents", "limitBytes", "sinceSeconds"),
        )
    ),
    st.one_of(
        st.sampled_from(
            ("true", "1", "0", "All", "Strict", "Exact", "NotOlderThan", "a=b", "metadata.name=a")
        ),
        st.text(max_size=10),
    ),
    max_size=4,
)
METHODS = st.sampled_from(
    ("GET", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW")
)
POINTERS = st.sampled_from(
    (
        "",
        "/data",
        "/data/a",
        "/data/b",
        "/metadata",
        "/metadata/labels",
        "/spec/containers/0",
        "/spec/-",
        "/~01",
    )
)
OPERATIONS = st.fixed_dictionaries(
    {"op": st.sampled_from(("add", "copy", "copy", "move", "remove", "replace", "test")), "path": POINTERS},
    optional={"from": POINTERS, "value": VALUES},
)
BODIES = st.one_of(
    st.lists(OPERATIONS, max_size=40).map(lambda ops: json.dumps(ops).encode()),
    st.binary(max_size=40),
    st.binary(max_size=60).map(lambda raw: b"k8s\0" + raw),
    VALUES.map(lambda value: json.dumps(value).encode()),
    bent().map(lambda made: json.dumps(made[1]).encode()),
    st.text(max_size=60).map(str.encode),
    st.sampled_from((b"[" * 100_000, b"- " * 100_000, b'{"a":' * 500 + b"1" + b"}" * 500)),
)
ACCEPTS = st.one_of(
    st.sampled_from(
        (
            "",
            "*/*",
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            "application/yaml",
        )
    ),
    st.text(alphabet="abc/;=,*+ .q01", max_size=20),
)
Call = tuple[str, str, dict[str, str], str, str, bytes]


async def settle(calls: list[Call], furnished: bool = False) -> list[tuple[Call, int, str]]:
    """Send the calls one after the other; watches are read for a moment only."""
    answers = []
    async with serving() as http:
        local = http.server.build_local_client()
        local.create("customresourcedefinitions.apiextensions.k8s.io", definition())
        for resource, obj in (("pods", pod("a")), ("configmaps", config_map("a")), ("nodes", node("a"))):
            local.create(resource, obj)
        local.create("deployments.apps", deployment("a"))
        local.create("widgets.example.com", widget("a", size=1))
        if furnished:
            for path, sound in GOOD:
                async with http.session.post(path, json=sound) as response:
                    assert response.status in (201, 409), await response.text()
        for call in calls:
            method, path, query, kind, accept, body = call
            query = {**query, "timeoutSeconds": "1"}
            # Time is not what is tested here: a revision from the future would be waited for.
            query.pop("resourceVersion", None)
            headers = {"Content-Type": kind, "Accept": accept}
            request = http.session.request(method, path, params=query, headers=headers, data=body)
            async with asyncio.timeout(5), request as response:
                first = await response.content.read(4096)
            answers.append((call, response.status, first.decode(errors="replace")))
        assert await http.get("/healthz") == "ok"
    return answers


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(METHODS, PATHS, QUERIES, TYPES, ACCEPTS, BODIES), min_size=1, max_size=8))
def test_no_request_brings_the_server_down(calls: list[Call]) -> None:
    for call, code, body in asyncio.run(settle(calls)):
        scale_without_replicas = call[1].endswith("/widgets/a/scale")
        assert code < 500 or code == 501 or scale_without_replicas, (call, code, body)


REGISTRY = build_registry()
REGISTRY.add(crd.compile_definition(definition()))
WRITES = (
    ("POST", "application/json"),
    ("PUT", "application/json"),
    ("PATCH", "application/merge-patch+json"),
    ("PATCH", "application/strategic-merge-patch+json"),
    ("PATCH", "application/apply-patch+yaml"),
)


def written(way: tuple[str, str], made: tuple[str, Any]) -> Call:
    (method, kind), (path, body) = way, made
    name = "gadgets.example.com" if path.endswith("customresourcedefinitions") else "a"
    item = path if method == "POST" else f"{path}/{name}"
    query = {"fieldManager": "fuzz", "force": "true"} if "apply" in kind else {}
    if isinstance(body, dict):
        info = find_route(REGISTRY, split_path(path)).info
        body = {"kind": info.kind, "apiVersion": info.api_version, **body}
        if method == "POST" and isinstance(body.get("metadata"), dict):
            body["metadata"] = {**body["metadata"], "generateName": "a-"}
            body["metadata"].pop("name", None)
    return (method, item, query, kind, "*/*", json.dumps(body).encode())


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(WRITES), bent()), min_size=1, max_size=10))
def test_bent_objects_are_taken_or_refused_with_a_status(
    made: list[tuple[tuple[str, str], tuple[str, Any]]],
) -> None:
    for call, code, body in asyncio.run(settle([written(way, each) for way, each in made], furnished=True)):
        assert code < 500, (call, code, body)


async def test_raw_nonsense_on_the_socket_is_answered_and_closed() -> None:
    async with serving() as http:
        port = int(http.url.rpartition(":")[2])
        for junk in (
            b"\x00\xff\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"POST /api HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(junk)
            answer = await asyncio.wait_for(reader.read(200), 5)
            assert b" 400 " in answer.splitlines()[0]
            writer.close()
        async with aiohttp.ClientSession(http.url) as session, session.get("/readyz") as response:
            assert response.status == 200


NUISANCES: tuple[tuple[str, str, str, bytes], ...] = (
    ("POST", "/api/v1/namespaces/default/pods", "application/json", b'{"metadata":{"name":"A B"}}'),
    ("POST", "/api/v1/namespaces/default/pods", "application/json", b"{" * 300),
    (
        "POST",
        "/api/v1/namespaces/default/pods",
        "application/vnd.kubernetes.protobuf",
        b"k8s\0\x0a\xff\xff\xff",
    ),
    ("POST", "/api/v1/namespaces/default/pods", "text/plain", b"x"),
    ("PATCH", "/api/v1/namespaces/default/pods/a", "application/json-patch+json", b'[{"op":"brew"}]'),
    ("PATCH", "/apis/example.com/v1/namespaces/default/widgets/a", "application/merge-patch+json", b"[]"),
    ("GET", "/api/v1/pods?labelSelector=%21%21%21", "", b""),
    ("GET", "/api/v1/pods?limit=5&continue=nonsense", "", b""),
    ("GET", "/api/v1/pods?watch=true&resourceVersion=nonsense", "", b""),
    ("DELETE", "/api/v1/namespaces/default/pods/none", "", b""),
    ("PUT", "/apis/none/v1/things/a", "application/json", b"{}"),
)


async def _annoy(http: Http, rounds: int) -> None:
    """Bad requests, watches dropped in the middle, and bodies that never come."""
    port = int(http.url.rpartition(":")[2])
    for _ in range(rounds):
        for method, path, kind, body in NUISANCES:
            headers = {"Content-Type": kind}
            async with http.session.request(
                method, URL(path, encoded=True), data=body, headers=headers
            ) as reply:
                assert 400 <= reply.status < 500, (method, path, await reply.text())
        async with http.session.get("/api/v1/pods?watch=true") as stream:
            await stream.content.readline()
            stream.close()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.transport.abort()


async def test_bad_requests_leave_nothing_behind() -> None:
    async with serving() as http:
        local = http.server.build_local_client()
        local.create("customresourcedefinitions.apiextensions.k8s.io", definition())
        local.create("pods", pod("a"))
        local.create("widgets.example.com", widget("a", size=1))
        await _annoy(http, 10)
        revision = http.server.store.revision
        sizes = []
        for _ in range(3):
            await _annoy(http, 15)
            await asyncio.sleep(0.05)
            gc.collect()
            sizes.append(len(gc.get_objects()))
        assert http.server.store.revision == revision
        assert http.server.store.get_bucket("pods").listeners == {}
        assert sizes[2] - sizes[1] < 50, sizes
        assert len(asyncio.all_tasks()) < 20
