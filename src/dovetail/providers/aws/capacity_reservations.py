"""Capacity reservations: which a class selects, and how many instances each still has room for.

EC2's count is minutes old by the time it is needed, so launches and ends since then are counted along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec

from dovetail.api.nodeclass import CapacityReservation, CapacityReservationSelectorTerm, EC2NodeClass
from dovetail.aws import Answer, Aws, AwsAbsent
from dovetail.ports import Clock
from dovetail.providers.aws.queries import describe_all, filter_by, filter_by_tags, read_items
from dovetail.providers.aws.ttl_cache import TtlCache

__all__ = ["CAPACITY_BLOCK", "EXPIRING", "CapacityReservationProvider", "read_reservation"]

ASKED: Final = "DescribeCapacityReservations"
PAGE: Final = 1000
KEPT: Final = timedelta(minutes=1)
REMEMBERED: Final = timedelta(hours=24)
# EC2 ends the instances of a capacity block 30 minutes before the block ends; ours drain before that.
BEFORE_END: Final = timedelta(minutes=40)
CAPACITY_BLOCK: Final = "capacity-block"
DEFAULT: Final = "default"
ACTIVE, EXPIRING = "active", "expiring"
CRITERIA: Final = ("open", "targeted")


@dataclass(frozen=True, slots=True)
class _Count:
    """Free places in a reservation, and when EC2 said so."""

    free: int
    synced: datetime


class CapacityReservationProvider:
    """Finds the reservations of classes and keeps account of their free places."""

    def __init__(self, aws: Aws, clock: Clock) -> None:
        self._aws = aws
        self._clock = clock
        self._answers: TtlCache[str, tuple[Answer, ...]] = TtlCache(clock, KEPT)
        self._counts: TtlCache[str, _Count] = TtlCache(clock, REMEMBERED)

    async def list_reservations(self, node_class: EC2NodeClass) -> tuple[CapacityReservation, ...]:
        """The active reservations the class selects, by id; those nobody understands are left out."""
        terms = node_class.spec.capacity_reservation_selector_terms
        said = (term for term in terms if term.id or term.tags or term.instance_match_criteria)
        found = await self._list_current([build_query(term) for term in said])
        converted = read_items(ASKED, found, partial(read_reservation, now=self._clock.now()))
        return tuple(sorted((each for each in converted if each is not None), key=lambda each: each.id))

    async def list_by_id(self, ids: Iterable[str]) -> tuple[CapacityReservation, ...]:
        """These reservations, as far as they are still active."""
        found = await self._list_current([build_id_query(each) for each in sorted(set(ids))])
        converted = (read_reservation(each, self._clock.now()) for each in found)
        return tuple(each for each in converted if each is not None)

    async def _list_current(self, queries: Iterable[Mapping[str, Any]]) -> list[Answer]:
        """What the queries find and has not ended, each once."""
        now = self._clock.now()
        found: dict[str, Answer] = {}
        for asked in queries:
            current = read_items(
                ASKED, await self._describe_reservations(asked), partial(_if_current, now=now)
            )
            found |= {each["CapacityReservationId"]: each for each in current if each is not None}
        return list(found.values())

    async def _describe_reservations(self, asked: Mapping[str, Any]) -> tuple[Answer, ...]:
        key = msgspec.json.encode(asked, order="sorted").decode()
        known = self._answers.get(key)
        if known is not None:
            return known
        try:
            found = tuple(await describe_all(self._aws, ASKED, asked, "CapacityReservations"))
        except AwsAbsent:
            found = ()
        for name, count in read_items(ASKED, found, _read_free):
            self._counts.put(name, _Count(count, self._clock.now()))
        self._answers.put(key, found)
        return found

    def count_available(self, reservation_id: str) -> int:
        """Free places, as far as we know; none in a reservation never heard of."""
        known = self._counts.get(reservation_id)
        return known.free if known is not None else 0

    def mark_launched(self, reservation_id: str, at: datetime) -> None:
        """An instance was launched into it; a count made after that already has it."""
        known = self._counts.get(reservation_id)
        if known is not None and known.synced <= at:
            self._counts.put(reservation_id, replace(known, free=max(0, known.free - 1)))

    def mark_terminated(self, reservation_id: str) -> None:
        """An instance of it has ended."""
        known = self._counts.get(reservation_id)
        if known is not None:
            self._counts.put(reservation_id, replace(known, free=known.free + 1))

    def mark_unavailable(self, reservation_id: str) -> None:
        """EC2 found no place there."""
        self._counts.put(reservation_id, _Count(0, self._clock.now()))


def _read_free(answer: Answer) -> tuple[str, int]:
    return answer["CapacityReservationId"], int(answer.get("AvailableInstanceCount") or 0)


def _if_current(answer: Answer, now: datetime) -> Answer | None:
    """A reservation with an id that has not ended."""
    end = answer.get("EndDate")
    return answer if answer["CapacityReservationId"] and (end is None or end > now) else None


def build_query(term: CapacityReservationSelectorTerm) -> Mapping[str, Any]:
    """The request for one term."""
    if term.id:
        return build_id_query(term.id)
    filters = [filter_by("state", [ACTIVE]), *filter_by_tags(term.tags)]
    if term.owner_id:
        filters.append(filter_by("owner-id", [term.owner_id]))
    if term.instance_match_criteria:
        filters.append(filter_by("instance-match-criteria", [term.instance_match_criteria]))
    return {"Filters": filters, "MaxResults": PAGE}


def build_id_query(reservation_id: str) -> Mapping[str, Any]:
    """The request for one reservation; EC2 takes no page size beside ids."""
    return {"CapacityReservationIds": [reservation_id], "Filters": [filter_by("state", [ACTIVE])]}


def read_reservation(answer: Answer, now: datetime) -> CapacityReservation | None:
    """A reservation as the class's status shows it; None when it is of a sort nobody knows."""
    kind = answer.get("ReservationType") or DEFAULT
    criteria = answer.get("InstanceMatchCriteria") or ""
    if kind not in (DEFAULT, CAPACITY_BLOCK) or criteria not in CRITERIA:
        return None
    end = answer.get("EndDate")
    expiring = kind == CAPACITY_BLOCK and end is not None and now >= end - BEFORE_END
    return CapacityReservation(
        id=answer["CapacityReservationId"],
        availability_zone=answer.get("AvailabilityZone", ""),
        instance_match_criteria=criteria,
        instance_type=answer.get("InstanceType", ""),
        owner_id=answer.get("OwnerId", ""),
        end_time=end,
        interruptible=bool(answer.get("Interruptible")),
        reservation_type=kind,
        state=EXPIRING if expiring else ACTIVE,
    )
