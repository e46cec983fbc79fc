"""The structural hash Karpenter compares templates by, over Go's view of a structure.

It is the 64-bit FNV-1 based hash of the hashstructure library (format 2) with lists as sets and zero
values left out. Type and field names take part in it, so a structure is spelled as Go declares it.
Lists of equal pairs cancel out, as they do there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

__all__ = ["Int32", "Struct", "Value", "structural_hash"]

_OFFSET: Final = 0xCBF29CE484222325
_PRIME: Final = 0x100000001B3
_MASK: Final = (1 << 64) - 1


class Int32(NamedTuple):
    """A Go int32: it hashes as four bytes where a plain int takes eight."""

    value: int


class Struct(NamedTuple):
    """A Go structure: its type's name and its fields in order; a field that is None is zero."""

    name: str
    fields: Sequence[tuple[str, Value]]


Value: TypeAlias = (
    str | bool | int | Int32 | datetime | Struct | Mapping[str, "Value"] | Sequence["Value"] | None
)


def structural_hash(value: Value) -> int:
    """The 64-bit hash of a value."""
    match value:
        case Struct():
            return _hash_struct(value)
        case Int32():
            return _fnv(value.value.to_bytes(4, "little", signed=True))
        case str():
            return _fnv(value.encode())
        case bool():
            return _fnv(bytes([value]))
        case int():
            return _fnv(value.to_bytes(8, "little", signed=True))
        case datetime():
            return _fnv(_go_time(value))
        case Mapping():
            return _hash_map(value)
        case None:
            return structural_hash(0)
    total = 0
    for item in value:
        total ^= structural_hash(item)
    return total


def _hash_struct(struct: Struct) -> int:
    total = structural_hash(struct.name)
    for name, value in struct.fields:
        if value is not None:
            total = _finish(total ^ _pair(structural_hash(name), structural_hash(value)))
    return total


def _hash_map(values: Mapping[str, Value]) -> int:
    total = 0
    for key, value in values.items():
        total ^= _pair(structural_hash(key), structural_hash(value))
    return _finish(total)


def _pair(first: int, second: int) -> int:
    return _fnv(first.to_bytes(8, "little") + second.to_bytes(8, "little"))


def _finish(number: int) -> int:
    return _fnv(number.to_bytes(8, "little"))


def _fnv(data: bytes) -> int:
    """64-bit FNV-1: multiply, then xor."""
    number = _OFFSET
    for byte in data:
        number = (number * _PRIME & _MASK) ^ byte
    return number


_YEAR_ONE: Final = datetime(1, 1, 1, tzinfo=UTC)


def _go_time(time: datetime) -> bytes:
    """A UTC time as Go stores it in binary: version, seconds, nanoseconds, and -1 for the zone."""
    since = time.astimezone(UTC) - _YEAR_ONE
    seconds = since.days * 86_400 + since.seconds
    nanoseconds = since.microseconds * 1_000
    return b"\x01" + seconds.to_bytes(8, "big") + nanoseconds.to_bytes(4, "big") + b"\xff\xff"
