"""Disruption's questions, each asked so that one bad item does not decide for everybody."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from dovetail.api.setaside import SetAside
from dovetail.disruption.candidates import Scene
from dovetail.scheduling.containment import contain

__all__ = ["contained", "contained_choice"]

P = ParamSpec("P")
R = TypeVar("R")


def contained(ask: Callable[Concatenate[Scene, P], R]) -> Callable[Concatenate[Scene, P], R]:
    """The question, asked without the objects that nothing can be decided with."""

    @wraps(ask)
    def asked(scene: Scene, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return contain(scene.snapshot, lambda seen: ask(scene.over(seen), *args, **kwargs))[0]

    return asked


class Naming(Protocol):
    """An answer that names who was left out."""

    set_aside: tuple[SetAside, ...]


C = TypeVar("C", bound=Naming)


def contained_choice(ask: Callable[Concatenate[Scene, P], C]) -> Callable[Concatenate[Scene, P], C]:
    """The same, with an answer that says who was left out."""

    @wraps(ask)
    def asked(scene: Scene, /, *args: P.args, **kwargs: P.kwargs) -> C:
        choice, found = contain(scene.snapshot, lambda seen: ask(scene.over(seen), *args, **kwargs))
        choice.set_aside = (*scene.snapshot.set_aside, *found)
        return choice

    return asked
