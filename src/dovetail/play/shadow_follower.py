"""A follower of a shadow's recording, in a process of its own: the differences, or one of the twins.

Both sides send bytes whose first tells what they are: to the follower the name of a segment (0), more of
it (1), the end (2), segments to read by itself (3), and what was found before (4); from it what it has found
(0), and what it had found when a segment began (1).
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from multiprocessing.connection import Connection

import msgspec

from dovetail.app.recordings import open_recording
from dovetail.errors import DovetailError
from dovetail.logs import get_logger
from dovetail.play.shadow_state import ShadowState, hash_rules, write_state
from dovetail.play.shadow_twins import DIFFERENCES, ShadowTwins, TellingConsumer, build_consumer
from dovetail.play.shadowing import SegmentFeed, feed_segments

__all__ = ["FollowerProcess", "follow_recording"]

# How long followers have for their last word when the shadow ends. Seconds.
LAST_WORD = 60.0


class FollowerProcess:
    """A follower of the recording in a process of its own; handing it bytes never waits."""

    def __init__(self, role: str, twins: ShadowTwins, place: str = "") -> None:
        """`place` is where its recording is; what it has found is kept there at each keyframe."""
        self.role = role
        self._rules, self._place = hash_rules(role, twins), place
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        self._connection = mine
        self._process = context.Process(target=follow_recording, args=(role, twins, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=self._send, daemon=True).start()
        self.latest: bytes = b""
        self._receiving = threading.Thread(target=self._receive, daemon=True)
        self._receiving.start()

    def begin_segment(self, name: str) -> None:
        self._outgoing.put(b"\0" + name.encode())

    def add_bytes(self, data: bytes) -> None:
        self._outgoing.put(b"\1" + data)

    def resume(self, state: ShadowState) -> None:
        """Let it go on from what was found before."""
        self._outgoing.put(b"\4" + bytes(state.result))

    def read_before(self, target: str, names: list[str]) -> None:
        """Let it take in these segments of a recording first; it reads them by itself, one after another."""
        self._outgoing.put(b"\3" + msgspec.json.encode((target, names)))

    def close(self) -> None:
        """End the process; that of the differences once it has said what all the bytes come to."""
        self._outgoing.put(None)
        if self.role == DIFFERENCES:  # a twin is minutes behind anyway
            self._receiving.join(LAST_WORD)
        if self._receiving.is_alive():
            self._process.terminate()
        self._process.join(1)

    def _send(self) -> None:
        with suppress(OSError):
            while (data := self._outgoing.get()) is not None:
                self._connection.send_bytes(data)
            self._connection.send_bytes(b"\2")

    def _receive(self) -> None:
        with suppress(OSError, EOFError):
            while True:
                data = self._connection.recv_bytes()
                if data[:1] == b"\0":
                    self.latest = data[1:]
                else:
                    self._keep_result(data[1:])

    def _keep_result(self, data: bytes) -> None:
        segment, _, result = data.partition(b"\0")
        if not self._place:
            return
        state = ShadowState(rules=self._rules, segment=segment.decode(), result=msgspec.Raw(result))
        try:
            write_state(self._place, self.role, state)
        except (OSError, DovetailError) as error:
            get_logger().warning(
                "what a shadow has found cannot be kept; after a restart it takes in more of its recording",
                role=self.role,
                error=error,
            )


def follow_recording(role: str, twins: ShadowTwins, connection: Connection) -> None:
    """The main function of a follower: take bytes until told to end, and tell what they come to."""
    incoming: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def receive() -> None:
        data = b""
        while data != b"\2":
            try:
                data = connection.recv_bytes()
            except (OSError, EOFError):
                os._exit(1)  # who fed it was killed, and nobody hears what it says
            incoming.put(data)

    threading.Thread(target=receive, daemon=True).start()
    with suppress(KeyboardInterrupt, OSError), closing(build_consumer(role, twins)) as consumer:
        feed = SegmentFeed(consumer)
        while (data := incoming.get())[:1] != b"\2":
            for _ in _take_message(data, consumer, feed):
                keyframe = consumer.take_keyframe()
                if keyframe is not None and keyframe.result:
                    connection.send_bytes(b"\1" + keyframe.segment.encode() + b"\0" + keyframe.result)
            if incoming.empty():
                connection.send_bytes(b"\0" + consumer.encode_result())
        connection.send_bytes(b"\0" + consumer.encode_result())


def _take_message(data: bytes, consumer: TellingConsumer, feed: SegmentFeed) -> Iterator[None]:
    """Hand one message on, pausing after each segment."""
    if data[:1] == b"\0":
        feed.begin_segment(data[1:].decode())
    elif data[:1] == b"\1":
        feed.add_bytes(data[1:])
    elif data[:1] == b"\4":
        consumer.resume(data[1:])
    else:
        target, names = msgspec.json.decode(data[1:], type=tuple[str, list[str]])
        with open_recording(target) as reader:
            for segment in reader.segments:
                if segment.head.name in names:
                    feed_segments((segment.source,), (feed,))
                    yield
    yield
