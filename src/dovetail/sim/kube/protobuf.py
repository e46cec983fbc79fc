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

from dovetail.sim.kube.builtin_fields import Field, message, message_of
from dovetail.sim.kube.wire import BYTES, FIXED32, FIXED64, VARINT, Malformed, fields, signed, varints

__all__ = ["MAGIC", "MEDIA_TYPE", "Malformed", "UnsupportedKind", "decode"]

MAGIC = b"k8s\x00"
MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
# JSON schemas nest in one another; nothing else nests nearly as deep.
_DEPTH_LIMIT = 64
_JSON_SCHEMA = "apiextensions/v1.JSONSchemaProps"


class UnsupportedKind(Malformed):
    """A well-formed body of a kind that can only be read from JSON."""


def decode(body: bytes) -> dict[str, Any]:
    """The object in a body, with its apiVersion and kind."""
    if not body.startswith(MAGIC):
        raise Malformed("the body does not start with the Kubernetes protobuf prefix")
    envelope = dict(_last(body[len(MAGIC) :]))
    meta = dict(_last(_bytes(envelope.get(1, b""))))
    api_version, kind = _text(meta.get(1, b"")), _text(meta.get(2, b""))
    name = message_of(api_version, kind)
    if name is None:
        raise UnsupportedKind(f"the kind {kind!r} of {api_version!r} cannot be read from protobuf: send JSON")
    if _text(envelope.get(3, b"")):
        raise Malformed("the body says that it is encoded, which is not supported")
    try:
        content = _message(_bytes(envelope.get(2, b"")), name, 0)
    except RecursionError as error:
        raise Malformed("the body nests too deep") from error
    return {"apiVersion": api_version, "kind": kind, **content}


def _last(data: bytes) -> Iterator[tuple[int, Any]]:
    return ((number, value) for number, _, value in fields(data))


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise Malformed("a message was expected")
    return value


def _text(value: Any) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError as error:
        raise Malformed("a string is not UTF-8") from error


@cache
def _numbered(name: str) -> dict[int, Field]:
    return {field.number: field for field in message(name).fields if field.number}


def _message(data: bytes, name: str, depth: int) -> dict[str, Any]:
    if depth > _DEPTH_LIMIT:
        raise Malformed("the body nests too deep")
    known = _numbered(name)
    result: dict[str, Any] = {}
    for number, wire, value in fields(data):
        field = known.get(number)
        if field is None:
            continue  # a field of a newer or older version of the kind
        if field.inline:
            result.update(_message(_bytes(value), field.type.removeprefix("@"), depth + 1))
        else:
            _set(result, field, wire, value, depth)
    return result


def _set(result: dict[str, Any], field: Field, wire: int, value: Any, depth: int) -> None:
    if field.type.startswith("[]"):
        result.setdefault(field.name, []).extend(_elements(field.type[2:], wire, value, depth))
        return
    if field.type.startswith("{}"):
        key, item = _map_entry(field.type[2:], _bytes(value), depth)
        result.setdefault(field.name, {})[key] = item
        return
    item = _value(field.type, wire, value, depth)
    # Fields that are no pointers are always written; empty ones are as good as absent, as in Go's own JSON.
    if item is None or (not field.pointer and _empty(item) and (field.omit_empty or _composite(item))):
        result.pop(field.name, None)
    else:
        result[field.name] = item


def _empty(item: Any) -> bool:
    return item in ("", 0, False) or item in ({}, [])


def _composite(item: Any) -> bool:
    return isinstance(item, dict | list)


def _elements(kind: str, wire: int, value: Any, depth: int) -> list[Any]:
    packed = wire == BYTES and kind in ("i", "l", "b")
    if not packed:
        item = _value(kind, wire, value, depth)
        return [] if item is None else [item]
    return [_value(kind, VARINT, number, depth) for number in varints(_bytes(value))]


def _map_entry(kind: str, data: bytes, depth: int) -> tuple[str, Any]:
    key, item = "", _zero(kind)
    for number, wire, value in fields(data):
        if number == 1:
            key = _text(value)
        elif number == 2:
            item = _value(kind, wire, value, depth)
    return key, item


def _zero(kind: str) -> Any:
    if kind in ("s", "y", "Q"):
        return "0" if kind == "Q" else ""
    return {"b": False, "i": 0, "l": 0, "d": 0.0, "V": []}.get(kind, {})


def _value(kind: str, wire: int, value: Any, depth: int) -> Any:
    expected = {"b": VARINT, "i": VARINT, "l": VARINT, "d": FIXED64}.get(kind, BYTES)
    if wire != expected and not (kind == "d" and wire == FIXED32):
        raise Malformed("a field has another type than its kind says")
    reader = _READERS.get(kind)
    if reader is not None:
        return reader(value)
    if kind.startswith(("[]", "{}")):
        raise Malformed("a list stands where protobuf has none")
    if kind in ("SB", "SA", "SS"):
        return _schema_union(kind, value, depth + 1)
    return _message(value, kind.removeprefix("@"), depth + 1)


def _int32(value: int) -> int:
    return signed(value & 0xFFFFFFFF, 32)


def _double(value: Any) -> float:
    number: float = struct.unpack("<d" if len(value) == 8 else "<f", value)[0]
    if number != number or number in (float("inf"), float("-inf")):
        raise Malformed("a number is not finite")
    return number


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _moment(value: bytes) -> datetime | None:
    parts = dict(_last(value))
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        raise Malformed("a time is not made of numbers")
    seconds, nanos = signed(seconds, 64), _int32(nanos)
    if not value or not parts:
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError as error:
        raise Malformed("a time is out of range") from error


def _time(value: bytes) -> str | None:
    moment = _moment(value)
    return None if moment is None else _iso(moment)


def _micro_time(value: bytes) -> str | None:
    moment = _moment(value)
    return None if moment is None else f"{_iso(moment)[:-1]}.{moment.microsecond:06d}Z"


def _iso(moment: datetime) -> str:
    return moment.replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def _duration(value: bytes) -> str:
    nanos = dict(_last(value)).get(1, 0)
    if not isinstance(nanos, int):
        raise Malformed("a duration is not a number")
    seconds = signed(nanos, 64) / 1e9
    hours, rest = divmod(abs(seconds), 3600)
    minutes, left = divmod(rest, 60)
    text = f"{left:.9f}".rstrip("0").rstrip(".") + "s"
    if hours or minutes:
        text = (f"{int(hours)}h" if hours else "") + f"{int(minutes)}m{text}"
    return f"-{text}" if seconds < 0 else text


def _quantity(value: bytes) -> str:
    return _text(dict(_last(value)).get(1, b"")) or "0"


def _int_or_string(value: bytes) -> int | str:
    parts = dict(_last(value))
    kind, number = parts.get(1, 0), parts.get(2, 0)
    if kind == 1:
        return _text(parts.get(3, b""))
    if not isinstance(number, int):
        raise Malformed("an int-or-string is neither")
    return _int32(number)


def _raw(value: bytes) -> Any:
    """JSON inside the protobuf, as extensions and field sets are kept."""
    raw = _bytes(dict(_last(value)).get(1, b""))
    if not raw:
        return None
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Malformed("an embedded object is not JSON") from error


def _strings(value: bytes) -> list[str]:
    return [_text(item) for number, item in _last(value) if number == 1]


_READERS: dict[str, Callable[[Any], Any]] = {
    "s": _text,
    "b": bool,
    "i": _int32,
    "l": lambda value: signed(value, 64),
    "d": _double,
    "y": _base64,
    "T": _time,
    "M": _micro_time,
    "D": _duration,
    "Q": _quantity,
    "I": _int_or_string,
    "R": _raw,
    "F": _raw,
    "J": _raw,
    "V": _strings,
}


def _schema_union(kind: str, data: bytes, depth: int) -> Any:
    """A JSON schema, or what may stand in its place: a bool, schemas, names."""
    allows, schema, listed = False, None, []
    for number, _, value in fields(data):
        if kind == "SB" and number == 1:
            allows = bool(value)
        elif number == (2 if kind == "SB" else 1):
            schema = _message(_bytes(value), _JSON_SCHEMA, depth)
        elif number == 2:
            listed.append(_text(value) if kind == "SS" else _message(_bytes(value), _JSON_SCHEMA, depth))
    if schema is not None:
        return schema
    return allows if kind == "SB" else listed
