"""Labels are restricted, well known and normalised as upstream has it, in core and on AWS."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import labels
from dovetail.providers.aws.tags import find_restricted
from support.vectors import cases

CORE = list(cases("labels"))
AWS = list(cases("aws-labels"))


def test_every_case_of_the_vector_files_is_here() -> None:
    assert (len(CORE), len(AWS)) == (44, 62)


@pytest.mark.parametrize("case", CORE, ids=lambda case: case["key"])
@pytest.mark.spec("api-10.8")
def test_a_label_is_judged_as_upstream_judges_it(case: dict[str, Any]) -> None:
    key = case["key"]
    assert labels.find_domain(key) == case["domain"]
    assert labels.normalize_label(key) == case["normalized"]
    assert (key in labels.WELL_KNOWN) is case["wellKnown"]
    assert labels.is_restricted(key) is case["restricted"]
    assert labels.describe_restriction(key) == case.get("error")


@pytest.mark.parametrize(
    "case", [case for case in AWS if case["kind"] == "key"], ids=lambda case: case["key"]
)
def test_a_label_is_judged_on_aws_as_upstream_judges_it(case: dict[str, Any]) -> None:
    assert (case["key"] in labels.AWS.well_known) is case["wellKnown"]
    assert labels.is_restricted(case["key"], labels.AWS) is case["restricted"]


@pytest.mark.parametrize(
    "case", [case for case in AWS if case["kind"] == "tag"], ids=lambda case: case["key"]
)
def test_a_tag_is_judged_as_upstream_judges_it(case: dict[str, Any]) -> None:
    assert bool(find_restricted([case["key"]])) is case["restricted"]


def test_the_sets_of_aws_are_upstreams() -> None:
    [sets] = [case for case in AWS if case["kind"] == "sets"]
    assert sorted(labels.AWS.well_known) == sets["wellKnown"]
    assert sorted(labels.AWS.domains) == sets["restrictedDomains"]


def test_kwok_keeps_its_own_domain_and_knows_its_own_labels() -> None:
    assert not labels.is_restricted(labels.KWOK_INSTANCE_SIZE, labels.KWOK)
    assert labels.is_restricted("karpenter.kwok.sh/other", labels.KWOK)
    assert not labels.is_restricted("karpenter.kwok.sh/other", labels.CORE)
    assert not labels.is_restricted("karpenter.k8s.aws/other", labels.KWOK)


def test_admission_lets_through_the_class_label_that_runtime_restricts() -> None:
    assert labels.EC2_NODECLASS in labels.ADMITTED_AWS
    assert labels.is_restricted(labels.EC2_NODECLASS, labels.AWS)
    assert labels.INSTANCE_TENANCY not in labels.ADMITTED_AWS_IN_OVERLAYS
    assert (len(labels.ADMITTED_AWS), len(labels.ADMITTED_AWS_IN_OVERLAYS)) == (29, 23)
