"""Admission policies: which requests they see, and what they have against them."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.sim.kube.verbs.admission_policies import (
    AdmissionRequest,
    PolicyAction,
    PolicyViolation,
    review_request,
)


def policy(*validations: dict[str, Any], name: str = "p", **spec: Any) -> dict[str, Any]:
    rule = {
        "operations": ["CREATE", "UPDATE"],
        "apiGroups": ["apps"],
        "apiVersions": ["*"],
        "resources": ["deployments"],
    }
    return {
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": list(validations), **spec},
    }


def binding(policy_name: str = "p", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "b"},
        "spec": {"policyName": policy_name, "validationActions": ["Deny"], **spec},
    }


def request(replicas: int = 10, **more: Any) -> AdmissionRequest:
    values: dict[str, Any] = {
        "operation": "CREATE",
        "group": "apps",
        "version": "v1",
        "resource": "deployments",
        "kind": "Deployment",
        "name": "web",
        "namespace": "prod",
        "object": {"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {"replicas": replicas}},
        "namespace_object": {"metadata": {"name": "prod", "labels": {"env": "prod"}}},
        **more,
    }
    return AdmissionRequest(**values)


LIMIT = {"expression": "object.spec.replicas <= 5", "message": "too many replicas"}


def found(pol: dict[str, Any], req: AdmissionRequest | None = None, **bound: Any) -> list[PolicyViolation]:
    return review_request([pol], [binding(**bound)], req or request())


def test_a_failed_validation_denies_in_the_words_of_the_policy() -> None:
    (finding,) = found(policy(LIMIT))
    assert finding == PolicyViolation(PolicyAction.DENY, "p", "b", "too many replicas", "Invalid")
    assert finding.code == 422
    assert str(finding) == (
        "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: too many replicas"
    )


def test_a_satisfied_policy_says_nothing() -> None:
    assert found(policy(LIMIT), request(3)) == []


def test_without_a_binding_a_policy_sleeps() -> None:
    assert review_request([policy(LIMIT)], [], request()) == []
    assert review_request([policy(LIMIT)], [binding("other")], request()) == []


def test_a_binding_can_warn_or_note_instead() -> None:
    actions = [finding.action for finding in found(policy(LIMIT), validationActions=["Warn", "Audit"])]
    assert actions == [PolicyAction.WARN, PolicyAction.AUDIT]


@pytest.mark.parametrize(
    "change",
    [
        {"operation": "DELETE", "object": None, "old": {"metadata": {}}},
        {"group": "extensions"},
        {"resource": "statefulsets"},
        {"subresource": "scale"},
    ],
)
def test_other_requests_are_none_of_its_business(change: dict[str, Any]) -> None:
    assert found(policy(LIMIT), request(**change)) == []


def test_subresources_can_be_named_or_meant_by_a_star() -> None:
    for resources in (["deployments/scale"], ["deployments/*"], ["*/scale"], ["*/*"]):
        pol = policy({"expression": "false"})
        pol["spec"]["matchConstraints"]["resourceRules"][0]["resources"] = resources
        assert len(found(pol, request(subresource="scale"))) == 1


def test_selectors_of_policy_and_binding_narrow_it_down() -> None:
    pol = policy(LIMIT)
    pol["spec"]["matchConstraints"]["objectSelector"] = {"matchLabels": {"app": "db"}}
    assert found(pol) == []
    narrowed = {"namespaceSelector": {"matchLabels": {"env": "test"}}}
    assert found(policy(LIMIT), matchResources=narrowed) == []
    wide = {"namespaceSelector": {"matchLabels": {"env": "prod"}}}
    assert len(found(policy(LIMIT), matchResources=wide)) == 1


def test_an_excluded_resource_is_left_alone() -> None:
    pol = policy(LIMIT)
    rule = {**pol["spec"]["matchConstraints"]["resourceRules"][0], "resourceNames": ["web"]}
    pol["spec"]["matchConstraints"]["excludeResourceRules"] = [rule]
    assert found(pol) == []
    assert len(found(pol, request(name="other"))) == 1


def test_match_conditions_decide_whether_validations_are_asked() -> None:
    condition = {"name": "not-system", "expression": "request.userInfo.username != 'system:admin'"}
    pol = policy(LIMIT, matchConditions=[condition])
    assert found(pol, request(user={"username": "system:admin"})) == []
    assert len(found(pol, request(user={"username": "ann"}))) == 1


def test_variables_build_on_each_other_and_fail_only_their_users() -> None:
    variables = [
        {"name": "n", "expression": "object.spec.replicas"},
        {"name": "double", "expression": "variables.n * 2"},
        {"name": "broken", "expression": "object.spec.absent"},
    ]
    pol = policy(
        {"expression": "variables.double <= 6", "messageExpression": "'got ' + string(variables.n)"},
        variables=variables,
    )
    assert [f.message for f in found(pol)] == ["got 10"]
    assert found(pol, request(3)) == []


def test_an_expression_without_an_answer_denies_unless_failures_are_ignored() -> None:
    broken = {"expression": "object.spec.absent == 1"}
    assert "absent" in found(policy(broken))[0].message
    assert found(policy(broken, failurePolicy="Ignore")) == []


def test_reasons_become_status_codes() -> None:
    (finding,) = found(policy({**LIMIT, "reason": "Forbidden"}))
    assert finding.code == 403
    (finding,) = found(policy({"expression": "object.spec.replicas < 5"}))
    assert finding.message == "failed expression: object.spec.replicas < 5"


def test_the_old_object_and_the_namespace_can_be_asked_about() -> None:
    rule = {
        "expression": "object.spec.replicas >= oldObject.spec.replicas && "
        "namespaceObject.metadata.labels.env == 'prod'"
    }
    update = request(4, operation="UPDATE", old={"metadata": {}, "spec": {"replicas": 5}})
    assert len(found(policy(rule), update)) == 1
    update = request(6, operation="UPDATE", old={"metadata": {}, "spec": {"replicas": 5}})
    assert found(policy(rule), update) == []


def test_parameters_are_found_for_a_binding_or_missed() -> None:
    rule = {"expression": "object.spec.replicas <= params.limit"}
    pol = policy(rule, paramKind={"apiVersion": "v1", "kind": "Limit"})
    reference = {"name": "l", "parameterNotFoundAction": "Deny"}
    asked: list[Any] = []

    def params(kind: Any, ref: Any) -> list[dict[str, Any]]:
        asked.append((kind["kind"], ref["name"]))
        return [{"limit": 20}, {"limit": 7}]

    assert len(found(pol, request(params=params), paramRef=reference)) == 1
    assert asked == [("Limit", "l")]
    assert "no params found" in found(pol, paramRef=reference)[0].message
    assert found(pol, paramRef={**reference, "parameterNotFoundAction": "Allow"}) == []
