"""Runtime validation, checked against what upstream's own code said of the same pools."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.api import labels
from dovetail.api.nodepool import NodePool, NodePoolSpec, NodePoolTemplate, Requirement
from dovetail.api.overlay import NodeOverlay, NodeOverlaySpec
from dovetail.api.pod import NodeSelectorRequirement
from dovetail.api.quantity import Quantity
from dovetail.api.validation import requirement_errors, runtime_complaints, runtime_complaints_overlay
from support.vectors import cases


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _said(case: dict[str, Any]) -> list[str]:
    if "requirement" in case:
        return sorted(requirement_errors(msgspec.convert(case["requirement"], Requirement)))
    template = msgspec.convert(_without_nulls(case["template"]), NodePoolTemplate)
    pool = NodePool(spec=NodePoolSpec(template=template))
    return sorted(complaint.message for complaint in runtime_complaints(pool))


def _agrees(said: str, expected: str) -> bool:
    """An expectation is cut with … before a list that upstream prints in random order."""
    return said.startswith(expected[:-1]) if expected.endswith("…") else said == expected


@pytest.mark.spec("api-2.4", "lifecycle-15.4")
def test_every_vector_gets_the_words_upstream_gave() -> None:
    count = 0
    for case in cases("nodepool-validate"):
        said, expected = _said(case), sorted(case["errors"] or [])
        assert len(said) == len(expected), case
        assert all(map(_agrees, said, expected)), (said, expected)
        assert (said == []) is case["ok"]
        count += 1
    assert count == 849


def test_a_provider_adds_labels_and_closes_its_domain() -> None:
    family = Requirement(key="karpenter.k8s.aws/instance-family", operator="Exists")
    assert requirement_errors(family, labels.AWS) == ()
    assert requirement_errors(Requirement(key="karpenter.k8s.aws/x", operator="Exists"), labels.AWS) != ()
    assert requirement_errors(Requirement(key="karpenter.k8s.aws/x", operator="Exists"), labels.CORE) == ()


def test_tenancy_has_known_values_on_aws_only() -> None:
    tenancy = Requirement(key="karpenter.k8s.aws/instance-tenancy", operator="In", values=("host",))
    (error,) = requirement_errors(tenancy, labels.AWS)
    assert error.startswith("no valid values found in [host] for karpenter.k8s.aws/instance-tenancy")
    assert requirement_errors(tenancy, labels.CORE) == ()


def test_an_old_label_name_is_judged_under_its_new_name() -> None:
    (error,) = requirement_errors(Requirement(key="beta.kubernetes.io/arch", operator="In"))
    assert error == "key kubernetes.io/arch with operator In must have a value defined"


def _overlay(*requirements: NodeSelectorRequirement, **capacity: str) -> NodeOverlay:
    amounts = {name.replace("__", "/"): Quantity.parse(text) for name, text in capacity.items()}
    return NodeOverlay(spec=NodeOverlaySpec(requirements=requirements, capacity=amounts))


def test_an_overlay_needs_values_for_notin() -> None:
    overlay = _overlay(NodeSelectorRequirement(key="a", operator="NotIn"))
    (complaint,) = runtime_complaints_overlay(overlay)
    assert complaint.path == "spec.requirements[0]"
    assert complaint.message == "key a with operator NotIn must have a value defined"


def test_an_overlay_cannot_change_resources_the_provider_knows() -> None:
    overlay = NodeOverlay(
        spec=NodeOverlaySpec(
            capacity={
                name: Quantity.parse("1") for name in (labels.EFA, labels.NVIDIA_GPU, labels.CPU, "a.b/c")
            }
        )
    )
    named = [complaint.path for complaint in runtime_complaints_overlay(overlay, labels.AWS)]
    assert named == ["spec.capacity[cpu]", "spec.capacity[vpc.amazonaws.com/efa]"]
    assert [c.path for c in runtime_complaints_overlay(overlay, labels.KWOK)] == ["spec.capacity[cpu]"]
