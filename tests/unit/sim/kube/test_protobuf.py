"""Protobuf bodies: bytes as Go clients send them, and bytes nobody should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.sim.kube.builtin.kind_schemas import find_message
from dovetail.sim.kube.http.protobuf import MAGIC, MalformedProtobuf, UnsupportedKind, decode_body

# Objects and their bytes as written by the protobuf serializer of k8s.io/apimachinery v0.35.0.
GOLDEN = json.loads((Path(__file__).parent / "golden" / "protobuf.json").read_text())
BODIES = [bytes.fromhex(case["hex"]) for case in GOLDEN]
# Structures Go's JSON writes even when they hold nothing.
HOLLOW = frozenset({"metadata", "spec", "status", "loadBalancer"})


def meant(value: Any) -> Any:
    """Go's JSON without what says nothing: nulls, and structures that hold nothing."""
    if isinstance(value, list):
        return [meant(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {
        key: item if key == "subresources" else meant(item) for key, item in value.items() if item is not None
    }
    return {key: item for key, item in kept.items() if not (key in HOLLOW and item == {})}


@pytest.mark.parametrize("case", GOLDEN, ids=[case["json"]["kind"] for case in GOLDEN])
def test_a_body_reads_as_the_json_it_stands_for(case: dict[str, Any]) -> None:
    assert decode_body(bytes.fromhex(case["hex"])) == meant(case["json"])


def test_the_namespace_of_the_specification() -> None:
    body = bytes.fromhex("6b3873000a0f0a02763112094e616d657370616365121b0a130a03666f6f12001a00")
    with pytest.raises(MalformedProtobuf):
        decode_body(body)  # cut short: the object says it is 27 bytes long
    complete = bytes.fromhex("6b3873000a0f0a02763112094e616d65737061636512090a070a03666f6f1200")
    assert decode_body(complete) == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "foo"}}


def test_zero_behind_a_pointer_is_kept_and_zero_without_one_is_not() -> None:
    deployment = next(d for d in map(decode_body, BODIES) if d["kind"] == "Deployment")
    assert deployment["spec"]["replicas"] == 0
    assert "minReadySeconds" not in deployment["spec"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        MAGIC + b"\x0a",
        MAGIC + b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        MAGIC + b"\xff" * 11,
        MAGIC + b"\x00\x01",
        MAGIC + b"\x0b\x01",
        BODIES[0][:-1],
    ],
)
def test_what_is_no_body_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedProtobuf):
        decode_body(body)


def test_a_kind_outside_the_tables_is_told_apart() -> None:
    body = MAGIC + b"\x0a\x0a\x0a\x04x/v1\x12\x02No\x12\x00"
    with pytest.raises(UnsupportedKind, match="No"):
        decode_body(body)


def field(message_name: str, name: str, content: bytes) -> bytes:
    """A field of a message, as bytes."""
    number = next(f.number for f in find_message(message_name).fields if f.name == name)
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def nested_schema(depth: int) -> bytes:
    """A definition whose schema negates a schema that negates a schema."""
    package = "apiextensions/v1."
    inner = b""
    for _ in range(depth):
        inner = field(package + "JSONSchemaProps", "not", inner)
    schema = field(package + "CustomResourceValidation", "openAPIV3Schema", inner)
    version = field(package + "CustomResourceDefinitionVersion", "schema", schema)
    spec = field(package + "CustomResourceDefinitionSpec", "versions", version)
    raw = field(package + "CustomResourceDefinition", "spec", spec)
    meta = b"\x0a\x17apiextensions.k8s.io/v1\x12\x18CustomResourceDefinition"
    return MAGIC + b"\x0a" + _varint(len(meta)) + meta + b"\x12" + _varint(len(raw)) + raw


def test_messages_nested_beyond_reason_are_malformed() -> None:
    assert decode_body(nested_schema(10))["kind"] == "CustomResourceDefinition"
    with pytest.raises(MalformedProtobuf, match="deep"):
        decode_body(nested_schema(100))
    with pytest.raises(MalformedProtobuf, match="deep"):
        decode_body(nested_schema(5000))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def outcome(body: bytes) -> Any:
    """What the body reads as, or the complaint; any other failure escapes."""
    try:
        return decode_body(body)
    except MalformedProtobuf as error:
        return error


@given(st.binary(max_size=300))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    assert isinstance(outcome(MAGIC + data), dict | MalformedProtobuf)


@settings(max_examples=400)
@given(st.sampled_from(BODIES), st.data())
def test_a_damaged_body_is_read_or_refused_and_never_grows(body: bytes, data: st.DataObject) -> None:
    damaged = bytearray(body)
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(len(MAGIC), len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    read = outcome(bytes(damaged[: data.draw(st.integers(len(MAGIC), len(damaged)))]))
    assert isinstance(read, dict | MalformedProtobuf)
    if isinstance(read, dict):
        assert len(json.dumps(read)) < 40 * len(body) + 1000
