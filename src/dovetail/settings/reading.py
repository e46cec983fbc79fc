"""Flags over environment, environment over defaults: the whole of it read in one go.

Nothing is fetched from the air: the arguments and the environment are handed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from dovetail.errors import Misconfigured
from dovetail.settings import removed
from dovetail.settings.table import BY_FLAG, SETTINGS, Origin, Provider, Setting, Settings
from dovetail.settings.together import complaints

_SHOWN = 120
# Flags that may be given more than once, each time with one more item; of others the last counts.
REPEATED = frozenset({"zonal-shift-topic-arn"})
# Flags with a shorter name.
SHORT = {"d": "enable-do-not-disrupt", "on-disable": "zonal-shift-on-disable"}


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read, with every problem found; where there are some, ``settings`` keeps defaults there."""

    settings: Settings
    problems: tuple[str, ...]


def read(arguments: Sequence[str], environment: Mapping[str, str], provider: Provider = "aws") -> Settings:
    """The settings of this process, or Misconfigured with the first thing that is wrong."""
    reading = examine(arguments, environment, provider)
    if not reading.problems:
        return reading.settings
    first, *others = reading.problems
    if others:
        first += f" ({len(others)} more: `dovetail settings` lists them)"
    raise Misconfigured(first)


def examine(arguments: Sequence[str], environment: Mapping[str, str], provider: Provider = "aws") -> Reading:
    """Read everything, go on past mistakes, and say all of them."""
    draft = _Draft(provider)
    given = _flags(arguments, draft)
    for setting in SETTINGS:
        if setting.applies_to(provider):
            draft.settle(setting, given.get(setting.attribute), environment.get(setting.variable))
    draft.warnings += [each.report(environment[each.name]) for each in removed.found(environment)]
    settings = Settings(
        **draft.values,
        provider=provider,
        origins=MappingProxyType(draft.origins),
        warnings=tuple(draft.warnings),
    )
    return Reading(settings, (*draft.problems, *complaints(settings)))


@dataclass(slots=True)
class _Draft:
    """Settings on their way to being settled."""

    provider: Provider
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def settle(self, setting: Setting, flag: str | None, variable: str | None) -> None:
        if flag is not None:
            self._take(setting, setting.flag, flag, "flag")
        elif variable or (variable == "" and setting.kind.blank):
            self._take(setting, setting.variable, variable, "environment")
        if setting.required and setting.variable not in self.origins:
            self._miss(setting)

    def _take(self, setting: Setting, name: str, text: str, origin: Origin) -> None:
        read = (origin == "flag" and setting.kind.read_flag) or setting.kind.read
        try:
            value = read(text)
        except ValueError as error:
            self.problems.append(_problem(name, text, setting, str(error)))
            self.origins[setting.variable] = origin
            return
        if setting.required and value == "":
            return
        self.values[setting.attribute] = value
        self.origins[setting.variable] = origin
        self.warnings += [f"{name}: {remark}" for remark in setting.kind.remarks(text)]

    def _miss(self, setting: Setting) -> None:
        self.problems.append(
            f"{setting.variable} is empty, but the {self.provider} provider needs it: "
            f"set it or give {setting.flag}"
        )


def _problem(name: str, text: str, setting: Setting, detail: str) -> str:
    sentence = f'{name} is "{_shown(text)}", but must be {setting.kind.allowed}'
    # What is wrong may be quoted from the value, line ends and all; the sentence stays one line.
    return f"{sentence} ({' '.join(detail.split())})" if detail else sentence


def _shown(text: str) -> str:
    """A value as part of a sentence: on one line, and not too long."""
    start = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in start)


def _flags(arguments: Sequence[str], draft: _Draft) -> dict[str, str]:
    """The flags by attribute, in Go's manner: one dash or two, a value after = or a blank.

    A switch takes its value only after =, and means true without one.
    """
    given: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word in ("-", "--"):
            draft.problems.append(f'"{word}" is not a flag: settings are given as --name=value')
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = SHORT.get(name, name)
        setting = BY_FLAG.get(f"--{name}")
        if setting is None or not setting.applies_to(draft.provider):
            draft.problems.append(_unknown_flag(name, value, setting, draft.provider))
            continue
        if not equals and setting.kind.read_flag is not None:
            value = "true"
        elif not equals and not rest:
            draft.problems.append(f"{setting.flag} has no value, but must be {setting.kind.allowed}")
            continue
        elif not equals:
            value = rest.pop(0)
        if name in REPEATED and setting.attribute in given:
            value = f"{given[setting.attribute]},{value}"
        given[setting.attribute] = value
    return given


def _unknown_flag(name: str, value: str, setting: Setting | None, provider: Provider) -> str:
    if setting is not None:
        return f"--{name} belongs to the {setting.provider} provider, but the provider here is {provider}"
    if name in removed.BY_FLAG:
        return f"--{name} is no longer read: {removed.BY_FLAG[name].advice(value)}"
    near = get_close_matches(f"--{name}", BY_FLAG, 1)
    return f"there is no flag --{name}" + (f"; did you mean {near[0]}?" if near else "")
