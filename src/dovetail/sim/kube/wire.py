"""Protobuf's wire format: numbered fields out of bytes, and nothing about what they mean."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class Malformed(ValueError):
    """Bytes that are not what they claim to be."""


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Each field's number, wire type and value; fixed-width values stay bytes."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise Malformed("field number 0")
        value: int | bytes
        if wire == VARINT:
            value, position = _varint(data, position)
        else:
            size = {FIXED64: 8, FIXED32: 4}.get(wire)
            if wire == BYTES:
                size, position = _varint(data, position)
            if size is None:
                raise Malformed(f"wire type {wire}")
            if size > end - position:
                raise Malformed("a field is longer than the message that holds it")
            value = data[position : position + size]
            position += size
        yield number, wire, value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if position >= len(data):
            raise Malformed("the message ends inside a number")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
        if shift > 63:
            raise Malformed("a number is longer than 64 bits")


def varints(data: bytes) -> Iterator[int]:
    """The numbers of a packed list."""
    position = 0
    while position < len(data):
        number, position = _varint(data, position)
        yield number


def signed(number: int, bits: int) -> int:
    """An unsigned number read as two's complement."""
    return number - (1 << bits) if number >> (bits - 1) else number
