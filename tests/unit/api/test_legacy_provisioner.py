"""Provisioner to NodePool, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api.legacy import NoteSeverity
from support.conversion import PROVIDER, converted, notes_at, only, pool, provisioner, template

pytestmark = pytest.mark.spec("api-9")

LINUX = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
AMD64 = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
ON_DEMAND = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
CATEGORY = {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]}
GENERATION = {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]}


def required(*requirements: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pool(provisioner(requirements=list(requirements)), **options)["template"][
        "spec"
    ]["requirements"]
    return found


def one_of(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def test_without_requirements_every_old_default_is_written_out() -> None:
    assert required() == [LINUX, AMD64, ON_DEMAND, CATEGORY, GENERATION]


@pytest.mark.parametrize(
    ("given", "left_out"),
    [
        (one_of("kubernetes.io/os", "windows"), [LINUX]),
        (one_of("beta.kubernetes.io/os", "linux"), [LINUX]),
        (one_of("kubernetes.io/arch", "arm64"), [AMD64]),
        (one_of("beta.kubernetes.io/arch", "arm64"), [AMD64]),
        (one_of("karpenter.sh/capacity-type", "spot"), [ON_DEMAND]),
        (one_of("node.kubernetes.io/instance-type", "m5.large"), [CATEGORY, GENERATION]),
        (one_of("beta.kubernetes.io/instance-type", "m5.large"), [CATEGORY, GENERATION]),
        (one_of("karpenter.k8s.aws/instance-family", "m5"), [CATEGORY, GENERATION]),
        (one_of("karpenter.k8s.aws/instance-category", "t"), [CATEGORY, GENERATION]),
        (one_of("karpenter.k8s.aws/instance-generation", "5"), [CATEGORY, GENERATION]),
    ],
    ids=lambda value: value["key"] if isinstance(value, dict) else "",
)
def test_a_requirement_that_is_given_is_not_defaulted(given: dict[str, Any], left_out: list[Any]) -> None:
    defaults = [LINUX, AMD64, ON_DEMAND, CATEGORY, GENERATION]
    assert required(given) == [given, *(one for one in defaults if one not in left_out)]


def test_defaults_can_be_left_out_and_the_list_is_still_there() -> None:
    assert required(ignore_defaults=True) == []


def test_a_default_that_contradicts_a_label_is_pointed_out() -> None:
    conversion = converted(provisioner(labels={"kubernetes.io/arch": "arm64"}))
    assert any("nothing fits" in note.message for note in notes_at(conversion, "spec.requirements"))


def test_blanks_around_a_key_are_taken_off_and_said() -> None:
    conversion = converted(provisioner(requirements=[one_of(" karpenter.sh/capacity-type", "spot")]))
    found = only(conversion, "NodePool")["spec"]["template"]["spec"]["requirements"]
    assert found[0] == one_of("karpenter.sh/capacity-type", "spot")
    assert notes_at(conversion, "spec.requirements[0].key", NoteSeverity.WARNING)


@pytest.mark.parametrize(
    "key",
    [
        "karpenter.k8s.aws/instance-pods",
        "karpenter.k8s.aws/instance-ami-id",
        "karpenter.sh/provisioner-name",
        "karpenter.sh/nodepool",
        "kubernetes.io/hostname",
        "mykarpenter.sh/x",
    ],
)
def test_requirements_v1_does_not_admit_are_dropped_with_a_warning(key: str) -> None:
    conversion = converted(provisioner(requirements=[one_of(key, "1")]), ignore_defaults=True)
    assert only(conversion, "NodePool")["spec"]["template"]["spec"]["requirements"] == []
    assert notes_at(conversion, "spec.requirements[0].key", NoteSeverity.WARNING)


@pytest.mark.parametrize(
    "requirement",
    [
        {"key": "a", "operator": "In"},
        {"key": "a", "operator": "Gt", "values": ["1", "2"]},
        {"key": "a", "operator": "Lt", "values": ["x"]},
        {"key": "a", "operator": "Is", "values": ["x"]},
        {"operator": "Exists"},
    ],
)
def test_a_requirement_that_says_nothing_stops_the_pool(requirement: dict[str, Any]) -> None:
    conversion = converted(provisioner(requirements=[requirement]))
    assert conversion.manifests == ()
    assert not conversion.complete


def test_numbers_given_as_values_become_text_with_a_warning() -> None:
    generation = {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": [3]}
    conversion = converted(provisioner(requirements=[generation]), ignore_defaults=True)
    found = only(conversion, "NodePool")["spec"]["template"]["spec"]["requirements"]
    assert found == [generation | {"values": ["3"]}]
    assert notes_at(conversion, "spec.requirements[0].values", NoteSeverity.WARNING)


def test_metadata_is_copied_without_what_the_server_added() -> None:
    old = provisioner()
    old["metadata"] |= {
        "labels": {"team": "a"},
        "annotations": {
            "note": "x",
            "karpenter.sh/provisioner-hash": "1",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
        },
        "uid": "u", "resourceVersion": "1", "generation": 2, "managedFields": [{}],
        "creationTimestamp": None, "finalizers": ["karpenter.sh/termination"],
    }  # fmt: skip
    old["status"] = {"resources": {"cpu": "1"}}
    made = only(converted(old), "NodePool")
    assert made["metadata"] == {
        "name": "default",
        "labels": {"team": "a"},
        "annotations": {"note": "x", "karpenter.sh/nodepool-hash": "1"},
    }
    assert "status" not in made


def test_labels_and_annotations_go_to_the_template_under_their_new_keys() -> None:
    made = pool(
        provisioner(
            labels={
                "team": "a",
                "karpenter.sh/provisioner-name": "x",
                "karpenter.k8s.aws/instance-pods": "1",
            },
            annotations={"karpenter.sh/do-not-consolidate": "true", "karpenter.sh/emptiness-timestamp": "t"},
        )
    )
    assert made["template"]["metadata"] == {
        "labels": {"team": "a"},
        "annotations": {"karpenter.sh/do-not-disrupt": "true"},
    }


def test_taints_and_startup_taints_are_copied() -> None:
    taint = {"key": "a", "value": "b", "effect": "NoSchedule"}
    body = pool(provisioner(taints=[taint], startupTaints=[taint | {"key": "c"}]))["template"]["spec"]
    assert body["taints"] == [taint]
    assert body["startupTaints"] == [taint | {"key": "c"}]


def test_a_taint_without_an_effect_is_refused() -> None:
    conversion = converted(provisioner(taints=[{"key": "a"}]))
    assert conversion.manifests == ()
    assert notes_at(conversion, "spec.taints[0].effect", NoteSeverity.ERROR)


def test_the_taint_that_retired_the_old_provisioner_is_left_out() -> None:
    legacy = {"key": "karpenter.sh/legacy", "value": "true", "effect": "NoSchedule"}
    conversion = converted(provisioner(taints=[legacy]))
    assert "taints" not in only(conversion, "NodePool")["spec"]["template"]["spec"]
    assert notes_at(conversion, "spec.taints[0]", NoteSeverity.WARNING)


@pytest.mark.parametrize(
    ("spec", "policy", "after"),
    [
        ({"ttlSecondsAfterEmpty": 30}, "WhenEmpty", "30s"),
        ({"ttlSecondsAfterEmpty": 0}, "WhenEmpty", "0s"),
        ({"ttlSecondsAfterEmpty": 30, "consolidation": {"enabled": False}}, "WhenEmpty", "30s"),
        ({"consolidation": {"enabled": True}}, "WhenEmptyOrUnderutilized", "0s"),
        ({"consolidation": {"enabled": False}}, "WhenEmpty", "Never"),
        ({}, "WhenEmpty", "Never"),
    ],
)
def test_disruption_says_what_the_provisioner_meant(spec: dict[str, Any], policy: str, after: str) -> None:
    assert pool(provisioner(**spec))["disruption"] == {
        "consolidationPolicy": policy,
        "consolidateAfter": after,
    }


def test_consolidation_wins_over_the_timer_it_excludes() -> None:
    conversion = converted(provisioner(ttlSecondsAfterEmpty=30, consolidation={"enabled": True}))
    assert only(conversion, "NodePool")["spec"]["disruption"]["consolidateAfter"] == "0s"
    assert notes_at(conversion, "spec.ttlSecondsAfterEmpty", NoteSeverity.WARNING)


def test_expiry_keeps_its_seconds_and_warns_that_it_is_forceful_now() -> None:
    conversion = converted(provisioner(ttlSecondsUntilExpired=2592000))
    assert only(conversion, "NodePool")["spec"]["template"]["spec"]["expireAfter"] == "2592000s"
    (note,) = notes_at(conversion, "spec.ttlSecondsUntilExpired", NoteSeverity.WARNING)
    assert "terminationGracePeriod" in note.message


def test_no_expiry_means_never() -> None:
    assert pool(provisioner())["template"]["spec"]["expireAfter"] == "Never"


def test_limits_move_up_and_weight_stays() -> None:
    made = pool(provisioner(limits={"resources": {"cpu": 100, "memory": "1000Gi"}}, weight=10))
    assert made["limits"] == {"cpu": 100, "memory": "1000Gi"}
    assert made["weight"] == 10


def test_no_limits_and_no_weight_stay_absent() -> None:
    assert pool(provisioner(weight=0)).keys() == {"template", "disruption"}


def test_budgets_come_only_when_asked_for() -> None:
    assert "budgets" not in pool(provisioner())["disruption"]
    assert pool(provisioner(), legacy_budgets=True)["disruption"]["budgets"] == [
        {"nodes": "1", "reasons": ["Drifted", "Underutilized"]},
        {"nodes": "100%", "reasons": ["Empty"]},
    ]


def test_a_provider_ref_becomes_a_reference_to_the_converted_template() -> None:
    made = pool(provisioner(providerRef={"name": "t"}), template("t"))
    assert made["template"]["spec"]["nodeClassRef"] == {
        "group": "karpenter.k8s.aws",
        "kind": "EC2NodeClass",
        "name": "t",
    }


def test_a_template_outside_the_input_is_pointed_out() -> None:
    conversion = converted(provisioner(providerRef={"name": "t"}))
    assert notes_at(conversion, "spec.providerRef", NoteSeverity.WARNING)
    assert only(conversion, "NodePool")["spec"]["template"]["spec"]["nodeClassRef"]["name"] == "t"


def test_kubelet_settings_for_a_template_outside_the_input_are_an_error() -> None:
    conversion = converted(provisioner(providerRef={"name": "t"}, kubeletConfiguration={"maxPods": 5}))
    assert notes_at(conversion, "spec.kubeletConfiguration", NoteSeverity.ERROR)
    assert not conversion.complete


@pytest.mark.parametrize("spec", [{"provider": None}, {"provider": PROVIDER, "providerRef": {"name": "t"}}])
def test_exactly_one_description_of_the_nodes_is_needed(spec: dict[str, Any]) -> None:
    conversion = converted(provisioner(**spec))
    assert conversion.manifests == ()
    assert not conversion.complete


def test_a_provisioner_without_a_name_is_refused() -> None:
    nameless = provisioner() | {"metadata": {}}
    conversion = converted(nameless)
    assert conversion.manifests == ()
    assert notes_at(conversion, "metadata", NoteSeverity.ERROR)


def test_a_name_that_slipped_out_of_metadata_is_taken_and_said() -> None:
    slipped = provisioner() | {"metadata": None, "name": "default"}
    conversion = converted(slipped)
    assert only(conversion, "NodePool")["metadata"]["name"] == "default"
    assert notes_at(conversion, "metadata", NoteSeverity.WARNING)


def test_a_provisioner_gives_way_to_a_node_pool_of_the_same_name() -> None:
    v1 = only(converted(provisioner()), "NodePool")
    conversion = converted(v1, provisioner())
    names = [m["metadata"]["name"] for m in conversion.manifests if m["kind"] == "NodePool"]
    assert names == ["default", "default-provisioner"]


def test_older_alpha_versions_are_refused() -> None:
    conversion = converted(provisioner() | {"apiVersion": "karpenter.sh/v1alpha4"})
    assert conversion.manifests == ()
    assert notes_at(conversion, "apiVersion", NoteSeverity.ERROR)


def test_machines_are_never_converted_and_that_is_said() -> None:
    machine = {
        "apiVersion": "karpenter.sh/v1alpha5",
        "kind": "Machine",
        "metadata": {"name": "m"},
        "spec": {},
    }
    conversion = converted(machine)
    assert conversion.manifests == ()
    assert [(note.kind, note.severity) for note in conversion.notes] == [("Machine", NoteSeverity.WARNING)]
