"""Records in words: a line of a history, and a sentence."""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.history.record import RecordKind
from dovetail.history.telling import WORDS, describe_saving, tell_row, tell_rows, tell_sentence
from support.builders import NOW
from support.decision_records import Stamping, at, one_of_each

stamp = Stamping()


def test_every_kind_has_words() -> None:
    assert set(WORDS) == set(RecordKind)
    assert len({words.what for words in WORDS.values()}) == len(WORDS)
    assert all(tell_sentence(record) for record in one_of_each())


def test_a_node_s_story_reads_from_cause_to_end() -> None:
    node, pdb = (
        "node/ip-10-0-4-12",
        "pdb prevents pod evictions (PodDisruptionBudget=[shop/db]), for pod shop/db-1",
    )
    command = "Underutilized, delete: [ip-10-0-4-12]; saves $0.1920 an hour"
    pods = ("shop/web-7", "shop/web-8", "shop/db-1", "shop/db-2")
    rows = tell_rows(
        [
            stamp(RecordKind.NODE_BLOCKED, node, 0, reason="pdb", message=pdb),
            stamp(RecordKind.NODE_REMOVABLE, node, 822, reason="Underutilized", message=command),
            stamp(RecordKind.COMMAND_STARTED, "command/41c2d3e4", 837, message=command),
            stamp(RecordKind.NODE_DRAINING, node, 839, reason="Underutilized", pods=pods, pod_count=6),
            stamp(RecordKind.NODE_GONE, node, 892, message="lived 4h12m, cost $0.81"),
        ],
        NOW,
    )
    assert [tuple(row) for row in rows] == [
        ("12:00:00", "blocked", pdb),
        ("12:13:42", "removable", command),
        ("12:13:57", "command 41c2 started", command),
        ("12:13:59", "draining", "Underutilized; 6 pods: shop/web-7, shop/web-8, shop/db-1 +3"),
        ("12:14:52", "gone", "lived 4h12m, cost $0.81"),
    ]


def test_a_line_of_another_day_has_the_day() -> None:
    assert tell_row(stamp(seconds=0), at(86_400)).time == "2026-06-01 12:00:00"


def test_a_sentence_names_the_subject_as_people_do() -> None:
    assert (
        tell_sentence(stamp(RecordKind.NODE_BLOCKED, message="it is static"))
        == "node a is blocked: it is static"
    )
    assert (
        tell_sentence(stamp(RecordKind.NODE_ORDERED, "claim/default-x")) == "nodeclaim default-x was ordered"
    )
    assert tell_sentence(stamp(RecordKind.POD_FORCED, "pod/shop/db-1")).startswith(
        "pod shop/db-1 was deleted"
    )


def test_what_a_log_says_of_itself_is_told() -> None:
    began = replace(stamp(RecordKind.TERM_BEGAN, "log/leader"), lost_after=41)
    gap = replace(stamp(RecordKind.LOG_GAP, "log/leader"), gap_from=4, gap_to=6)
    assert tell_sentence(began).endswith("what the term before recorded after number 41 may be lost")
    assert tell_sentence(gap) == "log leader has a gap: records 4 to 6 could not be written"


def test_savings_are_told_as_plan_tells_them() -> None:
    assert describe_saving(stamp(price_before=0.5, price_after=0.25)) == "saves $0.2500 an hour"
    assert describe_saving(stamp(price_before=0.0, price_after=0.25)) == "costs $0.2500 more an hour"
    assert describe_saving(stamp(price_before=0.5)) == ""


def test_no_name_and_no_message_can_steer_a_terminal_or_break_a_line() -> None:
    record = stamp(RecordKind.COMMAND_DONE, "command/\x1b[2J\u202e", message="a\x1b[31m\nb\r\x07 \u202e")
    told = "".join((*tell_row(record, NOW), tell_sentence(record)))
    assert not any(each in told for each in "\x1b\n\r\x07\u202e")
    assert "\\u001b[31m b" in told
