"""Structural schemas: pruning, defaulting, validation, ratcheting and rules, path by path."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.schema.causes import Cause
from dovetail.api.schema.object_schema import Schema
from dovetail.sim.kube.builtin import kind_schemas


def spec_schema(properties: dict[str, Any], **more: Any) -> Schema:
    spec = {"type": "object", "properties": properties, **more}
    return Schema.from_openapi(
        {"type": "object", "properties": {"spec": spec}}, kind_schemas.find_metadata_node()
    )


def field_schema(schema: dict[str, Any]) -> Schema:
    return spec_schema({"x": schema})


def complaints(schema: dict[str, Any], value: Any, old: Any = None) -> list[tuple[str, str]]:
    before = None if old is None else {"spec": {"x": old}}
    return [
        (cause.field, cause.type) for cause in field_schema(schema).validate({"spec": {"x": value}}, before)
    ]


def only(schema: dict[str, Any], value: Any) -> Cause:
    (cause,) = field_schema(schema).validate({"spec": {"x": value}})
    return cause


# --- pruning ---


def test_unknown_fields_are_dropped_and_named_by_path() -> None:
    schema = spec_schema(
        {
            "known": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {}}},
        }
    )
    obj = {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "n", "odd": 1},
        "spec": {"known": "x", "new": 1, "list": [{"a": "b", "c": 1}], "map": {"k": {"z": 1}}},
        "more": 1,
    }
    before = copy.deepcopy(obj)
    pruned, unknown = schema.prune(obj)
    assert pruned == {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "n"},
        "spec": {"known": "x", "list": [{"a": "b"}], "map": {"k": {}}},
    }
    assert sorted(unknown) == ["metadata.odd", "more", "spec.list[0].c", "spec.map.k.z", "spec.new"]
    assert obj == before


def test_preserved_places_keep_what_they_get_but_prune_what_they_specify() -> None:
    schema = field_schema(
        {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"strict": {"type": "object", "properties": {"a": {"type": "string"}}}},
        }
    )
    obj = {"spec": {"x": {"free": {"b": 1}, "strict": {"a": "1", "b": 1}}}}
    pruned, unknown = schema.prune(obj)
    assert pruned == {"spec": {"x": {"free": {"b": 1}, "strict": {"a": "1"}}}}
    assert unknown == ["spec.x.strict.b"]


def test_an_embedded_resource_keeps_its_type_and_metadata() -> None:
    schema = field_schema({"type": "object", "x-kubernetes-embedded-resource": True, "properties": {}})
    inner = {"apiVersion": "v1", "kind": "P", "metadata": {"name": "n"}}
    pruned, unknown = schema.prune({"spec": {"x": {**inner, "spec": {}}}})
    assert pruned == {"spec": {"x": inner}}
    assert unknown == ["spec.x.spec"]


def test_what_needs_no_pruning_is_not_copied() -> None:
    obj = {"spec": {"x": {"a": "b"}}}
    pruned, unknown = field_schema({"type": "object", "additionalProperties": {"type": "string"}}).prune(obj)
    assert pruned is obj
    assert unknown == []


# --- defaulting ---


def test_a_default_opens_the_way_to_the_defaults_inside_it() -> None:
    schema = field_schema(
        {"type": "object", "default": {}, "properties": {"a": {"type": "integer", "default": 3}}}
    )
    assert schema.apply_defaults({"spec": {}}) == {"spec": {"x": {"a": 3}}}
    assert schema.apply_defaults({}) == {}


def test_null_is_replaced_by_the_default_or_dropped_unless_it_may_be_null() -> None:
    schema = spec_schema(
        {
            "filled": {"type": "string", "default": "d"},
            "gone": {"type": "string"},
            "kept": {"type": "string", "nullable": True, "default": "d"},
        }
    )
    filled = schema.apply_defaults({"spec": {"filled": None, "gone": None, "kept": None}})
    assert filled == {"spec": {"filled": "d", "kept": None}}


def test_defaults_reach_into_lists_and_maps() -> None:
    item = {"type": "object", "properties": {"p": {"type": "string", "default": "TCP"}}}
    schema = spec_schema(
        {"list": {"type": "array", "items": item}, "map": {"type": "object", "additionalProperties": item}}
    )
    obj = {"spec": {"list": [{}, {"p": "UDP"}], "map": {"k": {}}}}
    assert schema.apply_defaults(obj) == {
        "spec": {"list": [{"p": "TCP"}, {"p": "UDP"}], "map": {"k": {"p": "TCP"}}}
    }
    assert obj == {"spec": {"list": [{}, {"p": "UDP"}], "map": {"k": {}}}}


def test_each_object_gets_a_default_of_its_own() -> None:
    schema = field_schema({"type": "array", "default": [1], "items": {"type": "integer"}})
    one, two = schema.apply_defaults({"spec": {}}), schema.apply_defaults({"spec": {}})
    one["spec"]["x"].append(2)
    assert two == {"spec": {"x": [1]}}


# --- validation ---


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ({"type": "integer"}, "1", "FieldValueTypeInvalid"),
        ({"type": "integer"}, 1.5, "FieldValueTypeInvalid"),
        ({"type": "integer"}, True, "FieldValueTypeInvalid"),
        ({"type": "string"}, 1, "FieldValueTypeInvalid"),
        ({"type": "object"}, [], "FieldValueTypeInvalid"),
        ({"type": "boolean"}, "true", "FieldValueTypeInvalid"),
        ({"x-kubernetes-int-or-string": True}, 1.5, "FieldValueTypeInvalid"),
        ({"type": "string"}, None, "FieldValueTypeInvalid"),
        ({"type": "integer", "maximum": 100}, 101, "FieldValueInvalid"),
        ({"type": "integer", "minimum": 1}, 0, "FieldValueInvalid"),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, 1, "FieldValueInvalid"),
        ({"type": "number", "maximum": 1.5, "exclusiveMaximum": True}, 1.5, "FieldValueInvalid"),
        ({"type": "number", "multipleOf": 0.1}, 0.25, "FieldValueInvalid"),
        ({"type": "integer", "format": "int32"}, 2**31, "FieldValueInvalid"),
        ({"type": "string", "minLength": 2}, "é", "FieldValueInvalid"),
        ({"type": "string", "maxLength": 1}, "ab", "FieldValueTooLong"),
        ({"type": "string", "pattern": "^[a-z]+$"}, "a1", "FieldValueInvalid"),
        ({"type": "string", "pattern": "^a$"}, "a\n", "FieldValueInvalid"),
        ({"type": "string", "enum": ["A", "B"]}, "C", "FieldValueNotSupported"),
        ({"type": "string", "format": "date-time"}, "yesterday", "FieldValueTypeInvalid"),
        ({"type": "string", "format": "duration"}, "soon", "FieldValueTypeInvalid"),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 1}, ["a", "b"], "FieldValueTooMany"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, [], "FieldValueInvalid"),
        ({"type": "object", "maxProperties": 0}, {"a": 1}, "FieldValueTooMany"),
        ({"type": "object", "minProperties": 1}, {}, "FieldValueInvalid"),
    ],
)
def test_a_value_outside_its_schema(schema: dict[str, Any], value: Any, reason: str) -> None:
    assert complaints(schema, value) == [("spec.x", reason)]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 1.0),
        ({"type": "number"}, 1),
        ({"type": "string", "maxLength": 1}, "é"),
        ({"type": "string", "pattern": "b"}, "abc"),
        ({"type": "string", "nullable": True}, None),
        ({"type": "string", "format": "unheard-of"}, "?"),
        ({"type": "string", "format": "date-time"}, "2030-01-01T00:00:00.5+01:00"),
        ({"type": "string", "format": "duration"}, "1h30m"),
        ({"type": "string", "format": "duration"}, "2 days"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}, "10%"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}, 10),
        ({"type": "integer", "enum": [1]}, 1.0),
        ({"x-kubernetes-preserve-unknown-fields": True}, {"any": ["thing"]}),
        ({"type": "number", "multipleOf": 0.1}, 0.3),
    ],
)
def test_a_value_within_its_schema(schema: dict[str, Any], value: Any) -> None:
    assert complaints(schema, value) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "not": {"enum": [3]}},
        {"type": "integer", "oneOf": [{"minimum": 1}, {"maximum": 5}]},
        {"type": "integer", "anyOf": [{"minimum": 7}, {"maximum": 1}]},
    ],
)
def test_a_value_that_fits_no_combination_is_told_in_words(schema: dict[str, Any]) -> None:
    cause = only(schema, 3)
    assert (cause.field, cause.type) == ("<nil>", "FieldValueInvalid")
    assert '"spec.x"' in cause.message


def test_every_part_of_a_conjunction_must_hold() -> None:
    assert complaints({"type": "integer", "allOf": [{"minimum": 7}]}, 3) == [("spec.x", "FieldValueInvalid")]


def test_of_a_string_only_the_first_complaint_counts() -> None:
    assert complaints({"type": "string", "maxLength": 1, "pattern": "^[a-z]+$"}, "A1") == [
        ("spec.x", "FieldValueTooLong")
    ]


def test_a_value_of_the_wrong_type_is_none_of_the_allowed_ones_either() -> None:
    assert complaints({"type": "string", "enum": ["A"]}, 1) == [
        ("spec.x", "FieldValueTypeInvalid"),
        ("spec.x", "FieldValueNotSupported"),
    ]


def test_messages_say_what_is_wrong_with_what() -> None:
    assert only({"type": "integer", "maximum": 100}, 1000).message == (
        "Invalid value: 1000: spec.x in body should be less than or equal to 100"
    )
    assert only({"type": "string", "enum": ["A", "B"]}, "C").message == (
        'Unsupported value: "C": supported values: "A", "B"'
    )
    assert only({"type": "integer"}, "s").message == (
        'Invalid value: "string": spec.x in body must be of type integer: "string"'
    )


def test_a_missing_field_is_named_itself() -> None:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}
    assert field_schema(schema).validate({"spec": {"x": {}}}) == [
        Cause("spec.x.a", "FieldValueRequired", "Required value")
    ]


def test_elements_are_named_by_index_and_map_entries_by_key() -> None:
    number = {"type": "integer"}
    assert complaints({"type": "array", "items": number}, [1, "a"]) == [
        ("spec.x[1]", "FieldValueTypeInvalid")
    ]
    assert complaints({"type": "object", "additionalProperties": number}, {"k": "a"}) == [
        ("spec.x.k", "FieldValueTypeInvalid")
    ]


def test_sets_and_keyed_lists_have_no_duplicates() -> None:
    assert complaints(
        {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}, ["a", "b", "a", "a"]
    ) == [("spec.x[2]", "FieldValueDuplicate")]
    keyed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["port", "protocol"],
        "items": {
            "type": "object",
            "properties": {
                "port": {"type": "integer"},
                "protocol": {"type": "string", "default": "TCP"},
            },
        },
    }
    twice = [{"port": 80}, {"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP"}]
    assert only(keyed, twice) == Cause(
        "spec.x[2]", "FieldValueDuplicate", 'Duplicate value: {"port":80,"protocol":"TCP"}'
    )


# --- ratcheting ---


def test_an_unchanged_value_that_no_longer_fits_is_tolerated_on_update() -> None:
    schema = {"type": "string", "maxLength": 1}
    assert complaints(schema, "long", old="long") == []
    assert complaints(schema, "longer", old="long") == [("spec.x", "FieldValueTooLong")]


def test_only_the_changed_element_of_a_keyed_list_is_judged() -> None:
    keyed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "v": {"type": "integer", "maximum": 1}},
        },
    }
    old = [{"name": "a", "v": 5}, {"name": "b", "v": 1}]
    new = [{"name": "b", "v": 6}, {"name": "a", "v": 5}]
    assert complaints(keyed, new, old) == [("spec.x[0].v", "FieldValueInvalid")]


def test_elements_of_an_atomic_list_are_judged_anew_when_the_list_changes() -> None:
    schema = {"type": "array", "items": {"type": "integer", "maximum": 1}}
    assert complaints(schema, [5], [5]) == []
    assert complaints(schema, [5, 1], [5]) == [("spec.x[0]", "FieldValueInvalid")]


def test_duplicates_are_tolerated_where_there_were_some_before() -> None:
    schema = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}
    assert complaints(schema, ["a", "b", "b"], old=["a", "a"]) == []
    assert complaints(schema, ["a", "a"], old=["a"]) == [("spec.x[1]", "FieldValueDuplicate")]


# --- rules ---


def ruled(rule: str, *, base: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {**(base or {"type": "string"}), "x-kubernetes-validations": [{"rule": rule, **more}]}


def test_a_rule_speaks_where_it_stands() -> None:
    assert only(ruled("self != 'bad'", message="must not be bad"), "bad") == Cause(
        "spec.x", "FieldValueInvalid", "Invalid value: must not be bad"
    )
    assert only(ruled("self != 'bad'"), "bad").message == "Invalid value: failed rule: self != 'bad'"


def test_a_rule_can_choose_its_reason_its_field_and_its_words() -> None:
    base = {"type": "object", "properties": {"a": {"type": "integer"}}}
    rule = ruled(
        "self.a < 3",
        base=base,
        reason="FieldValueForbidden",
        fieldPath=".a",
        messageExpression="'a is ' + string(self.a)",
    )
    assert only(rule, {"a": 5}) == Cause("spec.x.a", "FieldValueForbidden", "Forbidden: a is 5")


def test_a_message_that_cannot_be_made_gives_way_to_the_fixed_one() -> None:
    rule = ruled("false", message="fixed", messageExpression="self.nothing")
    assert only(rule, "v").message == "Invalid value: fixed"


def test_a_rule_that_fails_to_answer_refuses() -> None:
    base = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert complaints(ruled("self.a > 1", base=base), {}) == [("spec.x", "FieldValueInvalid")]


def test_rules_wait_until_the_shape_is_right() -> None:
    schema = spec_schema(
        {"x": ruled("false"), "y": {"type": "integer"}},
    )
    causes = schema.validate({"spec": {"x": "a", "y": "b"}})
    assert [(c.field, c.type) for c in causes] == [
        ("spec.y", "FieldValueTypeInvalid"),
        ("<nil>", "FieldValueInvalid"),
    ]
    # A mere value out of range does not hold them back.
    schema = spec_schema({"x": ruled("false"), "y": {"type": "integer", "maximum": 1}})
    fields = [c.field for c in schema.validate({"spec": {"x": "a", "y": 2}})]
    assert fields == ["spec.y", "spec.x"]


def test_a_transition_rule_needs_an_old_value() -> None:
    rule = ruled("self == oldSelf", message="immutable")
    assert complaints(rule, "a") == []
    assert complaints(rule, "a", old="a") == []
    assert complaints(rule, "b", old="a") == [("spec.x", "FieldValueInvalid")]


def test_an_optional_old_self_is_asked_on_create_too() -> None:
    rule = ruled("oldSelf.hasValue() || self == 'first'", optionalOldSelf=True)
    assert complaints(rule, "first") == []
    assert complaints(rule, "second") == [("spec.x", "FieldValueInvalid")]
    assert complaints(rule, "second", old="first") == []


def test_transition_rules_correlate_elements_of_keyed_lists() -> None:
    item = {"type": "object", "properties": {"name": {"type": "string"}, "v": {"type": "integer"}}}
    keyed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": ruled("self.v >= oldSelf.v", base=item),
    }
    old = [{"name": "a", "v": 1}, {"name": "b", "v": 5}]
    new = [{"name": "new", "v": 0}, {"name": "b", "v": 4}, {"name": "a", "v": 2}]
    assert complaints(keyed, new, old) == [("spec.x[1]", "FieldValueInvalid")]


def test_unchanged_values_are_not_asked_again_but_transition_rules_are() -> None:
    assert complaints(ruled("false"), "same", old="same") == []
    assert complaints(ruled("self != oldSelf"), "same", old="same") == [("spec.x", "FieldValueInvalid")]
    inner = {"type": "array", "items": ruled("false")}
    assert complaints(inner, ["a"], old=["a"]) == []


def test_rules_see_numbers_times_and_odd_names_as_the_schema_declares_them() -> None:
    base = {
        "type": "object",
        "properties": {
            "ratio": {"type": "number"},
            "when": {"type": "string", "format": "date-time"},
            "for": {"type": "string", "format": "duration"},
            "a-b": {"type": "string"},
            "x.y/z": {"type": "string"},
            "namespace": {"type": "string"},
        },
    }
    rule = (
        "self.ratio / 2.0 == 1.5 && self.when < timestamp('2031-01-01T00:00:00Z') && "
        "self.__for__ == duration('60s') && self.a__dash__b == 'd' && self.x__dot__y__slash__z == 's' && "
        "self.__namespace__ == 'n'"
    )
    value = {
        "ratio": 3,
        "when": "2030-01-01T00:00:00Z",
        "for": "1m",
        "a-b": "d",
        "x.y/z": "s",
        "namespace": "n",
    }
    assert complaints(ruled(rule, base=base), value) == []


def test_rules_name_map_entries_in_brackets() -> None:
    entries = {"type": "object", "additionalProperties": ruled("self != 'bad'")}
    assert complaints(entries, {"k": "bad"}) == [("spec.x[k]", "FieldValueInvalid")]


def test_old_text_without_meaning_does_not_silence_the_other_rules() -> None:
    base = {
        "type": "object",
        "properties": {"when": {"type": "string", "format": "date-time"}, "n": {"type": "integer"}},
    }
    old, new = {"when": "never", "n": 1}, {"when": "never", "n": 2}
    assert complaints(ruled("self.n == oldSelf.n", base=base), new, old) == [("spec.x", "FieldValueInvalid")]


# Random schemas and objects, and what apiextensions-apiserver v0.35.0 makes of them: the object after
# pruning and defaulting, the paths pruned, and every complaint by field and reason.
CASES = json.loads((Path(__file__).parent / "golden" / "schema.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_objects_come_out_as_in_the_original(case: dict[str, Any]) -> None:
    schema = Schema.from_openapi(case["schema"])
    pruned, unknown = schema.prune(case["object"])
    result = schema.apply_defaults(pruned)
    causes = schema.validate(result, case.get("old"))
    assert result == case["result"]
    assert sorted(unknown) == case["pruned"]
    assert sorted({(c.field, c.type) for c in causes}) == [tuple(error) for error in case["errors"]]


# --- laws ---

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=2)
values = st.recursive(
    scalars,
    lambda s: st.lists(s, max_size=3) | st.dictionaries(st.sampled_from("abcd"), s, max_size=3),
    max_leaves=8,
)
leaf = st.sampled_from(
    [
        {"type": "string", "default": "d"},
        {"type": "integer", "maximum": 3},
        {"type": "string", "nullable": True},
        {"x-kubernetes-preserve-unknown-fields": True},
        {"x-kubernetes-int-or-string": True},
    ]
)


def grown(children: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    objects = st.dictionaries(st.sampled_from("abc"), children, max_size=3)
    return (
        objects.map(lambda p: {"type": "object", "properties": p})
        | objects.map(lambda p: {"type": "object", "properties": p, "default": {}})
        | children.map(lambda c: {"type": "array", "items": c})
        | children.map(lambda c: {"type": "object", "additionalProperties": c})
    )


schemas = st.recursive(leaf, grown, max_leaves=6)


@given(schemas, values)
def test_pruning_and_defaulting_twice_is_doing_it_once(schema: dict[str, Any], value: Any) -> None:
    compiled = field_schema(schema)
    obj = {"spec": {"x": value}}
    before = copy.deepcopy(obj)
    pruned, _ = compiled.prune(obj)
    assert compiled.prune(pruned) == (pruned, [])
    filled = compiled.apply_defaults(pruned)
    assert compiled.apply_defaults(filled) == filled
    assert obj == before


@given(schemas, values)
def test_defaults_are_never_pruned_and_an_unchanged_object_is_never_refused(
    schema: dict[str, Any], value: Any
) -> None:
    compiled = field_schema(schema)
    filled = compiled.apply_defaults(compiled.prune({"spec": {"x": value}})[0])
    assert compiled.prune(filled)[1] == []
    assert compiled.validate(filled, copy.deepcopy(filled)) == []


# --- built-in kinds ---


def test_built_in_kinds_know_their_fields_and_types() -> None:
    schema = kind_schemas.find_builtin_schema("apps", "v1", "Deployment")
    obj = {"spec": {"replicas": "3", "template": {"spec": {"containers": [{"name": "c", "imag": "x"}]}}}}
    assert schema.prune(obj)[1] == ["spec.template.spec.containers[0].imag"]
    assert [(c.field, c.type) for c in schema.validate(obj)] == [("spec.replicas", "FieldValueTypeInvalid")]
    assert schema.apply_defaults(obj) is obj


def test_an_amount_is_text_or_a_number_and_a_time_is_a_time() -> None:
    schema = kind_schemas.find_builtin_schema("", "v1", "Node")
    capacity = {"cpu": 4, "memory": "8Gi", "pods": True, "storage": {}}
    taints = [{"key": "a", "effect": "NoSchedule", "timeAdded": "now"}]
    causes = schema.validate({"spec": {"taints": taints}, "status": {"capacity": capacity}})
    assert [(c.field, c.type) for c in causes] == [
        ("spec.taints[0].timeAdded", "FieldValueTypeInvalid"),
        ("status.capacity.pods", "FieldValueTypeInvalid"),
        ("status.capacity.storage", "FieldValueTypeInvalid"),
    ]


def test_inlined_structures_show_their_fields_where_they_are_inlined() -> None:
    schema = kind_schemas.find_builtin_schema("", "v1", "Pod")
    pod = {"spec": {"volumes": [{"name": "v", "emptyDir": {}, "volumeSource": {}}]}}
    assert schema.prune(pod)[1] == ["spec.volumes[0].volumeSource"]


def test_a_kind_that_is_not_built_in_is_unknown() -> None:
    with pytest.raises(kind_schemas.UnknownKind, match="Widget"):
        kind_schemas.find_builtin_schema("example.com", "v1", "Widget")
