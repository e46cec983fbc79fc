"""OpenAPI v2: the same schemas as one document, as JSON and as the protobuf message that kubectl asks for.

kubectl validates a `kind: List`, and looks up a kind it does not know, in this document. The message is
gnostic's `openapi.v2.Document`; its field numbers stand in the tables below.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any

Json = Mapping[str, Any]

PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_ASKED = "com.github.proto-openapi.spec.v2"
_GVK = "x-kubernetes-group-version-kind"
_OLD, _NEW = "#/components/schemas/", "#/definitions/"
# Fields of a schema, by how they are written: text, whole number, real number, flag.
_TEXTS = {"$ref": 1, "format": 2, "title": 3, "description": 4, "pattern": 13}
_REALS = {"multipleOf": 6, "maximum": 7, "minimum": 9}
_WHOLE = {
    "maxLength": 11,
    "minLength": 12,
    "maxItems": 14,
    "minItems": 15,
    "uniqueItems": 16,
    "maxProperties": 17,
    "minProperties": 18,
    "exclusiveMaximum": 8,
    "exclusiveMinimum": 10,
}
_KEPT = frozenset({*_TEXTS, *_REALS, *_WHOLE, "type", "default", "required", "enum"})
_METHODS = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}


def asks_protobuf(accept: str) -> bool:
    """Whether a client takes the document as a message."""
    return _ASKED in accept


def merge_documents(documents: Iterable[Json]) -> dict[str, Any]:
    """The v2 document of all group versions' v3 documents."""
    definitions: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for document in documents:
        for name, schema in document["components"]["schemas"].items():
            known = definitions.get(name)
            # Shared by several documents; the one that serves it as a kind says so.
            if known is None or (_GVK in schema and _GVK not in known):
                definitions[name] = convert_schema(schema)
        for path, item in document["paths"].items():
            paths[path] = {method: _convert_operation(each) for method, each in item.items()}
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1"},
        "paths": paths,
        "definitions": dict(sorted(definitions.items())),
    }


def convert_schema(schema: Json) -> dict[str, Any]:
    """A schema in the words of v2, which has neither alternatives nor null."""
    extensions = {key: value for key, value in schema.items() if key.startswith("x-")}
    described = {"description": schema["description"]} if "description" in schema else {}
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
        return {**described, "type": "string", "format": "int-or-string", **extensions}
    if schema.get("nullable") or schema.get("x-kubernetes-preserve-unknown-fields"):
        return {**described, **extensions}
    if [each for each in schema.get("oneOf") or () if each.get("type") == "string"]:
        return {**described, "type": "string", **extensions}
    merged = {**schema, **(schema["allOf"][0] if "allOf" in schema else {})}
    converted = {key: value for key, value in merged.items() if key in _KEPT} | described | extensions
    if "$ref" in converted:
        converted["$ref"] = converted["$ref"].replace(_OLD, _NEW)
    if isinstance(merged.get("items"), dict):
        converted["items"] = convert_schema(merged["items"])
    if merged.get("properties"):
        converted["properties"] = {name: convert_schema(each) for name, each in merged["properties"].items()}
    if isinstance(merged.get("additionalProperties"), dict):
        converted["additionalProperties"] = convert_schema(merged["additionalProperties"])
    return converted


def _convert_operation(operation: Json) -> dict[str, Any]:
    content = operation.get("requestBody", {}).get("content", {})
    queries = [
        {"name": each["name"], "in": "query", "type": "string"} for each in operation.get("parameters", ())
    ]
    kept = {key: value for key, value in operation.items() if key.startswith("x-")}
    responses = {code: {"description": each["description"]} for code, each in operation["responses"].items()}
    return {"consumes": list(content), "parameters": queries, "responses": responses, **kept}


def encode_document(document: Json) -> bytes:
    """The document as a message."""
    info = document["info"]
    return b"".join(
        (
            _encode_text(1, document["swagger"]),
            _encode_block(2, _encode_text(1, info["title"]) + _encode_text(2, info["version"])),
            _encode_block(
                8,
                b"".join(
                    _encode_named(2, path, _encode_path_item(item))
                    for path, item in document["paths"].items()
                ),
            ),
            _encode_block(9, _encode_schemas(document["definitions"])),
        )
    )


def _encode_path_item(item: Json) -> bytes:
    return b"".join(_encode_block(_METHODS[method], _encode_operation(each)) for method, each in item.items())


def _encode_operation(operation: Json) -> bytes:
    queries = b"".join(_encode_block(8, _encode_query(each)) for each in operation["parameters"])
    responses = b"".join(
        _encode_named(1, code, _encode_block(1, _encode_text(1, each["description"])))
        for code, each in operation["responses"].items()
    )
    consumes = b"".join(_encode_text(7, each) for each in operation["consumes"])
    return consumes + queries + _encode_block(9, responses) + _encode_extensions(13, operation)


def _encode_query(parameter: Json) -> bytes:
    """A query parameter, which is a non-body parameter, which is a parameter, which is an item."""
    fields = (
        _encode_text(2, parameter["in"])
        + _encode_text(4, parameter["name"])
        + _encode_text(6, parameter["type"])
    )
    return _encode_block(1, _encode_block(2, _encode_block(3, fields)))


def _encode_schemas(schemas: Json) -> bytes:
    return b"".join(_encode_named(1, name, _encode_schema(each)) for name, each in schemas.items())


def _encode_schema(schema: Json) -> bytes:
    parts = [_encode_text(number, schema[key]) for key, number in _TEXTS.items() if key in schema]
    parts += [_encode_float(number, schema[key]) for key, number in _REALS.items() if key in schema]
    parts += [_encode_integer(number, int(schema[key])) for key, number in _WHOLE.items() if key in schema]
    parts += [_encode_text(19, name) for name in schema.get("required") or ()]
    parts += [_encode_block(20, _encode_any(value)) for value in schema.get("enum") or ()]
    if "default" in schema:
        parts.append(_encode_block(5, _encode_any(schema["default"])))
    if "additionalProperties" in schema:
        parts.append(_encode_block(21, _encode_block(1, _encode_schema(schema["additionalProperties"]))))
    if "type" in schema:
        parts.append(_encode_block(22, _encode_text(1, schema["type"])))
    if "items" in schema:
        parts.append(_encode_block(23, _encode_block(1, _encode_schema(schema["items"]))))
    if "properties" in schema:
        parts.append(_encode_block(25, _encode_schemas(schema["properties"])))
    return b"".join(parts) + _encode_extensions(31, schema)


def _encode_extensions(number: int, holder: Json) -> bytes:
    return b"".join(
        _encode_named(number, key, _encode_any(value))
        for key, value in sorted(holder.items())
        if key.startswith("x-")
    )


def _encode_any(value: Any) -> bytes:
    # Any value travels as YAML, of which JSON is a part.
    return _encode_text(2, json.dumps(value))


def _encode_named(number: int, name: str, value: bytes) -> bytes:
    return _encode_block(number, _encode_text(1, name) + _encode_block(2, value))


def _encode_block(number: int, content: bytes) -> bytes:
    return _encode_varint(number << 3 | 2) + _encode_varint(len(content)) + content


def _encode_text(number: int, text: str) -> bytes:
    return _encode_block(number, text.encode())


def _encode_integer(number: int, value: int) -> bytes:
    return _encode_varint(number << 3) + _encode_varint(value & (1 << 64) - 1)


def _encode_float(number: int, value: float) -> bytes:
    return _encode_varint(number << 3 | 1) + struct.pack("<d", value)


def _encode_varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
