"""What every verb needs in its hands: the types, the store, the time and chance."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from dovetail.sim.kube.meta import stamp
from dovetail.sim.kube.status import unknown_resource
from dovetail.sim.kube.store import Key, Record, Store
from dovetail.sim.kube.types import Registry, TypeInfo, UnknownResource

if TYPE_CHECKING:
    from dovetail.ports import Clock

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Core:
    """Registry, store, clock and chance, and the work a write leaves for afterwards."""

    def __init__(self, registry: Registry, store: Store, clock: Clock, rng: random.Random) -> None:
        self.registry = registry
        self.store = store
        self.clock = clock
        self.rng = rng
        self._afterwards: deque[Callable[[], None]] = deque()
        self._turn = _Turn(self._afterwards)
        self._stamped = (clock.now(), "")

    def type_of(self, resource: str) -> TypeInfo:
        """The preferred version of `plural[.group]`, or a 404."""
        try:
            return self.registry.resolve(resource)
        except UnknownResource as error:
            raise unknown_resource() from error

    def find(self, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """An object of a built-in resource, read without ceremony."""
        record = self.store.get(resource, (namespace, name))
        return record.obj if record else None

    def stamp(self) -> str:
        """Now, as metadata carries it; the same instant is spelled once."""
        now = self.clock.now()
        if self._stamped[0] != now or not self._stamped[1]:
            self._stamped = (now, stamp(now))
        return self._stamped[1]

    def put(self, info: TypeInfo, key: Key, obj: dict[str, Any]) -> Record:
        """Commit a state."""
        return self.store.put(info, key, obj)

    def afterwards(self, work: Callable[[], None]) -> None:
        """Do something once the current write is over, still in the same turn."""
        self._afterwards.append(work)

    def turn(self) -> _Turn:
        """One verb. What it leaves for afterwards is done when the outermost one ends."""
        return self._turn


class _Turn:
    """`with core.turn():` without a new object each time, for it is entered at every write."""

    __slots__ = ("_afterwards", "_depth")

    def __init__(self, afterwards: deque[Callable[[], None]]) -> None:
        self._afterwards = afterwards
        # A verb within a verb is no turn of its own.
        self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Do what was left for afterwards, unless the verb failed or is part of another."""
        try:
            while self._afterwards and kind is None and self._depth == 1:
                self._afterwards.popleft()()
        finally:
            self._depth -= 1


def fresh(obj: Any) -> Any:
    """A copy that shares nothing with its original, and is JSON for certain."""
    return _decode(_encode(obj))
