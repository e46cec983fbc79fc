"""Recordings that released versions wrote are read by this one, and its decisions made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail import __version__
from dovetail.disruption.situation import digest_situation
from dovetail.history.recording.deciding import decide_again
from dovetail.history.recording.reader import RecordedLook
from dovetail.history.recording.summary import summarise_recording
from dovetail.runtime.recording_folder import read_recording
from dovetail.scheduling.model.decision_cache import DecisionCache
from support.commands import dovetail

# Each was written by hack/write_recordings.py of its version.
FOLDER = Path(__file__).parent / "recordings"
VERSIONS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def read_looks(version: str) -> list[RecordedLook]:
    reader = read_recording(str(FOLDER / version))
    looks = list(reader.looks())
    assert (reader.troubles, reader.list_gaps()) == ([], [])
    assert {segment.head.version for segment in reader.segments} == {version}
    return looks


@pytest.mark.spec("TA-8")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_recording_of_a_released_version_is_read_whole(version: str) -> None:
    looks = read_looks(version)
    assert len(looks) > 100
    digests = [(look.digest, digest_situation(look.situation)) for look in looks if look.digest]
    assert len(digests) > 50
    # A Situation may gain fields; within one version what is read is what was seen, to the last of them.
    assert version != __version__ or [pair for pair in digests if pair[0] != pair[1]] == []
    told = dovetail("recording", "info", str(FOLDER / version))
    assert (told.code, "gaps       none" in told.out) == (0, True), told.err
    at = looks[len(looks) // 2].at.isoformat()
    moment = dovetail("recording", "snapshot", str(FOLDER / version), "--at", at)
    assert moment.code == 0, moment.err
    assert '"dovetail-snapshot/' in moment.out


@pytest.mark.spec("TA-8")
@pytest.mark.parametrize("version", VERSIONS)
def test_decisions_of_a_released_version_are_made_again(version: str) -> None:
    """This version decides as it did when it was recorded: a change means to write the recording anew.

    Another version may have decided otherwise, but none of its questions is unknown.
    """
    cache, busy, other = DecisionCache(), 0, []
    for look in read_looks(version):
        for decision in look.decisions:
            again = decide_again(look.situation, decision.question, cache)
            assert again is not None, decision.question
            busy += bool(again.commands or again.nodes)
            if again != decision.answer:
                other.append((look.at, decision.question))
    assert busy > 10
    assert version != __version__ or other == []


@pytest.mark.spec("TA-8")
def test_this_version_has_a_recording_with_everything_in_it() -> None:
    assert __version__ in VERSIONS, "run hack/write_recordings.py"
    found = summarise_recording(read_recording(str(FOLDER / __version__)))
    methods = {"Drifted", "Empty/empty", "Underutilized/single", "Underutilized/multi", "Underutilized/many"}
    assert {"plan", *methods} <= set(found.questions)
    assert found.segments > 1
    assert found.records > 100
    looks = read_looks(__version__)
    assert any(look.situation.closed_zones or look.situation.excluded_zones for look in looks)


def test_the_guide_shows_what_the_command_prints() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "recording.md").read_text(encoding="utf-8")
    shown = guide.partition("$ dovetail recording info tests/conformance/recordings/")[2].partition("```")[0]
    version, _, figures = shown.partition("\n")
    assert figures == dovetail("recording", "info", str(FOLDER / version)).out
