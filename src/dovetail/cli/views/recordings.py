"""Recordings as commands open them: several places as one, and what of them could not be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from dovetail.app.recordings import open_recording
from dovetail.cli.views.output import print_note
from dovetail.errors import BadInput
from dovetail.history.recording.reader import RecordingReader

__all__ = ["open_recordings", "tell_missing"]


@contextmanager
def open_recordings(places: Sequence[str]) -> Iterator[RecordingReader]:
    """All the places as one recording, in order of time."""
    with ExitStack() as stack:
        readers = [stack.enter_context(open_recording(place)) for place in places]
        for place, each in zip(places, readers, strict=True):
            if each.troubles and not each.segments:
                raise BadInput(f"reading the recording {place}: {each.troubles[0]}")
        if len(readers) == 1:
            yield readers[0]
            return
        whole = RecordingReader(segment.source for each in readers for segment in each.segments)
        whole.troubles += [trouble for each in readers for trouble in each.troubles]
        yield whole


def tell_missing(reader: RecordingReader) -> None:
    """Say what of a recording could not be read."""
    torn = [gap.why for gap in reader.list_gaps() if gap.why.startswith("segment ")]
    for why in (*reader.troubles, *torn):
        print_note(f"reading the recording: {why}")
