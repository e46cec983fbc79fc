"""What `check` tells a person about one document."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api.validation import Complaint, Severity, check_document
from support.admission import changed, full_object


def _told(document: dict[str, Any], flavour: Any = "aws") -> list[tuple[str, str]]:
    return [(complaint.rule, complaint.path) for complaint in check_document(document, flavour)]


def _warnings(kind: str, changes: dict[str, Any], flavour: Any = "aws") -> list[tuple[str, str]]:
    found = check_document(changed(kind, changes), flavour)
    assert all(complaint.severity is Severity.WARNING for complaint in found), found
    return [(complaint.rule, complaint.path) for complaint in found]


@pytest.mark.parametrize("kind", ["NodePool", "NodeClaim", "NodeOverlay", "CapacityBuffer", "EC2NodeClass"])
def test_a_sound_document_draws_no_complaint(kind: str) -> None:
    assert check_document(full_object(kind)) == ()


@pytest.mark.parametrize(
    ("api_version", "kind", "words"),
    [
        ("v1", "Pod", "not a kind we know"),
        ("karpenter.sh/v1beta1", "NodePool", "write it as karpenter.sh/v1"),
        ("autoscaling.x-k8s.io/v1alpha1", "CapacityBuffer", "write it as autoscaling.x-k8s.io/v1beta1"),
        ("karpenter.kwok.sh/v1alpha1", "KWOKNodeClass", "belongs to the kwok provider"),
        ("karpenter.sh/v1alpha5", "Provisioner", "convert it first"),
        (None, None, "not a kind we know"),
        (["x"], {}, "not a kind we know"),
    ],
)
def test_an_unknown_kind_gets_one_complaint_that_says_so(api_version: Any, kind: Any, words: str) -> None:
    (complaint,) = check_document({"apiVersion": api_version, "kind": kind})
    assert complaint.rule == "kind"
    assert words in complaint.message


def test_a_misspelt_field_is_a_warning_with_the_nearest_real_name() -> None:
    document = full_object("NodePool")
    document["spec"]["disruption"]["consolidatAfter"] = "5m"
    (complaint,) = check_document(document)
    assert complaint.severity is Severity.WARNING
    assert complaint.path == "spec.disruption.consolidatAfter"
    assert complaint.message.endswith("did you mean consolidateAfter?")


def test_errors_come_before_warnings_and_name_their_rules() -> None:
    document = changed("NodePool", {"spec.weight": 500, "spec.wieght": 5})
    assert _told(document) == [("range", "spec.weight"), ("unknown", "spec.wieght")]


def test_a_number_where_a_string_is_wanted_says_what_to_do() -> None:
    (complaint,) = check_document(changed("NodePool", {"spec.disruption.budgets": [{"nodes": 5}]}))
    assert str(complaint) == (
        "spec.disruption.budgets[0].nodes: must be a string, not 5: put it in quotes (type)"
    )


def test_a_badly_written_value_is_answered_with_what_to_write() -> None:
    (complaint,) = check_document(changed("NodePool", {"spec.template.spec.expireAfter": "30d"}))
    assert complaint.message == '"30d" is not Never or a duration in h, m and s such as 1h30m'


def test_a_rule_is_not_run_over_what_the_schema_refused() -> None:
    document = changed("NodePool", {"spec.template.spec.requirements": [{"key": "a", "operator": 5}, {}]})
    assert _told(document) == [
        ("type", "spec.template.spec.requirements[0].operator"),
        ("required", "spec.template.spec.requirements[1].key"),
        ("required", "spec.template.spec.requirements[1].operator"),
    ]


def test_what_a_controller_would_find_is_found_here() -> None:
    value = {"spec.template.spec.requirements": [{"key": "a", "operator": "In", "values": ["not valid"]}]}
    (complaint,) = check_document(changed("NodePool", value))
    assert (complaint.rule, complaint.severity) == ("runtime", Severity.ERROR)
    assert "invalid value not valid for key a" in complaint.message


@pytest.mark.parametrize("name", [None, "", "Upper", "a_b", "-a", "a.-b", "x" * 254, 5])
def test_an_object_needs_a_name_that_kubernetes_takes(name: Any) -> None:
    document = full_object("NodePool")
    document["metadata"] = {} if name is None else {"name": name}
    assert [path for _, path in _told(document)] == ["metadata.name"]


def test_a_namespace_on_a_cluster_wide_kind_is_mentioned() -> None:
    assert _warnings("NodePool", {"metadata.namespace": "default"}) == [("namespace", "metadata.namespace")]


def test_metadata_of_the_wrong_type_is_no_reason_to_fall_over() -> None:
    assert ("type", "metadata") in _told({**full_object("NodePool"), "metadata": "general"})


def test_do_not_disrupt_as_a_label_has_no_effect() -> None:
    label = {"karpenter.sh/do-not-disrupt": "true"}
    told = _warnings("NodeClaim", {"metadata.labels": label})
    assert told == [("do-not-disrupt-label", "metadata.labels[karpenter.sh/do-not-disrupt]")]
    rules = [rule for rule, _ in _told(changed("NodePool", {"spec.template.metadata.labels": label}))]
    assert rules == ["NP-7", "do-not-disrupt-label"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("cost.dovetail.sh/node-extra-hourly", "0.01/cpu", "did you mean 0.01/vcpu?"),
        ("cost.dovetail.sh/node-extra-hourly", "much", "is no amount"),
        ("cost.dovetail.sh/node-extra", "0.01", "did you mean cost.dovetail.sh/node-extra-hourly?"),
        ("costs.dovetail.sh/node-extra-hourly", "0.01", "did you mean cost.dovetail.sh/node-extra-hourly?"),
    ],
)
def test_a_bad_extra_on_a_pool_is_found_with_what_was_meant(name: str, value: str, words: str) -> None:
    (complaint,) = check_document(changed("NodePool", {"metadata.annotations": {name: value}}))
    assert (complaint.severity, complaint.path) == (Severity.WARNING, f"metadata.annotations[{name}]")
    assert words in complaint.message


@pytest.mark.parametrize("name", ["cost.dovetail.sh/node-extra-hourly", "disruption.dovetail.sh/rest"])
def test_annotations_that_can_be_read_are_left_alone(name: str) -> None:
    assert _warnings("NodePool", {"metadata.annotations": {name: "0.01/node,0.0005/vcpu"}}) == []


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("@dailyxyz", "@dailyxyz is none of"),
        ("anything 0 9 * * 1-5", "has 6 fields"),
        ("60 9 * * *", "60 is no minute"),
        ("0 9 * foo *", "foo is no month"),
        ("0 9 */0 * *", "*/0 is no day of month"),
        ("0 9 5-1 * *", "5-1 is no day of month"),
        ("0 0 30 2 *", "counts as always active"),
        ("0 0 31 feb,APR ?", "counts as always active"),
    ],
)
def test_a_schedule_that_cannot_work_is_pointed_out(schedule: str, words: str) -> None:
    budget = {"nodes": "1", "schedule": schedule, "duration": "1h"}
    (complaint,) = check_document(changed("NodePool", {"spec.disruption.budgets": [budget]}))
    assert complaint.severity is Severity.WARNING
    assert words in complaint.message


@pytest.mark.parametrize(
    "schedule",
    ["@daily", "*/5 0-6,22 1 jan-MAR sun", "0 9 ? * 1-5", "5/10 * * * *", "0 0 29 2 *", "0 0 30 2 1"],
)
def test_a_schedule_that_works_is_left_alone(schedule: str) -> None:
    budget = {"nodes": "1", "schedule": schedule, "duration": "1h"}
    assert _warnings("NodePool", {"spec.disruption.budgets": [budget]}) == []


@pytest.mark.parametrize(
    ("budget", "path"),
    [
        ({"nodes": "5", "reasons": []}, "spec.disruption.budgets[0].reasons"),
        ({"nodes": "0"}, "spec.disruption.budgets[0].nodes"),
        ({"nodes": "00%"}, "spec.disruption.budgets[0].nodes"),
    ],
)
def test_a_budget_that_does_nothing_or_forbids_everything(budget: dict[str, Any], path: str) -> None:
    assert _warnings("NodePool", {"spec.disruption.budgets": [budget]}) == [("odd-budget", path)]


def test_limits_that_limit_nothing() -> None:
    told = _warnings("NodePool", {"spec.limits": {"memroy": "1Gi", "CPU": 1, "example.com/cpu": 1}})
    assert told == [("misspelt-limit", "spec.limits.memroy"), ("misspelt-limit", "spec.limits.CPU")]


def test_labels_that_are_gone_come_with_a_way_out() -> None:
    gone = {"key": "karpenter.k8s.aws/instance-pods", "operator": "Gt", "values": ["10"]}
    found = check_document(changed("NodePool", {"spec.template.spec.requirements": [gone]}))
    assert [complaint.rule for complaint in found] == ["NP-11:aws", "gone-label"]
    assert "maxPods" in found[1].message


def test_a_class_of_another_provider_means_an_ignored_pool() -> None:
    plain: dict[str, Any] = {"spec.template.spec.requirements": []}
    assert _warnings("NodePool", plain, "kwok") == [("foreign-node-class", "spec.template.spec.nodeClassRef")]


def test_half_known_values() -> None:
    mixed = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "ondemand"]}]
    path = "spec.template.spec.requirements[0].values"
    assert _warnings("NodePool", {"spec.template.spec.requirements": mixed}) == [("unknown-value", path)]


def test_consolidation_settings_of_a_static_pool() -> None:
    static = {"spec.weight": None, "spec.limits": None, "spec.replicas": 2}
    assert _warnings("NodePool", static) == [("static-pool", "spec.disruption.consolidateAfter")]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"spec.scalableRef": None, "spec.percentage": None}, "spec"),
        ({"spec.provisioningStrategy": "other"}, "spec.provisioningStrategy"),
        ({"spec.scalableRef": None, "spec.podTemplateRef": {"name": "a"}}, "spec.percentage"),
        ({"spec.scalableRef.apiGroup": "batch"}, "spec.scalableRef.apiGroup"),
        ({"spec.scalableRef.kind": "CronJob"}, "spec.scalableRef.kind"),
    ],
)
def test_a_buffer_that_would_keep_no_room(changes: dict[str, Any], path: str) -> None:
    assert _warnings("CapacityBuffer", changes) == [("inert-buffer", path)]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"spec.amiFamily": "AL2", "spec.amiSelectorTerms": [{"alias": "al2@latest"}]}, "ending-family"),
        ({"spec.blockDeviceMappings": [{"ebs": {"volumeSize": "Ti"}}]}, "bare-unit"),
        ({"spec.amiFamily": "Custom", "spec.amiSelectorTerms": [{"id": "ami-1"}]}, "custom-family"),
        (
            {"spec.subnetSelectorTerms": [{"id": "subnet-1", "tags": {"a": "b"}}, {"id": "subnet-2"}]},
            "mixed-term",
        ),
        ({"spec": None}, "no-spec"),
        ({"spec.kubelet.maxPod": 5}, "unknown"),
    ],
)
def test_advice_about_ec2_classes(changes: dict[str, Any], rule: str) -> None:
    assert [name for name, _ in _warnings("EC2NodeClass", changes)] == [rule]


def test_a_complaint_reads_as_one_line() -> None:
    assert str(Complaint("spec.weight", "101 is more than 100", "range")) == (
        "spec.weight: 101 is more than 100 (range)"
    )
    assert str(Complaint("", "is odd", "type")) == "is odd (type)"
