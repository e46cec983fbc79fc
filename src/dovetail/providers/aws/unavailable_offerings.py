"""What EC2 could not give us lately, so that the next plan does not walk into the same wall."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import timedelta

from dovetail.ports import Clock
from dovetail.providers.aws.ttl_cache import TtlCache

__all__ = ["UnavailableOfferings"]

LASTS = timedelta(minutes=3)
# Capacity type, instance type, zone, placement group, partition.
Place = tuple[str, str, str, str, str]


class UnavailableOfferings:
    """Offerings, capacity types and subnets that were refused; a new refusal starts the time anew.

    Whoever derives something from this remembers `seqnum(type)` with it: the number moves whenever an
    answer about the type may have changed, by a refusal or by one being forgotten.
    """

    def __init__(self, clock: Clock) -> None:
        self._places: TtlCache[Place, None] = TtlCache(
            clock, LASTS, lambda place, _: self._touch_type(place[1])
        )
        self._capacity_types: TtlCache[str, None] = TtlCache(
            clock, LASTS, lambda capacity_type, _: self._touch_all()
        )
        self._subnets: TtlCache[str, None] = TtlCache(clock, LASTS, lambda subnet, _: self._touch_all())
        self._types: Counter[str] = Counter()
        self._everyone = 0
        self._changes = 0

    def mark_offering(
        self, capacity_type: str, instance_type: str, zone: str, placement: str = "", partition: str = ""
    ) -> None:
        """One offering cannot be had; with a placement group, not in that group."""
        self._places.put((capacity_type, instance_type, zone, placement, partition), None)
        self._touch_type(instance_type)

    def mark_capacity_type(self, capacity_type: str) -> None:
        self._capacity_types.put(capacity_type, None)
        self._touch_all()

    def mark_subnet(self, subnet: str) -> None:
        self._subnets.put(subnet, None)
        self._touch_all()

    def is_unavailable(
        self,
        capacity_type: str,
        instance_type: str,
        zone: str,
        subnets: Collection[str] = (),
        placement: str = "",
        partition: str = "",
    ) -> bool:
        """Whether buying it now is known to fail; `subnets` are those the class has in the zone."""
        if (
            capacity_type,
            instance_type,
            zone,
            "",
            "",
        ) in self._places or capacity_type in self._capacity_types:
            return True
        if placement and self._is_full(capacity_type, instance_type, zone, placement, partition):
            return True
        return bool(subnets) and all(subnet in self._subnets for subnet in subnets)

    def sequence_number(self, instance_type: str) -> int:
        self.drop_expired()
        return self._types[instance_type] + self._everyone

    @property
    def changes(self) -> int:
        """Moves with every refusal and every one that is forgotten, of whatever type."""
        self.drop_expired()
        return self._changes

    def drop_expired(self) -> None:
        for remembered in (self._places, self._capacity_types, self._subnets):
            remembered.drop_expired()

    def _is_full(self, capacity_type: str, instance_type: str, zone: str, group: str, partition: str) -> bool:
        keys = {(capacity_type, instance_type, zone, group, each) for each in ("", partition)}
        return any(key in self._places for key in keys)

    def _touch_type(self, instance_type: str) -> None:
        self._types[instance_type] += 1
        self._changes += 1

    def _touch_all(self) -> None:
        self._everyone += 1
        self._changes += 1
