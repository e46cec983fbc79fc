"""A recording that somebody else wrote: a few kilobytes of it do not fill the memory of who reads them."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.errors import BadInput
from dovetail.history.recording import segment
from dovetail.history.recording.segment import SegmentReader, split_segments
from dovetail.history.recording.tail import SegmentTail
from support.recordings import random_looks, write_segments

MIB = 1 << 20
SAID = "a line is longer than 1 MiB"


@pytest.fixture(autouse=True)
def _short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "MOST_LINE_BYTES", MIB)


def packed(text: bytes) -> bytes:
    member = zlib.compressobj(9, zlib.DEFLATED, segment.GZIP)
    return member.compress(text) + member.flush()


def peak(read: Callable[[], Any]) -> float:
    """What reading took at most, in MiB."""
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


ENDLESS = packed(bytes(100 * MIB))


def test_a_line_without_end_is_read_up_to_a_bound_and_told() -> None:
    (whole,) = write_segments(random_looks(3, 4))
    reader = SegmentReader(whole + ENDLESS)
    assert len(ENDLESS) < 200_000
    assert len(list(reader)) > 4
    assert reader.torn == ""  # nothing is read after the end

    torn = SegmentReader(ENDLESS + whole)
    assert peak(lambda: list(torn)) < 8
    assert torn.torn == SAID


def test_a_line_without_end_in_the_middle_leaves_what_stands_before_it() -> None:
    looks = random_looks(3, 4)
    (whole,) = write_segments(looks)
    first, *_ = _members(whole)
    reader = SegmentReader(first + ENDLESS)
    assert peak(lambda: list(reader)) < 8
    assert (reader.looks, reader.torn) == (len(looks), SAID)


def _members(data: bytes) -> list[bytes]:
    found = []
    while data:
        member = zlib.decompressobj(segment.GZIP)
        member.decompress(data)
        found.append(data[: len(data) - len(member.unused_data)])
        data = member.unused_data
    return found


def test_a_head_without_end_is_none() -> None:
    def read() -> None:
        with pytest.raises(BadInput, match="it is no segment of a recording"):
            SegmentReader(ENDLESS).read_head()

    assert peak(read) < 8


def test_segments_are_told_apart_without_holding_what_is_in_them() -> None:
    first, second = (write_segments(random_looks(seed, 3))[0] for seed in (1, 2))
    parts: list[bytes] = []
    assert peak(lambda: parts.extend(split_segments(first + ENDLESS + second))) < 8
    assert parts == [first, ENDLESS + second]


def test_a_recording_that_is_followed_while_it_is_written_has_the_same_bound() -> None:
    tail = SegmentTail()
    assert peak(lambda: list(tail.add_bytes(ENDLESS))) < 8
    assert tail.torn == SAID
    assert list(tail.add_bytes(ENDLESS)) == []


def test_a_line_as_long_as_the_bound_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = write_segments(random_looks(3, 4))
    text = b"".join(text for text, _ in segment._inflate_members(whole, []))
    longest = max(map(len, text.split(b"\n")))
    monkeypatch.setattr(segment, "MOST_LINE_BYTES", longest)
    fits = SegmentReader(whole)
    read = list(fits)
    monkeypatch.setattr(segment, "MOST_LINE_BYTES", longest - 1)
    short = SegmentReader(whole)

    assert (fits.torn, len(read) > 4) == ("", True)
    assert len(list(short)) < len(read)
    assert short.torn == "a line is longer than 0 MiB"


def test_pieces_of_any_size_give_the_same_lines() -> None:
    (whole,) = write_segments(random_looks(5, 6))
    expected = [look.situation for look in SegmentTail().add_bytes(whole)]
    for size in (1, 7, 1000, len(whole)):
        tail = SegmentTail()
        seen = [
            look.situation
            for start in range(0, len(whole), size)
            for look in tail.add_bytes(whole[start : start + size])
        ]
        assert (seen == expected, tail.torn) == (True, "")
        assert tail.end is not None
