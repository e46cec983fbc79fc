"""The other side of a worker: a process that answers one question after another, and nothing else.

It is a plain child with a socket: no threads, no semaphores and no process that keeps books of those. It ends
when the socket does, so that it never outlives the process that asks.
"""

from __future__ import annotations

import pickle
import signal
import socket
from typing import BinaryIO, cast

from dovetail.runtime.parcels import serve

__all__ = ["HEAD", "answer_questions", "as_frame"]

HEAD = 8
"""A frame is this many bytes of length, and then so many bytes."""


def as_frame(body: bytes) -> bytes:
    return len(body).to_bytes(HEAD, "big") + body


def answer_questions(fd: int) -> None:
    """Answer what comes through this socket until it ends."""
    # Ctrl-C reaches the whole group; the main process decides what becomes of work under way.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=fd) as line, line.makefile("rwb") as file:
        pipe = cast(BinaryIO, file)
        while body := _next_frame(pipe):
            try:
                pipe.write(as_frame(_answer(body)))
                pipe.flush()
            except (BrokenPipeError, ConnectionResetError):
                return  # nobody is left who asked


def _next_frame(pipe: BinaryIO) -> bytes:
    head = pipe.read(HEAD)
    return pipe.read(int.from_bytes(head, "big")) if len(head) == HEAD else b""


def _answer(body: bytes) -> bytes:
    """The packed answer, or the error that came of the question."""
    try:
        return pickle.dumps((True, serve(pickle.loads(body))))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is for the one who asked
        return _as_told(error)


def _as_told(error: Exception) -> bytes:
    try:
        told = pickle.dumps((False, error))
        pickle.loads(told)
    except Exception:  # noqa: BLE001  # an error that cannot be sent is told in words
        return pickle.dumps((False, RuntimeError(repr(error))))
    return told
