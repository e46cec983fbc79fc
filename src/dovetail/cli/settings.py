"""``dovetail settings``: what the controller would run with, and why."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Annotated

import typer

from dovetail.cli.views.options import check_provider
from dovetail.cli.views.output import MISUSE, Output, OutputOption, print_note, print_structured, print_table
from dovetail.errors import Misconfigured
from dovetail.history.notify import describe_sink
from dovetail.settings import POLICY_FIELDS, SETTINGS, Reading, Setting, Settings, examine_settings

# \b keeps the help formatter from filling these lines into a paragraph.
_FLAGS = "\n".join(f"  {each.flag}: {each.meaning}" for each in SETTINGS)
OPTIONS = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "options_metavar": "[OPTIONS] [FLAGS]...",
    "epilog": f"\b\nFlags of the controller:\n{_FLAGS}",
}


def settings(
    context: typer.Context,
    provider: Annotated[
        str, typer.Option(metavar="NAME", callback=check_provider, help="Whose settings apply: aws or kwok.")
    ] = "aws",
    changed: Annotated[bool, typer.Option("--changed", help="Leave out what has its default.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Show every setting, its value and where that came from.

    Reads the environment, and any FLAGS of the controller given after the options, as the
    controller itself would. Names that are no longer read are reported with what replaced them.
    Ends with 2 when the controller would refuse to start.
    """
    reading = examine_settings(context.args, os.environ, provider)
    sinks, problem = _list_sinks(reading.settings.notify_file)
    if problem:
        reading = replace(reading, problems=(*reading.problems, problem))
    shown = [
        setting
        for setting in SETTINGS
        if setting.applies_to(provider)
        and not (changed and reading.settings.find_origin(setting.variable) == "default")
    ]
    if output is Output.table:
        _print_table(shown, reading, sinks)
    else:
        print_structured(_build_document(shown, reading, sinks), output)
    if reading.problems:
        raise typer.Exit(MISUSE)


def _list_sinks(path: str) -> tuple[list[dict[str, str]], str]:
    """The sinks of NOTIFY_FILE without their secrets, and what is wrong with the file."""
    if not path:
        return [], ""
    # Not everyone has one, and what reads it is not small.
    from dovetail.runtime.notify_file import load_notify

    try:
        return [describe_sink(each) for each in load_notify(path).sinks], ""
    except Misconfigured as error:
        return [], f"NOTIFY_FILE: {error}"


def _print_table(shown: list[Setting], reading: Reading, sinks: list[dict[str, str]]) -> None:
    values = reading.settings
    print_table(
        ("SETTING", "FROM", "VALUE"),
        (
            (each.variable, values.find_origin(each.variable), values.show_value(each.variable) or "-")
            for each in shown
        ),
    )
    if given := _list_given_fields(reading):
        print_table(("POLICY FIELD", "FROM", "VALUE"), given)
    if sinks:
        print_table(
            ("SINK", "TO", "FORMAT", "WHEN", "DIGEST", "QUIET"),
            [tuple(value or "-" for value in each.values()) for each in sinks],
        )
    for warning in values.warnings:
        print_note(f"warning: {warning}")
    for problem in reading.problems:
        print_note(f"error: {problem}")


def _list_given_fields(reading: Reading) -> list[tuple[str, str, str]]:
    """Fields of the zonal-shift policy that came under an old name; the others stand in the ConfigMap."""
    origins, policy = reading.settings.origins, reading.settings.zonal_policy
    return [
        (each.key, origins[each.variable], each.kind.show(getattr(policy, each.name)) or "-")
        for each in POLICY_FIELDS
        if each.variable in origins
    ]


def _build_document(shown: list[Setting], reading: Reading, sinks: list[dict[str, str]]) -> dict[str, object]:
    return {
        "provider": reading.settings.provider,
        "settings": [_build_entry(setting, reading.settings) for setting in shown],
        "policy": [
            {"field": key, "from": origin, "value": value}
            for key, origin, value in _list_given_fields(reading)
        ],
        **({"sinks": sinks} if sinks else {}),
        "warnings": list(reading.settings.warnings),
        "errors": list(reading.problems),
    }


def _build_entry(setting: Setting, values: Settings) -> dict[str, str]:
    return {
        "variable": setting.variable,
        "flag": setting.flag,
        "value": values.show_value(setting.variable),
        "from": values.find_origin(setting.variable),
        "default": setting.default,
        "allowed": setting.kind.allowed,
        "meaning": setting.meaning,
    }
