"""The binary kind of AWS's requests and answers: documents in CBOR (RFC 8949), as far as AWS uses it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

__all__ = ["decoded", "encoded"]

UNSIGNED, NEGATIVE, BYTES, TEXT, LIST, MAP, TAG, SIMPLE = range(8)
INDEFINITE, BREAK = 31, 0xFF
MOMENT = 1
FALSE, TRUE, NULL, UNDEFINED, HALF, SINGLE, DOUBLE = 20, 21, 22, 23, 25, 26, 27
FLOATS = {HALF: ">e", SINGLE: ">f", DOUBLE: ">d"}


def decoded(body: bytes) -> Any:
    """The document; nothing at all is an empty one."""
    return _Reader(body).value() if body else {}


class _Reader:
    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def value(self) -> Any:
        kind, low = divmod(self._take(1)[0], 32)
        if kind == SIMPLE:
            return self._simple(low)
        if low == INDEFINITE:
            return self._pieces(kind)
        size = self._size(low)
        if kind in (UNSIGNED, NEGATIVE):
            return size if kind == UNSIGNED else -1 - size
        if kind in (BYTES, TEXT):
            found = self._take(size)
            return found if kind == BYTES else found.decode()
        if kind == LIST:
            return [self.value() for _ in range(size)]
        if kind == MAP:
            return {self.value(): self.value() for _ in range(size)}
        held = self.value()
        return datetime.fromtimestamp(held, UTC) if size == MOMENT else held

    def _take(self, count: int) -> bytes:
        found = self._body[self._at : self._at + count]
        if len(found) < count:
            raise ValueError("the document ends too early")
        self._at += count
        return found

    def _size(self, low: int) -> int:
        if low < 24:
            return low
        if low > 27:
            raise ValueError(f"there is no size {low}")
        return int.from_bytes(self._take(1 << (low - 24)), "big")

    def _simple(self, low: int) -> Any:
        if low in FLOATS:
            return struct.unpack(FLOATS[low], self._take(2 << (low - HALF)))[0]
        return {FALSE: False, TRUE: True, NULL: None, UNDEFINED: None}[low]

    def _pieces(self, kind: int) -> Any:
        """What ends when it says so."""
        found = []
        while self._body[self._at : self._at + 1] != bytes([BREAK]):
            found.append(self.value())
        self._take(1)
        if kind == MAP:
            return dict(zip(found[::2], found[1::2], strict=True))
        if kind == LIST:
            return found
        return (b"" if kind == BYTES else "").join(found)


def encoded(value: Any) -> bytes:
    """The document as bytes; what is None is left out of mappings."""
    if isinstance(value, Mapping):
        held = {key: each for key, each in value.items() if each is not None}
        return _head(MAP, len(held)) + b"".join(encoded(k) + encoded(v) for k, v in held.items())
    if isinstance(value, list | tuple):
        return _head(LIST, len(value)) + b"".join(map(encoded, value))
    if isinstance(value, str):
        return _head(TEXT, len(value.encode())) + value.encode()
    if isinstance(value, bytes):
        return _head(BYTES, len(value)) + value
    if isinstance(value, bool) or value is None:
        return bytes([SIMPLE * 32 + (NULL if value is None else TRUE if value else FALSE)])
    if isinstance(value, int):
        return _head(UNSIGNED, value) if value >= 0 else _head(NEGATIVE, -1 - value)
    if isinstance(value, datetime):
        return _head(TAG, MOMENT) + encoded(value.timestamp())
    return bytes([SIMPLE * 32 + DOUBLE]) + struct.pack(">d", value)


def _head(kind: int, size: int) -> bytes:
    if size < 24:
        return bytes([kind * 32 + size])
    power = next(each for each in range(4) if size < 1 << (8 << each))
    return bytes([kind * 32 + 24 + power]) + size.to_bytes(1 << power, "big")
