"""TOML as Bottlerocket's users know it from Karpenter: literal strings, a header for every table.

A table is its plain values first, then its tables; the order within each is the caller's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from math import isinf, isnan
from typing import Any

__all__ = ["write_toml"]

BARE = re.compile(r"[A-Za-z0-9_-]+")
# What a literal string cannot hold.
UNFIT = re.compile("['\x00-\x08\x0a-\x1f\x7f]")
Table = Mapping[str, Any]


def write_toml(table: Table) -> str:
    """A document."""
    return "".join(_write_table(table, ()))


def _write_table(table: Table, path: tuple[str, ...]) -> Iterator[str]:
    plain = {key: value for key, value in table.items() if not _is_table(value)}
    for key, value in plain.items():
        yield f"{_write_key(key)} = {_write_value(value)}\n"
    first = not plain
    for key, value in table.items():
        if not _is_table(value):
            continue
        yield "" if first else "\n"
        first = False
        yield from _write_headed(value, (*path, key))


def _write_headed(value: Any, path: tuple[str, ...]) -> Iterator[str]:
    name = ".".join(map(_write_key, path))
    if isinstance(value, Mapping):
        yield f"[{name}]\n"
        yield from _write_table(value, path)
        return
    for place, item in enumerate(value):
        yield "\n" if place else ""
        yield f"[[{name}]]\n"
        yield from _write_table(item, path)


def _is_table(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _write_key(key: str) -> str:
    return key if BARE.fullmatch(key) else _write_text(key)


def _write_value(value: Any) -> str:
    match value:
        case str():
            return _write_text(value)
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _write_number(value)
        case datetime() | date() | time():
            return value.isoformat()
        case Mapping():
            return (
                "{"
                + ", ".join(f"{_write_key(key)} = {_write_value(each)}" for key, each in value.items())
                + "}"
            )
        case Sequence():
            return "[" + ", ".join(map(_write_value, value)) + "]"
    raise TypeError(f"TOML has no {type(value).__name__}")


def _write_text(text: str) -> str:
    if not UNFIT.search(text):
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _write_number(value: float) -> str:
    if isnan(value):
        return "nan"
    if isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)
