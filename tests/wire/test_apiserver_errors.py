"""What clients are told when something is wrong: code, reason, details and causes."""

from __future__ import annotations

from typing import Any

import pytest

from support.apiserver import (
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Http,
    config_map,
    definition,
    deployment,
    pod,
    serving,
    widget,
)

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


async def with_widgets(http: Http) -> None:
    await http.post(CRDS, definition())


def shape(answer: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    assert answer["kind"] == "Status"
    assert answer["status"] == "Failure"
    return answer["reason"], answer.get("details", {})


async def test_a_missing_object_names_its_plural_and_group() -> None:
    async with serving() as http:
        answer = await http.get(f"{DEPLOYMENTS}/web", 404)
        assert shape(answer) == ("NotFound", {"name": "web", "group": "apps", "kind": "deployments"})
        assert answer["code"] == 404
        answer = await http.get(f"{PODS}/web", 404)
        assert shape(answer) == ("NotFound", {"name": "web", "kind": "pods"})


async def test_a_missing_namespace_is_what_was_not_found() -> None:
    async with serving() as http:
        answer = await http.post("/api/v1/namespaces/nope/pods", pod("a", namespace="nope"), 404)
        assert shape(answer) == ("NotFound", {"name": "nope", "kind": "namespaces"})


async def test_an_existing_object_and_a_stale_one() -> None:
    async with serving() as http:
        made = await http.post(DEPLOYMENTS, deployment("web"))
        details = {"name": "web", "group": "apps", "kind": "deployments"}
        assert shape(await http.post(DEPLOYMENTS, deployment("web"), 409)) == ("AlreadyExists", details)
        await http.patch(f"{DEPLOYMENTS}/web", {"spec": {"replicas": 2}})
        assert shape(await http.put(f"{DEPLOYMENTS}/web", made, 409)) == ("Conflict", details)
        body = {"preconditions": {"uid": "other"}}
        assert shape(await http.delete(f"{DEPLOYMENTS}/web", 409, json=body))[0] == "Conflict"


async def test_invalid_names_the_kind_and_every_cause() -> None:
    async with serving() as http:
        await with_widgets(http)
        answer = await http.post(WIDGETS, widget("w", size=1000, colour="green"), 422)
        reason, details = shape(answer)
        assert reason == "Invalid"
        assert {key: details[key] for key in ("name", "group", "kind")} == {
            "name": "w",
            "group": "example.com",
            "kind": "Widget",
        }
        found = {(cause["field"], cause["reason"]) for cause in details["causes"]}
        assert ("spec.size", "FieldValueInvalid") in found
        assert ("spec.colour", "FieldValueNotSupported") in found
        assert answer["message"].startswith('Widget.example.com "w" is invalid: [')


async def test_a_transition_rule_speaks_on_update() -> None:
    async with serving() as http:
        await with_widgets(http)
        await http.post(WIDGETS, widget("w", size=5))
        answer = await http.patch(f"{WIDGETS}/w", {"spec": {"size": 4}}, 422)
        (cause,) = answer["details"]["causes"]
        assert cause["field"] == "spec"
        assert "size may not shrink" in cause["message"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({**config_map("a"), "kind": "Secret"}, MAPS),
        ({**config_map("a"), "apiVersion": "v2"}, MAPS),
        (config_map("a", namespace="other"), MAPS),
        ({"metadata": {"name": "a", "labels": ["x"]}}, MAPS),
        ({"metadata": {"name": "a", "labels": {"x": 1}}}, MAPS),
        ({"metadata": {"name": 7}}, MAPS),
        ({"metadata": {"name": "n", "namespace": "default"}}, "/api/v1/nodes"),
    ],
)
async def test_bodies_that_belong_elsewhere_are_400(body: dict[str, Any], path: str) -> None:
    async with serving() as http:
        assert shape(await http.post(path, body, 400))[0] == "BadRequest"


async def test_a_put_must_name_what_its_url_names() -> None:
    async with serving() as http:
        await http.post(MAPS, config_map("a"))
        assert shape(await http.put(f"{MAPS}/a", config_map("b"), 400))[0] == "BadRequest"


async def test_strict_validation_lists_every_offending_path() -> None:
    async with serving() as http:
        body = deployment("web")
        body["spec"]["foo"] = 1
        body["spec"]["template"]["spec"]["containers"][0]["bar"] = 2
        answer = await http.post(f"{DEPLOYMENTS}?fieldValidation=Strict", body, 400)
        assert 'unknown field "spec.foo"' in answer["message"]
        assert 'unknown field "spec.template.spec.containers[0].bar"' in answer["message"]
        doubled = b'{"metadata":{"name":"a","name":"b"},"data":{"x":"1","x":"2"}}'
        headers = {"Content-Type": "application/json"}
        answer = await http.ask("POST", f"{MAPS}?fieldValidation=Strict", 400, data=doubled, headers=headers)
        assert 'duplicate field "metadata.name"' in answer["message"]
        assert 'duplicate field "data.x"' in answer["message"]


async def test_by_default_unknown_fields_are_dropped_with_a_warning_each() -> None:
    async with serving() as http:
        await with_widgets(http)
        made = await http.post(WIDGETS, widget("w", size=1, foo=1, bar=2))
        assert made["spec"] == {"size": 1, "colour": "red"}
        warnings = http.headers.getall("Warning")
        assert warnings == ['299 - "unknown field \\"spec.foo\\""', '299 - "unknown field \\"spec.bar\\""']
        await http.post(f"{WIDGETS}?fieldValidation=Ignore", widget("v", foo=1))
        assert "Warning" not in http.headers
        assert shape(await http.post(f"{WIDGETS}?fieldValidation=Perhaps", widget("u"), 422))[0] == "Invalid"


@pytest.mark.parametrize(
    ("patch", "kind", "code"),
    [
        ([{"op": "test", "path": "/data/x", "value": "2"}], JSON_PATCH, 422),
        ([{"op": "remove", "path": "/data/nope"}], JSON_PATCH, 422),
        ([{"op": "fly", "path": "/data/x"}], JSON_PATCH, 422),
        ([{"op": "replace", "path": "/metadata/labels", "value": ["x"]}], JSON_PATCH, 422),
        ({"metadata": {"uid": "another"}}, MERGE, 422),
        ({"data": {}}, JSON_PATCH, 400),
        ([{"op": "replace", "path": "/metadata/name", "value": "b"}], JSON_PATCH, 400),
        ([{"op": "replace", "path": "", "value": []}], JSON_PATCH, 422),
        ([1], MERGE, 400),
        ({"metadata": None}, MERGE, 400),
        ({"kind": "Secret"}, MERGE, 422),
        ({"data": {"$patch": "explode"}}, STRATEGIC, 400),
        ("{not json", MERGE, 400),
        ("", MERGE, 400),
        ("[[[", APPLY, 400),
        ({}, "application/apply-patch+cbor", 415),
    ],
)
async def test_bad_patches_are_refused(patch: Any, kind: str, code: int) -> None:
    async with serving() as http:
        await http.post(MAPS, config_map("a", x="1"))
        answer = await http.patch(f"{MAPS}/a?fieldManager=me", patch, code, kind=kind)
        assert answer["kind"] == "Status"
        assert (await http.get(f"{MAPS}/a"))["data"] == {"x": "1"}


async def test_strategic_merge_is_not_for_custom_resources() -> None:
    async with serving() as http:
        await with_widgets(http)
        await http.post(WIDGETS, widget("w"))
        answer = await http.patch(f"{WIDGETS}/w", {"spec": {"size": 1}}, 415, kind=STRATEGIC)
        assert shape(answer)[0] == "UnsupportedMediaType"


async def test_applies_need_a_manager_and_say_who_owns_what() -> None:
    async with serving() as http:
        assert (await http.patch(f"{MAPS}/a", config_map("a", x="1"), 422, kind=APPLY))["reason"] == "Invalid"
        await http.patch(f"{MAPS}/a?fieldManager=one", config_map("a", x="1"), 201, kind=APPLY)
        await http.patch(f"{MAPS}/a?fieldManager=one", config_map("a", x="1"), 200, kind=APPLY)
        answer = await http.patch(f"{MAPS}/a?fieldManager=two", config_map("a", x="2"), 409, kind=APPLY)
        reason, details = shape(answer)
        assert reason == "Conflict"
        (cause,) = details["causes"]
        assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".data.x")
        assert '"one"' in cause["message"]
        forced = f"{MAPS}/a?fieldManager=two&force=true"
        after = await http.patch(forced, config_map("a", x="2"), 200, kind=APPLY)
        assert after["data"] == {"x": "2"}
        body = {**config_map("a"), "metadata": {"name": "a", "managedFields": [{"manager": "x"}]}}
        await http.patch(f"{MAPS}/a?fieldManager=two", body, 400, kind=APPLY)


async def test_an_apply_may_be_yaml_and_a_repeat_changes_nothing() -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: 'on'\n"
    async with serving() as http:
        made = await http.patch(f"{MAPS}/a?fieldManager=me", text, 201, kind=APPLY)
        again = await http.patch(f"{MAPS}/a?fieldManager=me", text, 200, kind=APPLY)
        assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        gone = await http.patch(
            f"{MAPS}/a?fieldManager=me", "apiVersion: v1\nkind: ConfigMap\n", 200, kind=APPLY
        )
        assert "data" not in gone


async def test_writes_are_tracked_under_the_clients_name() -> None:
    async with serving(headers={"User-Agent": "robot/1.0 (x)"}) as http:
        made = await http.post(MAPS, config_map("a", x="1"))
        (entry,) = made["metadata"]["managedFields"]
        assert (entry["manager"], entry["operation"]) == ("robot", "Update")
        await http.post(DEPLOYMENTS, deployment("web"))
        path = f"{DEPLOYMENTS}/web/status?fieldManager=other"
        after = await http.patch(path, {"status": {"replicas": 1}})
        entry = next(each for each in after["metadata"]["managedFields"] if each["manager"] == "other")
        assert entry["subresource"] == "status"
        cleared = await http.patch(f"{MAPS}/a", {"metadata": {"managedFields": [{}]}})
        assert "managedFields" not in cleared["metadata"]


async def test_dry_runs_store_nothing_and_take_no_other_value() -> None:
    async with serving() as http:
        revision = http.server.store.revision
        made = await http.post(f"{DEPLOYMENTS}?dryRun=All", deployment("web"))
        assert made["metadata"]["generation"] == 1
        await http.get(f"{DEPLOYMENTS}/web", 404)
        assert shape(await http.post(f"{DEPLOYMENTS}?dryRun=Some", deployment("web"), 422))[0] == "Invalid"
        assert http.server.store.revision == revision
        made = await http.post(DEPLOYMENTS, deployment("web"))
        dry = await http.patch(f"{DEPLOYMENTS}/web?dryRun=All", {"spec": {"replicas": 9}})
        assert dry["metadata"]["generation"] == 2
        assert dry["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        await http.delete(f"{DEPLOYMENTS}/web?dryRun=All")
        assert (await http.get(f"{DEPLOYMENTS}/web"))["spec"]["replicas"] == 1


async def test_delete_reads_options_from_body_and_query_and_the_body_wins() -> None:
    async with serving() as http:
        local = http.server.build_local_client()
        for name in ("a", "b"):
            local.create("pods", pod(name))
            local.bind(name, "default", "n1")
        after = await http.delete(f"{PODS}/a?gracePeriodSeconds=50", json={"gracePeriodSeconds": 7})
        assert after["metadata"]["deletionGracePeriodSeconds"] == 7
        after = await http.delete(f"{PODS}/b?gracePeriodSeconds=50")
        assert after["metadata"]["deletionGracePeriodSeconds"] == 50
        answer = await http.delete(f"{PODS}/b", 422, json={"propagationPolicy": "Sideways"})
        assert answer["details"]["causes"][0]["field"] == "propagationPolicy"
        bad: tuple[Any, ...] = ({"gracePeriodSeconds": "soon"}, [1], {"preconditions": 3})
        for options in bad:
            assert shape(await http.delete(f"{PODS}/b", 400, json=options))[0] == "BadRequest"


async def test_subresources_over_the_wire() -> None:
    async with serving() as http:
        await http.post(PODS, pod("a"))
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}}
        target = {"target": {"kind": "Node", "name": "n1"}}
        answer = await http.post(f"{PODS}/a/binding", {**binding, **target})
        assert (answer["status"], answer["code"]) == ("Success", 201)
        bad: tuple[Any, ...] = ({}, {"target": {}}, {"target": {"name": "n", "kind": "Pod"}}, {"target": 7})
        for body in bad:
            await http.post(f"{PODS}/a/binding", body, 400)
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "b"}}
        await http.post(f"{PODS}/a/eviction", eviction, 400)
        eviction["metadata"] = {"name": "a"}
        assert (await http.post(f"{PODS}/a/eviction", eviction))["code"] == 201
        await http.post(f"{PODS}/nope/eviction", {**eviction, "metadata": {}}, 404)
        await http.post(DEPLOYMENTS, deployment("web", 3))
        scale = await http.get(f"{DEPLOYMENTS}/web/scale")
        scale["spec"]["replicas"] = 1
        assert (await http.put(f"{DEPLOYMENTS}/web/scale", scale))["spec"] == {"replicas": 1}
        scaled = await http.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 4}})
        assert scaled["spec"] == {"replicas": 4}
        await http.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": "x"}}, 422)
        await http.get(f"{PODS}/a/log?container=nope", 400)
        assert await http.get(f"{PODS}/a/log?tailLines=5&timestamps=true") == ""
        await http.get(f"{PODS}/a/log?sinceTime=yesterday", 400)


async def test_a_namespace_is_finalized_by_hand_when_nobody_else_does() -> None:
    async with serving() as http:
        http.server.terminator.enabled = False
        made = await http.post("/api/v1/namespaces", {"metadata": {"name": "x"}})
        await http.delete("/api/v1/namespaces/x")
        assert (await http.get("/api/v1/namespaces/x"))["status"]["phase"] == "Terminating"
        made = await http.get("/api/v1/namespaces/x")
        made["spec"] = {}
        await http.put("/api/v1/namespaces/x/finalize", made)
        await http.get("/api/v1/namespaces/x", 404)


async def test_two_versions_of_a_definition_are_one_object_and_gain_new_defaults() -> None:
    async with serving() as http:
        crd = definition()
        (first,) = crd["spec"]["versions"]
        crd["spec"]["versions"].append({**first, "name": "v1beta1", "storage": False, "deprecated": True})
        await http.post(CRDS, crd)
        await http.post(WIDGETS, widget("w", size=1))
        beta = "/apis/example.com/v1beta1/namespaces/default/widgets"
        seen = await http.get(f"{beta}/w")
        assert (seen["apiVersion"], seen["spec"]["size"]) == ("example.com/v1beta1", 1)
        after = await http.patch(f"{beta}/w", {"spec": {"size": 2}})
        assert "deprecated" in http.headers["Warning"]
        assert after["apiVersion"] == "example.com/v1beta1"
        assert (await http.get(f"{WIDGETS}/w"))["apiVersion"] == "example.com/v1"
        async with http.watch(f"{beta}?watch=1") as lines:
            assert (await lines.next())["object"]["apiVersion"] == "example.com/v1beta1"
        schema = first["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        schema["shape"] = {"type": "string", "default": "round"}
        patch = [{"op": "replace", "path": "/spec/versions/0", "value": first}]
        await http.patch(f"{CRDS}/widgets.example.com", patch, kind=JSON_PATCH)
        assert (await http.get(f"{WIDGETS}/w"))["spec"]["shape"] == "round"
        assert (await http.get(WIDGETS))["items"][0]["spec"]["shape"] == "round"


async def test_a_definition_that_is_none_is_invalid() -> None:
    async with serving() as http:
        changes: tuple[Any, ...] = ({"scope": "Everywhere"}, {"versions": []}, {"group": "other.com"})
        for change in changes:
            answer = await http.post(CRDS, definition(**change), 422)
            assert answer["details"]["kind"] == "CustomResourceDefinition"
        made = await http.post(CRDS, definition())
        conditions = {each["type"]: each["status"] for each in made["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}
        assert made["status"]["storedVersions"] == ["v1"]
        assert made["status"]["acceptedNames"]["listKind"] == "WidgetList"


async def test_policies_deny_and_warn() -> None:
    group = "/apis/admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
    policy = {
        "metadata": {"name": "tame"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "!has(object.data.wild)", "message": "no wild data"}],
        },
    }
    async with serving() as http:
        await http.post(f"{group}/validatingadmissionpolicies", policy)
        binding = {"metadata": {"name": "b"}, "spec": {"policyName": "tame", "validationActions": ["Warn"]}}
        await http.post(f"{group}/validatingadmissionpolicybindings", binding)
        await http.post(MAPS, config_map("a", wild="1"))
        assert "no wild data" in http.headers["Warning"]
        deny = {"spec": {"validationActions": ["Deny"]}}
        await http.patch(f"{group}/validatingadmissionpolicybindings/b", deny)
        answer = await http.post(MAPS, config_map("b", wild="1"), 422)
        assert "no wild data" in answer["message"]
        await http.post(MAPS, config_map("b", tame="1"))
