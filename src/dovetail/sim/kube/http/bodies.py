"""Request bodies: JSON, YAML and Kubernetes protobuf, all read into plain documents."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from dovetail.sim.kube import status
from dovetail.sim.kube.http import protobuf
from dovetail.sim.kube.verbs.patch import PatchKind

LIMIT = 3 * 1024 * 1024
_DEEPEST = 200
# YAML is read a hundred times slower than JSON, so a body may hold far fewer values than bytes.
YAML_EVENTS_LIMIT = 150_000
_JSON = ("application/json", "text/json", "")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_YAML = ("application/yaml", "text/yaml", "application/x-yaml", "text/x-yaml")

_PATCH_KINDS: dict[str, PatchKind] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}


def parse_media_type(header: str) -> str:
    """A Content-Type without its parameters."""
    return header.partition(";")[0].strip().lower()


def read_object(body: bytes, content_type: str, strict: bool = False) -> Any:
    """A body as a document; with `strict`, a key given twice is an error."""
    kind = parse_media_type(content_type)
    if kind in _JSON:
        return read_json(body, strict)
    if kind in _YAML:
        return read_yaml(body)
    if kind == protobuf.MEDIA_TYPE:
        return _read_protobuf(body)
    raise status.unsupported_media(
        f"the body of the request was in an unknown format ({kind}) - accepted media types include: "
        f"application/json, application/yaml, {protobuf.MEDIA_TYPE}"
    )


def find_patch_kind(content_type: str) -> PatchKind:
    """Which patch a Content-Type announces, or a 415."""
    kind = _PATCH_KINDS.get(parse_media_type(content_type))
    if kind is None:
        raise status.unsupported_media(
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(_PATCH_KINDS)
        )
    return kind


def read_patch(body: bytes, kind: PatchKind, strict: bool = False) -> Any:
    """A patch body; an apply may be YAML, of which JSON is a part."""
    if kind != "apply":
        return read_json(body, strict)
    return read_json(body, strict) if body.lstrip()[:1] == b"{" else read_yaml(body)


def read_json(body: bytes, strict: bool = False) -> Any:
    """A JSON document."""
    try:
        document = _decode_json(body)
        _refuse_depth(document, body)
    except (ValueError, RecursionError) as error:
        raise status.bad_request(f"the object provided is unrecognized: {error}") from error
    if strict:
        _refuse_duplicates(body)
    return document


def _decode_json(body: bytes) -> Any:
    """A JSON document, with U+FFFD for what is no character, as Go reads it."""
    try:
        return msgspec.json.decode(body)
    except UnicodeDecodeError:
        return _decode_json(body.decode("utf-8", "replace").encode())
    except msgspec.DecodeError:
        if not _SURROGATE.search(body):
            raise
        # Half a surrogate pair, perhaps: Python's own reader takes it.
        text = json.dumps(json.loads(body), ensure_ascii=False, allow_nan=False)
        return msgspec.json.decode(replace_surrogates(text))


def replace_surrogates(text: str) -> str:
    """The text with U+FFFD for each half of a surrogate pair."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _refuse_depth(document: Any, body: bytes) -> None:
    """Deep nesting is not data; everything that walks documents relies on there being none."""
    if body.count(b"[") + body.count(b"{") <= _DEEPEST:
        return
    level, depth = [document] if isinstance(document, dict | list) else [], 0
    while level:
        depth += 1
        if depth > _DEEPEST:
            raise status.bad_request(f"the object provided nests more than {_DEEPEST} levels deep")
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [item for items in inner for item in items if isinstance(item, dict | list)]


class _Twice(dict[str, Any]):
    """An object some of whose keys came more than once."""

    repeated: tuple[str, ...] = ()


def _collect_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = _Twice(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        found.repeated = tuple(dict.fromkeys(name for name in names if names.count(name) > 1))
    return found


def _refuse_duplicates(body: bytes) -> None:
    try:
        document = json.loads(body, object_pairs_hook=_collect_pairs)
    except (ValueError, RecursionError) as error:
        raise status.bad_request(f"the object provided is unrecognized: {error}") from error
    paths = list(_find_repeated_keys(document, ""))
    if paths:
        listed = ", ".join(f'duplicate field "{path}"' for path in paths)
        raise status.bad_request(f"strict decoding error: {listed}")


def _find_repeated_keys(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Twice):
        for name in value.repeated:
            yield f"{path}.{name}" if path else name
        for name, item in value.items():
            yield from _find_repeated_keys(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_repeated_keys(item, f"{path}[{index}]")


class _JsonLikeLoader(yaml.CSafeLoader):
    """YAML with the scalars of JSON: `on`, dates and `1_0` stay text."""


_JsonLikeLoader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)\Z", "tTfF"),
    ("null", r"(?:null|Null|NULL|~|)\Z", "nN~\0"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)\Z", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?\Z", "-+.0123456789"),
):
    _JsonLikeLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))
_JsonLikeLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"\Z"), [""])


def read_yaml(body: bytes) -> Any:
    """A YAML document that could have been JSON."""
    try:
        _scan_yaml(body)
        document = yaml.load(body, Loader=_JsonLikeLoader)  # a safe loader
        return msgspec.json.decode(msgspec.json.encode(document))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise status.bad_request(f"error parsing YAML: {error}") from error


def _scan_yaml(body: bytes) -> None:
    """Refuse what would overwhelm the loader: too many values, deep nesting, and aliases that multiply."""
    depth = documents = 0
    for number, event in enumerate(yaml.parse(body, Loader=_JsonLikeLoader)):
        if number > YAML_EVENTS_LIMIT:
            raise status.too_large(YAML_EVENTS_LIMIT, "YAML values and brackets; send the body as JSON")
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise status.bad_request("error parsing YAML: the body holds more than one document")
        if isinstance(event, yaml.AliasEvent):
            raise status.bad_request("YAML aliases are not accepted here: write the value out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST:
            raise status.bad_request(f"the object provided nests more than {_DEEPEST} levels deep")


def _read_protobuf(body: bytes) -> Any:
    try:
        return protobuf.decode_body(body)
    except protobuf.UnsupportedKind as error:
        raise status.unsupported_media(str(error)) from error
    except protobuf.MalformedProtobuf as error:
        raise status.bad_request(f"the protobuf body cannot be decoded: {error}") from error
