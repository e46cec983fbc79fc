"""The leader's history for the dashboard: asked for now and then, and kept as the leader keeps it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from dovetail.app.history_source import HistorySource
from dovetail.errors import DovetailError
from dovetail.history.ring import HistoryQuery, HistoryRing
from dovetail.picture import RememberedHistory
from dovetail.ports import Clock

__all__ = ["HistoryFollower"]

# How often the leader is asked, and how often when it did not answer. Seconds.
EVERY, AFTER_FAILURE = 5.0, 30.0


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

    @property
    def remembered(self) -> RememberedHistory:
        """What is known of the history now."""
        if not self._asked:
            return RememberedHistory(why=self._why)
        oldest = self._ring.oldest
        return RememberedHistory(
            self._ring, datetime.fromtimestamp(oldest, UTC) if oldest is not None else None, self._why
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
            answer = await self._source.ask(HistoryQuery(since=self._latest), self._tag)
        except DovetailError as error:
            self._why = f"The history cannot be read: {error}."
            return before != (self._why, self._asked)
        self._why, self._asked, self._tag = "", True, answer.tag
        noted = [self._ring.note_record(record) for record in reversed(answer.records)]
        if answer.records:
            self._latest = answer.records[0].time
        return any(noted) or before != (self._why, self._asked)
