"""An absurd value in any field of a Commitment stops nobody: the others pay for what they paid for."""

from __future__ import annotations

from datetime import timedelta

from dovetail.api import codec
from dovetail.api.commitment import Commitment, CommitmentSpec, CommitmentStatus
from dovetail.api.meta import Condition, ObjectMeta
from dovetail.scheduling.commitment_terms import build_terms
from dovetail.scheduling.commitments import Ledger, UsageKind
from support.builders import NOW
from support.hostile_values import bad_documents, read_all

VICTIM = Commitment(
    metadata=ObjectMeta(name="victim"),
    spec=CommitmentSpec(
        kind="Reserved",
        hourly="3",
        family="m6i",
        instance_type="m6i.large",
        zone="us-east-1a",
        count=4,
        region="us-east-1",
        starts=NOW - timedelta(days=9),
        ends=NOW + timedelta(days=9),
        rates={"m6i.large": "0.06"},
        discount="28%",
        share="40%",
        observe="Account",
    ),
    status=CommitmentStatus(
        rates={"m6i.xlarge": "0.12"},
        by_others="1",
        conditions=(Condition(type="Full", status="False", reason="Open", message="it has room"),),
    ),
)
OTHER = Commitment(
    metadata=ObjectMeta(name="zz-other"),
    spec=CommitmentSpec(kind="ComputePlan", hourly="5", discount="30%"),
)
KINDS = {
    UsageKind("m6i.large", "us-east-1a", 0.096): 20.0,
    UsageKind("c6i.xlarge", "us-east-1b", 0.17): 9.0,
}


def test_an_absurd_value_in_any_field_of_a_commitment_changes_nothing_for_the_others() -> None:
    (alone,) = build_terms([OTHER], NOW)
    tried = 0
    for path, value, document in bad_documents(Commitment, VICTIM):
        read = read_all({Commitment: [document, codec.to_dict(OTHER)]})[Commitment]
        terms = build_terms([each for each in read if isinstance(each, Commitment)], NOW)
        assert [each for each in terms if each.name == "zz-other"] == [alone], (path, value)
        found = Ledger(terms).apply_kinds(KINDS)
        assert all(0 <= each.used_units <= each.units for each in found.uses), (path, value)
        tried += 1
    assert tried > 20
