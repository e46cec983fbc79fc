"""What the dashboard remembers: the leader's history, as the leader keeps it, and months of SpendLimits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from dovetail.api.spend_limit import SpendLimit, read_dollars
from dovetail.app.history_source import HistoryAnswer, HistorySource
from dovetail.errors import DovetailError
from dovetail.history.ring import HistoryQuery, HistoryRing
from dovetail.picture import RememberedHistory
from dovetail.ports import Clock

__all__ = ["HistoryFollower", "SpendCurves"]

# How often the leader is asked, and how often when it did not answer. Seconds.
EVERY, AFTER_FAILURE = 5.0, 30.0
# Sinks hear of a record a while after it was made: those of so long are asked for again.
TOLD_WITHIN = timedelta(minutes=6)
# A month has 8,928 times five minutes; a chart shows no more points than these.
MOST_POINTS = 2_000


class HistoryFollower:
    """Asks the leader for what is new, and tells whoever shows it."""

    def __init__(self, source: HistorySource, clock: Clock, on_news: Callable[[], None]) -> None:
        self._source = source
        self._clock = clock
        self._on_news = on_news
        self._ring = HistoryRing()
        self._latest: datetime | None = None
        self._tag = ""
        self._why = ""
        self._asked = False
        # Which sinks heard of records, where there are sinks.
        self._told: dict[str, tuple[str, ...]] | None = None

    @property
    def remembered(self) -> RememberedHistory:
        """What is known of the history now."""
        if not self._asked:
            return RememberedHistory(why=self._why)
        oldest = self._ring.oldest
        return RememberedHistory(
            self._ring,
            datetime.fromtimestamp(oldest, UTC) if oldest is not None else None,
            self._why,
            self._told,
        )

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            news = await self.ask_once()
            if news:
                self._on_news()
            await self._clock.sleep(AFTER_FAILURE if self._why else EVERY)

    async def ask_once(self) -> bool:
        """Whether there is anything new to show."""
        before = self._why, self._asked
        try:
            answer = await self._source.ask(HistoryQuery(since=self._choose_since()), self._tag)
        except DovetailError as error:
            self._why = f"The history cannot be read: {error}."
            return before != (self._why, self._asked)
        self._why, self._asked, self._tag = "", True, answer.tag
        noted = [self._ring.note_record(record) for record in reversed(answer.records)]
        if answer.records:
            self._latest = answer.records[0].time
        heard = self._note_told(answer)
        return any(noted) or heard or before != (self._why, self._asked)

    def _choose_since(self) -> datetime | None:
        if self._latest is None or self._told is None:
            return self._latest
        return self._latest - TOLD_WITHIN

    def _note_told(self, answer: HistoryAnswer) -> bool:
        """Whether a sink has heard of a record since the last answer."""
        if not answer.tells:
            return False
        known = {} if self._told is None else self._told
        news = {each.id: each.told for each in answer.records if each.told != known.get(each.id, ())}
        oldest = self._ring.oldest or 0.0
        # An id begins with the milliseconds in which its record was made.
        self._told = {key: told for key, told in known.items() if int(key[:12], 16) / 1000 >= oldest} | news
        return bool(news)


class SpendCurves:
    """What limits had spent of their months, as far back as somebody looked."""

    def __init__(self) -> None:
        self._points: dict[str, dict[datetime, float]] = {}

    def note_limits(self, limits: Iterable[SpendLimit]) -> Mapping[str, tuple[tuple[datetime, float], ...]]:
        """Take in what stands in their status now; limits that are gone are forgotten."""
        found: dict[str, dict[datetime, float]] = {}
        for limit in limits:
            month, known = limit.status.month, self._points.get(limit.name, {})
            if month is not None and month.until is not None:
                spent = read_dollars(month.spent)
                known |= {} if spent is None else {month.until: spent}
                known = dict(list(known.items())[-MOST_POINTS:])
            found[limit.name] = known
        self._points = found
        return {name: tuple(points.items()) for name, points in found.items()}
