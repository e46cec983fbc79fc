"""A kept copy of one kind, with indexes, and word of every change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from dovetail.api.meta import Object

__all__ = ["Informer"]

T = TypeVar("T", bound=Object)
Key = tuple[str, str]
Index = Callable[[T], Iterable[str]]
Change = Callable[[T | None, T | None], None]


class Informer(Generic[T]):
    """The objects of a kind as last heard of.

    Handlers are told (before, after): (None, new) for an arrival, (old, new) for a change, (old, None)
    for a departure. They run on the loop, at once, in the order things happened, and must not block.
    """

    def __init__(self, kind: type[T], indexes: Mapping[str, Index[T]] | None = None) -> None:
        self.kind = kind
        self._objects: dict[Key, T] = {}
        self._indexes = dict(indexes or {})
        self._indexed: dict[str, dict[str, dict[Key, T]]] = {name: {} for name in self._indexes}
        self._handlers: list[Change[T]] = []
        self._listed: set[Key] | None = None
        self._synced = asyncio.Event()
        self.on_failure: Callable[[T, Exception], None] | None = None
        """Told of an object that a handler failed on. Without it the failure is the follower's."""

    @property
    def synced(self) -> bool:
        """One complete list has been taken in and every handler has heard all of it."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def on_change(self, handler: Change[T]) -> None:
        """Tell this handler from now on; what is already here is told at once."""
        self._handlers.append(handler)
        for obj in self._objects.values():
            handler(None, obj)

    def get(self, name: str, namespace: str = "") -> T | None:
        return self._objects.get((namespace, name))

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    def by(self, index: str, value: str) -> tuple[T, ...]:
        """The objects an index files under a value."""
        return tuple(self._indexed[index].get(value, {}).values())

    # What a Follower tells.

    def begin_list(self) -> None:
        self._listed = set()

    def add_listed(self, objects: Iterable[T]) -> None:
        for obj in objects:
            if self._listed is not None:
                self._listed.add(_object_key(obj))
            self._store_object(obj)

    def end_list(self) -> None:
        listed, self._listed = self._listed or set(), None
        for key in [key for key in self._objects if key not in listed]:
            self._drop_object(key)
        self._synced.set()

    def apply_change(self, obj: T) -> None:
        self._store_object(obj)

    def apply_removal(self, namespace: str, name: str) -> None:
        self._drop_object((namespace, name))

    def _store_object(self, obj: T) -> None:
        key = _object_key(obj)
        before = self._objects.get(key)
        if before is not None:
            if before.metadata.resource_version == obj.metadata.resource_version and before.uid == obj.uid:
                return
            if before.uid != obj.uid:
                # A namesake took its place while we were not looking: one left, another came.
                self._drop_object(key)
                before = None
            else:
                self._remove_from_indexes(key, before)
        self._objects[key] = obj
        self._add_to_indexes(key, obj)
        self._notify_handlers(before, obj)

    def _drop_object(self, key: Key) -> None:
        before = self._objects.pop(key, None)
        if before is None:
            return
        self._remove_from_indexes(key, before)
        self._notify_handlers(before, None)

    def _notify_handlers(self, before: T | None, after: T | None) -> None:
        for handler in self._handlers:
            try:
                handler(before, after)
            except Exception as error:
                about = after if after is not None else before
                if self.on_failure is None or about is None:
                    raise
                # One object that a handler cannot cope with must not keep it from hearing of the others.
                self.on_failure(about, error)

    def _add_to_indexes(self, key: Key, obj: T) -> None:
        for name, values in self._indexes.items():
            for value in values(obj):
                self._indexed[name].setdefault(value, {})[key] = obj

    def _remove_from_indexes(self, key: Key, obj: T) -> None:
        for name, values in self._indexes.items():
            files = self._indexed[name]
            for value in values(obj):
                file = files.get(value)
                if file is not None:
                    file.pop(key, None)
                    if not file:
                        del files[value]


def _object_key(obj: Object) -> Key:
    return (obj.metadata.namespace, obj.metadata.name)
