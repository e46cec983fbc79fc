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
            _text(1, document["swagger"]),
            _block(2, _text(1, info["title"]) + _text(2, info["version"])),
            _block(
                8, b"".join(_named(2, path, _path_item(item)) for path, item in document["paths"].items())
            ),
            _block(9, _named_schemas(document["definitions"])),
        )
    )


def _path_item(item: Json) -> bytes:
    return b"".join(_block(_METHODS[method], _operation(each)) for method, each in item.items())


def _operation(operation: Json) -> bytes:
    queries = b"".join(_block(8, _query(each)) for each in operation["parameters"])
    responses = b"".join(
        _named(1, code, _block(1, _text(1, each["description"])))
        for code, each in operation["responses"].items()
    )
    consumes = b"".join(_text(7, each) for each in operation["consumes"])
    return consumes + queries + _block(9, responses) + _extensions(13, operation)


def _query(parameter: Json) -> bytes:
    """A query parameter, which is a non-body parameter, which is a parameter, which is an item."""
    fields = _text(2, parameter["in"]) + _text(4, parameter["name"]) + _text(6, parameter["type"])
    return _block(1, _block(2, _block(3, fields)))


def _named_schemas(schemas: Json) -> bytes:
    return b"".join(_named(1, name, _schema(each)) for name, each in schemas.items())


def _schema(schema: Json) -> bytes:
    parts = [_text(number, schema[key]) for key, number in _TEXTS.items() if key in schema]
    parts += [_real(number, schema[key]) for key, number in _REALS.items() if key in schema]
    parts += [_whole(number, int(schema[key])) for key, number in _WHOLE.items() if key in schema]
    parts += [_text(19, name) for name in schema.get("required") or ()]
    parts += [_block(20, _any(value)) for value in schema.get("enum") or ()]
    if "default" in schema:
        parts.append(_block(5, _any(schema["default"])))
    if "additionalProperties" in schema:
        parts.append(_block(21, _block(1, _schema(schema["additionalProperties"]))))
    if "type" in schema:
        parts.append(_block(22, _text(1, schema["type"])))
    if "items" in schema:
        parts.append(_block(23, _block(1, _schema(schema["items"]))))
    if "properties" in schema:
        parts.append(_block(25, _named_schemas(schema["properties"])))
    return b"".join(parts) + _extensions(31, schema)


def _extensions(number: int, holder: Json) -> bytes:
    return b"".join(
        _named(number, key, _any(value)) for key, value in sorted(holder.items()) if key.startswith("x-")
    )


def _any(value: Any) -> bytes:
    # Any value travels as YAML, of which JSON is a part.
    return _text(2, json.dumps(value))


def _named(number: int, name: str, value: bytes) -> bytes:
    return _block(number, _text(1, name) + _block(2, value))


def _block(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _text(number: int, text: str) -> bytes:
    return _block(number, text.encode())


def _whole(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value & (1 << 64) - 1)


def _real(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
