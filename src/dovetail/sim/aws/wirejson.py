"""AWS's JSON requests and answers, and the REST kind whose parameters are partly in the address.

Shapes come from botocore's models; this module only walks them.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

__all__ = ["parse_json", "parse_rest", "path_pattern", "result_json"]


def parse_json(shape: Any, body: bytes) -> dict[str, Any]:
    """The parameters of a request, in the shape boto3 was given them."""
    given = json.loads(body) if body else {}
    value = _read(shape, given) if shape is not None else {}
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
            found[name] = _read(member, unquote(parts[key]))
        elif place == "querystring" and key in query:
            values = query[key]
            found[name] = _read(member, values if member.type_name == "list" else values[0])
        elif place is None and key in given:
            found[name] = _read(member, given[key])
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


def _read(shape: Any, value: Any) -> Any:
    kind = shape.type_name
    if value is None:
        return None
    if kind == "structure":
        members = (
            (name, member, member.serialization.get("name", name)) for name, member in shape.members.items()
        )
        return {
            name: _read(member, value[key]) for name, member, key in members if value.get(key) is not None
        }
    if kind == "list":
        return [_read(shape.member, each) for each in value]
    if kind == "map":
        return {key: _read(shape.value, each) for key, each in value.items()}
    if kind == "blob":
        return b64decode(value)
    if kind == "timestamp":
        return _moment(value)
    if isinstance(value, str) and kind in ("integer", "long"):
        return int(value)
    return value == "true" if kind == "boolean" and isinstance(value, str) else value


def _moment(value: Any) -> datetime:
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    return datetime.fromisoformat(str(value)).astimezone(UTC)


def result_json(shape: Any, answer: Mapping[str, Any]) -> str:
    return json.dumps(_write(shape, answer) if shape is not None else {})


def _write(shape: Any, value: Any) -> Any:
    kind = shape.type_name
    if kind == "structure":
        members = (
            (member.serialization.get("name", name), member, value.get(name))
            for name, member in shape.members.items()
        )
        return {key: _write(member, held) for key, member, held in members if held is not None}
    if kind == "list":
        return [_write(shape.member, each) for each in value]
    if kind == "map":
        return {key: _write(shape.value, each) for key, each in value.items()}
    if isinstance(value, datetime):
        if shape.serialization.get("timestampFormat") == "iso8601":
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return round(value.timestamp(), 3)
    return b64encode(value).decode() if kind == "blob" else value
