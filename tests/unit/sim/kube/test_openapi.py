"""OpenAPI: what kubectl looks for before it applies, and what explain shows."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from dovetail.sim.kube.builtin.kind_schemas import describe_field, describe_kind, find_message
from dovetail.sim.kube.builtin.kinds import build_registry
from dovetail.sim.kube.http.openapi import OpenApiDocuments
from dovetail.sim.kube.http.openapi_v2 import convert_schema, encode_document
from dovetail.sim.kube.http.protobuf import read_fields
from dovetail.sim.kube.schema import crd
from dovetail.sim.kube.types import TypeRegistry

WIDGETS: dict[str, Any] = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "description": "A thing.",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"size": {"type": "integer", "description": "How big."}},
                            }
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture
def registry() -> TypeRegistry:
    found = build_registry()
    found.add(crd.compile_definition(WIDGETS))
    return found


def document(registry: TypeRegistry, group: str, version: str) -> dict[str, Any]:
    found = OpenApiDocuments(registry).find_document(group, version)
    assert found is not None
    return found


def test_the_index_leads_to_every_group_version(registry: TypeRegistry) -> None:
    paths = OpenApiDocuments(registry).build_index()["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/example.com/v1"} <= set(paths)
    for path, entry in paths.items():
        assert re.fullmatch(rf"/openapi/v3/{path}\?hash=[0-9A-F]+", entry["serverRelativeURL"])


def test_a_hash_changes_when_its_document_does_and_no_other_changes(registry: TypeRegistry) -> None:
    documents = OpenApiDocuments(registry)
    before = documents.build_index()["paths"]
    changed = json.loads(json.dumps(WIDGETS))
    schema = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["colour"] = {"type": "string"}
    registry.replace("widgets.example.com", crd.compile_definition(changed))
    after = documents.build_index()["paths"]
    assert {path for path in before if before[path] != after[path]} == {"apis/example.com/v1"}


def test_kubectl_finds_the_patch_operation_and_its_field_validation(registry: TypeRegistry) -> None:
    path = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    patch = document(registry, "apps", "v1")["paths"][path]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {
        "group": "apps",
        "version": "v1",
        "kind": "Deployment",
    }
    assert "fieldValidation" in [p["name"] for p in patch["parameters"]]
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]
    custom = document(registry, "example.com", "v1")["paths"]
    patch = custom["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]
    assert "application/apply-patch+yaml" in patch["requestBody"]["content"]


def test_a_custom_kind_is_published_with_its_descriptions_and_its_metadata(registry: TypeRegistry) -> None:
    schemas = document(registry, "example.com", "v1")["components"]["schemas"]
    widget = schemas["com.example.v1.Widget"]
    assert widget["description"] == "A thing."
    assert widget["properties"]["spec"]["properties"]["size"]["description"] == "How big."
    assert widget["properties"]["metadata"] == {
        "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]
    }
    assert widget["x-kubernetes-group-version-kind"] == [
        {"group": "example.com", "version": "v1", "kind": "Widget"}
    ]
    assert schemas["com.example.v1.WidgetList"]["x-kubernetes-group-version-kind"] == [
        {"group": "example.com", "version": "v1", "kind": "WidgetList"}
    ]


def test_a_built_in_kind_shows_its_fields_how_they_merge_and_what_is_required(registry: TypeRegistry) -> None:
    schemas = document(registry, "apps", "v1")["components"]["schemas"]
    spec = schemas["io.k8s.api.core.v1.PodSpec"]
    containers = spec["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-list-type"] == "map"
    assert containers["items"] == {"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}
    assert spec["required"] == ["containers"]
    volume = schemas["io.k8s.api.core.v1.Volume"]
    assert {"name", "emptyDir", "persistentVolumeClaim"} <= set(volume["properties"])
    assert schemas["io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"]["x-kubernetes-map-type"] == "atomic"


def test_every_reference_leads_somewhere(registry: TypeRegistry) -> None:
    for group in ("", *registry.list_groups()):
        for version in registry.list_versions(group):
            doc = document(registry, group, version)
            names = set(re.findall(r"#/components/schemas/([\w.\-]+)", json.dumps(doc)))
            assert names <= set(doc["components"]["schemas"])


def test_documents_are_built_once_until_the_registry_changes(registry: TypeRegistry) -> None:
    documents = OpenApiDocuments(registry)
    first = documents.find_document("apps", "v1")
    assert documents.find_document("apps", "v1") is first
    registry.remove("widgets.example.com")
    assert documents.find_document("example.com", "v1") is None
    assert documents.find_document("apps", "v1") is not first


def test_the_second_version_holds_every_kind_and_leads_nowhere_else(registry: TypeRegistry) -> None:
    merged = OpenApiDocuments(registry).build_v2_document()
    kinds = {
        (gvk["group"], gvk["kind"])
        for schema in merged["definitions"].values()
        for gvk in schema.get("x-kubernetes-group-version-kind", ())
    }
    assert {
        ("", "Pod"),
        ("apps", "Deployment"),
        ("example.com", "Widget"),
        ("example.com", "WidgetList"),
    } <= kinds
    text = json.dumps(merged)
    named = set(re.findall(r'"#/definitions/([^"]+)"', text))
    assert named <= merged["definitions"].keys()
    assert "components" not in text


DESCRIBED = (
    *(
        "meta/v1.ObjectMeta",
        "core/v1.PodSpec",
        "core/v1.Container",
        "core/v1.NodeSpec",
        "core/v1.ServiceSpec",
    ),
    *("apps/v1.DeploymentSpec", "apps/v1.StatefulSetSpec", "apps/v1.DaemonSetSpec", "batch/v1.JobSpec"),
    *("batch/v1.CronJobSpec", "policy/v1.PodDisruptionBudgetSpec", "core/v1.TopologySpreadConstraint"),
    *("core/v1.Affinity", "core/v1.Taint", "core/v1.Toleration", "core/v1.PersistentVolumeClaimSpec"),
)


@pytest.mark.parametrize("name", DESCRIBED)
def test_every_field_that_people_look_up_is_described(name: str) -> None:
    missing = [field.name for field in find_message(name).fields if not describe_field(name, field.name)]
    assert missing == []


def test_every_kind_is_described(registry: TypeRegistry) -> None:
    assert [
        info.kind for info in registry.list_all() if not info.custom and not describe_kind(info.kind)
    ] == []
    pods = document(registry, "", "v1")["components"]["schemas"]["io.k8s.api.core.v1.Pod"]
    assert pods["description"] == describe_kind("Pod")
    assert pods["properties"]["spec"]["description"] == "What is wanted."


META = b"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def parts(data: bytes, number: int) -> list[Any]:
    """Every value of one field of a message."""
    return [value for found, _, value in read_fields(data) if found == number]


def test_the_message_says_what_the_document_says(registry: TypeRegistry) -> None:
    merged = OpenApiDocuments(registry).build_v2_document()
    encoded = encode_document(merged)
    assert parts(encoded, 1) == [b"2.0"]
    (definitions,) = parts(encoded, 9)
    schemas = {parts(each, 1)[0].decode(): parts(each, 2)[0] for each in parts(definitions, 1)}
    assert schemas.keys() == merged["definitions"].keys()
    widget = schemas["com.example.v1.Widget"]
    assert parts(widget, 4) == [b"A thing."]
    properties = {parts(each, 1)[0]: parts(each, 2)[0] for each in parts(parts(widget, 25)[0], 1)}
    assert parts(properties[b"metadata"], 1) == [
        b"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    ]
    (extension,) = parts(widget, 31)
    assert json.loads(parts(parts(extension, 2)[0], 2)[0])[0]["kind"] == "Widget"
    (paths,) = parts(encoded, 8)
    assert len(parts(paths, 2)) == len(merged["paths"])


@pytest.mark.parametrize(
    ("schema", "converted"),
    [
        ({"x-kubernetes-int-or-string": True}, {"type": "string", "format": "int-or-string"}),
        ({"type": "string", "nullable": True}, {}),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {}}}, {}),
        ({"type": "integer", "anyOf": [{"minimum": 1}], "maximum": 3}, {"type": "integer", "maximum": 3}),
        (
            {"allOf": [{"$ref": "#/components/schemas/A"}], "description": "b"},
            {"$ref": "#/definitions/A", "description": "b"},
        ),
    ],
)
def test_what_the_second_version_cannot_say_is_left_out(schema: Any, converted: Any) -> None:
    plain = {key: value for key, value in convert_schema(schema).items() if not key.startswith("x-")}
    assert plain == converted
