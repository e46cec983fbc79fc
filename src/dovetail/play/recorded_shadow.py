"""A recording's own shadow for the dashboard: compared when somebody asks for it first, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from dovetail.errors import note_contained
from dovetail.history.recording.reader import RecordingSegment
from dovetail.picture import SeenShadow
from dovetail.play.shadow_twins import DIFFERENCES, ShadowTwins, report_recording

__all__ = ["RecordedShadow"]

COMPARING = "The recording is being compared with what Dovetail would have done; look again in a moment."
TWINS = "The twins are still living through the recording; look again in a moment."


class RecordedShadow:
    """Decisions one by one first, and then the twins, which take longer."""

    def __init__(self, segments: Sequence[RecordingSegment], twins: ShadowTwins | None = None) -> None:
        self._segments = tuple(segments)
        self._twins = twins or ShadowTwins()
        self._seen = SeenShadow(why=COMPARING)
        self._thread: threading.Thread | None = None

    def find_shadow(self) -> SeenShadow:
        """What is known so far."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._compare, daemon=True)
            self._thread.start()
        return self._seen

    def wait(self, seconds: float) -> SeenShadow:
        """What is known once all is compared, or after so long."""
        self.find_shadow()
        if self._thread is not None:
            self._thread.join(seconds)
        return self._seen

    def _compare(self) -> None:
        sources = [segment.source for segment in self._segments]
        try:
            quick = ShadowTwins((DIFFERENCES,), self._twins.choices, self._twins.settings)
            self._seen = SeenShadow(report_recording(sources, quick), TWINS)
            self._seen = SeenShadow(report_recording(sources, self._twins))
        except Exception as error:  # noqa: BLE001 (the page says it; the other pages stay)
            note_contained(error)
            self._seen = SeenShadow(self._seen.report, f"The recording cannot be compared: {error}.")
