"""What became of NodeClaims while nobody led is on record, and what it followed from."""

from __future__ import annotations

import pytest

from dovetail.controllers.claim_history import UNSEEN_END, ClaimHistory
from dovetail.controllers.history import DecisionRecorder
from dovetail.history.record import DecisionRecord, RecordDraft, RecordKind
from dovetail.history.ring import HistoryQuery
from dovetail.settings import Settings
from support.apiserver import HandClock
from support.decision_records import CLUSTER, LEADER


@pytest.mark.parametrize(
    ("noted", "cause"),
    [
        ([RecordKind.NODE_ORDERED], RecordKind.NODE_ORDERED),
        ([RecordKind.NODE_ORDERED, RecordKind.NODE_READY], RecordKind.NODE_READY),
        ([RecordKind.NODE_ORDERED, RecordKind.EXPIRED, RecordKind.NODE_READY], RecordKind.EXPIRED),
        ([RecordKind.NODE_ORDERED, RecordKind.NODE_DRAINING, RecordKind.EXPIRED], RecordKind.NODE_DRAINING),
    ],
)
def test_a_claim_that_was_gone_at_the_beginning_of_a_term_is_gone_because_of_what_was_last_known(
    noted: list[RecordKind], cause: RecordKind
) -> None:
    clock, before = HandClock(), list[DecisionRecord]()
    earlier = DecisionRecorder(Settings(), clock, LEADER)
    earlier.add_listener(before.append)
    earlier.begin_term(CLUSTER)
    for kind in noted:
        earlier.note_decision(RecordDraft(kind, "claim/lost"))
    recorder = DecisionRecorder(Settings(), clock, LEADER)
    recorder.restore_records(before)
    recorder.begin_term(CLUSTER)
    # No NodeClaim is left, so that neither the state nor an owner nor a price is asked for.
    history = ClaimHistory(recorder, clock, None, None, lambda _: None)  # type: ignore[arg-type]
    history.catch_up([])
    (gone,) = recorder.ring.find_records(HistoryQuery(kinds=frozenset((RecordKind.NODE_GONE,))))
    (expected,) = [record.id for record in before if record.kind is cause]
    assert (gone.subject, gone.message, gone.parent) == ("claim/lost", UNSEEN_END, expected)
