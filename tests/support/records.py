"""Hypothesis strategies for any record, made from the types of its fields."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st

from dovetail.api.meta import Record
from dovetail.api.quantity import Quantity

R = TypeVar("R", bound=Record)

WORDS = st.sampled_from(["", "a", "b", "app", "zone-1", "karpenter.sh/x", "ünï", "True", "10%", "x" * 40])
WHOLE_SECONDS = st.integers(0, 4_000_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
AMOUNTS = st.sampled_from(["0", "100m", "1", "1500m", "2Gi", "20e9", "1M", "-3"]).map(Quantity.parse)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: WORDS,
    bool: st.booleans(),
    int: st.integers(-5, 1_000_000),
    datetime: WHOLE_SECONDS,
    Quantity: AMOUNTS,
    Any: WORDS,
    type(None): st.none(),
}


def records(kind: type[R]) -> st.SearchStrategy[R]:
    """Any record of this kind, most of its fields at their defaults."""
    strategy: st.SearchStrategy[R] = _record(kind)
    return strategy


@cache
def _record(kind: Any) -> st.SearchStrategy[Any]:
    fields = {field.name: _value(field.type) for field in msgspec.structs.fields(kind)}
    return st.fixed_dictionaries({}, optional=fields).map(lambda chosen: kind(**chosen))


def _value(hint: Any) -> st.SearchStrategy[Any]:
    if hint in SCALARS:
        return SCALARS[hint]
    if isinstance(hint, type) and issubclass(hint, Record):
        return st.deferred(lambda: _record(hint))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return st.one_of([_value(each) for each in arguments])
    if origin is tuple:
        return st.lists(_value(arguments[0]), max_size=3).map(tuple)
    if origin is Mapping:
        return st.dictionaries(WORDS, _value(arguments[1]), max_size=2)
    raise TypeError(f"no strategy for {hint}")
