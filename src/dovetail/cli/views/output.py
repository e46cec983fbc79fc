"""How results leave: text on stdout, remarks on stderr, and one exit code for each outcome."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from shutil import get_terminal_size
from textwrap import wrap
from typing import Annotated, TextIO

import typer

from dovetail.errors import escape_text

BETWEEN = "  "
FINE, COMPLAINTS, MISUSE, LEFT_OUT, INTERNAL, BROKEN_PIPE = 0, 1, 2, 3, 70, 141


class Output(StrEnum):
    """The shape of a result."""

    table = "table"
    json = "json"
    yaml = "yaml"


class Format(StrEnum):
    """The shape of manifests."""

    yaml = "yaml"
    json = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Shape of the result.")]
FormatOption = Annotated[Format, typer.Option("--output", "-o", help="Shape of the manifests.")]


def print_text(text: str) -> None:
    """Write a part of the result to stdout."""
    _write_stream(sys.stdout, escape_text(text))


def print_note(text: str) -> None:
    """Say something to the person, on stderr, so that it never ends up in a pipe."""
    _write_stream(sys.stderr, escape_text(text) + "\n")


def print_remark(text: str) -> None:
    """Print what a command could not see in the cluster, on stderr."""
    print_note(f"note: {text}")


def _write_stream(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        # The reader has seen enough, as in `| head`. Python would complain once more while closing
        # the stream, so it is led nowhere first.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise typer.Exit(BROKEN_PIPE) from None


def format_count(count: int, noun: str) -> str:
    """A count with its noun: 1 error, 2,000 errors, 2 classes."""
    return f"{count:,} {noun if count == 1 else make_plural(noun)}"


def make_plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


def some_of(names: Sequence[str], most: int = 3) -> str:
    """The first few names, and how many more there are: `a, b, c +997`."""
    more = f" +{len(names) - most:,}" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def merge_alike(rows: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    """Rows that differ in nothing but their first cell become one, which names a few and counts the rest."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, *rest in rows:
        names.setdefault(tuple(rest), []).append(name)
    return [(some_of(found), *rest) for rest, found in names.items()]


def print_structured(value: Mapping[str, object], output: Output | Format) -> None:
    """Write a result for programs to read."""
    print_text(_encode_json(value) if output.value == "json" else render_yaml([value]))


def print_manifests(values: Sequence[Mapping[str, object]], output: Format) -> None:
    """Write manifests in a form that kubectl takes, too."""
    print_text(render_json(values) if output is Format.json else render_yaml(values))


def render_yaml(values: Iterable[Mapping[str, object]]) -> str:
    """Objects as one YAML text."""
    from dovetail.api import manifests

    return "---\n".join(manifests.write_manifest(value) for value in values)


def render_json(values: Sequence[Mapping[str, object]]) -> str:
    """Objects as one JSON text: a single one as it is, several as a List."""
    if len(values) == 1:
        return _encode_json(values[0])
    return _encode_json({"apiVersion": "v1", "kind": "List", "items": list(values)})


def _encode_json(value: Mapping[str, object]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write rows for people: wrapped between words to a terminal, one line each in a pipe.

    Where a terminal is too narrow for its longest words side by side, each row becomes a paragraph.
    """
    cells = [[escape_text(cell) for cell in row] for row in rows]
    on_terminal = sys.stdout.isatty()
    width = get_terminal_size().columns if on_terminal else 0
    if on_terminal and _least_width(columns, cells) > width:
        _write_stream(sys.stdout, _build_paragraphs(columns, cells, width))
        return
    _write_stream(sys.stdout, _build_grid(columns, cells, width))


def _least_width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    return sum(_longest_words(columns, rows)) + len(BETWEEN) * (len(columns) - 1)


def _longest_words(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """For each column its longest word, which is the least room it can do with."""
    listed = zip(columns, *rows, strict=True)
    return [max(len(word) for cell in column for word in (*cell.split(), "")) for column in listed]


def _build_grid(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column, least in zip(columns, _longest_words(columns, rows), strict=True):
        grid.add_column(column, min_width=least, overflow="fold", no_wrap=not width)
    for row in rows:
        grid.add_row(*map(Text, row))
    # With a height as well, or a dumb terminal would be taken to have 80 columns.
    console = Console(width=width or 100_000, height=25, force_terminal=bool(width))
    with console.capture() as captured:
        console.print(grid)
    return "".join(line.rstrip() + "\n" for line in captured.get().splitlines())


def _build_paragraphs(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Each row as lines of `COLUMN  cell`, with a blank line between rows."""
    heading = max(map(len, columns)) + len(BETWEEN)
    return "\n".join(
        "".join(
            _build_lines(column, cell, heading, width)
            for column, cell in zip(columns, row, strict=True)
            if cell
        )
        for row in rows
    )


def _build_lines(column: str, cell: str, heading: int, width: int) -> str:
    # A word that is longer than the line is left whole: cut in two, it could not be copied.
    parts = wrap(cell, max(width - heading, 1), break_long_words=False, break_on_hyphens=False)
    indent = "\n" + " " * heading
    return f"{column:<{heading}}{indent.join(parts)}\n"
