"""Server-side apply: who owns what, who may change it, and what goes when an owner lets go."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.schema.object_schema import Schema
from dovetail.sim.kube.builtin import kind_schemas
from dovetail.sim.kube.patch.field_sets import decode_paths, encode_paths
from dovetail.sim.kube.patch.server_side_apply import ApplyConflict, apply_fields, track_fields

DEPLOYMENT = kind_schemas.find_builtin_schema("apps", "v1", "Deployment")
CONFIG_MAP = kind_schemas.find_builtin_schema("", "v1", "ConfigMap")
NOW, LATER = "2030-01-01T00:00:00Z", "2030-01-02T00:00:00Z"


def applied(
    live: dict[str, Any] | None,
    intent: dict[str, Any],
    manager: str = "kubectl",
    *,
    force: bool = False,
    schema: Schema = DEPLOYMENT,
    now: str = NOW,
    **more: Any,
) -> dict[str, Any]:
    return apply_fields(
        live, intent, manager=manager, force=force, schema=schema, api_version="apps/v1", now=now, **more
    )


def updated(
    before: dict[str, Any] | None, after: dict[str, Any], manager: str = "hpa", now: str = LATER, **more: Any
) -> dict[str, Any]:
    """The object after an ordinary write, its ownership kept up."""
    fields = track_fields(
        before, after, manager=manager, schema=DEPLOYMENT, api_version="apps/v1", now=now, **more
    )
    return {**after, "metadata": {**after.get("metadata", {}), "managedFields": fields}}


def owned(obj: dict[str, Any]) -> dict[str, Any]:
    """Each manager's fields."""
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"]["managedFields"]}


def containers(*listed: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {**spec, "template": {"spec": {"containers": list(listed)}}}}


def listed(obj: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = obj["spec"]["template"]["spec"]["containers"]
    return found


def test_an_applier_owns_exactly_what_it_says() -> None:
    intent = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"a": "1"}, "finalizers": ["f"]},
        **containers(
            {"name": "c", "image": "i", "args": ["x"], "ports": [{"containerPort": 80}]}, replicas=3
        ),
    }
    result = applied(None, intent)
    assert result["metadata"]["managedFields"] == [
        {
            "manager": "kubectl",
            "operation": "Apply",
            "apiVersion": "apps/v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:finalizers": {'v:"f"': {}}, "f:labels": {"f:a": {}}},
                "f:spec": {
                    "f:replicas": {},
                    "f:template": {
                        "f:spec": {
                            "f:containers": {
                                'k:{"name":"c"}': {
                                    ".": {},
                                    "f:args": {},
                                    "f:image": {},
                                    "f:name": {},
                                    "f:ports": {
                                        'k:{"containerPort":80,"protocol":"TCP"}': {
                                            ".": {},
                                            "f:containerPort": {},
                                        }
                                    },
                                }
                            }
                        }
                    },
                },
            },
        }
    ]


def test_changing_what_another_owns_is_a_conflict_that_names_it() -> None:
    live = applied(None, containers({"name": "c", "image": "1"}, replicas=3))
    with pytest.raises(ApplyConflict) as caught:
        applied(live, containers({"name": "c", "image": "2"}, replicas=5), "other")
    assert [(cause.field, cause.type, cause.message) for cause in caught.value.causes] == [
        (".spec.replicas", "FieldManagerConflict", 'conflict with "kubectl"'),
        (
            '.spec.template.spec.containers[name="c"].image',
            "FieldManagerConflict",
            'conflict with "kubectl"',
        ),
    ]


def test_a_conflict_with_an_updater_says_when_it_wrote() -> None:
    live = updated({}, {"spec": {"replicas": 3}})
    with pytest.raises(ApplyConflict) as caught:
        applied(live, {"spec": {"replicas": 4}})
    assert caught.value.causes[0].message == f'conflict with "hpa" using apps/v1 at {LATER}'


def test_agreeing_makes_both_owners() -> None:
    live = applied(None, {"spec": {"replicas": 3}})
    shared = applied(live, {"spec": {"replicas": 3}}, "other")
    assert owned(shared) == {
        "kubectl": {"f:spec": {"f:replicas": {}}},
        "other": {"f:spec": {"f:replicas": {}}},
    }
    # With two owners, one letting go changes nothing.
    assert applied(shared, {}, "other")["spec"] == {"replicas": 3}


def test_force_takes_the_field_away() -> None:
    live = applied(None, {"spec": {"replicas": 3, "paused": True}})
    forced = applied(live, {"spec": {"replicas": 5}}, "other", force=True)
    assert forced["spec"] == {"replicas": 5, "paused": True}
    assert owned(forced) == {"kubectl": {"f:spec": {"f:paused": {}}}, "other": {"f:spec": {"f:replicas": {}}}}


def test_what_an_applier_no_longer_says_vanishes_if_nobody_else_owns_it() -> None:
    live = applied(None, {"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"replicas": 3}})
    after = applied(live, {"metadata": {"labels": {"a": "1"}}})
    assert after["metadata"]["labels"] == {"a": "1"}
    assert "spec" not in after


def test_a_list_element_vanishes_with_everything_defaulted_into_it() -> None:
    live = applied(None, containers({"name": "a"}, {"name": "b"}))
    listed(live)[1]["terminationMessagePath"] = "/dev/termination-log"
    assert listed(applied(live, containers({"name": "a"}))) == [{"name": "a"}]


def test_a_list_element_stays_while_another_owns_a_part_of_it() -> None:
    live = applied(None, containers({"name": "a"}, {"name": "b", "tty": True}))
    both = applied(live, containers({"name": "b", "image": "i"}), "other")
    after = applied(both, containers({"name": "a"}))
    assert listed(after) == [{"name": "a"}, {"name": "b", "image": "i"}]


def test_an_updater_takes_over_what_it_changes_and_the_applier_then_conflicts() -> None:
    live = applied(None, {"spec": {"replicas": 3}})
    scaled = updated(live, {**live, "spec": {"replicas": 7}})
    assert owned(scaled) == {"hpa": {"f:spec": {"f:replicas": {}}}}
    with pytest.raises(ApplyConflict):
        applied(scaled, {"spec": {"replicas": 3}})
    # Saying nothing about it leaves it with its new owner.
    assert applied(scaled, {})["spec"] == {"replicas": 7}


def test_an_update_entry_grows_and_shrinks_with_what_its_manager_set() -> None:
    first = updated(None, {"metadata": {"labels": {"a": "1"}}}, now=NOW)
    second = updated(first, {"metadata": {**first["metadata"], "labels": {"a": "1", "b": "2"}}})
    assert owned(second) == {"hpa": {"f:metadata": {"f:labels": {".": {}, "f:a": {}, "f:b": {}}}}}
    assert second["metadata"]["managedFields"][0]["time"] == LATER
    third = updated(second, {"metadata": {**second["metadata"], "labels": {"b": "2"}}}, "someone")
    assert owned(third) == {"hpa": {"f:metadata": {"f:labels": {".": {}, "f:b": {}}}}}


def test_writes_through_status_are_an_entry_of_their_own() -> None:
    live = applied(None, {"spec": {"replicas": 1}})
    after = updated(live, {**live, "status": {"replicas": 1}}, "kubectl", subresource="status")
    entry = after["metadata"]["managedFields"][-1]
    assert (entry["operation"], entry["subresource"]) == ("Update", "status")
    assert entry["fieldsV1"] == {"f:status": {".": {}, "f:replicas": {}}}


def test_fields_of_the_server_belong_to_nobody() -> None:
    obj = {
        "metadata": {"name": "x", "uid": "u", "resourceVersion": "1", "generation": 2, "labels": {"a": "b"}}
    }
    assert owned(updated(None, obj)) == {"hpa": {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}}


def test_an_update_that_changes_nothing_keeps_every_entry_and_its_time() -> None:
    live = applied(None, {"spec": {"replicas": 3}})
    fields = track_fields(live, live, manager="x", schema=DEPLOYMENT, api_version="apps/v1", now=LATER)
    assert fields == live["metadata"]["managedFields"]


def test_ownership_can_be_forgotten_or_rewritten_by_a_patch() -> None:
    live = applied(None, {"spec": {"replicas": 3}})
    emptied = {**live, "metadata": {"managedFields": [{}]}}
    assert track_fields(live, emptied, manager="x", schema=DEPLOYMENT, api_version="apps/v1", now=LATER) == []
    renamed = copy.deepcopy(live)
    renamed["metadata"]["managedFields"][0]["manager"] = "renamed"
    fields = track_fields(live, renamed, manager="x", schema=DEPLOYMENT, api_version="apps/v1", now=LATER)
    assert [entry["manager"] for entry in fields] == ["renamed"]


def test_the_order_of_an_applied_list_wins_and_others_keep_their_place() -> None:
    live = {"spec": {"template": {"spec": {"containers": [{"name": "a"}, {"name": "side"}, {"name": "b"}]}}}}
    after = applied(live, containers({"name": "b"}, {"name": "new"}, {"name": "a"}))
    assert [c["name"] for c in listed(after)] == ["side", "b", "new", "a"]


def test_atomic_lists_and_selectors_are_owned_and_replaced_whole() -> None:
    intent = {"spec": {"selector": {"matchLabels": {"a": "1"}}}}
    live = applied(None, intent)
    assert owned(live) == {"kubectl": {"f:spec": {"f:selector": {}}}}
    after = applied(live, {"spec": {"selector": {"matchLabels": {"b": "2"}}}})
    assert after["spec"]["selector"] == {"matchLabels": {"b": "2"}}


def test_a_custom_resource_follows_the_list_types_of_its_schema() -> None:
    item = {"type": "object", "properties": {"key": {"type": "string"}, "v": {"type": "integer"}}}
    document = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "keyed": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["key"],
                        "items": item,
                    },
                    "atomic": {"type": "array", "items": {"type": "string"}},
                    "whole": {"type": "object", "x-kubernetes-map-type": "atomic"},
                },
            }
        },
    }
    schema = Schema.from_openapi(document, kind_schemas.find_metadata_node())
    spec = {"keyed": [{"key": "a", "v": 1}], "atomic": ["x"], "whole": {"p": 1}}
    live = applied(None, {"spec": spec}, schema=schema)
    assert owned(live)["kubectl"]["f:spec"] == {
        "f:atomic": {},
        "f:keyed": {'k:{"key":"a"}': {".": {}, "f:key": {}, "f:v": {}}},
        "f:whole": {},
    }
    after = applied(live, {"spec": {"keyed": [{"key": "b", "v": 2}]}}, "other", schema=schema)
    assert after["spec"]["keyed"] == [{"key": "a", "v": 1}, {"key": "b", "v": 2}]


def test_a_field_this_endpoint_does_not_write_can_be_left_out() -> None:
    result = applied(None, {"spec": {"replicas": 1}, "status": {"replicas": 9}}, ignore=("status",))
    assert "status" not in result
    assert owned(result) == {"kubectl": {"f:spec": {"f:replicas": {}}}}


def test_what_nobody_is_known_to_have_written_has_an_owner_called_so() -> None:
    live = {"metadata": {"name": "x"}, "spec": {"replicas": 3, "paused": True}}
    with pytest.raises(ApplyConflict) as caught:
        applied(live, {"spec": {"replicas": 4}})
    assert caught.value.causes[0].message.startswith('conflict with "before-first-apply"')
    forced = applied(live, {"spec": {"replicas": 4}}, force=True)
    assert owned(forced)["before-first-apply"] == {"f:spec": {".": {}, "f:paused": {}}}


def test_owning_a_part_of_a_list_element_does_not_keep_the_element() -> None:
    live = applied(None, containers({"name": "a"}, {"name": "b"}))
    changed = copy.deepcopy(live)
    listed(changed)[1]["image"] = "i"
    after = applied(updated(live, changed), containers({"name": "a"}))
    assert listed(after) == [{"name": "a"}]
    assert set(owned(after)) == {"kubectl"}


# Steps on one Deployment, and each outcome by managedfields of k8s.io/apimachinery v0.35.0; times left out.
CASES = json.loads((Path(__file__).parent / "golden" / "apply.json").read_text())


def filled(value: Any) -> Any:
    """A value without anything empty in it: a typed decoder tells no nothings apart."""
    if isinstance(value, dict):
        kept = {key: filled(item) for key, item in value.items() if key != "managedFields"}
        return {key: item for key, item in kept.items() if item not in (None, {}, [])}
    return [filled(item) for item in value] if isinstance(value, list) else value


def entries(obj: dict[str, Any]) -> list[tuple[str, str, Any]]:
    listed = obj.get("metadata", {}).get("managedFields") or []
    return sorted(((e["manager"], e["operation"], e["fieldsV1"]) for e in listed), key=str)


def taken(live: dict[str, Any], step: dict[str, Any], now: str) -> dict[str, Any]:
    if step["op"] == "apply":
        return applied(live, step["object"], step["manager"], force=step["force"], now=now)
    fields = live["metadata"].get("managedFields")
    metadata = step["object"]["metadata"] | ({"managedFields": fields} if fields else {})
    return updated(live, {**step["object"], "metadata": metadata}, step["manager"], now)


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_steps_come_out_as_in_the_original(case: dict[str, Any]) -> None:
    live: dict[str, Any] = {"metadata": {"name": "x"}}
    for number, (step, expected) in enumerate(zip(case["steps"], case["after"], strict=True)):
        try:
            live = taken(live, step, f"2030-01-01T00:00:{number:02d}Z")
        except ApplyConflict as conflict:
            found = sorted([cause.field, cause.message.partition(" at ")[0]] for cause in conflict.causes)
            assert found == sorted(expected["conflicts"])
            continue
        assert filled(live) == filled(expected)
        assert entries(live) == entries(expected)


maps = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xyz"), max_size=4)


def config(data: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "m"}, "data": data}


def apply_data(live: dict[str, Any] | None, data: dict[str, str], manager: str) -> dict[str, Any]:
    return applied(live, config(data), manager, force=True, schema=CONFIG_MAP)


@given(maps)
def test_applying_the_same_again_is_no_change(data: dict[str, str]) -> None:
    once = apply_data(None, data, "m")
    assert applied(once, config(data), "m", schema=CONFIG_MAP, now=LATER) == once


@given(maps, maps)
def test_a_sole_applier_gets_exactly_its_intent(first: dict[str, str], second: dict[str, str]) -> None:
    after = apply_data(apply_data(None, first, "m"), second, "m")
    assert after.get("data", {}) == second


@given(maps, maps, maps)
def test_two_appliers_together_make_the_union_of_what_they_last_said(
    one: dict[str, str], two: dict[str, str], three: dict[str, str]
) -> None:
    live = apply_data(apply_data(apply_data(None, one, "m"), two, "n"), three, "m")
    assert live.get("data", {}) == {**two, **three}


@given(maps, maps)
def test_inputs_are_left_alone(first: dict[str, str], second: dict[str, str]) -> None:
    live = apply_data(None, first, "m")
    before, intent = copy.deepcopy(live), config(second)
    apply_data(live, second, "n")
    assert live == before
    assert intent == config(second)


paths = st.lists(st.sampled_from(["f:a", "f:b", 'k:{"n":1}', 'v:"x"']), min_size=1, max_size=4).map(tuple)


@given(st.sets(paths, max_size=8))
def test_a_field_set_survives_being_written(found: set[tuple[str, ...]]) -> None:
    assert decode_paths(encode_paths(found)) == found


def test_a_broken_field_set_is_refused() -> None:
    with pytest.raises(ValueError, match="fieldsV1"):
        decode_paths({"f:a": 1})
