"""Coroutine tests in virtual time, where a minute costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from dovetail.sim.clock import run_virtual

P = ParamSpec("P")


def virtually(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """The test, run to its end in virtual time."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(test(*args, **kwargs))

    return run
