"""What a provider is handed, and what it gives back: a cloud, and the controllers that look after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dovetail.api.meta import Object
from dovetail.aws import Aws
from dovetail.controllers.base import Cache, Controller
from dovetail.ports import Clock, Cloud, Kube, Recorder
from dovetail.settings import Settings

if TYPE_CHECKING:
    # Parts are for those who act; who only looks need not load every controller to know a provider.
    from dovetail.controllers.context import ControllerContext

__all__ = ["Caches", "Indexes", "MakeProvider", "Provider", "ProviderContext"]

T = TypeVar("T", bound=Object)


class Caches(Protocol):
    """The caches of the process, by kind; asking for one that nobody follows is a KeyError."""

    def __call__(self, kind: type[T], /) -> Cache[T]: ...


@dataclass(frozen=True, slots=True)
class ProviderContext:
    """What a provider is made of."""

    settings: Settings
    kube: Kube
    clock: Clock
    chance: Random
    recorder: Recorder
    cache: Caches
    # The certificate authority the process itself trusts, in PEM; empty when the system's is used.
    authority: str = ""
    # Whether a zone, by its id, is shifted away: nothing is bought there.
    is_excluded_zone: Callable[[str], bool] = lambda zone_id: False
    # Whether this process may change anything; asked before every write to the cloud.
    may_write: Callable[[], bool] = lambda: True


class Provider(Protocol):
    """A cloud and everything that keeps it current."""

    @property
    def cloud(self) -> Cloud:
        """The port controllers use."""

    @property
    def aws(self) -> Aws | None:
        """AWS as this provider calls it; None where there is none."""

    async def prepare(self) -> None:
        """Learn what must be known before anything runs; Misconfigured when that cannot be had."""

    async def look_around(self) -> None:
        """Learn at once what controllers learn in time: for those who look at the cloud and run nothing."""

    def list_assumptions(self) -> tuple[str, ...]:
        """What the cloud has not told and is assumed instead, each as a sentence."""

    def build_controllers(self, parts: ControllerContext) -> tuple[Controller, ...]:
        """Controllers of its own, run beside everyone else's."""

    def close(self) -> None:
        """Let go of threads and connections."""


MakeProvider = Callable[[ProviderContext], Provider]
# By what objects of a kind are looked up: the name of an index, and the function that gives its keys.
Indexes = Mapping[type[Object], Mapping[str, Any]]
