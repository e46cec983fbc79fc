"""Kubelet settings of a node class: what is wrong with them, and what their expressions come to."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api.nodeclass import KubeletConfiguration
from dovetail.providers.aws.catalog import NodeClassTerms, build_instance_type
from dovetail.providers.aws.instance_type_info import InstanceTypeTables, bundled_facts
from dovetail.providers.aws.kubelet_expressions import (
    EXAMPLE,
    ExpressionContext,
    ExpressionError,
    check_expression,
    evaluate_expression,
    evaluate_max_pods,
    evaluate_reserved,
    has_expressions,
    list_expressions,
    resolve_kubelet,
)
from dovetail.providers.aws.kubelet_validation import describe_unsupported, list_complaints

Settings = dict[str, Any]


def about(kubelet: Settings) -> str:
    return "; ".join(list_complaints(kubelet))


@pytest.mark.spec("aws-27")
def test_fields_of_the_kubelet_are_taken_whether_we_read_them_or_not() -> None:
    assert list_complaints({"maxPods": 10, "registryPullQPS": 5}) == ()
    assert (
        list_complaints({"authentication": {"webhook": {"cacheTTL": "2m0s"}}, "featureGates": {"A": True}})
        == ()
    )
    nested = {"shutdownGracePeriodByPodPriority": [{"priority": 1, "shutdownGracePeriodSeconds": 5}]}
    assert list_complaints(nested | {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}]}) == ()


@pytest.mark.spec("aws-28")
@pytest.mark.parametrize(
    ("kubelet", "named"),
    [
        ({"bogus": 1}, "bogus"),
        ({"authentication": {"webhook": {"bogus": 1}}}, "authentication.webhook.bogus"),
        ({"logging": {"options": {"text": {"bogus": 1}}}}, "logging.options.text.bogus"),
        ({"reservedMemory": [{"bogus": 1}]}, "reservedMemory[0].bogus"),
    ],
)
def test_a_field_the_kubelet_does_not_have_is_named_at_any_depth(kubelet: Settings, named: str) -> None:
    assert f"{named} is no field" in about(kubelet)


@pytest.mark.spec("aws-29")
@pytest.mark.parametrize("name", ["maxPods", "podsPerCore", "evictionMaxPodGracePeriod"])
def test_counts_must_not_be_negative(name: str) -> None:
    assert about({name: -1}) == f"{name} must not be negative"
    assert about({name: 0}) == ""


@pytest.mark.spec("aws-30")
def test_thresholds_of_image_collection_are_percentages_in_order() -> None:
    assert "must be 0 to 100" in about({"imageGCHighThresholdPercent": 101})
    assert "must be 0 to 100" in about({"imageGCLowThresholdPercent": -1})
    equal = {"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 50}
    assert "must be greater" in about(equal)
    assert about(equal | {"imageGCLowThresholdPercent": 49}) == ""


@pytest.mark.spec("aws-31")
def test_only_four_resources_can_be_reserved_and_none_less_than_nothing() -> None:
    assert "does not know gpu" in about({"kubeReserved": {"gpu": "1"}})
    assert "must not be negative" in about({"systemReserved": {"cpu": "-1"}})
    assert about({"kubeReserved": {"cpu": "100m", "pid": "100"}}) == ""


@pytest.mark.spec("aws-32")
@pytest.mark.parametrize("value", ["5%", "500Mi", "0.5%", "100%"])
def test_a_threshold_is_a_share_or_an_amount(value: str) -> None:
    assert about({"evictionHard": {"memory.available": value}}) == ""


@pytest.mark.spec("aws-32")
@pytest.mark.parametrize(
    "hard",
    [
        {"disk.available": "5%"},
        {"memory.available": "abc"},
        {"memory.available": "101%"},
        {"memory.available": "-1"},
    ],
)
def test_other_thresholds_and_signals_are_refused(hard: dict[str, str]) -> None:
    assert len(list_complaints({"evictionHard": hard})) == 1


@pytest.mark.spec("aws-33")
def test_a_soft_threshold_and_its_grace_come_together() -> None:
    soft, grace = {"memory.available": "5%"}, {"memory.available": "1m"}
    assert "has no evictionSoftGracePeriod" in about({"evictionSoft": soft})
    assert "has no evictionSoft threshold" in about({"evictionSoftGracePeriod": grace})
    assert about({"evictionSoft": soft, "evictionSoftGracePeriod": grace}) == ""
    for bad in ("soon", "-1m"):
        faulty = {"evictionSoft": soft, "evictionSoftGracePeriod": {"memory.available": bad}}
        assert "must be a duration" in about(faulty)


@pytest.mark.spec("aws-34")
def test_taints_at_registration_belong_to_the_provider() -> None:
    assert "registerWithTaints" in about({"registerWithTaints": [{"key": "a", "effect": "NoSchedule"}]})


@pytest.mark.spec("aws-35")
def test_every_fault_is_told_at_once() -> None:
    found = list_complaints({"maxPods": -1, "bogus": True, "kubeReserved": {"gpu": "1"}})
    assert len(found) == 3


@pytest.mark.spec("aws-36")
@pytest.mark.parametrize(
    "kubelet",
    [{"clusterDNS": "10.0.0.10"}, {"maxPods": True}, {"podsPerCore": "10"}, {"cpuCFSQuota": "true"}],
)
def test_a_value_of_the_wrong_type_is_refused(kubelet: Settings) -> None:
    assert f"{next(iter(kubelet))} must be" in about(kubelet)


@pytest.mark.spec("aws-37")
def test_an_expression_for_the_pods_is_no_structural_fault() -> None:
    assert list_complaints({"maxPods": "vcpus * 10"}) == ()
    assert [each.where for each in list_expressions({"maxPods": "vcpus * 10"})] == ["maxPods"]


@pytest.mark.spec("aws-38")
@pytest.mark.parametrize("text", ["vcpus *", "nope + 1", "vcpus > 1", "'a'", "vcpus * 0.5"])
def test_what_is_no_expression_for_a_number_is_told_before_any_machine_is_asked(text: str) -> None:
    with pytest.raises(ExpressionError) as told:
        check_expression(text)
    assert told.value.invalid


@pytest.mark.spec("aws-39")
def test_a_value_no_machine_can_have_is_an_evaluation_error() -> None:
    for failing in (
        lambda: evaluate_reserved("cpu", "0 - 100", EXAMPLE),
        lambda: evaluate_reserved("memory", "1 / (vcpus - vcpus)", EXAMPLE),
        lambda: evaluate_reserved("memory", "1.0 / 0.0", EXAMPLE),
        lambda: evaluate_max_pods("0 - 1", EXAMPLE),
        lambda: evaluate_max_pods("2147483647 + 1", EXAMPLE),
    ):
        with pytest.raises(ExpressionError) as told:
            failing()
        assert not told.value.invalid


@pytest.mark.spec("aws-41")
def test_families_that_pass_on_little_refuse_the_rest() -> None:
    other, dns = {"registryPullQPS": 5}, {"clusterDNS": ["10.0.0.10", "10.0.0.11"]}
    assert "registryPullQPS" in describe_unsupported(other, "Bottlerocket")
    assert "podsPerCore" in describe_unsupported({"podsPerCore": 2}, "Bottlerocket")
    assert describe_unsupported({"podsPerCore": 2}, "AL2") == ""
    for family in ("AL2", "Windows2022", "Bottlerocket"):
        assert "clusterDNS" in describe_unsupported(dns, family)
    for family in ("AL2023", "Custom"):
        assert describe_unsupported(other | dns | {"podsPerCore": 2}, family) == ""


@pytest.mark.spec("aws-42")
@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "481", "490m"),
        ("cpu", "480", "480m"),
        ("memory", "630", "640Mi"),
        ("memory", "0", "0Mi"),
        ("ephemeral-storage", "3", "3Gi"),
        ("pid", "4096", "4096"),
        ("pid", "3.9", "3"),
        ("memory", "9223372036854775807 - 1", "9223372036854775806Mi"),
    ],
)
def test_amounts_get_their_unit_and_are_rounded_up_to_its_step(resource: str, text: str, amount: str) -> None:
    assert evaluate_reserved(resource, text, EXAMPLE) == amount


@pytest.mark.spec("aws-43")
def test_two_numbers_can_be_compared_whatever_their_types() -> None:
    assert evaluate_expression("max(3, 7.9)", EXAMPLE) == 7
    assert evaluate_expression("min(3.9, 7.9)", EXAMPLE) == 3
    assert evaluate_expression("min(vcpus, 7)", EXAMPLE) == 2
    for bad in ("max(1, 2, 3)", "", "   "):
        with pytest.raises(ExpressionError) as told:
            check_expression(bad)
        assert told.value.invalid


@pytest.mark.spec("aws-44")
def test_a_machine_is_only_looked_at_for_expressions_and_then_once() -> None:
    asked = []

    def pods(_: KubeletConfiguration) -> int:
        asked.append(1)
        return 29

    literal = KubeletConfiguration(kube_reserved={"cpu": "100m"}, system_reserved={"memory": "1Gi"})
    assert resolve_kubelet(literal, EXAMPLE.facts, pods, enabled=True) is literal
    assert asked == []
    several = KubeletConfiguration(
        kube_reserved={"cpu": "max_pods * 10", "memory": "max_pods * 11", "pid": "100"},
        system_reserved={"memory": "max_pods + 1"},
    )
    found = resolve_kubelet(several, EXAMPLE.facts, pods, enabled=True)
    assert asked == [1]
    assert found.kube_reserved == {"cpu": "290m", "memory": "320Mi", "pid": "100"}
    assert found.system_reserved == {"memory": "32Mi"}


@pytest.mark.spec("aws-45")
def test_the_variables_of_a_machine() -> None:
    assert EXAMPLE.variables == {
        "vcpus": 2,
        "memory_mib": 8192,
        "default_enis": 3,
        "ips_per_eni": 10,
        "max_pods": 29,
        "instance_type": "m5.large",
    }
    assert evaluate_expression("((default_enis-1)*(ips_per_eni-1))+2", EXAMPLE) == 20
    assert evaluate_expression("instance_type.startsWith('m5') ? 1 : 2", EXAMPLE) == 1


def test_the_pods_of_an_expression_are_those_that_reservations_count() -> None:
    kubelet = KubeletConfiguration(max_pods="max_pods - 9", kube_reserved={"memory": "max_pods * 16"})

    def pods(settings: KubeletConfiguration) -> int:
        return settings.max_pods if isinstance(settings.max_pods, int) else 29

    found = resolve_kubelet(kubelet, EXAMPLE.facts, pods, enabled=True)
    assert (found.max_pods, found.kube_reserved) == (20, {"memory": "320Mi"})


def test_without_the_gate_and_without_a_value_expressions_are_dropped() -> None:
    kubelet = KubeletConfiguration(max_pods="0 - 1", kube_reserved={"cpu": "0 - 1", "memory": "1Gi"})
    for enabled in (True, False):
        found = resolve_kubelet(kubelet, EXAMPLE.facts, lambda _: 29, enabled)
        assert (found.max_pods, found.kube_reserved) == (None, {"memory": "1Gi"})
        assert not has_expressions(found)


def test_a_machine_without_a_known_card_has_no_interfaces() -> None:
    machine = ExpressionContext(EXAMPLE.facts.__class__("x1.none", ("x86_64",), 1, 1, "AMD"), lambda: 0)
    assert machine.variables["default_enis"] == 0


def test_the_scheduler_plans_with_what_an_expression_comes_to() -> None:
    facts = next(each for each in bundled_facts() if each.name == "m5.large")
    kubelet = KubeletConfiguration(max_pods="vcpus * 7", kube_reserved={"memory": "max_pods * 16"})
    with_gate = build_instance_type(
        facts, NodeClassTerms("us-west-2", kubelet=kubelet, expressions=True), (), InstanceTypeTables()
    )
    assert str(with_gate.capacity["pods"]) == "14"
    assert str(with_gate.overhead.kube_reserved["memory"]) == "224Mi"
    without = build_instance_type(
        facts, NodeClassTerms("us-west-2", kubelet=kubelet), (), InstanceTypeTables()
    )
    assert str(without.capacity["pods"]) == "29"
