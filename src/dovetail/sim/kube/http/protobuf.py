"""Kubernetes' protobuf request bodies, read into the JSON they stand for.

kubectl's imperative commands and Go clients send them and take no other answer than success. Anything that
is not such a body raises Malformed, and so does, as UnsupportedKind, a kind that is not in the tables.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from dovetail.sim.kube.builtin.kind_schemas import (
    MessageField,
    find_message,
    find_message_name,
)

__all__ = ["MAGIC", "MEDIA_TYPE", "MalformedProtobuf", "UnsupportedKind", "decode_body"]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class MalformedProtobuf(ValueError):
    """Bytes that are not what they claim to be."""


def read_fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Each field's number, wire type and value; fixed-width values stay bytes."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _read_varint(data, position)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise MalformedProtobuf("field number 0")
        value: int | bytes
        if wire == VARINT:
            value, position = _read_varint(data, position)
        else:
            size = {FIXED64: 8, FIXED32: 4}.get(wire)
            if wire == BYTES:
                size, position = _read_varint(data, position)
            if size is None:
                raise MalformedProtobuf(f"wire type {wire}")
            if size > end - position:
                raise MalformedProtobuf("a field is longer than the message that holds it")
            value = data[position : position + size]
            position += size
        yield number, wire, value


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if position >= len(data):
            raise MalformedProtobuf("the message ends inside a number")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
        if shift > 63:
            raise MalformedProtobuf("a number is longer than 64 bits")


def read_varints(data: bytes) -> Iterator[int]:
    """The numbers of a packed list."""
    position = 0
    while position < len(data):
        number, position = _read_varint(data, position)
        yield number


def to_signed(number: int, bits: int) -> int:
    """An unsigned number read as two's complement."""
    return number - (1 << bits) if number >> (bits - 1) else number


MAGIC = b"k8s\x00"
MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
# JSON schemas nest in one another; nothing else nests nearly as deep.
_DEPTH_LIMIT = 64
_JSON_SCHEMA = "apiextensions/v1.JSONSchemaProps"


class UnsupportedKind(MalformedProtobuf):
    """A well-formed body of a kind that can only be read from JSON."""


def decode_body(body: bytes) -> dict[str, Any]:
    """The object in a body, with its apiVersion and kind."""
    if not body.startswith(MAGIC):
        raise MalformedProtobuf("the body does not start with the Kubernetes protobuf prefix")
    envelope = dict(_iterate_fields(body[len(MAGIC) :]))
    meta = dict(_iterate_fields(_require_bytes(envelope.get(1, b""))))
    api_version, kind = _read_text(meta.get(1, b"")), _read_text(meta.get(2, b""))
    name = find_message_name(api_version, kind)
    if name is None:
        raise UnsupportedKind(f"the kind {kind!r} of {api_version!r} cannot be read from protobuf: send JSON")
    if _read_text(envelope.get(3, b"")):
        raise MalformedProtobuf("the body says that it is encoded, which is not supported")
    try:
        content = _read_message(_require_bytes(envelope.get(2, b"")), name, 0)
    except RecursionError as error:
        raise MalformedProtobuf("the body nests too deep") from error
    return {"apiVersion": api_version, "kind": kind, **content}


def _iterate_fields(data: bytes) -> Iterator[tuple[int, Any]]:
    return ((number, value) for number, _, value in read_fields(data))


def _require_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise MalformedProtobuf("a message was expected")
    return value


def _read_text(value: Any) -> str:
    try:
        return _require_bytes(value).decode()
    except UnicodeDecodeError as error:
        raise MalformedProtobuf("a string is not UTF-8") from error


@cache
def _index_by_number(name: str) -> dict[int, MessageField]:
    return {field.number: field for field in find_message(name).fields if field.number}


def _read_message(data: bytes, name: str, depth: int) -> dict[str, Any]:
    if depth > _DEPTH_LIMIT:
        raise MalformedProtobuf("the body nests too deep")
    known = _index_by_number(name)
    result: dict[str, Any] = {}
    for number, wire, value in read_fields(data):
        field = known.get(number)
        if field is None:
            continue  # a field of a newer or older version of the kind
        if field.inline:
            result.update(_read_message(_require_bytes(value), field.type.removeprefix("@"), depth + 1))
        else:
            _set_field(result, field, wire, value, depth)
    return result


def _set_field(result: dict[str, Any], field: MessageField, wire: int, value: Any, depth: int) -> None:
    if field.type.startswith("[]"):
        result.setdefault(field.name, []).extend(_read_elements(field.type[2:], wire, value, depth))
        return
    if field.type.startswith("{}"):
        key, item = _read_map_entry(field.type[2:], _require_bytes(value), depth)
        result.setdefault(field.name, {})[key] = item
        return
    item = _read_value(field.type, wire, value, depth)
    # Fields that are no pointers are always written; empty ones are as good as absent, as in Go's own JSON.
    if item is None or (not field.pointer and _is_empty(item) and (field.omit_empty or _is_composite(item))):
        result.pop(field.name, None)
    else:
        result[field.name] = item


def _is_empty(item: Any) -> bool:
    return item in ("", 0, False) or item in ({}, [])


def _is_composite(item: Any) -> bool:
    return isinstance(item, dict | list)


def _read_elements(kind: str, wire: int, value: Any, depth: int) -> list[Any]:
    packed = wire == BYTES and kind in ("i", "l", "b")
    if not packed:
        item = _read_value(kind, wire, value, depth)
        return [] if item is None else [item]
    return [_read_value(kind, VARINT, number, depth) for number in read_varints(_require_bytes(value))]


def _read_map_entry(kind: str, data: bytes, depth: int) -> tuple[str, Any]:
    key, item = "", _zero_value(kind)
    for number, wire, value in read_fields(data):
        if number == 1:
            key = _read_text(value)
        elif number == 2:
            item = _read_value(kind, wire, value, depth)
    return key, item


def _zero_value(kind: str) -> Any:
    if kind in ("s", "y", "Q"):
        return "0" if kind == "Q" else ""
    return {"b": False, "i": 0, "l": 0, "d": 0.0, "V": []}.get(kind, {})


def _read_value(kind: str, wire: int, value: Any, depth: int) -> Any:
    expected = {"b": VARINT, "i": VARINT, "l": VARINT, "d": FIXED64}.get(kind, BYTES)
    if wire != expected and not (kind == "d" and wire == FIXED32):
        raise MalformedProtobuf("a field has another type than its kind says")
    reader = _READERS.get(kind)
    if reader is not None:
        return reader(value)
    if kind.startswith(("[]", "{}")):
        raise MalformedProtobuf("a list stands where protobuf has none")
    if kind in ("SB", "SA", "SS"):
        return _read_schema_union(kind, value, depth + 1)
    return _read_message(value, kind.removeprefix("@"), depth + 1)


def _read_int32(value: int) -> int:
    return to_signed(value & 0xFFFFFFFF, 32)


def _read_double(value: Any) -> float:
    number: float = struct.unpack("<d" if len(value) == 8 else "<f", value)[0]
    if number != number or number in (float("inf"), float("-inf")):
        raise MalformedProtobuf("a number is not finite")
    return number


def _read_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _read_moment(value: bytes) -> datetime | None:
    parts = dict(_iterate_fields(value))
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        raise MalformedProtobuf("a time is not made of numbers")
    seconds, nanos = to_signed(seconds, 64), _read_int32(nanos)
    if not value or not parts:
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError as error:
        raise MalformedProtobuf("a time is out of range") from error


def _read_time(value: bytes) -> str | None:
    moment = _read_moment(value)
    return None if moment is None else _format_iso(moment)


def _read_micro_time(value: bytes) -> str | None:
    moment = _read_moment(value)
    return None if moment is None else f"{_format_iso(moment)[:-1]}.{moment.microsecond:06d}Z"


def _format_iso(moment: datetime) -> str:
    return moment.replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def _read_duration(value: bytes) -> str:
    nanos = dict(_iterate_fields(value)).get(1, 0)
    if not isinstance(nanos, int):
        raise MalformedProtobuf("a duration is not a number")
    seconds = to_signed(nanos, 64) / 1e9
    hours, rest = divmod(abs(seconds), 3600)
    minutes, left = divmod(rest, 60)
    text = f"{left:.9f}".rstrip("0").rstrip(".") + "s"
    if hours or minutes:
        text = (f"{int(hours)}h" if hours else "") + f"{int(minutes)}m{text}"
    return f"-{text}" if seconds < 0 else text


def _read_quantity(value: bytes) -> str:
    return _read_text(dict(_iterate_fields(value)).get(1, b"")) or "0"


def _read_int_or_string(value: bytes) -> int | str:
    parts = dict(_iterate_fields(value))
    kind, number = parts.get(1, 0), parts.get(2, 0)
    if kind == 1:
        return _read_text(parts.get(3, b""))
    if not isinstance(number, int):
        raise MalformedProtobuf("an int-or-string is neither")
    return _read_int32(number)


def _read_raw_json(value: bytes) -> Any:
    """JSON inside the protobuf, as extensions and field sets are kept."""
    raw = _require_bytes(dict(_iterate_fields(value)).get(1, b""))
    if not raw:
        return None
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise MalformedProtobuf("an embedded object is not JSON") from error


def _read_strings(value: bytes) -> list[str]:
    return [_read_text(item) for number, item in _iterate_fields(value) if number == 1]


_READERS: dict[str, Callable[[Any], Any]] = {
    "s": _read_text,
    "b": bool,
    "i": _read_int32,
    "l": lambda value: to_signed(value, 64),
    "d": _read_double,
    "y": _read_base64,
    "T": _read_time,
    "M": _read_micro_time,
    "D": _read_duration,
    "Q": _read_quantity,
    "I": _read_int_or_string,
    "R": _read_raw_json,
    "F": _read_raw_json,
    "J": _read_raw_json,
    "V": _read_strings,
}


def _read_schema_union(kind: str, data: bytes, depth: int) -> Any:
    """A JSON schema, or what may stand in its place: a bool, schemas, names."""
    allows, schema, listed = False, None, []
    for number, _, value in read_fields(data):
        if kind == "SB" and number == 1:
            allows = bool(value)
        elif number == (2 if kind == "SB" else 1):
            schema = _read_message(_require_bytes(value), _JSON_SCHEMA, depth)
        elif number == 2:
            listed.append(
                _read_text(value)
                if kind == "SS"
                else _read_message(_require_bytes(value), _JSON_SCHEMA, depth)
            )
    if schema is not None:
        return schema
    return allows if kind == "SB" else listed
