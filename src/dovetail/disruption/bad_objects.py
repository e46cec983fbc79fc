"""Disruption's questions, each asked so that one bad item does not decide for everybody."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from dovetail.api.bad_items import SetAside
from dovetail.disruption.inputs import DisruptionInput
from dovetail.scheduling.bad_objects import decide_without_bad_objects

__all__ = ["report_bad_objects", "skip_bad_objects"]

P = ParamSpec("P")
R = TypeVar("R")


def skip_bad_objects(
    ask: Callable[Concatenate[DisruptionInput, P], R],
) -> Callable[Concatenate[DisruptionInput, P], R]:
    """The question, asked without the objects that nothing can be decided with."""

    @wraps(ask)
    def asked(inputs: DisruptionInput, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return decide_without_bad_objects(
            inputs.snapshot, lambda seen: ask(inputs.with_snapshot(seen), *args, **kwargs), inputs.cache
        )[0]

    return asked


class NamesSetAside(Protocol):
    """An answer that names who was left out."""

    set_aside: tuple[SetAside, ...]


C = TypeVar("C", bound=NamesSetAside)


def report_bad_objects(
    ask: Callable[Concatenate[DisruptionInput, P], C],
) -> Callable[Concatenate[DisruptionInput, P], C]:
    """The same, with an answer that says who was left out."""

    @wraps(ask)
    def asked(inputs: DisruptionInput, /, *args: P.args, **kwargs: P.kwargs) -> C:
        choice, found = decide_without_bad_objects(
            inputs.snapshot, lambda seen: ask(inputs.with_snapshot(seen), *args, **kwargs), inputs.cache
        )
        choice.set_aside = (*inputs.snapshot.set_aside, *found)
        return choice

    return asked
