"""Flags over environment, environment over defaults: the whole of it read in one go.

Nothing is fetched from the air: the arguments and the environment are handed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from dovetail.errors import Misconfigured
from dovetail.settings import removed
from dovetail.settings.table import BY_FLAG, SETTINGS, Origin, Setting, Settings
from dovetail.settings.zonal_policy import POLICY_FIELDS, PolicyField, ZonalShiftPolicy

__all__ = ["find_conflicts"]


def find_conflicts(settings: Settings) -> tuple[str, ...]:
    """One sentence for each that lacks another."""
    return tuple(_find_zonal_conflicts(settings))


def _find_zonal_conflicts(s: Settings) -> Iterator[str]:
    if s.zonal_shift_store != "Cluster" and not s.zonal_shift_table:
        yield (
            f'ZONAL_SHIFT_STORE is "{s.zonal_shift_store}", but ZONAL_SHIFT_TABLE is empty: '
            "name a DynamoDB table with keys pk and sk, or keep shifts in the Cluster"
        )
    subscribes = s.enable_zonal_shift and s.zonal_policy.sns_auto_subscribe
    if subscribes and not s.zonal_shift_endpoint_url:
        yield (
            "SNS_AUTO_SUBSCRIBE is true, but ZONAL_SHIFT_ENDPOINT_URL is empty: "
            "give the https address at which SNS reaches this process"
        )
    if subscribes and not s.zonal_shift_topic_arn:
        yield (
            "SNS_AUTO_SUBSCRIBE is true, but ZONAL_SHIFT_TOPIC_ARN is empty: "
            "name the topics to subscribe to, or leave SNS_AUTO_SUBSCRIBE out"
        )


_SHOWN = 120
# Flags that may be given more than once, each time with one more item; of others the last counts.
REPEATED = frozenset({"zonal-shift-topic-arn"})
# Flags of what is a field of the policy now.
OLD_FLAGS = {each.flag: each for each in POLICY_FIELDS}
# Flags with a shorter name.
SHORT = {"d": "enable-do-not-disrupt", "on-disable": "zonal-shift-on-disable"}


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read, with every problem found; where there are some, ``settings`` keeps defaults there."""

    settings: Settings
    problems: tuple[str, ...]


def read_settings(
    arguments: Sequence[str], environment: Mapping[str, str], provider: str = "aws"
) -> Settings:
    """The settings of this process, or Misconfigured with the first thing that is wrong."""
    reading = examine_settings(arguments, environment, provider)
    if not reading.problems:
        return reading.settings
    first, *others = reading.problems
    if others:
        first += f" ({len(others)} more: `dovetail settings` lists them)"
    raise Misconfigured(first)


def examine_settings(
    arguments: Sequence[str], environment: Mapping[str, str], provider: str = "aws"
) -> Reading:
    """Read everything, go on past mistakes, and say all of them."""
    draft = _Draft(provider)
    given = _parse_flags(arguments, draft)
    everything: tuple[Setting | PolicyField, ...] = (*SETTINGS, *POLICY_FIELDS)
    for setting in everything:
        if setting.applies_to(provider):
            draft.settle_setting(setting, given.get(setting.attribute), environment.get(setting.variable))
    draft.warnings += [
        each.describe_removal(environment[each.name]) for each in removed.find_removed(environment)
    ]
    policy = ZonalShiftPolicy(
        **{
            each.name: draft.values.pop(each.attribute)
            for each in POLICY_FIELDS
            if each.attribute in draft.values
        }
    )
    settings = Settings(
        **draft.values,
        zonal_policy_base=policy,
        zonal_policy=policy,
        provider=provider,
        origins=MappingProxyType(draft.origins),
        warnings=tuple(draft.warnings),
    )
    return Reading(settings, (*draft.problems, *find_conflicts(settings)))


@dataclass(slots=True)
class _Draft:
    """Settings on their way to being settled."""

    provider: str
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def settle_setting(self, setting: Setting | PolicyField, flag: str | None, variable: str | None) -> None:
        if flag is not None:
            self._take_value(setting, setting.flag, flag, "flag")
        elif variable or (variable == "" and setting.kind.blank):
            self._take_value(setting, setting.variable, variable, "environment")
        if setting.required and setting.variable not in self.origins:
            self._report_missing(setting)

    def _take_value(self, setting: Setting | PolicyField, name: str, text: str, origin: Origin) -> None:
        read = (origin == "flag" and setting.kind.read_flag) or setting.kind.read
        try:
            value = read(text)
        except ValueError as error:
            self.problems.append(_describe_problem(name, text, setting, str(error)))
            self.origins[setting.variable] = origin
            return
        if setting.required and value == "":
            return
        self.values[setting.attribute] = value
        self.origins[setting.variable] = origin
        self.warnings += [f"{name}: {remark}" for remark in setting.kind.remarks(text)]
        if isinstance(setting, PolicyField):
            self.warnings.append(setting.describe_replacement(name, _shorten_value(text)))

    def _report_missing(self, setting: Setting | PolicyField) -> None:
        self.problems.append(
            f"{setting.variable} is empty, but the {self.provider} provider needs it: "
            f"set it or give {setting.flag}"
        )


def _describe_problem(name: str, text: str, setting: Setting | PolicyField, detail: str) -> str:
    sentence = f'{name} is "{_shorten_value(text)}", but must be {setting.kind.allowed}'
    # What is wrong may be quoted from the value, line ends and all; the sentence stays one line.
    return f"{sentence} ({' '.join(detail.split())})" if detail else sentence


def _shorten_value(text: str) -> str:
    """A value as part of a sentence: on one line, and not too long."""
    start = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in start)


def _parse_flags(arguments: Sequence[str], draft: _Draft) -> dict[str, str]:
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
        setting = BY_FLAG.get(f"--{name}") or OLD_FLAGS.get(f"--{name}")
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


def _unknown_flag(name: str, value: str, setting: Setting | PolicyField | None, provider: str) -> str:
    if setting is not None:
        return f"--{name} belongs to the {setting.provider} provider, but the provider here is {provider}"
    if name in removed.BY_FLAG:
        return f"--{name} is no longer read: {removed.BY_FLAG[name].describe_replacement(value)}"
    near = get_close_matches(f"--{name}", BY_FLAG, 1)
    return f"there is no flag --{name}" + (f"; did you mean {near[0]}?" if near else "")
