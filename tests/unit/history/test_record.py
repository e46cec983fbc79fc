"""Records: their kinds, their ids, their lines, and how long they may be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from dovetail.errors import BadInput
from dovetail.history.record import (
    CHAIN_BYTES,
    MOST_BYTES,
    RecordDraft,
    RecordGroup,
    RecordIds,
    RecordKind,
    RecordSeverity,
    decode_record,
    encode_record,
    stamp_record,
)
from support.builders import NOW
from support.decision_records import CLUSTER, Stamping, one_of_each


def test_every_kind_is_an_act_a_verdict_or_the_logs_own() -> None:
    verdicts = {kind for kind in RecordKind if kind.group is RecordGroup.VERDICT}
    assert verdicts == {"PodPlaced", "PodUnschedulable", "NodeBlocked", "NodeRemovable", "Flapping"}
    assert {kind for kind in RecordKind if kind.group is RecordGroup.LOG} == {"TermBegan", "LogGap"}
    assert len(RecordKind) == 29


def test_a_record_has_the_severity_of_its_kind() -> None:
    assert Stamping()(RecordKind.INTERRUPTED).severity is RecordSeverity.WARNING
    assert all(record.severity is record.kind.severity for record in one_of_each())


def test_an_id_holds_the_time_a_counter_and_the_cluster() -> None:
    ids = RecordIds(CLUSTER)
    first = ids.make_id(NOW)
    assert len(first) == 24
    assert int(first[:12], 16) == NOW.timestamp() * 1000
    assert (first[12:16], first[16:]) == ("0000", CLUSTER[:8])
    assert ids.make_id(NOW)[12:16] == "0001"
    assert ids.make_id(NOW + timedelta(milliseconds=1))[12:16] == "0000"


def test_ids_grow_when_the_clock_goes_back() -> None:
    ids = RecordIds(CLUSTER)
    seconds = [0, 5, 3, 3, -60, 4, 6]
    made = [ids.make_id(NOW + timedelta(seconds=each)) for each in seconds]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_a_full_counter_takes_the_next_millisecond() -> None:
    ids = RecordIds(CLUSTER)
    made = [ids.make_id(NOW) for _ in range(70_000)]
    assert made == sorted(set(made))
    assert {len(each) for each in made} == {24}


@pytest.mark.spec("HI-11")
def test_equal_inputs_give_equal_records_ids_included() -> None:
    assert [encode_record(each) for each in one_of_each()] == [encode_record(each) for each in one_of_each()]


def test_a_cluster_without_a_uuid_has_ids_of_the_same_form() -> None:
    first, second = (RecordIds(uid).make_id(NOW) for uid in ("kwok", "other"))
    assert len(first) == len(second) == 24
    assert first[16:] != second[16:]


def test_a_line_leaves_defaults_out_and_is_read_back() -> None:
    record = Stamping()(message="lived 4h12m", pool="default")
    line = encode_record(record)
    assert line.startswith(b'{"id":"')
    assert b"podCount" not in line
    assert decode_record(line) == record


def test_a_field_of_a_later_version_is_left_out() -> None:
    record = Stamping()()
    assert decode_record(encode_record(record)[:-1] + b',"mood":"fine"}') == record


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"\xff", b'{"id":1}', b"[" * 5000])
def test_what_is_no_record_is_refused_in_a_sentence(line: bytes) -> None:
    with pytest.raises(BadInput, match="this is no record"):
        decode_record(line)


def test_times_are_kept_in_utc_to_the_millisecond() -> None:
    there = datetime(2026, 11, 2, 4, 12, 7, 123_987, tzinfo=timezone(timedelta(hours=1)))
    record = stamp_record(RecordDraft(kind=RecordKind.NODE_GONE, subject="node/a"), "0" * 24, there)
    assert record.time == datetime(2026, 11, 2, 3, 12, 7, 123_000, tzinfo=UTC)
    assert b'"2026-11-02T03:12:07.123000Z"' in encode_record(record)


def test_pods_are_named_up_to_twenty_and_counted() -> None:
    record = Stamping()(pods=tuple(f"shop/web-{number}" for number in range(50)))
    assert (len(record.pods), record.pod_count) == (20, 50)


def test_a_record_is_no_longer_than_it_may_be() -> None:
    long = "x" * 253
    record = Stamping()(
        subject=f"pod/{'n' * 63}/{long}",
        message="\u0007" * 9_000,
        pool=long,
        names=tuple(f"{number}-{long}" for number in range(200)),
        pods=tuple(f"{number}-{long}" for number in range(20)),
        pod_count=20,
    )
    assert len(encode_record(record)) <= MOST_BYTES - CHAIN_BYTES
    assert record.pod_count == 20
    assert record.message


def test_prices_that_nobody_knows_and_halves_of_characters_can_be_written() -> None:
    record = Stamping()(price_before=float("inf"), price_after=float("nan"), message="a \ud800 b")
    assert (record.price_before, record.price_after, record.saving) == (None, None, 0.0)
    assert decode_record(encode_record(record)) == record


def test_a_command_over_several_pools_is_about_each() -> None:
    assert Stamping()(pool="a").pools == ("a",)
    assert Stamping()(names=("pool/a", "pool/b", "default-x")).pools == ("a", "b")


def test_a_subject_that_is_too_long_by_itself_is_no_endless_cutting() -> None:
    record = Stamping()(subject="node/" + "ü" * 5_000, message="m" * 700)
    assert record.message == ""
    assert decode_record(encode_record(record)) == record
