"""How results leave: text on stdout, remarks on stderr, and one exit code for each outcome."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, TextIO

import typer

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


def put(text: str) -> None:
    """Write a part of the result to stdout."""
    _write(sys.stdout, text)


def note(text: str) -> None:
    """Say something to the person, on stderr, so that it never ends up in a pipe."""
    _write(sys.stderr, text + "\n")


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        # The reader has seen enough, as in `| head`. Python would complain once more while closing
        # the stream, so it is led nowhere first.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise typer.Exit(BROKEN_PIPE) from None


def counted(count: int, noun: str) -> str:
    """A count with its noun: 1 error, 2 errors."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def structured(value: Mapping[str, object], output: Output | Format) -> None:
    """Write a result for programs to read."""
    put(_json(value) if output.value == "json" else as_documents([value]))


def objects(values: Sequence[Mapping[str, object]], output: Format) -> None:
    """Write manifests in a form that kubectl takes, too."""
    put(as_json(values) if output is Format.json else as_documents(values))


def as_documents(values: Iterable[Mapping[str, object]]) -> str:
    """Objects as one YAML text."""
    from dovetail.api import manifests

    return "---\n".join(manifests.write(value) for value in values)


def as_json(values: Sequence[Mapping[str, object]]) -> str:
    """Objects as one JSON text: a single one as it is, several as a List."""
    if len(values) == 1:
        return _json(values[0])
    return _json({"apiVersion": "v1", "kind": "List", "items": list(values)})


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write rows for people: wrapped to a terminal, one line each in a pipe."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    on_terminal = sys.stdout.isatty()
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column, overflow="fold", no_wrap=not on_terminal)
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    console = Console(width=None if on_terminal else 100_000, force_terminal=on_terminal)
    with console.capture() as captured:
        console.print(grid)
    put("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))
