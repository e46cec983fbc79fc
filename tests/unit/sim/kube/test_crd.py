"""CustomResourceDefinitions: what they must say, and what they become."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dovetail.sim.kube.schema import crd
from dovetail.sim.kube.types import Generation, StatusSplit

NOW = "2030-01-01T00:00:00Z"


def definition(**version: Any) -> dict[str, Any]:
    """A small valid definition; keywords go into its version."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }


def with_spec(schema: dict[str, Any]) -> dict[str, Any]:
    root = {"type": "object", "properties": {"spec": schema}}
    return definition(schema={"openAPIV3Schema": root})


def fields(obj: dict[str, Any]) -> list[tuple[str, str]]:
    return [(cause.field, cause.type) for cause in crd.validate_crd(obj)]


ROOT = "spec.validation.openAPIV3Schema"
SPEC = f"{ROOT}.properties[spec]"


def test_a_valid_definition_has_nothing_to_answer_for() -> None:
    assert crd.validate_crd(definition()) == []


@pytest.mark.parametrize(
    ("path", "value", "field", "reason"),
    [
        ("metadata.name", "widget", "metadata.name", "FieldValueInvalid"),
        ("spec.scope", "Galaxy", "spec.scope", "FieldValueNotSupported"),
        ("spec.scope", "", "spec.scope", "FieldValueRequired"),
        ("spec.names.kind", "", "spec.names.kind", "FieldValueRequired"),
        ("spec.names.singular", "Widget", "spec.names.singular", "FieldValueInvalid"),
        ("spec.names.shortNames", ["W D"], "spec.names.shortNames[0]", "FieldValueInvalid"),
        ("spec.conversion", {"strategy": "Other"}, "spec.conversion.strategy", "FieldValueNotSupported"),
        (
            "spec.conversion",
            {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}},
            "spec.conversion.webhook.clientConfig",
            "FieldValueRequired",
        ),
        ("spec.versions", [], "spec.versions", "FieldValueRequired"),
    ],
)
def test_names_and_scope_are_checked(path: str, value: Any, field: str, reason: str) -> None:
    obj = definition()
    *parents, last = path.split(".")
    place: Any = obj
    for parent in parents:
        place = place[parent]
    place[last] = value
    assert (field, reason) in fields(obj)


def test_exactly_one_version_is_stored_and_names_are_unique() -> None:
    obj = definition()
    obj["spec"]["versions"].append(copy.deepcopy(obj["spec"]["versions"][0]))
    assert fields(obj) == [
        ("spec.versions", "FieldValueInvalid"),
        ("spec.versions[1].name", "FieldValueDuplicate"),
    ]


def test_every_version_has_a_schema() -> None:
    assert fields(definition(schema={})) == [
        ("spec.versions[0].schema.openAPIV3Schema", "FieldValueRequired")
    ]


@pytest.mark.parametrize(
    ("schema", "field", "reason"),
    [
        ({}, f"{SPEC}.type", "FieldValueRequired"),
        ({"type": "thing"}, f"{SPEC}.type", "FieldValueNotSupported"),
        ({"type": "array"}, f"{SPEC}.items", "FieldValueRequired"),
        ({"type": "object", "$ref": "#/x"}, f"{SPEC}.$ref", "FieldValueForbidden"),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "additionalProperties": {"type": "string"},
            },
            f"{SPEC}.additionalProperties",
            "FieldValueForbidden",
        ),
        (
            {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            f"{SPEC}.uniqueItems",
            "FieldValueForbidden",
        ),
        ({"type": "string", "pattern": "(?=a)"}, f"{SPEC}.pattern", "FieldValueInvalid"),
        (
            {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"},
            f"{SPEC}.x-kubernetes-list-map-keys",
            "FieldValueRequired",
        ),
        (
            {
                "type": "array",
                "items": {"type": "object", "properties": {"a": {"type": "string"}}},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["a"],
            },
            f"{SPEC}.items.properties[a].default",
            "FieldValueRequired",
        ),
        ({"type": "integer", "default": "one"}, f"{SPEC}.default", "FieldValueInvalid"),
        (
            {"type": "string", "x-kubernetes-validations": [{"rule": "self =="}]},
            f"{SPEC}.x-kubernetes-validations[0].rule",
            "FieldValueInvalid",
        ),
        (
            {
                "type": "array",
                "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
            },
            f"{SPEC}.items.x-kubernetes-validations[0].rule",
            "FieldValueInvalid",
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}}},
                "x-kubernetes-validations": [{"rule": "self.a.b == 'x'"}, {"rule": "has(self.a.c)"}],
            },
            f"{SPEC}.x-kubernetes-validations[1].rule",
            "FieldValueInvalid",
        ),
        (
            {"type": "string", "x-kubernetes-validations": [{"rule": "true", "reason": "Because"}]},
            f"{SPEC}.x-kubernetes-validations[0].reason",
            "FieldValueNotSupported",
        ),
        (
            {"type": "string", "anyOf": [{"type": "string"}]},
            f"{SPEC}.anyOf[0].type",
            "FieldValueForbidden",
        ),
    ],
)
def test_a_schema_must_be_structural(schema: dict[str, Any], field: str, reason: str) -> None:
    assert fields(with_spec(schema)) == [(field, reason)]


def test_a_rule_at_the_root_may_ask_for_the_name_and_maps_have_any_key() -> None:
    root = {
        "type": "object",
        "properties": {"spec": {"type": "object", "additionalProperties": {"type": "string"}}},
        "x-kubernetes-validations": [{"rule": "self.metadata.name != self.spec.anything && self.kind != ''"}],
    }
    assert fields(definition(schema={"openAPIV3Schema": root})) == []


def test_int_or_string_may_say_both_types() -> None:
    either = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert fields(with_spec(either)) == []


def test_metadata_may_only_restrict_the_name() -> None:
    root = {
        "type": "object",
        "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}},
    }
    assert fields(definition(schema={"openAPIV3Schema": root})) == [
        (f"{ROOT}.properties[metadata].properties[labels]", "FieldValueForbidden")
    ]


def test_columns_and_scale_paths_are_checked() -> None:
    obj = definition(
        additionalPrinterColumns=[
            {"name": "A", "type": "colour", "jsonPath": "spec.a"},
            {"name": "B", "type": "string"},
        ],
        subresources={"scale": {"specReplicasPath": ".status.n", "statusReplicasPath": ".status.n"}},
        selectableFields=[{"jsonPath": ".spec.list[0]"}],
    )
    assert fields(obj) == [
        ("spec.versions[0].additionalPrinterColumns[0].type", "FieldValueNotSupported"),
        ("spec.versions[0].additionalPrinterColumns[0].jsonPath", "FieldValueInvalid"),
        ("spec.versions[0].additionalPrinterColumns[1].jsonPath", "FieldValueRequired"),
        ("spec.versions[0].subresources.scale.specReplicasPath", "FieldValueInvalid"),
        ("spec.versions[0].selectableFields[0].jsonPath", "FieldValueInvalid"),
    ]


def test_a_definition_becomes_a_type() -> None:
    (info,) = crd.compile_definition(
        definition(
            subresources={
                "status": {},
                "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                },
            },
            additionalPrinterColumns=[
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1}
            ],
            selectableFields=[{"jsonPath": ".spec.size"}],
            deprecated=True,
        )
    )
    assert (info.group, info.version, info.plural, info.kind) == ("example.com", "v1", "widgets", "Widget")
    assert (info.singular, info.list_kind, info.short_names) == ("widget", "WidgetList", ("wd",))
    assert (info.namespaced, info.custom, info.categories) == (True, True, ("all",))
    assert [sub.name for sub in info.subresources] == ["status", "scale"]
    assert (info.generation, info.status) == (Generation.SPEC, StatusSplit.CUSTOM)
    assert info.selectable_fields == ("spec.size",)
    assert info.printer_columns[0].priority == 1
    assert info.scale is not None
    assert info.scale.selector == ".status.selector"
    assert info.deprecation_warning == "example.com/v1 Widget is deprecated"
    assert info.schema is not None
    assert info.schema.prune({"spec": {"size": 1, "x": 2}})[1] == ["spec.x"]


def test_without_a_status_subresource_every_change_is_a_generation() -> None:
    (info,) = crd.compile_definition(definition())
    assert (info.generation, info.status, info.subresources) == (Generation.ALL, StatusSplit.NONE, ())


def test_only_served_versions_become_types_and_they_share_their_objects() -> None:
    obj = definition()
    obj["spec"]["versions"] += [
        {**obj["spec"]["versions"][0], "name": "v2", "storage": False},
        {**obj["spec"]["versions"][0], "name": "v3", "storage": False, "served": False},
    ]
    infos = crd.compile_definition(obj)
    assert [info.version for info in infos] == ["v1", "v2"]
    assert len({info.storage for info in infos}) == 1


def test_a_definition_is_established_at_once() -> None:
    status = crd.build_established_status(definition(), NOW)
    assert status["acceptedNames"] == {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "listKind": "WidgetList",
        "shortNames": ["wd"],
        "categories": ["all"],
    }
    assert status["storedVersions"] == ["v1"]
    assert [(c["type"], c["status"], c["reason"]) for c in status["conditions"]] == [
        ("NamesAccepted", "True", "NoConflicts"),
        ("Established", "True", "InitialNamesAccepted"),
    ]


def test_a_second_look_keeps_the_times_and_remembers_stored_versions() -> None:
    obj = definition()
    obj["status"] = crd.build_established_status(obj, NOW)
    obj["spec"]["versions"][0]["name"] = "v2"
    status = crd.build_established_status(obj, "2031-01-01T00:00:00Z")
    assert status["storedVersions"] == ["v1", "v2"]
    assert {c["lastTransitionTime"] for c in status["conditions"]} == {NOW}


def test_a_name_that_another_definition_has_is_not_accepted() -> None:
    other = definition()
    other["metadata"]["name"] = "gadgets.example.com"
    other["spec"]["names"] = {"plural": "gadgets", "kind": "Gadget", "shortNames": ["wd"]}
    status = crd.build_established_status(definition(), NOW, [other])
    assert [(c["type"], c["status"], c["reason"]) for c in status["conditions"]] == [
        ("NamesAccepted", "False", "ShortNamesConflict"),
        ("Established", "False", "NotAccepted"),
    ]


def test_names_left_out_are_filled_in() -> None:
    filled = crd.with_defaults(definition())
    assert filled["spec"]["names"]["listKind"] == "WidgetList"
    assert filled["spec"]["conversion"] == {"strategy": "None"}
