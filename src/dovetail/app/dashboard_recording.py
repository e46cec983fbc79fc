"""A recording for the dashboard: a picture of the cluster as of any look, made when somebody asks for it."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import replace
from datetime import datetime, timedelta

from dovetail.app.dashboard_watch import DescribeChange, add_change, build_picture, list_new_decisions
from dovetail.app.recordings import see_look
from dovetail.errors import BadInput
from dovetail.history.asking import parse_moment
from dovetail.history.record import DecisionRecord
from dovetail.history.recording.reader import RecordingReader
from dovetail.history.recording.segment import SegmentReader
from dovetail.history.ring import HistoryRing
from dovetail.picture import Picture, RememberedHistory
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.web import RecordedTimes

__all__ = ["RecordedCluster"]

# So many pictures are kept: a person goes back and forth.
MOST_PICTURES = 8
# A history page shows this much before the look.
REMEMBERED = timedelta(hours=24)


class RecordedCluster:
    """The looks of a recording by their times, and a picture of each; times are found without Situations."""

    def __init__(
        self, reader: RecordingReader, name: str, describe_change: DescribeChange | None = None
    ) -> None:
        self._reader, self._name, self._describe_change = reader, name, describe_change
        self._looks: list[datetime] = []
        self._records: list[DecisionRecord] = []
        for segment in reader.segments:
            for line in SegmentReader(segment.source.read()):
                if line.look is not None:
                    self._looks.append(line.look.at)
                if line.record is not None:
                    self._records.append(line.record)
        if not self._looks:
            raise BadInput(f"reading the recording {name}: it has no whole look")
        self._looks.sort()
        self._cache = DecisionCache()
        self._kept: OrderedDict[datetime, Picture] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()

    def find_times(self, asked: str) -> RecordedTimes:
        """The look at or before a time, the last one for an empty text, and those around it."""
        looks = self._looks
        number = len(looks) - 1
        if asked:
            number = max(bisect_right(looks, parse_moment(asked, looks[-1], "at")) - 1, 0)
        return RecordedTimes(
            looks[0],
            looks[-1],
            looks[number],
            looks[max(number - 1, 0)],
            looks[min(number + 1, len(looks) - 1)],
        )

    async def find_picture(self, at: datetime) -> Picture:
        """What was seen at the time of a look, and what Dovetail says about it."""
        async with self._one_at_a_time:
            found = self._kept.get(at)
            if found is None:
                found = self._kept[at] = await asyncio.to_thread(self._take_picture, at)
            self._kept.move_to_end(at)
            if len(self._kept) > MOST_PICTURES:
                self._kept.popitem(last=False)
            return found

    def _take_picture(self, at: datetime) -> Picture:
        look = self._reader.at(at)
        seen = see_look(self._reader, look)
        picture = build_picture(seen, self._name, live=False, cache=self._cache)
        picture = add_change(picture, seen, self._describe_change)
        decisions = tuple(list_new_decisions(None, picture))
        return replace(picture, decisions=decisions, history=self._remember(at))

    def _remember(self, at: datetime) -> RememberedHistory:
        ring = HistoryRing(keep=REMEMBERED)
        for record in self._records:
            if at - REMEMBERED <= record.time <= at:
                ring.note_record(record)
        return RememberedHistory(ring, max(self._looks[0], at - REMEMBERED))
