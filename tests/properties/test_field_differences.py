"""Which fields a write touched: found by walking two states side by side, as told by listing both."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.schema.nodes import SchemaNode, parse_schema
from dovetail.api.schema.validation import is_same_json
from dovetail.sim.kube.patch.field_sets import find_changes, list_paths

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(0, 2), st.sampled_from(["a", "b"]), st.just(1.0))
NAMES = st.sampled_from(["keyed", "set", "plain", "atomic", "deep", "other"])
ITEMS = st.dictionaries(st.sampled_from(["name", "value"]), SCALARS, max_size=2)
VALUES = st.recursive(
    st.one_of(SCALARS, st.lists(ITEMS, max_size=3), st.lists(SCALARS, max_size=3)),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
STATES = st.dictionaries(NAMES, VALUES, max_size=4)


def _schema() -> SchemaNode:
    item = {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "string"}}}
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    inner: dict[str, Any] = {
        "keyed": {"type": "array", **keyed, "items": item},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "plain": {"type": "array", "items": item},
        "atomic": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": True},
    }
    deep = {"type": "object", "properties": inner}
    return parse_schema({"type": "object", "properties": {**inner, "deep": deep}})


SCHEMA = _schema()


def _listed(old: Any, new: Any) -> tuple[set[Any], set[Any]]:
    """The definition: every path of both states."""
    was, now = list_paths(SCHEMA, old), list_paths(SCHEMA, new)
    changed = {path for path, value in now.items() if path not in was or not is_same_json(was[path], value)}
    return changed, was.keys() - now.keys()


@given(STATES, STATES)
def test_the_difference_is_what_listing_both_states_tells(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert find_changes(SCHEMA, old, new) == _listed(old, new)


@given(STATES, NAMES, VALUES)
def test_parts_that_are_shared_differ_in_nothing(state: dict[str, Any], name: str, value: Any) -> None:
    shared, apart = {**state, name: value}, {**copy.deepcopy(state), name: value}
    assert find_changes(SCHEMA, state, shared) == find_changes(SCHEMA, state, apart) == _listed(state, apart)
