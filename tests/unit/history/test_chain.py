"""The chain of a log: complete, or it says what is missing; and every fault is found and named."""

from __future__ import annotations

import pytest

from dovetail.history.chain import (
    ChainFault,
    DecisionChain,
    FaultWord,
    LogPart,
    check_chain,
    digest_line,
    find_log_end,
    read_part_order,
)
from dovetail.history.record import RecordKind, decode_record, encode_record
from support.decision_records import LEADER, Stamping, as_part, one_of_each, write_term


def fault_of(*parts: LogPart, head: str = "") -> ChainFault:
    fault = check_chain(parts, head).fault
    assert fault is not None
    return fault


def test_records_are_numbered_from_one_and_hold_the_digest_of_the_one_before() -> None:
    lines = [line[:-1] for line in write_term(DecisionChain(), 3)]
    records = [decode_record(line) for line in lines]
    assert [record.seq for record in records] == [1, 2, 3, 4]
    assert [record.prev for record in records] == ["", *map(digest_line, lines[:-1])]
    assert records[0].kind is RecordKind.TERM_BEGAN
    assert b"lostAfter" not in lines[0]


def test_a_line_is_linked_as_its_record_would_be() -> None:
    by_record, by_line = DecisionChain(), DecisionChain()
    for record in one_of_each():
        assert by_line.link_line(encode_record(record)) == by_record.link_record(record)
    assert by_line.seq == by_record.seq == len(RecordKind)


def test_numbers_that_are_passed_over_are_declared_in_their_place() -> None:
    chain, stamp = DecisionChain(), Stamping()
    lines = [chain.begin_term(stamp(RecordKind.TERM_BEGAN, f"log/{LEADER}")), chain.link_record(stamp())]
    first, last = chain.skip_records(40)
    lines += [chain.declare_gap(stamp(RecordKind.LOG_GAP, f"log/{LEADER}"), first, last)]
    lines += [chain.link_record(stamp())]
    assert [decode_record(line).seq for line in lines] == [1, 2, 43, 44]
    found = check_chain([as_part(line + b"\n" for line in lines)])
    assert (found.declared_gaps, found.fault) == (1, None)


def test_two_leaders_in_turn_give_one_chain_with_two_terms() -> None:
    first = write_term(DecisionChain(), 5)
    end = find_log_end(b"".join(first))
    second = write_term(DecisionChain(), 5, end)
    assert decode_record(second[0][:-1]).lost_after == 6
    found = check_chain([as_part(first, "1"), as_part(second, "2")])
    assert (found.records, found.terms, found.unlinked_terms, found.fault) == (12, 2, 0, None)
    assert found.head == digest_line(second[-1][:-1])


def test_a_term_that_could_read_nothing_back_says_so() -> None:
    found = check_chain([as_part(write_term(DecisionChain(), 2)), as_part(write_term(DecisionChain(), 2))])
    assert (found.terms, found.unlinked_terms, found.fault) == (2, 1, None)


def test_an_empty_log_has_no_fault() -> None:
    found = check_chain([])
    assert (found.records, found.head, found.fault) == (0, "", None)


def test_a_log_may_begin_where_old_parts_were_deleted() -> None:
    assert check_chain([as_part(write_term(DecisionChain(), 9)[4:])]).fault is None


@pytest.mark.spec("NO-2")
def test_a_changed_record_is_named_though_the_next_one_notices() -> None:
    lines = write_term(DecisionChain(), 6)
    lines[3] = lines[3].replace(b"lived 2 h", b"lived 9 h")
    fault = fault_of(as_part(lines))
    assert (fault.word, fault.line) == (FaultWord.CHANGED, 4)
    assert str(fault) == "decisions-20261102-03.jsonl, line 4: this record was changed after it was written"


@pytest.mark.spec("NO-2")
def test_a_record_whose_link_was_changed_is_named_itself() -> None:
    lines = write_term(DecisionChain(), 6)
    prev = decode_record(lines[3][:-1]).prev.encode()
    lines[3] = lines[3].replace(prev, prev[::-1])
    assert (fault_of(as_part(lines)).word, fault_of(as_part(lines)).line) == (FaultWord.CHANGED, 4)


@pytest.mark.spec("NO-2")
def test_a_dropped_record_is_named_by_its_number() -> None:
    lines = write_term(DecisionChain(), 6)
    fault = fault_of(as_part(lines[:3], "1"), as_part(lines[4:], "2"))
    assert (fault.word, fault.source, fault.line) == (FaultWord.MISSING, "2", 1)
    assert fault.message == "record 4 is missing before this one, and no LogGap says so"


@pytest.mark.spec("NO-2")
def test_swapped_records_are_out_of_order() -> None:
    lines = write_term(DecisionChain(), 6)
    lines[3], lines[4] = lines[4], lines[3]
    fault = fault_of(as_part(lines))
    assert (fault.word, fault.line) == (FaultWord.ORDER, 5)
    assert fault.message == "record 4 comes after record 5, out of order"


def test_a_record_that_is_there_twice_is_a_fault() -> None:
    lines = write_term(DecisionChain(), 3)
    assert "once more" in fault_of(as_part([*lines[:2], lines[1], *lines[2:]])).message


def test_a_line_that_is_no_record_is_a_fault() -> None:
    lines = write_term(DecisionChain(), 3)
    lines[2] = b"what is this\n"
    assert (fault_of(as_part(lines)).word, fault_of(as_part(lines)).line) == (FaultWord.UNREADABLE, 3)


def test_what_a_gap_declares_is_no_fault_wherever_in_the_term_it_stands() -> None:
    chain, stamp = DecisionChain(), Stamping()
    lines = write_term(chain, 9)
    lines.append(chain.declare_gap(stamp(RecordKind.LOG_GAP, f"log/{LEADER}"), 4, 6) + b"\n")
    lines += [chain.link_record(stamp(seconds=20)) + b"\n"]
    found = check_chain([as_part([*lines[:3], *lines[6:]])])
    assert (found.declared_gaps, found.fault) == (1, None)
    assert fault_of(as_part([*lines[:3], *lines[7:]])).message.startswith("records 4 to 7 are missing")


def test_a_gap_of_one_term_declares_nothing_of_another() -> None:
    chain = DecisionChain()
    first = write_term(chain, 6)
    end = find_log_end(b"".join(first))
    later = DecisionChain()
    second = write_term(later, 3, end)
    second.append(later.declare_gap(Stamping()(RecordKind.LOG_GAP, "log/x"), 1, 99) + b"\n")
    assert fault_of(as_part([*first[:3], *first[4:], *second])).word is FaultWord.MISSING


def test_a_gap_of_an_earlier_term_declares_nothing_of_a_later_one() -> None:
    chain = DecisionChain()
    first = write_term(chain, 6)
    first.append(chain.declare_gap(Stamping()(RecordKind.LOG_GAP, "log/x"), 1, 99) + b"\n")
    second = write_term(DecisionChain(), 6, find_log_end(b"".join(first)))
    assert fault_of(as_part([*first, *second[:3], *second[4:]])).word is FaultWord.MISSING


def test_what_a_term_declares_lost_may_be_missing_or_come_late() -> None:
    first = write_term(DecisionChain(), 6)
    end = find_log_end(b"".join(first[:4]))
    second = write_term(DecisionChain(), 2, end)
    assert check_chain([as_part([*first[:4], *second])]).fault is None
    assert check_chain([as_part([*first, *second])]).fault is None


def test_the_end_of_a_term_that_the_next_one_read_may_not_be_missing() -> None:
    first = write_term(DecisionChain(), 6)
    second = write_term(DecisionChain(), 2, find_log_end(b"".join(first)))
    fault = fault_of(as_part([*first[:5], *second]))
    assert (fault.word, fault.message) == (
        FaultWord.MISSING,
        "the term before wrote records 6 to 7, which are missing",
    )


def test_the_last_record_of_a_term_may_not_be_changed() -> None:
    first = write_term(DecisionChain(), 6)
    second = write_term(DecisionChain(), 2, find_log_end(b"".join(first)))
    first[-1] = first[-1].replace(b"lived 5 h", b"lived 6 h")
    assert fault_of(as_part([*first, *second])).word is FaultWord.TERM


def test_half_a_line_at_the_end_is_a_fault_until_a_term_begins_after_it() -> None:
    first = write_term(DecisionChain(), 6)
    torn = [*first[:-1], first[-1][:50]]
    assert fault_of(as_part(torn)).word is FaultWord.TORN
    second = write_term(DecisionChain(), 2, find_log_end(b"".join(torn)))
    assert check_chain([as_part(torn, "1"), as_part(second, "2")]).fault is None
    assert fault_of(as_part(torn, "1"), as_part(first[1:], "2")).word is FaultWord.TORN


def test_a_cut_end_is_found_with_the_head_of_an_earlier_check() -> None:
    lines = write_term(DecisionChain(), 6)
    head = check_chain([as_part(lines)]).head
    assert check_chain([as_part(lines)], head).fault is None
    assert check_chain([as_part(lines[:-1])]).fault is None
    assert fault_of(as_part(lines[:-1]), head=head).word is FaultWord.MISSING


def test_the_end_of_a_log_is_its_last_whole_record() -> None:
    lines = write_term(DecisionChain(), 3)
    whole = b"".join(lines)
    end = find_log_end(whole + b'{"id":"01')
    assert end is not None
    assert (end.seq, end.whole_bytes, end.digest) == (4, len(whole), digest_line(lines[-1][:-1]))
    assert find_log_end(b"") is None
    assert find_log_end(b"no line") is None
    assert find_log_end(whole + b"nonsense\n") == end


def test_parts_are_sorted_by_the_id_of_their_first_record() -> None:
    stamp = Stamping()
    chain = DecisionChain()
    lines = [chain.link_record(stamp(seconds=number)) + b"\n" for number in range(3)]
    assert sorted(lines, key=read_part_order) == lines
    assert read_part_order(b"nonsense\n") == ""
