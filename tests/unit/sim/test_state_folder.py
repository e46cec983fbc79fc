"""Objects kept in a folder: whatever happens to the files, the last good state is found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dovetail.errors import Misconfigured
from dovetail.sim.state_folder import StateFolder

FIRST, SECOND, THIRD = b'{"state":1}' * 50, b'{"state":2}' * 60, b'{"state":3}' * 70


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which two states were kept, one after the other."""
    with StateFolder(tmp_path / "data") as keeping:
        keeping.save_state(FIRST)
        keeping.save_state(SECOND)
    return tmp_path / "data"


def test_what_was_kept_last_is_loaded(folder: Path) -> None:
    with StateFolder(folder) as keeping:
        assert keeping.load_state() == (SECOND, "")


def test_an_empty_folder_is_nothing_to_complain_about(tmp_path: Path) -> None:
    with StateFolder(tmp_path) as keeping:
        assert keeping.load_state() == (None, "")


def test_a_file_cut_anywhere_is_reported_and_the_one_before_it_used(folder: Path) -> None:
    state = folder / "cluster.state"
    whole = state.read_bytes()
    for length in (*range(120), len(whole) // 2, len(whole) - 1):
        state.write_bytes(whole[:length])
        with StateFolder(folder) as keeping:
            found, complaint = keeping.load_state()
        assert found == FIRST, length
        assert complaint == f"{state} is torn or was changed by hand; using the state before it"


def test_one_changed_byte_is_noticed(folder: Path) -> None:
    state = folder / "cluster.state"
    whole = state.read_bytes()
    for place in (0, 20, 90, len(whole) - 1):
        state.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with StateFolder(folder) as keeping:
            assert keeping.load_state()[0] == FIRST


def test_when_both_are_torn_it_starts_empty_and_says_so(folder: Path) -> None:
    for name in ("cluster.state", "cluster.state.before"):
        os.truncate(folder / name, 30)
    with StateFolder(folder) as keeping:
        found, complaint = keeping.load_state()
    assert found is None
    assert complaint.endswith("cluster.state is torn or was changed by hand; starting empty")


def test_a_torn_file_does_not_push_out_the_good_one_before_it(folder: Path) -> None:
    os.truncate(folder / "cluster.state", 30)
    with StateFolder(folder) as keeping:
        keeping.save_state(THIRD)
    os.truncate(folder / "cluster.state", 30)
    with StateFolder(folder) as keeping:
        assert keeping.load_state()[0] == FIRST


def test_an_end_between_the_two_moves_of_a_save_loses_nothing(folder: Path) -> None:
    os.replace(folder / "cluster.state", folder / "cluster.state.new")
    with StateFolder(folder) as keeping:
        assert keeping.load_state() == (SECOND, "")


def test_an_end_while_writing_leaves_what_was_kept(folder: Path) -> None:
    (folder / "cluster.state.new").write_bytes(b"dovetail-state-1 half")
    with StateFolder(folder) as keeping:
        assert keeping.load_state() == (SECOND, "")


def test_a_folder_is_used_by_one_at_a_time(folder: Path) -> None:
    with (
        StateFolder(folder),
        pytest.raises(Misconfigured, match="another cluster is using it"),
        StateFolder(folder),
    ):
        pass
    with StateFolder(folder) as keeping:
        assert keeping.load_state() == (SECOND, "")


def test_a_file_where_the_folder_should_be_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(Misconfigured, match=r"keeping objects in .*file: .*; choose another --data-dir"),
        StateFolder(tmp_path / "file"),
    ):
        pass
