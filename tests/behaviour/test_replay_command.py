"""`dovetail replay`: a recording played again as it was ruled and under other rules."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace

from dovetail.cli.views import replays
from dovetail.play import play_scenario, read_scenario
from support.commands import Ended, dovetail
from support.guides import looks_like, steps

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "examples" / "scenarios"
POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: NAME}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [VALUE]}]
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour and a half of a Deployment that grows and shrinks."""
    folder = tmp_path_factory.mktemp("recorded") / "recording"
    story = read_scenario(SCENARIOS / "inflate.yaml")
    kept = {"RECORDING": f"file:{folder}"}
    play_scenario(replace(story, duration="90m", settings={**story.settings, **kept}))
    return folder


@pytest.fixture(autouse=True)
def few_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "SEEDS", 1)


def write_pool(path: Path, name: str = "default", value: str = "spot") -> str:
    path.write_text(POOL.replace("NAME", name).replace("VALUE", value))
    return str(path)


def replay(recording: Path, *arguments: str) -> Ended:
    return dovetail("replay", str(recording), *arguments)


@pytest.mark.spec("RP-5")
def test_the_guide_is_followed_to_the_letter_and_prints_the_same_bytes_again(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "last-week").symlink_to(recording)
    told = ""
    for what, name, body in steps((ROOT / "docs" / "guides" / "replay.md").read_text()):
        if what == "file":
            (tmp_path / name).write_text(body)
            continue
        ended = dovetail(*shlex.split(name)[1:])
        assert ended.code == 0, ended.err
        assert looks_like(body, ended.out), ended.out
        told, command = ended.out, name
    page = (tmp_path / "week.html").read_bytes()
    assert b"most different hours" in page
    assert dovetail(*shlex.split(command)[1:]).out == told
    assert (tmp_path / "week.html").read_bytes() == page


@pytest.mark.spec("RP-10")
def test_pods_that_lose_their_place_are_listed(recording: Path, tmp_path: Path) -> None:
    pool = write_pool(tmp_path / "none.yaml", value="reserved")
    told = replay(recording, "--as", "karpenter", "--with", pool, "-o", "json")
    assert told.code == 3, told.err
    variation = json.loads(told.out)["variations"][-1]
    assert variation["name"] == "none"
    (lost,) = variation["withoutPlace"]
    assert lost["workload"].startswith("default/inflate-")
    assert lost["pods"] % 20 == 0
    assert lost["hours"] > 4


def test_only_what_was_is_added_up_without_a_model(recording: Path) -> None:
    told = replay(recording, "--as", "recorded", "-o", "json")
    assert told.code == 0, told.err
    document = json.loads(told.out)
    assert document["variations"] == []
    assert document["asItWas"]["dollars"] > 0


def test_bad_input_is_one_sentence(recording: Path, tmp_path: Path) -> None:
    pool = write_pool(tmp_path / "pools.yaml", name="web")
    told = replay(recording, "--with", pool)
    assert told.code == 1
    assert 'NodePool "web" is not on the recording; the pools are default' in told.err
    told = replay(recording, "--with", "CONSOLIDATE_MANI=true")
    assert "there is no setting CONSOLIDATE_MANI; did you mean CONSOLIDATE_MANY?" in told.err
    told = replay(recording, "--with", "CONSOLIDATE_MANY=perhaps")
    assert told.code == 2
    assert told.err.count("\n") <= 2
    told = replay(recording, "--vary", "pools.web.spec.weight=1")
    assert "the pools are default" in told.err
    told = replay(recording, "--as", "recorded", "--with", "CONSOLIDATE_MANY=true")
    assert told.code == 2
    told = replay(recording, "--slices", "1h")
    assert told.code == 1


def test_under_an_hour_nothing_is_said_about_money(recording: Path) -> None:
    told = replay(recording, "--to", "2026-01-05T00:42:00Z")
    assert told.code == 1
    assert "minutes are too short to say anything about money; at least 6 hours" in told.err
    assert replay(recording, "--verify", "--to", "2026-01-05T00:10:00Z").code == 0
