"""Flat selectors to terms."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api.legacy import NoteSeverity
from support.conversion import converted, node_class, notes_at, template

pytestmark = pytest.mark.spec("api-9")


def terms(field: str, selector: dict[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node_class(template(**{field: selector}))[f"{field}Terms"]
    return found


SUBNETS, GROUPS, IMAGES = "subnetSelector", "securityGroupSelector", "amiSelector"


@pytest.mark.parametrize("field", [SUBNETS, GROUPS, IMAGES])
def test_tags_become_one_term(field: str) -> None:
    assert terms(field, {"k": "v", "l": "w*"}) == [{"tags": {"k": "v", "l": "w*"}}]


@pytest.mark.parametrize(("field", "prefix"), [(SUBNETS, "subnet"), (GROUPS, "sg"), (IMAGES, "ami")])
@pytest.mark.parametrize("key", ["aws-ids", "aws::ids"])
def test_ids_become_a_term_each_and_every_one_is_trimmed(field: str, prefix: str, key: str) -> None:
    assert terms(field, {key: f" {prefix}-1 , {prefix}-2,"}) == [{"id": f"{prefix}-1"}, {"id": f"{prefix}-2"}]


def test_names_and_owners_multiply() -> None:
    assert terms(IMAGES, {"aws::name": "n1, n2", "aws::owners": "o1,o2"}) == [
        {"owner": "o1", "name": "n1"},
        {"owner": "o1", "name": "n2"},
        {"owner": "o2", "name": "n1"},
        {"owner": "o2", "name": "n2"},
    ]


def test_tags_are_shared_by_every_term() -> None:
    assert terms(IMAGES, {"aws::name": "n1,n2", "k": "v"}) == [
        {"name": "n1", "tags": {"k": "v"}},
        {"name": "n2", "tags": {"k": "v"}},
    ]


def test_owners_alone_select_every_image_they_have() -> None:
    assert terms(IMAGES, {"aws::owners": "self"}) == [{"owner": "self", "name": "*"}]


def test_names_and_owners_are_plain_tags_elsewhere() -> None:
    assert terms(SUBNETS, {"aws::name": "x"}) == [{"tags": {"aws::name": "x"}}]


def test_a_tag_with_several_values_becomes_a_term_for_each() -> None:
    assert terms(SUBNETS, {"Name": "s1, s2", "k": "v"}) == [
        {"tags": {"Name": "s1", "k": "v"}},
        {"tags": {"Name": "s2", "k": "v"}},
    ]
    assert len(terms(SUBNETS, {"a": "1,2", "b": "1,2,3"})) == 6


def test_an_empty_tag_value_means_any() -> None:
    assert terms(GROUPS, {"k": ""}) == [{"tags": {"k": "*"}}]


@pytest.mark.parametrize(
    ("field", "selector"),
    [
        (SUBNETS, {"aws-ids": "subnet-1", "k": "v"}),
        (GROUPS, {"aws::ids": "sg-1", "k": "v"}),
        (IMAGES, {"aws::ids": "ami-1", "aws::owners": "self", "k": "v"}),
    ],
)
def test_ids_drop_everything_beside_them_with_a_warning(field: str, selector: dict[str, str]) -> None:
    conversion = converted(template(**{field: selector}))
    (found,) = conversion.manifests[0]["spec"][f"{field}Terms"]
    assert found.keys() == {"id"}
    assert notes_at(conversion, f"spec.{field}", NoteSeverity.WARNING)


@pytest.mark.parametrize(
    ("field", "selector"),
    [
        (SUBNETS, {"aws-ids": "sg-1"}),
        (SUBNETS, {"aws-ids": ",".join(f"subnet-{i}" for i in range(31))}),
        (SUBNETS, {f"k{i}": "v" for i in range(21)}),
        (SUBNETS, {"": "v"}),
        (IMAGES, {"aws::name": ",".join("abcdef"), "aws::owners": ",".join("abcdef")}),
        (GROUPS, {f"k{i}": ",".join(map(str, range(50))) for i in range(20)}),
    ],
    ids=["wrong id", "too many ids", "too many tags", "no key", "too many terms", "far too many terms"],
)
def test_what_v1_would_not_admit_is_refused(field: str, selector: dict[str, str]) -> None:
    conversion = converted(template(**{field: selector}))
    assert conversion.manifests == ()
    assert notes_at(conversion, f"spec.{field}", NoteSeverity.ERROR)
