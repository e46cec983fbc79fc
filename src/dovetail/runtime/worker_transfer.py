"""What two processes both have is named instead of sent.

Between two questions to a worker hardly any node changes. The parts of a snapshot that are large and shared
(nodes with their pods, catalogues, volumes) are sent once and given a number; afterwards both sides say the
number. Answers come back the same way, so that a node in an answer is the very node that was asked about;
and an answer that a worker gives again is named as well.
"""

from __future__ import annotations

import io
import pickle
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO, cast

from dovetail.api.core import PodDisruptionBudget
from dovetail.api.pod import Pod, PodSpec
from dovetail.scheduling.model.decision_cache import DecisionCache, SentOnce
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.snapshot import SnapshotPool, StateNode, Storage

__all__ = ["HEAD", "Parcel", "ParcelSender", "answer_questions", "as_frame", "serve_parcel"]

BATCH = 200
"""Parts that are packed in one go, so that nobody waits long for the packing."""
KEPT, SPECS_KEPT = 8, 5_000
"""A part that this many questions did not speak of is forgotten on both sides."""
OWN_CACHE = -1
"""The number of the cache that each side has for itself; below it are those of answers."""
PARTS = (StateNode, PodSpec, Storage)
LISTED = (InstanceType, SnapshotPool, PodDisruptionBudget, Pod)


def _is_part(value: Any) -> bool:
    """Whether it is large, or something that answers are remembered by: that must stay the same thing."""
    kind = type(value)
    if kind is not tuple:
        return kind in PARTS
    first = value[0] if value else None
    if type(first) is tuple:
        # A list of catalogues; anything else of this form is how a record is packed.
        return bool(first) and type(first[0]) is InstanceType
    return type(first) in LISTED


@dataclass(frozen=True, slots=True)
class Parcel:
    """New parts, the numbers of those to forget, and the question."""

    parts: tuple[bytes, ...]
    forgotten: tuple[int, ...]
    body: bytes


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, number: Callable[[object], int | None]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._number = number

    def persistent_id(self, value: object) -> int | None:
        if type(value) is DecisionCache:
            return OWN_CACHE
        return self._number(value) if _is_part(value) else None


class _Unpacker(pickle.Unpickler):
    def __init__(self, body: bytes, held: dict[int, object]) -> None:
        super().__init__(io.BytesIO(body))
        self._held = held

    def persistent_load(self, number: Any) -> object:
        return self._held[number]


def _pack_value(value: object, number: Callable[[object], int | None]) -> bytes:
    file = io.BytesIO()
    _Packer(file, number).dump(value)
    return file.getvalue()


class _AnswerPacker(pickle.Pickler):
    """Names the parts of a question, and answers that were given before."""

    def __init__(self, file: io.BytesIO, answers: Callable[[object], int] | None) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._answers = answers

    def persistent_id(self, value: object) -> int | None:
        if type(value) is DecisionCache:
            return OWN_CACHE
        if self._answers is not None and isinstance(value, SentOnce):
            return self._answers(value)
        return _NUMBERS.get(id(value)) if _is_part(value) else None


class ParcelSender:
    """This side of one worker: what it has been sent, under which numbers."""

    def __init__(self) -> None:
        self._held: dict[int, object] = {OWN_CACHE: DecisionCache()}
        self._numbers: dict[int, int] = {}
        self._spoken_of: dict[int, int] = {}
        self._next = 0
        self._round = 0

    def pack(self, value: object) -> Iterator[Parcel]:
        """The parcels that carry a value; all but the last bring only parts, and have nothing to be done."""
        self._round += 1
        new: list[tuple[int, object]] = []
        body = _pack_value(value, lambda part: self._number_part(part, new))
        waiting = iter(new)
        while batch := list(islice(waiting, BATCH)):
            yield Parcel(self._pack_parts(batch), (), b"")
        yield Parcel((), self._forget_old(), body)

    def _pack_parts(self, batch: list[tuple[int, object]]) -> tuple[bytes, ...]:
        """The specs that pods of the batch share with others, then the batch itself."""
        specs: list[tuple[int, object]] = []
        whole = {id(part) for _, part in batch}

        def number(part: object) -> int | None:
            return self._number_part(part, specs) if type(part) is PodSpec and id(part) not in whole else None

        rest = _pack_value(batch, number)
        return _pack_value(specs, lambda part: None), rest

    def unpack(self, packed: bytes) -> Any:
        """The answer; what it brings that is new is kept, since it will be named from now on."""
        forgotten, new, body = pickle.loads(packed)
        for number in forgotten:
            del self._held[number]
        for number, part in _Unpacker(new, self._held).load() if new else ():
            self._held[number] = part
        return _Unpacker(body, self._held).load()

    def _number_part(self, part: object, new: list[tuple[int, object]]) -> int:
        number = self._numbers.get(id(part))
        if number is None:
            number = self._numbers[id(part)] = self._next
            self._next += 1
            self._held[number] = part
            new.append((number, part))
        self._spoken_of[number] = self._round
        return number

    def _forget_old(self) -> tuple[int, ...]:
        old = tuple(
            n for n, spoken in self._spoken_of.items() if self._round - spoken >= self._find_patience(n)
        )
        for number in old:
            del self._numbers[id(self._held.pop(number))]
            del self._spoken_of[number]
        return old

    def _find_patience(self, number: int) -> int:
        return SPECS_KEPT if type(self._held[number]) is PodSpec else KEPT


# The worker's side: one worker has one sender. A cache stands for the worker's own.
_HELD: dict[int, object] = {OWN_CACHE: DecisionCache()}
_NUMBERS: dict[int, int] = {}


class _GivenAnswers:
    """The answers that the sender knows, under which numbers, and which round spoke of each last."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, object]] = {}
        self._spoken_of: dict[int, int] = {}
        self._next = OWN_CACHE - 1
        self._round = 0

    def pack(self, answer: object) -> bytes:
        self._round += 1
        new: list[tuple[int, object]] = []

        def number(value: object) -> int:
            known = self._known.get(id(value))
            if known is None:
                known = self._known[id(value)] = self._next, value
                self._next -= 1
                new.append(known)
            self._spoken_of[id(value)] = self._round
            return known[0]

        body = _pack_answer(answer, number)
        parts = _pack_answer(new, None) if new else b""
        return pickle.dumps((self._forget_old(), parts, body))

    def _forget_old(self) -> tuple[int, ...]:
        old = [key for key, spoken in self._spoken_of.items() if self._round - spoken >= KEPT]
        for key in old:
            del self._spoken_of[key]
        return tuple(self._known.pop(key)[0] for key in old)


_GIVEN = _GivenAnswers()


def _pack_answer(value: object, answers: Callable[[object], int] | None) -> bytes:
    file = io.BytesIO()
    _AnswerPacker(file, answers).dump(value)
    return file.getvalue()


def serve_parcel(parcel: Parcel) -> bytes:
    """Take in what is new, forget what is old, do what is asked and pack the answer."""
    for batch in parcel.parts:
        for number, part in _Unpacker(batch, _HELD).load():
            _HELD[number] = part
            _NUMBERS[id(part)] = number
    for number in parcel.forgotten:
        del _NUMBERS[id(_HELD.pop(number))]
    if not parcel.body:
        return b""
    work, args, kwargs = _Unpacker(parcel.body, _HELD).load()
    return _GIVEN.pack(work(*args, **kwargs))


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
                pipe.write(as_frame(_answer_question(body)))
                pipe.flush()
            except (BrokenPipeError, ConnectionResetError):
                return  # nobody is left who asked


def _next_frame(pipe: BinaryIO) -> bytes:
    head = pipe.read(HEAD)
    return pipe.read(int.from_bytes(head, "big")) if len(head) == HEAD else b""


def _answer_question(body: bytes) -> bytes:
    """The packed answer, or the error that came of the question."""
    try:
        return pickle.dumps((True, serve_parcel(pickle.loads(body))))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is for the one who asked
        return _pack_error(error)


def _pack_error(error: Exception) -> bytes:
    try:
        told = pickle.dumps((False, error))
        pickle.loads(told)
    except Exception:  # noqa: BLE001  # an error that cannot be sent is told in words
        return pickle.dumps((False, RuntimeError(repr(error))))
    return told
