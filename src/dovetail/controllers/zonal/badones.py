"""One object that nobody can make sense of is set aside: named, counted, and nobody else waits for it."""

from __future__ import annotations

import logging

from dovetail.errors import DovetailError
from dovetail.metrics import counter

__all__ = ["set_aside"]

log = logging.getLogger(__name__)
SET_ASIDE = counter(
    "dovetail_zonal_shift_set_aside_total", "Objects a pass could not make sense of, by kind.", ("kind",)
)
LONGEST = 300


def set_aside(failures: dict[str, str], name: str, error: Exception) -> None:
    """Note what is wrong with an object, such as `Node/a`; what is noted already is not told again."""
    ours = isinstance(error, DovetailError)
    told = str(error) if ours else f"{type(error).__name__}: {str(error)[:LONGEST]}"
    if failures.get(name) == told:
        return
    failures[name] = told
    SET_ASIDE.labels(name.partition("/")[0]).inc()
    # What is no error of ours is a value nobody thought of: loud, and survived.
    (log.warning if ours else log.error)("%s is set aside: %s", name, told)
