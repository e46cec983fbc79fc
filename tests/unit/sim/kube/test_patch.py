"""Patches: the laws of merging, the RFC's own examples, and the lists of strategic merge."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.sim.kube.builtin import kind_schemas
from dovetail.sim.kube.patch.patches import (
    PatchError,
    apply_json_patch,
    apply_merge_patch,
    apply_strategic_patch,
)

POD = kind_schemas.find_merge_keys("", "v1", "Pod")
DEPLOYMENT = kind_schemas.find_merge_keys("apps", "v1", "Deployment")
SERVICE = kind_schemas.find_merge_keys("", "v1", "Service")
PDB = kind_schemas.find_merge_keys("policy", "v1", "PodDisruptionBudget")

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
values = st.recursive(
    scalars,
    lambda s: st.lists(s, max_size=3) | st.dictionaries(st.sampled_from("abc"), s, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return value


# --- JSON merge patch ---


@pytest.mark.parametrize(
    ("doc", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": 1}, {"a": [{"b": None}]}, {"a": [{"b": None}]}),
    ],
)
def test_merge_patch_examples_of_the_rfc(doc: Any, patch: Any, result: Any) -> None:
    assert apply_merge_patch(doc, patch) == result


@given(objects, objects)
def test_merging_twice_is_merging_once(doc: dict[str, Any], patch: dict[str, Any]) -> None:
    once = apply_merge_patch(doc, patch)
    assert apply_merge_patch(once, patch) == once


@given(objects)
def test_an_empty_patch_changes_nothing(doc: dict[str, Any]) -> None:
    assert apply_merge_patch(doc, {}) == doc


@given(objects, objects)
def test_a_patch_without_nulls_prevails(doc: dict[str, Any], patch: dict[str, Any]) -> None:
    kept = without_nulls(patch)
    merged = apply_merge_patch(doc, kept)
    assert all(merged[key] == value for key, value in kept.items() if not isinstance(value, dict))


@given(objects, objects)
def test_no_patch_touches_its_inputs(doc: dict[str, Any], patch: dict[str, Any]) -> None:
    before = copy.deepcopy((doc, patch))
    apply_merge_patch(doc, patch)
    apply_strategic_patch(doc, patch, POD)
    assert (doc, patch) == before


def test_what_a_patch_does_not_name_is_shared() -> None:
    doc = {"a": {"big": [1, 2]}, "b": 1}
    assert apply_merge_patch(doc, {"b": 2})["a"] is doc["a"]
    assert apply_json_patch(doc, [{"op": "replace", "path": "/b", "value": 2}])["a"] is doc["a"]


# --- JSON Patch ---


@pytest.mark.parametrize(
    ("doc", "ops", "result"),
    [
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
        (
            {"foo": ["bar", "baz"]},
            [{"op": "add", "path": "/foo/1", "value": "qux"}],
            {"foo": ["bar", "qux", "baz"]},
        ),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
        ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
        (
            {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
        ),
        (
            {"foo": ["all", "grass", "cows", "eat"]},
            [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
            {"foo": ["all", "cows", "eat", "grass"]},
        ),
        (
            {"baz": "qux", "foo": ["a", 2, "c"]},
            [{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}],
            {"baz": "qux", "foo": ["a", 2, "c"]},
        ),
        (
            {"foo": "bar"},
            [{"op": "add", "path": "/child", "value": {"grandchild": {}}}],
            {"foo": "bar", "child": {"grandchild": {}}},
        ),
        (
            {"foo": "bar"},
            [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}],
            {"foo": "bar", "baz": "qux"},
        ),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        (
            {"foo": ["bar"]},
            [{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}],
            {"foo": ["bar", ["abc", "def"]]},
        ),
        ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        ({"": 1}, [{"op": "replace", "path": "/", "value": 2}], {"": 2}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
        ({"a": None}, [{"op": "test", "path": "/a", "value": None}], {"a": None}),
    ],
)
def test_json_patch_examples_of_the_rfc(doc: Any, ops: Any, result: Any) -> None:
    assert apply_json_patch(doc, ops) == result


@pytest.mark.parametrize(
    ("doc", "ops", "code"),
    [
        ({"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "bar"}], 422),
        ({"foo": "bar"}, [{"op": "add", "path": "/baz/bat", "value": "qux"}], 422),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": "10"}], 422),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": True}], 422),
        ({}, [{"op": "remove", "path": "/a"}], 422),
        ({}, [{"op": "replace", "path": "/a", "value": 1}], 422),
        ({"a": [1]}, [{"op": "add", "path": "/a/2", "value": 1}], 422),
        ({"a": [1]}, [{"op": "remove", "path": "/a/-"}], 422),
        ({"a": [1]}, [{"op": "replace", "path": "/a/00", "value": 1}], 422),
        ({"a": [1]}, [{"op": "replace", "path": "/a/-1", "value": 1}], 422),
        ({"a": {}}, [{"op": "move", "from": "/a", "path": "/a/b"}], 422),
        ({"a": 1}, [{"op": "replace", "path": "", "value": 2}], 422),
        ({"a": 1}, [{"op": "add", "path": "/b"}], 400),
        ({"a": 1}, [{"op": "frob", "path": "/b"}], 400),
        ({"a": 1}, [{"op": "add", "path": "b", "value": 1}], 400),
        ({"a": 1}, [{"op": "copy", "path": "/b"}], 400),
        ({"a": 1}, ["nonsense"], 400),
        ({"a": 1}, {"op": "add"}, 400),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}] * 10_001, 413),
    ],
)
def test_a_json_patch_that_cannot_apply_says_whose_fault_it_is(doc: Any, ops: Any, code: int) -> None:
    with pytest.raises(PatchError) as caught:
        apply_json_patch(doc, ops)
    assert caught.value.code == code
    assert caught.value.message


@given(objects, st.sampled_from("abcd"), values)
def test_adding_and_removing_a_key_leaves_no_trace(doc: dict[str, Any], key: str, value: Any) -> None:
    rest = {k: v for k, v in doc.items() if k != key}
    ops = [{"op": "add", "path": f"/{key}", "value": value}, {"op": "remove", "path": f"/{key}"}]
    assert apply_json_patch(rest, ops) == rest


# --- strategic merge ---


def containers(*listed: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": list(listed)}}


def test_a_container_is_merged_by_its_name_and_a_new_one_joins_it() -> None:
    doc = containers({"name": "a", "image": "1", "tty": True}, {"name": "b"})
    patch = containers({"name": "a", "image": "2"}, {"name": "c"})
    assert apply_strategic_patch(doc, patch, POD) == containers(
        {"name": "a", "image": "2", "tty": True}, {"name": "c"}, {"name": "b"}
    )


def test_the_order_kubectl_asks_for_is_kept_and_strangers_keep_their_place() -> None:
    doc = containers({"name": "a"}, {"name": "side"}, {"name": "b"})
    patch = {
        "spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "b"}]}
    }
    assert [c["name"] for c in apply_strategic_patch(doc, patch, POD)["spec"]["containers"]] == [
        "side",
        "b",
        "a",
    ]


def test_an_element_marked_delete_goes() -> None:
    doc = containers({"name": "a"}, {"name": "b"})
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "a"}],
            "containers": [{"name": "b", "$patch": "delete"}],
        }
    }
    assert apply_strategic_patch(doc, patch, POD) == containers({"name": "a"})


def test_a_list_marked_replace_is_replaced() -> None:
    doc = containers({"name": "a"}, {"name": "b"})
    assert apply_strategic_patch(doc, containers({"$patch": "replace"}, {"name": "z"}), POD) == containers(
        {"name": "z"}
    )


def test_an_object_marked_replace_keeps_nothing() -> None:
    doc = {"spec": {"nodeName": "n", "hostNetwork": True}}
    patch = {"spec": {"$patch": "replace", "nodeName": "m"}}
    assert apply_strategic_patch(doc, patch, POD) == {"spec": {"nodeName": "m"}}


def test_an_object_marked_delete_goes() -> None:
    doc = {"spec": {"securityContext": {"runAsUser": 1}, "nodeName": "n"}}
    assert apply_strategic_patch(doc, {"spec": {"securityContext": {"$patch": "delete"}}}, POD) == {
        "spec": {"nodeName": "n"}
    }


def test_retain_keys_drop_the_other_members_of_a_union() -> None:
    doc = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert apply_strategic_patch(doc, patch, DEPLOYMENT) == {"spec": {"strategy": {"type": "Recreate"}}}


def test_retain_keys_must_name_what_the_patch_sets() -> None:
    with pytest.raises(PatchError) as caught:
        apply_strategic_patch(
            {}, {"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}}, DEPLOYMENT
        )
    assert caught.value.code == 400


def test_finalizers_are_a_set_that_can_lose_members() -> None:
    doc = {"metadata": {"finalizers": ["a", "b"]}}
    added = apply_strategic_patch(doc, {"metadata": {"finalizers": ["c", "a"]}}, POD)
    assert added["metadata"]["finalizers"] == ["c", "a", "b"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b"]}}
    assert apply_strategic_patch(doc, patch, POD)["metadata"]["finalizers"] == ["b"]


def test_tolerations_and_arguments_are_replaced_whole() -> None:
    doc = {"spec": {"tolerations": [{"key": "a"}], "containers": [{"name": "c", "args": ["x", "y"]}]}}
    patch = {"spec": {"tolerations": [{"key": "b"}], "containers": [{"name": "c", "args": ["z"]}]}}
    assert apply_strategic_patch(doc, patch, POD) == patch


def test_service_ports_merge_by_port_and_container_ports_by_container_port() -> None:
    doc = {"spec": {"ports": [{"port": 80, "name": "http"}]}}
    patch = {"spec": {"ports": [{"port": 80, "targetPort": 8080}, {"port": 443}]}}
    assert apply_strategic_patch(doc, patch, SERVICE)["spec"]["ports"] == [
        {"port": 80, "name": "http", "targetPort": 8080},
        {"port": 443},
    ]


def test_conditions_merge_by_type() -> None:
    doc = {
        "status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Other", "status": "True"}]}
    }
    patch = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert apply_strategic_patch(doc, patch, POD)["status"]["conditions"] == [
        {"type": "Ready", "status": "True"},
        {"type": "Other", "status": "True"},
    ]


def test_a_budgets_selector_is_replaced_as_a_whole() -> None:
    doc = {"spec": {"selector": {"matchLabels": {"a": "1"}}}}
    patch = {"spec": {"selector": {"matchLabels": {"b": "2"}}}}
    assert apply_strategic_patch(doc, patch, PDB) == patch


def test_null_deletes_a_key_and_cordoning_can_be_undone() -> None:
    node = kind_schemas.find_merge_keys("", "v1", "Node")
    doc = {"spec": {"unschedulable": True, "providerID": "x"}}
    assert apply_strategic_patch(doc, {"spec": {"unschedulable": None}}, node) == {
        "spec": {"providerID": "x"}
    }


@pytest.mark.parametrize(
    "patch",
    [
        containers({"image": "no name"}),
        {"spec": {"$patch": "frobnicate"}},
        {"spec": {"$unknown": 1}},
        containers({"name": "a", "$patch": "merge"}),
        {"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}},
        {"spec": {"$setElementOrder/containers": [{"name": "x"}], "containers": [{"name": "y"}]}},
        {"metadata": {"finalizers": [{"a": 1}]}},
    ],
)
def test_a_malformed_strategic_patch_is_the_clients_fault(patch: dict[str, Any]) -> None:
    with pytest.raises(PatchError) as caught:
        apply_strategic_patch({"metadata": {"finalizers": ["a"]}, **containers({"name": "a"})}, patch, POD)
    assert caught.value.code == 400


# Deployments, patches, and what strategicpatch of k8s.io/apimachinery v0.35.0 makes of them (nulls left out).
CASES = json.loads((Path(__file__).parent / "golden" / "strategic.json").read_text())


def test_many_patches_come_out_as_the_original_merges_them() -> None:
    wrong = [
        c
        for c in CASES
        if without_nulls_anywhere(apply_strategic_patch(c["doc"], c["patch"], DEPLOYMENT)) != c["result"]
    ]
    assert len(CASES) == 80
    assert wrong == []


def without_nulls_anywhere(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_nulls_anywhere(v) for k, v in value.items() if v is not None}
    return [without_nulls_anywhere(v) for v in value] if isinstance(value, list) else value


named = st.lists(st.sampled_from("abcd"), unique=True).map(lambda names: [{"name": n} for n in names])


@given(named, named, st.integers())
def test_merging_keyed_lists_loses_no_element_and_adds_none_twice(
    old: list[dict[str, Any]], new: list[dict[str, Any]], mark: int
) -> None:
    marked = [{**item, "image": str(mark)} for item in new]
    result = apply_strategic_patch(containers(*old), containers(*marked), POD)["spec"]["containers"]
    names = [item["name"] for item in result]
    assert len(names) == len(set(names))
    assert set(names) == {item["name"] for item in (*old, *new)}
    assert (
        apply_strategic_patch(containers(*result), containers(*marked), POD)["spec"]["containers"] == result
    )
