"""A ControllerContext of the parts a test has; the others must not be asked for."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

from dovetail.controllers.context import ControllerContext
from dovetail.controllers.history import DecisionRecorder
from dovetail.runtime.clock import SystemClock
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.settings import Settings

__all__ = ["build_context"]


def build_context(**parts: Any) -> ControllerContext:
    """What controllers are made of: default settings, and these parts."""
    missing = dict.fromkeys(each.name for each in fields(ControllerContext))
    settings = Settings()
    # Its term never begins: it records nothing.
    history = DecisionRecorder(settings, parts.get("clock", SystemClock()))
    given = {"settings": settings, "history": history, "cache": DecisionCache(), **parts}
    return ControllerContext(**cast(Any, {**missing, **given}))
