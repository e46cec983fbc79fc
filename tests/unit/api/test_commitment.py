"""Commitments: what is admitted, and what is wrong with those that are not."""

from __future__ import annotations

import pytest

from dovetail.api.commitment import CommitmentSpec, find_family, parse_share
from dovetail.api.crds import apply_defaults
from dovetail.api.validation import check_document


def complaints(**spec: object) -> list[str]:
    document = {
        "apiVersion": "dovetail.sh/v1alpha1",
        "kind": "Commitment",
        "metadata": {"name": "plan"},
        "spec": spec,
    }
    return [f"{each.path}: {each.message}" for each in check_document(document)]


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "ComputePlan", "hourly": "25.00", "discount": "28%", "share": "40%", "observe": "Account"},
        {
            "kind": "FamilyPlan",
            "hourly": "1",
            "family": "m6i",
            "region": "us-east-1",
            "rates": {"m6i.large": "0.0691"},
        },
        {
            "kind": "Reserved",
            "family": "m6i",
            "instanceType": "m6i.large",
            "count": 10,
            "starts": "2026-01-01T00:00:00Z",
            "ends": "2027-01-01T00:00:00Z",
        },
        {
            "kind": "ReservedInZone",
            "instanceType": "m6i.large",
            "zone": "us-east-1a",
            "count": 3,
            "hourly": "0.2",
        },
        {"kind": "Reserved", "instanceType": "m6i.large", "count": 3, "platform": "Windows"},
    ],
)
def test_commitments_of_every_kind_are_accepted(spec: dict[str, object]) -> None:
    assert complaints(**spec) == []


PLAN = {"kind": "ComputePlan", "hourly": "1"}
RESERVED = {"kind": "Reserved", "instanceType": "m6i.large", "count": 1}


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({**PLAN, "rates": {"m6i.large": "0.06"}, "discount": "28%"}, "spec: say either rates or discount"),
        ({"kind": "ComputePlan"}, "spec: a ComputePlan or FamilyPlan needs hourly"),
        ({"kind": "FamilyPlan", "hourly": "1"}, "spec: a FamilyPlan needs family"),
        ({"kind": "Reserved", "count": 1}, "spec: reserved instances need instanceType and count"),
        (
            {"kind": "ReservedInZone", "instanceType": "m6i.large", "count": 1},
            "spec: ReservedInZone needs zone, and has no family",
        ),
        (
            {"kind": "ReservedInZone", "instanceType": "m6i.large", "count": 1, "zone": "a", "family": "m6i"},
            "spec: ReservedInZone needs zone, and has no family",
        ),
        ({**PLAN, "kind": "Plan"}, 'spec.kind: "Plan" is not one of'),
        ({**PLAN, "hourly": "one"}, 'spec.hourly: "one" is not an amount; write dollars such as "40.00"'),
        ({**PLAN, "rates": {"m6i.large": "-1"}}, '"-1" is not an amount; write dollars such as "40.00"'),
        ({**PLAN, "discount": "101%"}, 'spec.discount: is "101%"; write a percentage from 0% to 100%'),
        ({**PLAN, "share": "half"}, 'spec.share: "half" is not a percentage such as "10%"'),
        (
            {**PLAN, "currency": "dollars"},
            'spec.currency: "dollars" is not three capital letters such as USD',
        ),
        (
            {**PLAN, "starts": "2026-02-01T00:00:00Z", "ends": "2026-01-01T00:00:00Z"},
            "spec.ends: is not after spec.starts",
        ),
        ({**RESERVED, "family": "c6i"}, "spec.family: is c6i, and m6i.large is of m6i; write m6i"),
        (
            {**RESERVED, "family": "m6i", "platform": "Windows"},
            "spec.family: makes reserved instances size flexible, which Windows never is",
        ),
        ({**RESERVED, "count": -1}, "spec.count: -1 is less than 0"),
        ({**PLAN, "shar": "40%"}, "did you mean share?"),
    ],
)
def test_a_mistake_is_told_with_its_path_and_what_to_write(spec: dict[str, object], says: str) -> None:
    found = complaints(**spec)
    assert len(found) == 1
    assert says in found[0]


def test_defaults_are_those_of_the_record() -> None:
    document = {"apiVersion": "dovetail.sh/v1alpha1", "kind": "Commitment", "spec": dict(PLAN)}
    stored = apply_defaults("Commitment", document)["spec"]
    plain = CommitmentSpec()
    known = (plain.share, plain.observe, plain.platform, plain.currency)
    assert (stored["share"], stored["observe"], stored["platform"], stored["currency"]) == known


def test_shares_and_families_are_read_off_their_texts() -> None:
    assert [parse_share(text) for text in ("0%", "28%", "100%", "101%", "-1%", "28", "", "²%")] == [
        0.0,
        0.28,
        1.0,
        None,
        None,
        None,
        None,
        None,
    ]
    assert [find_family(name) for name in ("m6i.large", "u-6tb1.metal", "c-4x-amd64-linux", "odd")] == [
        "m6i",
        "u-6tb1",
        "c",
        "odd",
    ]
