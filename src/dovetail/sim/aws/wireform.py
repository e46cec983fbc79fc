"""AWS's form-encoded requests and XML answers (EC2 and query protocols), by a service's own model.

Shapes come from botocore's models; this module only walks them.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

__all__ = ["error_xml", "parse_form", "result_xml"]

Form = Mapping[str, str]


def parse_form(shape: Any, form: Form, *, ec2: bool) -> dict[str, Any]:
    """The parameters of a request, in the shape boto3 was given them."""
    value = _read(shape, "", form, _Names(ec2, form))
    return value if isinstance(value, dict) else {}


class _Names:
    """How one of the two protocols spells members, and which beginnings of keys a form has."""

    def __init__(self, ec2: bool, form: Form) -> None:
        self.ec2 = ec2
        self.known: set[str] = set()
        for key in form:
            parts = key.split(".")
            self.known.update(".".join(parts[: at + 1]) for at in range(len(parts)))

    def member(self, name: str, shape: Any) -> str:
        given = shape.serialization
        if self.ec2:
            return str(given.get("queryName") or _capital(given.get("name", name)))
        if shape.type_name == "list" and given.get("flattened"):
            return str(shape.member.serialization.get("name") or given.get("name", name))
        return str(given.get("name", name))


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]


def _read(shape: Any, prefix: str, form: Form, names: _Names) -> Any:
    kind = shape.type_name
    if kind == "structure":
        found = {}
        for name, member in shape.members.items():
            key = f"{prefix}.{names.member(name, member)}" if prefix else names.member(name, member)
            if key in names.known:
                found[name] = _read(member, key, form, names)
        return found
    if kind == "list":
        return _read_list(shape, prefix, form, names)
    if kind == "map":
        return _read_map(shape, prefix, form, names)
    return _scalar(kind, form.get(prefix, ""))


def _read_list(shape: Any, prefix: str, form: Form, names: _Names) -> list[Any]:
    if form.get(prefix) == "" and f"{prefix}.1" not in names.known:
        return []
    start = prefix if names.ec2 or shape.serialization.get("flattened") else f"{prefix}.member"
    found, at = [], 1
    while f"{start}.{at}" in names.known:
        found.append(_read(shape.member, f"{start}.{at}", form, names))
        at += 1
    return found


def _read_map(shape: Any, prefix: str, form: Form, names: _Names) -> dict[str, Any]:
    start = prefix if shape.serialization.get("flattened") else f"{prefix}.entry"
    key, value = shape.key.serialization.get("name", "key"), shape.value.serialization.get("name", "value")
    found, at = {}, 1
    while f"{start}.{at}" in names.known:
        found[form[f"{start}.{at}.{key}"]] = _read(shape.value, f"{start}.{at}.{value}", form, names)
        at += 1
    return found


def _scalar(kind: str, text: str) -> Any:
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
        _members(shape, answer, out)
    else:
        wrapper = shape.serialization.get("resultWrapper") if shape is not None else None
        out.append(f"<{wrapper}>" if wrapper else "")
        _members(shape, answer, out)
        out.append(f"</{wrapper}>" if wrapper else "")
        out.append(f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>")
    out.append(f"</{name}Response>")
    return "".join(out)


def _members(shape: Any, value: Mapping[str, Any], out: list[str]) -> None:
    if shape is None:
        return
    for name, member in shape.members.items():
        held = value.get(name)
        if held is not None:
            _write(member, member.serialization.get("name", name), held, out)


def _write(shape: Any, name: str, value: Any, out: list[str]) -> None:
    kind = shape.type_name
    if kind == "structure":
        out.append(f"<{name}>")
        _members(shape, value, out)
        out.append(f"</{name}>")
    elif kind == "list":
        _write_list(shape, name, value, out)
    elif kind == "map":
        _write_map(shape, name, value, out)
    else:
        out.append(f"<{name}>{escape(_said(kind, value))}</{name}>")


def _write_list(shape: Any, name: str, value: Any, out: list[str]) -> None:
    if shape.serialization.get("flattened"):
        for each in value:
            _write(shape.member, shape.member.serialization.get("name", name), each, out)
        return
    inner = shape.member.serialization.get("name", "member")
    out.append(f"<{name}>")
    for each in value:
        _write(shape.member, inner, each, out)
    out.append(f"</{name}>")


def _write_map(shape: Any, name: str, value: Mapping[str, Any], out: list[str]) -> None:
    flat = shape.serialization.get("flattened")
    out.append("" if flat else f"<{name}>")
    entry = name if flat else "entry"
    for key, held in value.items():
        out.append(f"<{entry}>")
        _write(shape.key, shape.key.serialization.get("name", "key"), key, out)
        _write(shape.value, shape.value.serialization.get("name", "value"), held, out)
        out.append(f"</{entry}>")
    out.append("" if flat else f"</{name}>")


def _said(kind: str, value: Any) -> str:
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
