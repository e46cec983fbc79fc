"""What every verb of the API server needs: the types, the store, the time, chance and injected faults."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from dovetail.sim.kube.faults import ApiFaults, NoFaults
from dovetail.sim.kube.meta import format_time
from dovetail.sim.kube.status import bad_request, unknown_resource
from dovetail.sim.kube.store import Key, ObjectStore, StoredRecord
from dovetail.sim.kube.types import TypeInfo, TypeRegistry, UnknownResource

if TYPE_CHECKING:
    from dovetail.ports import Clock


_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Core:
    """Registry, store, clock, chance and faults, and the work a write leaves for afterwards."""

    def __init__(self, registry: TypeRegistry, store: ObjectStore, clock: Clock, rng: random.Random) -> None:
        self.registry = registry
        self.store = store
        self.clock = clock
        self.rng = rng
        self.faults: ApiFaults = NoFaults()
        self._afterwards: deque[Callable[[], None]] = deque()
        self._turn = _Turn(self._afterwards)
        self._stamped = (clock.now(), "")

    def find_type(self, resource: str) -> TypeInfo:
        """The preferred version of `plural[.group]`, or a 404."""
        try:
            return self.registry.resolve_resource(resource)
        except UnknownResource as error:
            raise unknown_resource() from error

    def find_object(self, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """An object of a built-in resource, read straight from the store."""
        record = self.store.get(resource, (namespace, name))
        return record.obj if record else None

    def format_now(self) -> str:
        """Now, as metadata carries it; the same instant is spelled once."""
        now = self.clock.now()
        if self._stamped[0] != now or not self._stamped[1]:
            self._stamped = (now, format_time(now))
        return self._stamped[1]

    def put(self, info: TypeInfo, key: Key, obj: dict[str, Any]) -> StoredRecord:
        """Commit a state."""
        return self.store.put(info, key, obj)

    def run_afterwards(self, work: Callable[[], None]) -> None:
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


def copy_json(obj: Any) -> Any:
    """A copy that shares nothing with its original, and is JSON for certain."""
    return _decode(_encode(obj))


PROPAGATION = ("", "Background", "Foreground", "Orphan")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of create, update and patch. `warnings` collects what the client should hear."""

    dry_run: bool = False
    manager: str = ""
    user: str = "system:admin"
    validation: str = "Ignore"
    force: bool = False
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of delete and evict."""

    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


def parse_delete_options(body: dict[str, Any]) -> DeleteOptions:
    """A DeleteOptions document as options."""
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds")
    if not isinstance(preconditions, dict) or not isinstance(grace, int | None):
        raise bad_request(
            "DeleteOptions cannot be decoded: preconditions or gracePeriodSeconds has a wrong type"
        )
    propagation = body.get("propagationPolicy") or ""
    if not propagation and body.get("orphanDependents") is not None:
        propagation = "Orphan" if body["orphanDependents"] else "Background"
    return DeleteOptions(
        grace=grace,
        propagation=propagation,
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
        dry_run=bool(body.get("dryRun")),
    )
