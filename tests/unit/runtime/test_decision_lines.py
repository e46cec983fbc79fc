"""DECISION_LOG=log: a line on stdout for each record, past every level, and still a chain."""

from __future__ import annotations

import json

import pytest

from dovetail.history.chain import LogPart, check_chain
from dovetail.history.record import RecordKind
from dovetail.runtime.decision_log import DecisionLog, LogLines
from dovetail.runtime.logs import configure_logging
from support.decision_records import LEADER, Stamping


def test_every_record_is_a_line_at_any_level_and_the_chain_holds(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("error")
    log, stamp = DecisionLog([], LogLines()), Stamping()
    log.note_record(stamp(RecordKind.TERM_BEGAN, f"log/{LEADER}"))
    for number in range(300):
        log.note_record(stamp(subject=f"node/{number}"))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["logger"] for line in lines} == {"controller.decisions"}
    written = [json.dumps(line["record"], separators=(",", ":"), ensure_ascii=False) for line in lines]
    report = check_chain([LogPart("log", [line.encode() + b"\n" for line in written])])
    assert (report.records, report.terms, report.fault) == (301, 1, None)
