"""How results leave: tables for people, documents for programs, and nothing that a value can break."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from dovetail.api.manifests import read
from dovetail.cli.output import Format, Output, counted, objects, structured, table

POOL = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}}


def test_a_table_in_a_pipe_has_one_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    table(("NAME", "VALUE"), [("a", "x" * 300), ("long name", "[bold]y[/]")])
    assert capsys.readouterr().out.splitlines() == [
        "NAME       VALUE",
        "a          " + "x" * 300,
        "long name  [bold]y[/]",
    ]


def test_a_table_on_a_terminal_is_folded_to_its_width() -> None:
    master, slave = pty.openpty()
    script = "from dovetail.cli.output import table; table(('A', 'B'), [('a', 'x' * 100)])"
    environment = {**os.environ, "COLUMNS": "40", "TERM": "xterm"}
    subprocess.run([sys.executable, "-c", script], stdout=slave, env=environment, check=True, timeout=60)
    os.close(slave)
    shown = os.read(master, 10_000).decode()
    os.close(master)
    assert shown.count("x") == 100
    assert max(len(line) for line in shown.splitlines() if "x" in line) <= 40


@pytest.mark.parametrize("output", [Output.json, Output.yaml])
def test_a_document_reads_back_as_it_was(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    structured({**POOL, "text": "ä: - yes", "number": 1}, output)
    [document] = read(capsys.readouterr().out, "out").documents
    assert document.value == {**POOL, "text": "ä: - yes", "number": 1}


@pytest.mark.parametrize("output", list(Format))
@pytest.mark.parametrize("count", [1, 2])
def test_manifests_read_back_as_they_were(
    output: Format, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    objects([POOL] * count, output)
    found = read(capsys.readouterr().out, "out")
    assert [document.value for document in found.documents] == [POOL] * count


def test_json_keeps_letters_that_are_not_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    structured({"name": "größe"}, Output.json)
    shown = capsys.readouterr().out
    assert "größe" in shown
    assert json.loads(shown) == {"name": "größe"}


def test_a_count_agrees_with_its_noun() -> None:
    assert [counted(number, "error") for number in (0, 1, 2)] == ["0 errors", "1 error", "2 errors"]
