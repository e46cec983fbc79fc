"""Every field of every kind we read, found by looking at the records, and values nobody should put there."""

from __future__ import annotations

import copy
import json
import os
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import msgspec

from dovetail.api import codec
from dovetail.api.meta import Object, Record
from dovetail.api.pod import Pod
from dovetail.api.wire import read_plain
from dovetail.errors import BadInput

Json = dict[str, Any]
Path = tuple[str | int, ...]

# `make soak` tries more values in each field.
TIMES = int(os.environ.get("DOVETAIL_EXAMPLES", "1"))
LONG = "9" * 5_000


def nested(depth: int) -> Any:
    """Lists in mappings in lists, this deep."""
    value: Any = "x"
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


VALUES: tuple[Any, ...] = (
    LONG,
    "-" + LONG,
    "1e400",
    "-1e400",
    "1e30",
    "-1",
    "NaN",
    "Infinity",
    "",
    " ",
    "x" * 100_000,
    "\ud800",
    "\u202e\u0000\x1b[31m",
    "٣",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-14:00",
    "0001-01-01T00:00:00+14:00",
    "2562047h47m16.854775807s",
    "100000000000%",
    "@every 292y",
    "In",
    "Gt",
    0,
    -1,
    2**31,
    2**63 - 1,
    -(2**63),
    10**400,
    1e308,
    True,
    False,
    [],
    {},
    [[[[[[[[[[[[]]]]]]]]]]]],
    {"a": {"a": {"a": {"a": {}}}}},
    ["x"] * 2_000,
    {str(i): str(i) for i in range(2_000)},
    None,
    [None, None],
    {"example.com/key": None},
    {"example.com/key": ["x"], "Example.com/Key": 1},
    {"name": "x", "Name": LONG, "NAME": ""},
    {"matchLabels": {"a": LONG}, "matchExpressions": [{"key": "a", "operator": "Gt", "values": [LONG]}]},
    {"cpu": "1e30", "memory": "-1", "pods": LONG, "example.com/key": "NaN"},
    [{"key": "a", "operator": "In", "values": []}, {"key": "a", "operator": "Lt", "values": ["-1"]}],
    nested(200),
    3.5,
    -0.0,
)
"""Absurd for one type of field or the other; each is put into all of them."""


def fields_of(kind: type[Record], depth: int = 0) -> Iterator[tuple[Path, Any]]:
    """The path to every field of a record, as the wire spells it, and its type; records inside it too."""
    for each in msgspec.structs.fields(kind):
        for path, hint in _paths(each.type, depth + 1):
            yield (each.encode_name, *path), hint


def _paths(hint: Any, depth: int) -> Iterator[tuple[Path, Any]]:
    yield (), hint
    if depth > 12:
        return
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Record):
        yield from fields_of(hint, depth)
    elif origin in (types.UnionType, typing.Union):
        for each in inner:
            yield from ((path, found) for path, found in _paths(each, depth) if path)
    elif origin is tuple:
        yield from (((0, *path), found) for path, found in _paths(inner[0], depth + 1))
    elif origin is Mapping:
        yield from ((("example.com/key", *path), found) for path, found in _paths(inner[1], depth + 1))


@cache
def readable(hint: Any) -> tuple[Any, ...]:
    """The absurd values that a field of this type takes: nothing stops these before they are used."""
    return tuple(value for value in VALUES if value is not None and _reads(hint, value))


def _reads(hint: Any, value: Any) -> bool:
    try:
        read_plain(hint, value)
    except BadInput:
        return False
    return True


def spoil(document: Json, path: Path, value: Any) -> Json:
    """The document with this value at this place; what leads there is made if it is missing."""
    spoiled = copy.deepcopy(document)
    at: Any = spoiled
    for step, following in pairwise(path):
        at = _step(at, step, [] if isinstance(following, int) else {})
    _set(at, path[-1], value)
    return spoiled


def _step(at: Any, step: str | int, empty: Any) -> Any:
    known = at[step] if isinstance(step, int) and len(at) > step else None
    known = at.get(step) if isinstance(step, str) else known
    if not isinstance(known, type(empty)):
        _set(at, step, known := empty)
    return known


def _set(at: Any, step: str | int, value: Any) -> None:
    if isinstance(step, int) and len(at) <= step:
        at.append(value)
    else:
        at[step] = value


def bad_documents(kind: type[Object], sound: Object) -> Iterator[tuple[Path, Any, Json]]:
    """Bad items for each field: with any value, or with one that its type lets pass."""
    document = codec.to_dict(sound)
    for path, hint in dict(fields_of(kind)).items():
        for value in _values(Random(f"{kind.KIND.kind} {path}"), hint):
            yield path, value, spoil(document, on_the_wire(path, kind), value)


def _values(chance: Random, hint: Any) -> list[Any]:
    passing = readable(hint) or VALUES
    if TIMES == 1:
        return [chance.choice(chance.choice((VALUES, passing)))]
    return [each for values in (VALUES, passing) for each in chance.sample(values, min(TIMES, len(values)))]


def numbered(document: Json, number: int, path: Path) -> Json:
    """Bad items have names of their own, unless their name is what is bad."""
    meta = document.get("metadata")
    if isinstance(meta, dict) and path[:2] not in (("metadata",), ("metadata", "name")):
        meta["name"] = f"{meta.get('name', 'v')}-{number}"
        meta["uid"] = f"uid-{number}"
    return document


def on_the_wire(path: Path, kind: type[Object]) -> Path:
    """Where a field is in a document; a pod's node is named in its spec."""
    return ("spec", "nodeName") if kind is Pod and path == ("nodeName",) else path


def read_all(documents: Mapping[type[Object], Iterable[Json]]) -> dict[type[Object], list[Any]]:
    """Documents as lists of the API server bring them."""
    return {
        kind: codec.decode_list(kind, json.dumps({"metadata": {}, "items": list(listed)}).encode()).items
        for kind, listed in documents.items()
    }
