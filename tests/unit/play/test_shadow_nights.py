"""Twins at the end of each day: which days are due, and what of a recording belongs to a day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlencode

import pytest

from dovetail.disruption.situation import Situation
from dovetail.history.record import DecisionRecord
from dovetail.history.recording.reader import RecordedLook
from dovetail.history.recording.segment import FORMAT, SegmentHead, SegmentWriter
from dovetail.play.shadow_nights import list_due_days
from dovetail.play.shadow_run import count_nodes
from dovetail.play.shadow_twins import find_restart
from dovetail.play.shadowing import SegmentFeed
from dovetail.runtime.transport import ApiReply, ApiRequest
from support.disruption import scene, state

DAY = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_a_day_is_due_once_it_is_over_and_what_became_of_its_pods_is_known() -> None:
    since, until = DAY + 8 * HOUR, DAY + 50 * HOUR
    assert list_due_days(since, until, DAY + 24 * HOUR, ()) == []
    assert list_due_days(since, until, DAY + 24 * HOUR + timedelta(minutes=6), ()) == [DAY]
    days = [DAY, DAY + 24 * HOUR]
    assert list_due_days(since, until, DAY + 49 * HOUR, ()) == days
    assert list_due_days(since, until, DAY + 49 * HOUR, [DAY]) == days[1:]


@pytest.mark.parametrize(("often", "since"), [("weekly", DAY), ("daily", DAY + 72 * HOUR), ("never", None)])
def test_twins_begin_again_on_mondays_or_each_midnight_utc(often: Any, since: datetime | None) -> None:
    thursday = DAY + 80 * HOUR
    assert find_restart(often, thursday) == since
    # Sunday evening in New York is Monday in UTC.
    there = (DAY + 7 * 24 * HOUR + HOUR).astimezone(timezone(-5 * HOUR))
    assert find_restart("weekly", there) == DAY + 7 * 24 * HOUR


class Told:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.looks: list[tuple[datetime, int]] = []
        self.ended: list[datetime] = []
        self.gaps: list[datetime] = []

    def begin_segment(self, head: SegmentHead) -> None:
        pass

    def add_look(self, look: RecordedLook) -> None:
        self.looks.append((look.at, len(look.situation.snapshot.nodes)))

    def add_record(self, record: DecisionRecord) -> None:
        pass

    def end_segment(self, ended: datetime) -> None:
        self.ended.append(ended)

    def skip_gap(self, until: datetime) -> None:
        self.gaps.append(until)


def write_segment(
    name: str, began: float, *nodes: int, ends: float | None = None, follows: str = ""
) -> bytes:
    """A segment with a look each hour that has so many nodes."""
    head = SegmentHead(format=FORMAT, name=name, began=DAY + began * HOUR, follows=follows)
    writer = SegmentWriter(head)
    for number, count in enumerate(nodes):
        seen = scene(*(state(f"n{each}") for each in range(count)))
        writer.write_look(Situation(snapshot=seen.snapshot), DAY + (began + number) * HOUR)
    return writer.end_segment(DAY + ends * HOUR) if ends is not None else writer.flush()


def feed(*segments: bytes, since: float | None = None, until: float | None = None) -> Told:
    told = Told()
    times = [None if each is None else DAY + each * HOUR for each in (since, until)]
    sink = SegmentFeed(told, *times)
    for number, data in enumerate(segments):
        sink.begin_segment(str(number))
        sink.add_bytes(data)
    return told


def test_a_part_of_a_recording_begins_with_what_held_then_and_ends_when_it_ends() -> None:
    told = feed(write_segment("a", 0, 1, 2, 3, 4, ends=4), since=0.5, until=2.5)
    assert told.looks == [(DAY + 0.5 * HOUR, 1), (DAY + HOUR, 2), (DAY + 2 * HOUR, 3)]
    assert told.ended == [DAY + 2.5 * HOUR]


def test_a_part_that_no_look_falls_into_is_what_held_before() -> None:
    told = feed(write_segment("a", 0, 5, ends=4), since=1, until=3)
    assert (told.looks, told.ended) == ([(DAY + HOUR, 5)], [DAY + 3 * HOUR])


def test_what_held_before_counts_over_segments_and_not_over_a_gap() -> None:
    first = write_segment("a", 0, 1, ends=2)
    whole = feed(first, write_segment("b", 2, 2, 3, ends=4, follows="a"), since=1.5)
    assert whole.looks[0] == (DAY + 1.5 * HOUR, 1)
    torn = feed(write_segment("a", 0, 1), write_segment("b", 2, 2, 3, ends=4, follows="x"), since=1.5)
    assert torn.looks == [(DAY + 2 * HOUR, 2), (DAY + 3 * HOUR, 3)]


@pytest.mark.parametrize(
    ("first", "second", "gaps"),
    [
        ({"ends": 2}, {"follows": "a"}, []),
        ({"ends": 2}, {}, [DAY + 2 * HOUR]),
        ({}, {}, [DAY + 2 * HOUR]),
        ({}, {"follows": "a"}, [DAY + 2 * HOUR]),
    ],
    ids=["goes on", "ended and begun again", "killed and begun again", "torn"],
)
def test_what_is_missing_between_two_segments_is_a_gap(
    first: dict[str, float], second: dict[str, str], gaps: list[datetime]
) -> None:
    parts = write_segment("a", 0, 1, **first), write_segment("b", 2, 2, 3, ends=4, **second)  # type: ignore[arg-type]
    assert feed(*parts).gaps == gaps
    ends = set(feed(*parts, until=1.5).ended)
    assert ends == ({DAY + 1.5 * HOUR} if first else set()), "of a torn one nobody knows what held until then"


class Answers:
    """An API server that says one thing."""

    def __init__(self, status: int, body: bytes) -> None:
        self._reply = ApiReply(status, body)
        self.asked: list[str] = []

    async def send(self, request: ApiRequest) -> ApiReply:
        self.asked.append(f"{request.method} {request.path}?{urlencode(request.query)}")
        return self._reply


@pytest.mark.parametrize(
    ("status", "body", "count"),
    [
        (200, b'{"items": [{}], "metadata": {"remainingItemCount": 1200}}', 1201),
        (200, b'{"items": [], "metadata": {}}', 0),
        (403, b"{}", 0),
    ],
)
async def test_nodes_are_counted_without_being_listed(status: int, body: bytes, count: int) -> None:
    server = Answers(status, body)
    assert await count_nodes(server) == count  # type: ignore[arg-type]
    assert server.asked == ["GET /api/v1/nodes?limit=1"]
