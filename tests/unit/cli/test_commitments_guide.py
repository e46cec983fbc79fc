"""The guide of commitments: its files are written and its commands typed, and they print what it shows."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from support.commands import dovetail
from support.guides import looks_like, steps

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "commitments.md"


def test_what_the_guide_shows_is_what_one_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = 0
    for kind, what, body in steps(GUIDE.read_text(encoding="utf-8")):
        if kind == "file":
            Path(what).write_text(body, encoding="utf-8")
            continue
        words = shlex.split(what)
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            monkeypatch.setenv(name, value)
        assert words[0] == "dovetail"
        ended = dovetail(*words[1:])
        assert looks_like(body, ended.out + ended.err), (what, ended.out + ended.err)
        ran += 1
    assert ran >= 2
