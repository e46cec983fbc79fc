"""`dovetail history --check`: what is in a decision log, or the first thing that is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.history.chain import DecisionChain, digest_line
from support.commands import dovetail
from support.decision_records import write_term

PART = "decisions-20261102-03.jsonl"


def write_log(folder: Path) -> list[bytes]:
    lines = write_term(DecisionChain(), 5)
    (folder / PART).write_bytes(b"".join(lines))
    return lines


def test_a_whole_log_is_told_in_a_line_and_its_head(tmp_path: Path) -> None:
    head = digest_line(write_log(tmp_path)[-1][:-1])
    done = dovetail("history", "--check", str(tmp_path))
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        f"6 records in 1 part, 1 term, 0 declared gaps; nothing else is missing or changed\nhead {head}\n"
    )
    assert dovetail("history", "--check", str(tmp_path), "--head", head).code == 0


@pytest.mark.spec("NO-2")
def test_the_first_fault_is_one_sentence_and_exit_code_1(tmp_path: Path) -> None:
    lines = write_log(tmp_path)
    (tmp_path / PART).write_bytes(b"".join([*lines[:2], *lines[3:]]))
    done = dovetail("history", "--check", str(tmp_path))
    assert done.code == 1
    assert f"{PART}, line 3: record 3 is missing before this one, and no LogGap says so" in done.err
    assert len(done.err.splitlines()) == 1


def test_what_was_cut_off_the_end_is_found_with_the_head_of_an_earlier_check(tmp_path: Path) -> None:
    lines = write_log(tmp_path)
    head = digest_line(lines[-1][:-1])
    (tmp_path / PART).write_bytes(b"".join(lines[:-2]))
    assert dovetail("history", "--check", str(tmp_path)).code == 0
    done = dovetail("history", "--check", str(tmp_path), "--head", head)
    assert (done.code, f"the record with the digest {head} is missing" in done.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--check", "/nowhere"), "there is no such folder"),
        (("--check", "s3://"), "names no bucket"),
        (
            ("node/a", "--check", "/nowhere"),
            "--check looks at all of a log, and at nothing else; leave node/a",
        ),
        (("--head", "abc"), "--head abc is asked about without a log; say which with --check"),
    ],
)
def test_what_cannot_be_checked_is_said_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = dovetail("history", *arguments)
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert said in done.err


def test_a_folder_without_a_log_says_how_one_is_written(tmp_path: Path) -> None:
    done = dovetail("history", "--check", str(tmp_path))
    assert done.code == 1
    assert "there is no decision log in it; it is written with DECISION_LOG=file:…" in done.err
