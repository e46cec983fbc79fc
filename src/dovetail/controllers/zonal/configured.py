"""What may change while a process runs: policy and dry run, as a ConfigMap says them.

A word that cannot be read changes nothing: the last good one stays in force, and people are told so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from dovetail.api.meta import Kind, Object
from dovetail.controllers.zonal.options import ZonalOptions, dry_run, policies
from dovetail.ports import Recorder
from dovetail.settings.table import BY_VARIABLE

__all__ = ["ConfigMap", "Configured"]

log = logging.getLogger(__name__)
# Keys of the ConfigMap, and the setting each stands for.
KEYS = {"policy": "ZONAL_SHIFT_POLICY", "dry-run": "ZONAL_SHIFT_DRY_RUN"}


class ConfigMap(Object, frozen=True):
    """Words by their keys."""

    KIND: ClassVar[Kind] = Kind("", "v1", "ConfigMap", "configmaps")

    data: Mapping[str, str] = {}


class Configured:
    """Turns what the ConfigMap says into options."""

    def __init__(
        self, options: ZonalOptions, recorder: Recorder, apply: Callable[[ZonalOptions], None]
    ) -> None:
        # A key that is left out, or empty, is what the process was started with.
        self._base, self._now = options, options
        self._recorder, self._apply = recorder, apply

    def changed(self, before: ConfigMap | None, now: ConfigMap | None) -> None:
        """The map was written. One that is gone takes nothing back: nobody said what should be instead."""
        if now is None or (before is not None and before.data == now.data):
            return
        told = self._now
        for key in KEYS:
            told = self._taken(told, key, now)
        if told != self._now:
            self._now = told
            log.info("zonal shift goes on by policy %s, dry run %r", told.policies, told.dry_run or "false")
            self._apply(told)

    def _taken(self, options: ZonalOptions, key: str, source: ConfigMap) -> ZonalOptions:
        text, kind = source.data.get(key, "").strip(), BY_VARIABLE[KEYS[key]].kind
        if not text:
            return _with(options, key, getattr(self._base, FIELDS[key]))
        try:
            return _with(options, key, READ[key](kind.read(text)))
        except ValueError as error:
            detail = f" ({error})" if str(error) else ""
            note = (
                f'{key} in ConfigMap {source.namespace}/{source.name} is "{text[:120]}", but must be '
                f"{kind.allowed}{detail}; what was in force before stays so until it is corrected"
            )
            log.warning("%s", note)
            self._recorder.event(source, "ZonalShiftMisconfigured", note, warning=True, dedupe=(key, text))
            return options


FIELDS = {"policy": "policies", "dry-run": "dry_run"}
READ: Mapping[str, Callable[[Any], Any]] = {"policy": policies, "dry-run": dry_run}


def _with(options: ZonalOptions, key: str, value: Any) -> ZonalOptions:
    return replace(options, **{FIELDS[key]: value})
