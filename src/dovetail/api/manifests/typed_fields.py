"""A document held against the record it is to become: names that do not exist, and values of the wrong kind.

Each finding is a path, such as `pools[0].nodes`, and what is wrong there; `Document.line_of` knows the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect

__all__ = ["WrongField", "find_unknown_fields", "locate_error", "suggest_name"]

WrongField = tuple[str, str]  # a path, and what is wrong there


def find_unknown_fields(value: Any, kind: inspect.Type, path: str = "") -> Iterator[WrongField]:
    """Every field of the document that the record does not have, with the name that was probably meant."""
    match kind:
        case inspect.StructType() if isinstance(value, dict):
            known = {each.encode_name: each.type for each in kind.fields}
            for name, inner in value.items():
                place = f"{path}.{name}" if path else str(name)
                if name in known:
                    yield from find_unknown_fields(inner, known[name], place)
                else:
                    yield place, f"there is no such field{suggest_name(str(name), known)}"
        case inspect.ListType() | inspect.VarTupleType() if isinstance(value, list):
            for number, item in enumerate(value):
                yield from find_unknown_fields(item, kind.item_type, f"{path}[{number}]")
        case inspect.UnionType():
            for each in kind.types:
                yield from find_unknown_fields(value, each, path)


def suggest_name(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, as the end of a sentence."""
    listed = sorted(known)
    near = get_close_matches(name, listed, 1) or [each for each in listed if each.lower() == name.lower()]
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(listed)}"


def locate_error(error: msgspec.ValidationError) -> WrongField:
    """A path and a sentence, from `Expected int, got str - at $.pools[0].nodes`."""
    found = re.fullmatch(r"(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<path>.*)`)?", str(error), re.DOTALL)
    assert found is not None  # every part of the pattern may be empty
    return re.sub(r"\.\.\.|\[\.\.\.\]", "", found["path"] or ""), found["what"].replace("`", "")
