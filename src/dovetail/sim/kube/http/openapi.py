"""OpenAPI documents: enough for kubectl to validate, apply, patch and explain.

The v3 index names one document per group version; each lists an item path for every kind and the schemas
behind it. Every built-in kind and its best known fields are described in a sentence of our own; a CRD brings
its own words.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from dovetail.api.schema.nodes import MISSING
from dovetail.sim.kube.builtin.kind_schemas import (
    BuiltinMessage,
    MessageField,
    describe_field,
    describe_kind,
    find_message,
    find_message_name,
)
from dovetail.sim.kube.http.openapi_v2 import merge_documents
from dovetail.sim.kube.types import TypeInfo, TypeRegistry

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_PATCHES = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
_STRATEGIC = "application/strategic-merge-patch+json"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_LEAVES: dict[str, dict[str, Any]] = {
    "s": {"type": "string"},
    "b": {"type": "boolean"},
    "i": {"type": "integer", "format": "int32"},
    "l": {"type": "integer", "format": "int64"},
    "d": {"type": "number", "format": "double"},
    "y": {"type": "string", "format": "byte"},
    "D": {"type": "string"},
    "V": {"type": "array", "items": {"type": "string"}},
    "R": {"type": "object"},
    "J": {},
    "SB": {},
    "SA": {},
    "SS": {},
}
_NAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "T": (f"{_META}.Time", {"type": "string", "format": "date-time"}),
    "M": (f"{_META}.MicroTime", {"type": "string", "format": "date-time"}),
    "F": (f"{_META}.FieldsV1", {"type": "object"}),
    "Q": (_QUANTITY, {"oneOf": [{"type": "string"}, {"type": "number"}]}),
    "I": (_INT_OR_STRING, {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"}),
}
_EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"


class OpenApiDocuments:
    """The documents of a registry, built when asked for and kept until the registry changes."""

    def __init__(self, registry: TypeRegistry) -> None:
        self._registry = registry
        self._revision = -1
        self._built: dict[tuple[str, str], dict[str, Any]] = {}

    def build_index(self) -> dict[str, Any]:
        """`/openapi/v3`: where each document is, with a hash that changes when it does."""
        paths: dict[str, Any] = {}
        for group in ("", *self._registry.list_groups()):
            for version in self._registry.list_versions(group):
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                tag = compute_content_hash(self.find_document(group, version) or {})
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={tag}"}
        return {"paths": paths}

    def build_v2_document(self) -> dict[str, Any]:
        """`/openapi/v2`: everything in one document."""
        versions = [
            (group, v)
            for group in ("", *self._registry.list_groups())
            for v in self._registry.list_versions(group)
        ]
        found = (self.find_document(group, version) for group, version in versions)
        return merge_documents(each for each in found if each is not None)

    def find_document(self, group: str, version: str) -> dict[str, Any] | None:
        """The document of one group version, or None if it is not served."""
        if self._revision != self._registry.revision:
            self._revision = self._registry.revision
            self._built.clear()
        key = (group, version)
        if key not in self._built:
            types = self._registry.list_types(group, version)
            if not types:
                return None
            self._built[key] = build_group_document(types)
        return self._built[key]


def compute_content_hash(document: Mapping[str, Any]) -> str:
    """A hash of what a document says."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest().upper()[:32]


def build_group_document(types: tuple[TypeInfo, ...]) -> dict[str, Any]:
    """The document of the types of one group version."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for info in types:
        _add_kind(info, schemas)
        _add_paths(info, paths)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _build_gvk(info: TypeInfo, kind: str = "") -> dict[str, str]:
    return {"group": info.group, "version": info.version, "kind": kind or info.kind}


def _add_paths(info: TypeInfo, paths: dict[str, Any]) -> None:
    base = f"/apis/{info.group}/{info.version}" if info.group else f"/api/{info.version}"
    if info.namespaced:
        base += "/namespaces/{namespace}"
    collection = f"{base}/{info.plural}"
    body = {"$ref": f"#/components/schemas/{find_schema_name(info)}"}
    if "create" in info.verbs:
        paths[collection] = {"post": _build_operation(info, {"application/json": {"schema": body}}, "post")}
    if "patch" in info.verbs:
        kinds = _PATCHES if info.custom else (*_PATCHES, _STRATEGIC)
        patch = _build_operation(info, {kind: {} for kind in kinds}, "patch")
        update = _build_operation(info, {"application/json": {"schema": body}}, "put")
        paths[f"{collection}/{{name}}"] = {"patch": patch, "put": update}


def _build_operation(info: TypeInfo, content: dict[str, Any], action: str) -> dict[str, Any]:
    queries = ("dryRun", "fieldManager", "fieldValidation", *(("force",) if action == "patch" else ()))
    return {
        "parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in queries],
        "requestBody": {"content": content},
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _build_gvk(info),
    }


def find_schema_name(info: TypeInfo) -> str:
    """The name of a kind's schema."""
    if not info.custom and (name := find_message_name(info.api_version, info.kind)) is not None:
        return build_component_name(name)
    reversed_group = ".".join(reversed(info.group.split(".")))
    return f"{reversed_group}.{info.version}.{info.kind}"


def build_component_name(name: str) -> str:
    """The component name of a message such as `core/v1.PodSpec`."""
    package, _, struct = name.partition(".")
    group, version = package.split("/")
    if group == "meta":
        return f"{_META}.{struct}"
    if group == "apiextensions":
        return f"{_EXTENSIONS}.{struct}"
    return f"io.k8s.api.{group}.{version}.{struct}"


def _build_ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _add_kind(info: TypeInfo, schemas: dict[str, Any]) -> None:
    name = find_schema_name(info)
    if info.custom:
        schemas[name] = _build_custom_schema(info, schemas)
    else:
        built_in = find_message_name(info.api_version, info.kind)
        if built_in is None:
            return
        _add_message(built_in, schemas)
        typed = {
            each: {"type": "string", "description": describe_field("", each)}
            for each in ("apiVersion", "kind")
        }
        described = {"description": describe_kind(info.kind)}
        schemas[name] = {
            **described,
            **schemas[name],
            "properties": {**typed, **schemas[name].get("properties", {})},
        }
    schemas[name]["x-kubernetes-group-version-kind"] = [_build_gvk(info)]
    if info.stored:
        schemas[f"{name}List"] = _build_list_schema(info, name, schemas)


def _build_list_schema(info: TypeInfo, name: str, schemas: dict[str, Any]) -> dict[str, Any]:
    _add_message("meta/v1.ListMeta", schemas)
    return {
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "items": {"type": "array", "items": {"allOf": [_build_ref(name)], "default": {}}},
            "kind": {"type": "string"},
            "metadata": {"allOf": [_build_ref(f"{_META}.ListMeta")], "default": {}},
        },
        "x-kubernetes-group-version-kind": [_build_gvk(info, info.list_kind)],
    }


def _build_custom_schema(info: TypeInfo, schemas: dict[str, Any]) -> dict[str, Any]:
    _add_message("meta/v1.ObjectMeta", schemas)
    document: dict[str, Any] = {"type": "object"} | dict(info.schema.document if info.schema else {})
    properties = dict(document.get("properties") or {})
    properties["apiVersion"] = {"type": "string"}
    properties["kind"] = {"type": "string"}
    properties["metadata"] = {"allOf": [_build_ref(f"{_META}.ObjectMeta")]}
    return {**document, "properties": properties}


def _add_message(name: str, schemas: dict[str, Any]) -> None:
    """A message and all it refers to."""
    key = build_component_name(name)
    if key in schemas:
        return
    schemas[key] = {}
    schemas[key] = _build_message_schema(find_message(name), schemas)


def _build_message_schema(definition: BuiltinMessage, schemas: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for field in definition.fields:
        if field.inline:
            inner = _build_message_schema(find_message(field.type.removeprefix("@")), schemas)
            properties.update(inner.get("properties", {}))
            required.extend(inner.get("required", []))
            continue
        properties[field.name] = _build_field_schema(
            field, schemas, describe_field(definition.name, field.name)
        )
        required.extend([field.name] if field.required else [])
    schema: dict[str, Any] = {"type": "object"}
    if properties:
        schema["properties"] = dict(sorted(properties.items()))
    if required:
        schema["required"] = sorted(required)
    if definition.atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _build_field_schema(field: MessageField, schemas: dict[str, Any], description: str) -> dict[str, Any]:
    schema = dict(_build_type_schema(field.type, schemas))
    extras = {
        "description": description,
        "x-kubernetes-patch-strategy": ",".join(filter(None, field.patch)),
        "x-kubernetes-patch-merge-key": field.merge_key,
        "x-kubernetes-map-type": "atomic" if field.atomic else "",
    }
    if field.type.startswith("[]"):
        extras["x-kubernetes-list-type"] = field.list_type
        schema |= {"x-kubernetes-list-map-keys": list(field.list_keys)} if field.list_keys else {}
    schema |= {key: value for key, value in extras.items() if value}
    if field.default is not MISSING:
        schema["default"] = field.default
    if "$ref" in schema and len(schema) > 1:
        reference = schema.pop("$ref")
        return {"allOf": [{"$ref": reference}], **schema}
    return schema


def _build_type_schema(text: str, schemas: dict[str, Any]) -> dict[str, Any]:
    if text in _LEAVES:
        return _LEAVES[text]
    if text in _NAMED:
        name, schema = _NAMED[text]
        schemas.setdefault(name, schema)
        return _build_ref(name)
    if text.startswith("[]"):
        return {"type": "array", "items": _build_type_schema(text[2:], schemas)}
    if text.startswith("{}"):
        return {"type": "object", "additionalProperties": _build_type_schema(text[2:], schemas)}
    name = text.removeprefix("@")
    _add_message(name, schemas)
    return _build_ref(build_component_name(name))
