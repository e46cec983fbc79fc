"""Reserved capacity: which nodes of this run hold which reservations.

A claim holds every reservation it might be launched into, since which one that will be is not known
yet. Reservations are counted once however many pools see them.
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.scheduling.model.instance_type_table import InstanceTypeTable

__all__ = ["ReservationManager"]


class ReservationManager:
    """Free places per reservation, and who holds which."""

    def __init__(self, tables: Iterable[InstanceTypeTable]) -> None:
        self.free: dict[str, int] = {}
        self._held: dict[str, set[str]] = {}
        for table in tables:
            for _, offering in table.reserved:
                name, count = offering.reservation_id, offering.reservation_capacity
                self.free[name] = min(self.free.get(name, count), count)

    def can_reserve(self, host: str, reservation: str) -> bool:
        if reservation in self._held.get(host, ()):
            return True
        return self.free[reservation] > 0

    def reserve(self, host: str, reservations: Iterable[str]) -> None:
        """Take one place in each; places already held are kept, not taken twice."""
        held = self._held.setdefault(host, set())
        for name in reservations:
            if name in held:
                continue
            if self.free[name] <= 0:
                raise AssertionError(f"reservation {name} was given out more often than it can be used")
            self.free[name] -= 1
            held.add(name)

    def release(self, host: str, reservations: Iterable[str]) -> None:
        """Give places back; those not held do not matter."""
        held = self._held.get(host, set())
        for name in reservations:
            if name in held:
                held.remove(name)
                self.free[name] += 1

    def list_held(self, host: str) -> frozenset[str]:
        return frozenset(self._held.get(host, ()))

    def hold_exactly(self, host: str, reservations: frozenset[str]) -> None:
        """Hold exactly these from now on."""
        before = self.list_held(host)
        self.reserve(host, reservations)
        self.release(host, before - reservations)
