"""AWS's form-encoded requests and XML answers (EC2 and query protocols), by a service's own model.

Shapes come from botocore's models; this module only walks them.
"""

from __future__ import annotations

import json
import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape

__all__ = [
    "decode_cbor",
    "encode_cbor",
    "error_xml",
    "parse_form",
    "parse_json",
    "parse_rest",
    "path_pattern",
    "result_json",
    "result_xml",
    "write_members",
]

Form = Mapping[str, str]


def parse_form(shape: Any, form: Form, *, ec2: bool) -> dict[str, Any]:
    """The parameters of a request, in the shape boto3 was given them."""
    value = _read_form_value(shape, "", form, _FormNames(ec2, form))
    return value if isinstance(value, dict) else {}


class _FormNames:
    """How one of the two protocols spells members, and which beginnings of keys a form has."""

    def __init__(self, ec2: bool, form: Form) -> None:
        self.ec2 = ec2
        self.known: set[str] = set()
        for key in form:
            parts = key.split(".")
            self.known.update(".".join(parts[: at + 1]) for at in range(len(parts)))

    def member_name(self, name: str, shape: Any) -> str:
        given = shape.serialization
        if self.ec2:
            return str(given.get("queryName") or _capitalize(given.get("name", name)))
        if shape.type_name == "list" and given.get("flattened"):
            return str(shape.member.serialization.get("name") or given.get("name", name))
        return str(given.get("name", name))


def _capitalize(name: str) -> str:
    return name[:1].upper() + name[1:]


def _read_form_value(shape: Any, prefix: str, form: Form, names: _FormNames) -> Any:
    kind = shape.type_name
    if kind == "structure":
        found = {}
        for name, member in shape.members.items():
            key = f"{prefix}.{names.member_name(name, member)}" if prefix else names.member_name(name, member)
            if key in names.known:
                found[name] = _read_form_value(member, key, form, names)
        return found
    if kind == "list":
        return _read_list(shape, prefix, form, names)
    if kind == "map":
        return _read_map(shape, prefix, form, names)
    return _parse_scalar(kind, form.get(prefix, ""))


def _read_list(shape: Any, prefix: str, form: Form, names: _FormNames) -> list[Any]:
    if form.get(prefix) == "" and f"{prefix}.1" not in names.known:
        return []
    start = prefix if names.ec2 or shape.serialization.get("flattened") else f"{prefix}.member"
    found, at = [], 1
    while f"{start}.{at}" in names.known:
        found.append(_read_form_value(shape.member, f"{start}.{at}", form, names))
        at += 1
    return found


def _read_map(shape: Any, prefix: str, form: Form, names: _FormNames) -> dict[str, Any]:
    start = prefix if shape.serialization.get("flattened") else f"{prefix}.entry"
    key, value = shape.key.serialization.get("name", "key"), shape.value.serialization.get("name", "value")
    found, at = {}, 1
    while f"{start}.{at}" in names.known:
        found[form[f"{start}.{at}.{key}"]] = _read_form_value(
            shape.value, f"{start}.{at}.{value}", form, names
        )
        at += 1
    return found


def _parse_scalar(kind: str, text: str) -> Any:
    if kind in ("integer", "long"):
        return int(text)
    if kind in ("float", "double"):
        return float(text)
    if kind == "boolean":
        return text.lower() == "true"
    if kind == "blob":
        return b64decode(text)
    return datetime.fromisoformat(text).astimezone(UTC) if kind == "timestamp" else text


def result_xml(operation: Any, answer: Mapping[str, Any], request_id: str, *, ec2: bool) -> str:
    """An answer as these protocols write it."""
    shape, name = operation.output_shape, operation.name
    space = operation.metadata.get("xmlNamespace", "")
    if ec2:
        space = f"http://ec2.amazonaws.com/doc/{operation.service_model.api_version}/"
    out: list[str] = [f'<?xml version="1.0" encoding="UTF-8"?>\n<{name}Response xmlns="{space}">']
    if ec2:
        out.append(f"<requestId>{request_id}</requestId>")
        write_members(shape, answer, out)
    else:
        wrapper = shape.serialization.get("resultWrapper") if shape is not None else None
        out.append(f"<{wrapper}>" if wrapper else "")
        write_members(shape, answer, out)
        out.append(f"</{wrapper}>" if wrapper else "")
        out.append(f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>")
    out.append(f"</{name}Response>")
    return "".join(out)


def write_members(shape: Any, value: Mapping[str, Any], out: list[str]) -> None:
    """The members of a structure, one after another."""
    if shape is None:
        return
    for name, member in shape.members.items():
        held = value.get(name)
        if held is not None:
            _write_xml(member, member.serialization.get("name", name), held, out)


def _write_xml(shape: Any, name: str, value: Any, out: list[str]) -> None:
    kind = shape.type_name
    if kind == "structure":
        out.append(f"<{name}>")
        write_members(shape, value, out)
        out.append(f"</{name}>")
    elif kind == "list":
        _write_list(shape, name, value, out)
    elif kind == "map":
        _write_map(shape, name, value, out)
    else:
        out.append(f"<{name}>{escape(_format_scalar(kind, value))}</{name}>")


def _write_list(shape: Any, name: str, value: Any, out: list[str]) -> None:
    if shape.serialization.get("flattened"):
        for each in value:
            _write_xml(shape.member, shape.member.serialization.get("name", name), each, out)
        return
    inner = shape.member.serialization.get("name", "member")
    out.append(f"<{name}>")
    for each in value:
        _write_xml(shape.member, inner, each, out)
    out.append(f"</{name}>")


def _write_map(shape: Any, name: str, value: Mapping[str, Any], out: list[str]) -> None:
    flat = shape.serialization.get("flattened")
    out.append("" if flat else f"<{name}>")
    entry = name if flat else "entry"
    for key, held in value.items():
        out.append(f"<{entry}>")
        _write_xml(shape.key, shape.key.serialization.get("name", "key"), key, out)
        _write_xml(shape.value, shape.value.serialization.get("name", "value"), held, out)
        out.append(f"</{entry}>")
    out.append("" if flat else f"</{name}>")


def _format_scalar(kind: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        when = value.astimezone(UTC)
        return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"
    if kind == "blob":
        return b64encode(value).decode()
    # Policies are documents to boto3, and quoted texts on the wire.
    return quote(json.dumps(value)) if isinstance(value, Mapping) else str(value)


def error_xml(code: str, message: str, request_id: str, *, ec2: bool) -> str:
    said = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    if ec2:
        return (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error>{said}</Error></Errors>'
            f"<RequestID>{request_id}</RequestID></Response>"
        )
    return (
        f'<?xml version="1.0"?>\n<ErrorResponse><Error><Type>Sender</Type>{said}</Error>'
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    )


def parse_json(shape: Any, body: bytes) -> dict[str, Any]:
    """The parameters of a request, in the shape boto3 was given them."""
    given = json.loads(body) if body else {}
    value = _read_json_value(shape, given) if shape is not None else {}
    return value if isinstance(value, dict) else {}


def parse_rest(
    shape: Any, parts: Mapping[str, str], query: Mapping[str, list[str]], body: bytes
) -> dict[str, Any]:
    """Parameters from the path, the query and the body."""
    if shape is None:
        return {}
    given = json.loads(body) if body else {}
    found: dict[str, Any] = {}
    for name, member in shape.members.items():
        place, key = member.serialization.get("location"), member.serialization.get("name", name)
        if place == "uri" and key in parts:
            found[name] = _read_json_value(member, unquote(parts[key]))
        elif place == "querystring" and key in query:
            values = query[key]
            found[name] = _read_json_value(member, values if member.type_name == "list" else values[0])
        elif place is None and key in given:
            found[name] = _read_json_value(member, given[key])
    return found


@lru_cache(1024)
def path_pattern(uri: str) -> re.Pattern[str]:
    """An operation's address as a pattern with a group for each of its parameters; `{x+}` takes slashes."""
    plain = uri.partition("?")[0]
    text = ""
    for piece in re.split(r"(\{[^}]+\})", plain):
        if piece.startswith("{"):
            name = piece[1:-1].rstrip("+")
            # An ARN in a path is quoted, and arrives with its slashes.
            text += f"(?P<{re.sub(r'[^A-Za-z0-9_]', '_', name)}>.+)"
        else:
            text += re.escape(piece)
    return re.compile(text + "/?")


def _read_json_value(shape: Any, value: Any) -> Any:
    kind = shape.type_name
    if value is None:
        return None
    if kind == "structure":
        members = (
            (name, member, member.serialization.get("name", name)) for name, member in shape.members.items()
        )
        return {
            name: _read_json_value(member, value[key])
            for name, member, key in members
            if value.get(key) is not None
        }
    if kind == "list":
        return [_read_json_value(shape.member, each) for each in value]
    if kind == "map":
        return {key: _read_json_value(shape.value, each) for key, each in value.items()}
    if kind == "blob":
        return b64decode(value)
    if kind == "timestamp":
        return _parse_time(value)
    if isinstance(value, str) and kind in ("integer", "long"):
        return int(value)
    return value == "true" if kind == "boolean" and isinstance(value, str) else value


def _parse_time(value: Any) -> datetime:
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    return datetime.fromisoformat(str(value)).astimezone(UTC)


def result_json(shape: Any, answer: Mapping[str, Any]) -> str:
    return json.dumps(_build_json_value(shape, answer) if shape is not None else {})


def _build_json_value(shape: Any, value: Any) -> Any:
    kind = shape.type_name
    if kind == "structure":
        members = (
            (member.serialization.get("name", name), member, value.get(name))
            for name, member in shape.members.items()
        )
        return {key: _build_json_value(member, held) for key, member, held in members if held is not None}
    if kind == "list":
        return [_build_json_value(shape.member, each) for each in value]
    if kind == "map":
        return {key: _build_json_value(shape.value, each) for key, each in value.items()}
    if isinstance(value, datetime):
        if shape.serialization.get("timestampFormat") == "iso8601":
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return round(value.timestamp(), 3)
    return b64encode(value).decode() if kind == "blob" else value


UNSIGNED, NEGATIVE, BYTES, TEXT, LIST, MAP, TAG, SIMPLE = range(8)
INDEFINITE, BREAK = 31, 0xFF
MOMENT = 1
FALSE, TRUE, NULL, UNDEFINED, HALF, SINGLE, DOUBLE = 20, 21, 22, 23, 25, 26, 27
FLOATS = {HALF: ">e", SINGLE: ">f", DOUBLE: ">d"}


def decode_cbor(body: bytes) -> Any:
    """The document; nothing at all is an empty one."""
    return _CborReader(body).read_value() if body else {}


class _CborReader:
    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def read_value(self) -> Any:
        kind, low = divmod(self._take_bytes(1)[0], 32)
        if kind == SIMPLE:
            return self._read_simple(low)
        if low == INDEFINITE:
            return self._read_pieces(kind)
        size = self._read_size(low)
        if kind in (UNSIGNED, NEGATIVE):
            return size if kind == UNSIGNED else -1 - size
        if kind in (BYTES, TEXT):
            found = self._take_bytes(size)
            return found if kind == BYTES else found.decode()
        if kind == LIST:
            return [self.read_value() for _ in range(size)]
        if kind == MAP:
            return {self.read_value(): self.read_value() for _ in range(size)}
        held = self.read_value()
        return datetime.fromtimestamp(held, UTC) if size == MOMENT else held

    def _take_bytes(self, count: int) -> bytes:
        found = self._body[self._at : self._at + count]
        if len(found) < count:
            raise ValueError("the document ends too early")
        self._at += count
        return found

    def _read_size(self, low: int) -> int:
        if low < 24:
            return low
        if low > 27:
            raise ValueError(f"there is no size {low}")
        return int.from_bytes(self._take_bytes(1 << (low - 24)), "big")

    def _read_simple(self, low: int) -> Any:
        if low in FLOATS:
            return struct.unpack(FLOATS[low], self._take_bytes(2 << (low - HALF)))[0]
        return {FALSE: False, TRUE: True, NULL: None, UNDEFINED: None}[low]

    def _read_pieces(self, kind: int) -> Any:
        """What ends when it says so."""
        found = []
        while self._body[self._at : self._at + 1] != bytes([BREAK]):
            found.append(self.read_value())
        self._take_bytes(1)
        if kind == MAP:
            return dict(zip(found[::2], found[1::2], strict=True))
        if kind == LIST:
            return found
        return (b"" if kind == BYTES else "").join(found)


def encode_cbor(value: Any) -> bytes:
    """The document as bytes; what is None is left out of mappings."""
    if isinstance(value, Mapping):
        held = {key: each for key, each in value.items() if each is not None}
        return _encode_head(MAP, len(held)) + b"".join(
            encode_cbor(k) + encode_cbor(v) for k, v in held.items()
        )
    if isinstance(value, list | tuple):
        return _encode_head(LIST, len(value)) + b"".join(map(encode_cbor, value))
    if isinstance(value, str):
        return _encode_head(TEXT, len(value.encode())) + value.encode()
    if isinstance(value, bytes):
        return _encode_head(BYTES, len(value)) + value
    if isinstance(value, bool) or value is None:
        return bytes([SIMPLE * 32 + (NULL if value is None else TRUE if value else FALSE)])
    if isinstance(value, int):
        return _encode_head(UNSIGNED, value) if value >= 0 else _encode_head(NEGATIVE, -1 - value)
    if isinstance(value, datetime):
        return _encode_head(TAG, MOMENT) + encode_cbor(value.timestamp())
    return bytes([SIMPLE * 32 + DOUBLE]) + struct.pack(">d", value)


def _encode_head(kind: int, size: int) -> bytes:
    if size < 24:
        return bytes([kind * 32 + size])
    power = next(each for each in range(4) if size < 1 << (8 << each))
    return bytes([kind * 32 + 24 + power]) + size.to_bytes(1 << power, "big")
