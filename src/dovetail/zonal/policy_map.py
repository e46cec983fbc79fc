"""The policy of zonal shift as a ConfigMap: read when a process starts, and followed while it runs.

A field of the map wins over the old setting of the same meaning; one that is left out, or empty, is what
that setting says, else its default. A bad value changes nothing and is told as an event and in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from dovetail.api.meta import Kind, Object
from dovetail.errors import DovetailError, Gone, Misconfigured
from dovetail.logs import get_logger
from dovetail.ports import Kube, Recorder
from dovetail.settings import POLICY_FIELDS, PolicyField, Setting, Settings, find_conflicts
from dovetail.settings.table import BY_VARIABLE
from dovetail.zonal.options import (
    POLICY_OPTIONS,
    PolicyOption,
    ZonalOptions,
    parse_dry_run,
    parse_policies,
)

__all__ = ["ConfigMap", "ShiftPolicyMap", "read_policy"]

log = get_logger()


class ConfigMap(Object, frozen=True):
    """Words by their keys."""

    KIND: ClassVar[Kind] = Kind("", "v1", "ConfigMap", "configmaps")

    data: Mapping[str, str] = {}


# Keys that count from the moment they are written: how each is read, and the option it is.
LIVE: Mapping[str, tuple[Setting | PolicyField, PolicyOption]] = {
    "policy": (BY_VARIABLE["ZONAL_SHIFT_POLICY"], PolicyOption("policies", parse_policies)),
    "dry-run": (BY_VARIABLE["ZONAL_SHIFT_DRY_RUN"], PolicyOption("dry_run", parse_dry_run)),
    **{each.key: (each, POLICY_OPTIONS[each.name]) for each in POLICY_FIELDS if each.live},
}
STALE = tuple(each for each in POLICY_FIELDS if not each.live)


async def read_policy(settings: Settings, kube: Kube, namespace: str) -> Settings:
    """Read the ConfigMap once, before anything is built from the settings."""
    named = settings.zonal_shift_config_map
    if not named or not settings.enable_zonal_shift:
        return settings
    inside, _, name = named.rpartition("/")
    try:
        found = await kube.get(ConfigMap, name, inside or namespace)
    except Gone:
        return settings
    except DovetailError as error:
        log.warning("the policy of zonal shift cannot be read, so settings alone count", error=error)
        return settings
    return merge_policy(settings, found)


def merge_policy(settings: Settings, source: ConfigMap) -> Settings:
    """The settings with the fields of the map; Misconfigured where they contradict each other."""
    values: dict[str, Any] = {}
    for each in POLICY_FIELDS:
        text = source.data.get(each.key, "").strip()
        if not text or not each.applies_to(settings.provider):
            continue
        try:
            values[each.name] = _read_value(each, text)
        except ValueError as error:
            log.warning(IGNORED, key=each.key, error=_describe_bad_value(each.key, text, each, error, source))
    merged = replace(settings, zonal_policy=replace(settings.zonal_policy_base, **values))
    for problem in find_conflicts(merged):
        raise Misconfigured(f"reading ConfigMap {source.namespace}/{source.name}: {problem}")
    return merged


IGNORED = "a key of the ConfigMap is not taken"


class ShiftPolicyMap:
    """Turns what the ConfigMap says, whenever it is written, into options."""

    def __init__(
        self,
        settings: Settings,
        options: ZonalOptions,
        recorder: Recorder,
        apply: Callable[[ZonalOptions], None],
    ) -> None:
        self._started_with, self._recorder, self._apply = settings.zonal_policy, recorder, apply
        # A key that is left out, or empty, is what the process would have been started with.
        self._base = _drop_map(settings, options)
        self._now = options
        self._told: set[tuple[str, str]] = set()

    def apply_change(self, before: ConfigMap | None, now: ConfigMap | None) -> None:
        """The map was written. One that is gone takes nothing back: nobody said what should be instead."""
        if now is None or (before is not None and before.data == now.data):
            return
        told = self._now
        for key in LIVE:
            told = self._apply_key(told, key, now)
        self._report_stale(now)
        if told != self._now:
            self._now = told
            log.info(
                "zonal shift goes on by another policy",
                policy=told.policies,
                **{"dry-run": told.dry_run or "false"},
            )
            self._apply(told)

    def _apply_key(self, options: ZonalOptions, key: str, source: ConfigMap) -> ZonalOptions:
        text, (setting, option) = source.data.get(key, "").strip(), LIVE[key]
        if not text:
            return option.copy_from(self._base, options)
        try:
            return option.set_value(options, _read_value(setting, text))
        except ValueError as error:
            note = (
                f"{_describe_bad_value(key, text, setting, error, source)}; "
                "what was in force before stays so until it is corrected"
            )
            log.warning(IGNORED, key=key, error=note)
            self._recorder.publish_event(
                source, "ZonalShiftMisconfigured", note, warning=True, dedupe=(key, text)
            )
            return options

    def _report_stale(self, source: ConfigMap) -> None:
        """Say once of each field that is read at the start that it waits for the next one."""
        for each in STALE:
            text = source.data.get(each.key, "").strip()
            if not text or (each.key, text) in self._told:
                continue
            self._told.add((each.key, text))
            try:
                same = _read_value(each, text) == getattr(self._started_with, each.name)
            except ValueError as error:
                log.warning(
                    IGNORED, key=each.key, error=_describe_bad_value(each.key, text, each, error, source)
                )
                continue
            if not same:
                log.warning("a key of the ConfigMap counts from the next start", key=each.key, value=text)


def _drop_map(settings: Settings, options: ZonalOptions) -> ZonalOptions:
    """The options without what the map said at the start."""
    for name, option in POLICY_OPTIONS.items():
        base = getattr(settings.zonal_policy_base, name)
        if base != getattr(settings.zonal_policy, name):
            options = option.set_value(options, base)
    return options


def _read_value(setting: Setting | PolicyField, text: str) -> Any:
    """The value a text spells; ValueError where it spells none, or none that can be used."""
    value = setting.kind.read(text)
    if isinstance(setting, PolicyField) and setting.name in POLICY_OPTIONS:
        try:
            POLICY_OPTIONS[setting.name].convert(value)
        except Misconfigured as error:
            raise ValueError(str(error)) from error
    return value


def _describe_bad_value(
    key: str, text: str, setting: Setting | PolicyField, error: ValueError, source: ConfigMap
) -> str:
    detail = f" ({' '.join(str(error).split())})" if str(error) else ""
    return (
        f'{key} in ConfigMap {source.namespace}/{source.name} is "{text[:120]}", but must be '
        f"{setting.kind.allowed}{detail}"
    )
