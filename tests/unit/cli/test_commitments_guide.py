"""The guide of commitments: its files are written and its commands typed, and they print what it shows."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from support.commands import dovetail
from support.guides import looks_like, steps

Json = dict[str, Any]
GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "commitments.md"


def test_what_the_guide_shows_is_what_one_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = 0
    for kind, what, body in steps(GUIDE.read_text(encoding="utf-8")):
        if kind == "file":
            Path(what).write_text(body, encoding="utf-8")
            continue
        words, environment = shlex.split(what), dict[str, str]()
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        assert words[0] == "dovetail"
        ended = dovetail(*words[1:], env=environment)
        assert looks_like(body, ended.out + ended.err), (what, ended.out + ended.err)
        ran += 1
    assert ran == 4


COMMITTED = """
apiVersion: dovetail.sh/v1alpha1
kind: Commitment
metadata: {name: NAME}
spec: {kind: ComputePlan, hourly: "HOURLY", discount: 28%}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """The pods and the plan of the guide."""
    found = {what: body for kind, what, body in steps(GUIDE.read_text(encoding="utf-8")) if kind == "file"}
    for name in ("pods.yaml", "team-plan.yaml"):
        (tmp_path / name).write_text(found[name], encoding="utf-8")
    return str(tmp_path / "pods.yaml"), str(tmp_path / "team-plan.yaml")


def ask(pods: str, *more: str) -> Json:
    ended = dovetail(
        "plan",
        "-f",
        pods,
        *more,
        "--provider",
        "kwok",
        "-o",
        "json",
        env={"COMMITMENTS": "Follow"},
    )
    assert ended.code == 0, ended.err
    return dict(json.loads(ended.out))


def test_a_change_may_bring_a_commitment_and_take_one_away(files: tuple[str, str]) -> None:
    pods, plan = files
    brought = ask(pods, "--change", plan)
    listed = brought["hourlyBefore"]
    assert brought["hourlyAfter"] == pytest.approx(2.5)
    assert brought["floorAfter"] == pytest.approx(2.5)  # what is committed is paid whatever runs
    taken = ask(pods, "-f", plan, "--delete", "commitment/team-plan")
    assert taken["hourlyBefore"] == pytest.approx(2.5)
    assert taken["hourlyAfter"] == pytest.approx(listed)
    assert taken["floorAfter"] == pytest.approx(brought["floorBefore"])


def test_a_change_may_put_another_commitment_in_its_place(files: tuple[str, str], tmp_path: Path) -> None:
    pods, plan = files
    other = tmp_path / "other.yaml"
    other.write_text(COMMITTED.replace("NAME", "team-plan").replace("HOURLY", "0.10"), encoding="utf-8")
    found = ask(pods, "-f", plan, "--change", str(other))
    assert found["hourlyBefore"] == pytest.approx(2.5)
    assert 0.10 <= found["floorAfter"] <= found["hourlyAfter"] < 0.6


def test_a_commitment_that_is_not_there_and_a_cluster_that_counts_none_are_said(
    files: tuple[str, str],
) -> None:
    pods, plan = files
    base = ("plan", "-f", pods, "-f", plan, "--provider", "kwok")
    ended = dovetail(*base, "--delete", "commitment/team-plam", env={"COMMITMENTS": "Follow"})
    assert ended.code == 1
    assert "there is no Commitment team-plam to delete; did you mean team-plan?" in ended.err
    ended = dovetail("plan", "-f", pods, "--change", plan, "--provider", "kwok")
    assert "counts no Commitments; set COMMITMENTS=Follow for it" in ended.err + ended.out
