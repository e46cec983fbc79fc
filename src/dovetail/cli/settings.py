"""``dovetail settings``: what the controller would run with, and why."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from dovetail.cli.output import MISUSE, Output, OutputOption, note, structured, table
from dovetail.settings import SETTINGS, Provider, Reading, Setting, Settings, examine

# \b keeps the help formatter from filling these lines into a paragraph.
_FLAGS = "\n".join(f"  {each.flag}: {each.meaning}" for each in SETTINGS)
OPTIONS = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "options_metavar": "[OPTIONS] [FLAGS]...",
    "epilog": f"\b\nFlags of the controller:\n{_FLAGS}",
}


def settings(
    context: typer.Context,
    provider: Annotated[Provider, typer.Option(help="The cloud whose settings apply.")] = "aws",
    changed: Annotated[bool, typer.Option("--changed", help="Leave out what has its default.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Show every setting, its value and where that came from.

    Reads the environment, and any FLAGS of the controller given after the options, as the
    controller itself would. Names that are no longer read are reported with what replaced them.
    Ends with 2 when the controller would refuse to start.
    """
    reading = examine(context.args, os.environ, provider)
    shown = [
        setting
        for setting in SETTINGS
        if setting.applies_to(provider)
        and not (changed and reading.settings.origin(setting.variable) == "default")
    ]
    if output is Output.table:
        _print_table(shown, reading)
    else:
        structured(_document(shown, reading), output)
    if reading.problems:
        raise typer.Exit(MISUSE)


def _print_table(shown: list[Setting], reading: Reading) -> None:
    values = reading.settings
    table(
        ("SETTING", "FROM", "VALUE"),
        ((each.variable, values.origin(each.variable), values.text(each.variable) or "-") for each in shown),
    )
    for warning in values.warnings:
        note(f"warning: {warning}")
    for problem in reading.problems:
        note(f"error: {problem}")


def _document(shown: list[Setting], reading: Reading) -> dict[str, object]:
    return {
        "provider": reading.settings.provider,
        "settings": [_entry(setting, reading.settings) for setting in shown],
        "warnings": list(reading.settings.warnings),
        "errors": list(reading.problems),
    }


def _entry(setting: Setting, values: Settings) -> dict[str, str]:
    return {
        "variable": setting.variable,
        "flag": setting.flag,
        "value": values.text(setting.variable),
        "from": values.origin(setting.variable),
        "default": setting.default,
        "allowed": setting.kind.allowed,
        "meaning": setting.meaning,
    }
