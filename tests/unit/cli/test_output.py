"""How results leave: tables for people, documents for programs, and nothing that a value can break."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from dovetail.api.manifests import parse_manifests
from dovetail.cli.views.output import (
    Format,
    Output,
    format_count,
    merge_alike,
    print_manifests,
    print_note,
    print_structured,
    print_table,
    print_text,
)

POOL = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}}


def test_a_table_in_a_pipe_has_one_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "VALUE"), [("a", "x" * 300), ("long name", "[bold]y[/]")])
    assert capsys.readouterr().out.splitlines() == [
        "NAME       VALUE",
        "a          " + "x" * 300,
        "long name  [bold]y[/]",
    ]


def on_terminal(columns: int, script: str) -> list[str]:
    """What the script shows on a terminal of so many columns."""
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "dumb"}
    code = f"from dovetail.cli.views.output import print_table as table\n{script}"
    subprocess.run([sys.executable, "-c", code], stdout=slave, env=environment, check=True, timeout=60)
    os.close(slave)
    shown = os.read(master, 100_000).decode()
    os.close(master)
    return shown.splitlines()


def test_a_table_on_a_terminal_is_wrapped_between_words() -> None:
    shown = on_terminal(
        40, "table(('A', 'WHY'), [('us-east-1a', 'the pods on it would have to move elsewhere')])"
    )
    assert max(map(len, shown)) <= 40
    assert shown[1:] == ["us-east-1a  the pods on it would have to", "            move elsewhere"]


WIDE = (
    "table(('NODES', 'POOL', 'INSTANCE TYPE', 'OR', 'ZONE', 'CAPACITY', 'PODS EACH', '$/H', '$/MONTH'), "
    "[('1', 'general-purpose', 'm7i-flex.24xlarge', 'c7gd.metal, r8gd.48xlarge +596', 'us-east-1c', "
    "'on-demand', '12', '10.1234', '7,390.08')] * 2)"
)


def test_a_table_too_wide_for_its_words_becomes_paragraphs_and_breaks_no_word() -> None:
    shown = on_terminal(80, WIDE)
    assert max(map(len, shown)) <= 80
    assert shown[:4] == [
        "NODES          1",
        "POOL           general-purpose",
        "INSTANCE TYPE  m7i-flex.24xlarge",
        "OR             c7gd.metal, r8gd.48xlarge +596",
    ]
    assert shown[9] == ""
    assert "m7i-flex.24xlarge" in on_terminal(200, WIDE)[1]


def test_rows_that_differ_by_name_alone_become_one_with_a_count() -> None:
    rows = [(f"node-{number}", "default", "blocked") for number in range(1000)]
    assert merge_alike([*rows, ("other", "batch", "blocked")]) == [
        ("node-0, node-1, node-2 +997", "default", "blocked"),
        ("other", "batch", "blocked"),
    ]


@pytest.mark.parametrize("odd", ["\x1b[2J", "\x9b31m", "\r", "\x07", "\u202e", "\x7f"])
def test_what_a_terminal_would_obey_is_spelled_out(odd: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME",), [(f"a{odd}b",)])
    print_text(f"a{odd}b\n")
    print_note(f"a{odd}b")
    print_structured({"name": f"a{odd}b"}, Output.json)
    shown = capsys.readouterr()
    assert odd not in shown.out + shown.err
    assert f"\\u{ord(odd[0]):04x}" in shown.err
    assert json.loads(shown.out.split("\n", 3)[3]) == {"name": f"a{odd}b"}


@pytest.mark.parametrize("output", [Output.json, Output.yaml])
def test_a_document_reads_back_as_it_was(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    print_structured({**POOL, "text": "ä: - yes", "number": 1}, output)
    [document] = parse_manifests(capsys.readouterr().out, "out").documents
    assert document.value == {**POOL, "text": "ä: - yes", "number": 1}


@pytest.mark.parametrize("output", list(Format))
@pytest.mark.parametrize("count", [1, 2])
def test_manifests_read_back_as_they_were(
    output: Format, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    print_manifests([POOL] * count, output)
    found = parse_manifests(capsys.readouterr().out, "out")
    assert [document.value for document in found.documents] == [POOL] * count


def test_json_keeps_letters_that_are_not_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    print_structured({"name": "größe"}, Output.json)
    shown = capsys.readouterr().out
    assert "größe" in shown
    assert json.loads(shown) == {"name": "größe"}


def test_a_count_agrees_with_its_noun() -> None:
    assert [format_count(number, "error") for number in (0, 1, 2)] == ["0 errors", "1 error", "2 errors"]
    assert format_count(2000, "node class") == "2,000 node classes"
