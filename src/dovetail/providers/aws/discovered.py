"""How much memory nodes really have: what a hypervisor leaves is known once one has joined."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from dovetail.api.nodeclass import AMI
from dovetail.api.quantity import Quantity
from dovetail.ports import Clock
from dovetail.providers.aws.cached import Cached

__all__ = ["DiscoveredMemory"]

LASTS = timedelta(days=60)
Key = tuple[str, tuple[str, ...]]


class DiscoveredMemory:
    """Memory by instance type and the images of a class: another image may leave another amount."""

    def __init__(self, clock: Clock) -> None:
        self._seen: Cached[Key, Quantity] = Cached(clock, LASTS, lambda *_: self._changed())
        self.changes = 0

    def note(self, instance_type: str, images: Iterable[AMI], memory: Quantity) -> None:
        """A node of the type has that much. The smallest ever seen holds, so that what is planned fits."""
        key = _key(instance_type, images)
        known = self._seen.get(key)
        if known is None or memory <= known:
            self._seen.put(key, memory)
            if memory != known:
                self._changed()

    def of(self, instance_type: str, images: Iterable[AMI]) -> Quantity | None:
        return self._seen.get(_key(instance_type, images))

    def by_type(self, images: Iterable[AMI]) -> dict[str, Quantity]:
        """All that was seen with these images."""
        wanted = _key("", images)[1]
        return {name: memory for (name, with_images), memory in self._seen.items() if with_images == wanted}

    def _changed(self) -> None:
        self.changes += 1


def _key(instance_type: str, images: Iterable[AMI]) -> Key:
    return instance_type, tuple(sorted({image.id for image in images}))
