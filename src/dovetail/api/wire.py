"""Records to plain JSON values and back: the conversions underneath the codec.

Kubernetes treats a null like an absent field, anywhere. Nulls are rare, so a document is first read
as if there were none, and read again without them when that fails.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple, TypeVar

import msgspec

from dovetail.api.meta import AbsentList, AbsentMap, Record
from dovetail.api.quantity import Quantity
from dovetail.errors import BadInput

__all__ = [
    "NoFields",
    "NoItems",
    "drop_empty_places",
    "outline_changes",
    "parse_json",
    "read_json",
    "read_plain",
    "to_plain",
    "without_nulls",
]

T = TypeVar("T")
R = TypeVar("R", bound=Record)

MICROSECONDS = frozenset(("event_time", "last_observed_time", "acquire_time", "renew_time"))
"""Fields the API reads with exactly six decimals (MicroTime); all other times are whole seconds."""


def read_json(kind: type[T], data: bytes | msgspec.Raw) -> T:
    """A value of this type from JSON."""
    try:
        value: T = _find_decoder(kind).decode(data)
        return value
    except msgspec.ValidationError:
        return _read_without_nulls(kind, data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        mended = _without_half_characters(bytes(data))
        if mended != data:
            return read_json(kind, mended)
        raise BadInput(f"reading a {_kind_name(kind)}: this is not JSON ({error})") from error
    except RecursionError as error:
        raise BadInput(f"reading a {_kind_name(kind)}: it is nested too deep") from error


_HALF = re.compile(rb"(\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F]..")


def _without_half_characters(data: bytes) -> bytes:
    """JSON with U+FFFD for half a pair of surrogates and for bytes that are no UTF-8, as Go reads it."""
    mended = _HALF.sub(lambda found: found[1] or b"\\ufffd", data)
    return mended.decode("utf-8", "replace").encode()


def _read_without_nulls(kind: type[T], data: bytes | msgspec.Raw) -> T:
    try:
        document = without_nulls(parse_json(data))
        value: T = _find_decoder(kind).decode(msgspec.json.encode(document))
        return value
    except msgspec.ValidationError as error:
        raise BadInput(f"reading a {_kind_name(kind)}: {error}") from error
    except msgspec.DecodeError as error:
        raise BadInput(f"reading a {_kind_name(kind)}: this is not JSON ({error})") from error
    except RecursionError as error:
        raise BadInput(f"reading a {_kind_name(kind)}: it is nested too deep") from error


def parse_json(data: bytes | msgspec.Raw) -> Any:
    """The document that JSON spells, read as leniently as Go reads it."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(_without_half_characters(bytes(data)))


def read_plain(kind: type[T], value: Any) -> T:
    """A value of this type from what a JSON or YAML document holds."""
    try:
        return msgspec.convert(without_nulls(value), kind, dec_hook=_from_plain)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise BadInput(f"reading a {_kind_name(kind)}: {error}") from error
    except RecursionError as error:
        raise BadInput(f"reading a {_kind_name(kind)}: it is nested too deep") from error


def without_nulls(value: Any) -> Any:
    """The same document with every null left out."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value if inner is not None]
    return value


class NoFields(dict[str, Any]):
    """Stands for an object or mapping that is left out, when the outline of a record is wanted."""


class NoItems(list[Any]):
    """Stands for a list that is left out, when the outline of a record is wanted."""


def to_plain(value: Any, outline: bool = False) -> Any:
    """What a JSON document would hold for this value. Defaults and absent things are left out.

    An outline also shows the empty places: what could have fields or items, and has none.
    """
    if isinstance(value, Record):
        return _write_fields(value, outline)
    if isinstance(value, Mapping):
        return {key: to_plain(inner, outline) for key, inner in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(inner, outline) for inner in value]
    if isinstance(value, Quantity):
        return str(value)
    if isinstance(value, datetime):
        return _write_time(value)
    return value


def drop_empty_places(outlined: Any) -> Any:
    """An outline without its empty places."""
    if isinstance(outlined, dict):
        return {
            key: drop_empty_places(inner)
            for key, inner in outlined.items()
            if not isinstance(inner, (NoFields, NoItems))
        }
    if isinstance(outlined, list):
        return [drop_empty_places(inner) for inner in outlined]
    return outlined


class _Field(NamedTuple):
    name: str
    wire_name: str
    default: Any
    always: bool


@cache
def _list_fields(kind: type[Record]) -> tuple[_Field, ...]:
    return tuple(
        _Field(field.name, field.encode_name, _find_default(field), field.name in kind.ALWAYS_WRITTEN)
        for field in msgspec.structs.fields(kind)
    )


def _find_default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _write_fields(record: Record, outline: bool = False) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for field in _list_fields(type(record)):
        _put_field(document, field, getattr(record, field.name), outline)
    return document


def _put_field(document: dict[str, Any], field: _Field, value: Any, outline: bool) -> None:
    if value is None:
        return
    if field.always or not _left_out(value, field.default):
        document[field.wire_name] = _write_field(field, value, outline)
    elif outline and not isinstance(value, (str, int)):
        document[field.wire_name] = _empty_place(value)


def outline_changes(before: R, after: R) -> tuple[dict[str, Any], dict[str, Any]]:
    """The outlines of two records of one kind, without the fields that are the very same in both."""
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    for field in _list_fields(type(after)):
        was, now = getattr(before, field.name), getattr(after, field.name)
        if was is now:
            continue
        if isinstance(now, Record) and type(was) is type(now):
            pair = outline_changes(was, now)
            for document, value, inner in ((old, was, pair[0]), (new, now, pair[1])):
                kept = field.always or not _left_out(value, field.default)
                document[field.wire_name] = inner if kept else NoFields(inner)
        else:
            _put_field(old, field, was, outline=True)
            _put_field(new, field, now, outline=True)
    return old, new


def _write_field(field: _Field, value: Any, outline: bool) -> Any:
    if isinstance(value, datetime) and field.name in MICROSECONDS:
        return _in_utc(value).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return to_plain(value, outline)


def _empty_place(value: Any) -> Any:
    if isinstance(value, Record):
        return NoFields(_write_fields(value, outline=True))
    return NoFields() if isinstance(value, Mapping) else NoItems()


def _left_out(value: Any, default: Any) -> bool:
    if value is default:
        return True
    if value != default:
        return False
    # Where absent and empty differ, they compare equal and yet only what is absent is left out.
    if isinstance(default, (AbsentList, AbsentMap)):
        return type(value) is type(default)
    return not isinstance(value, Record) or bool(_write_fields(value) == _write_fields(default))


def _write_time(time: datetime) -> str:
    return _in_utc(time).strftime("%Y-%m-%dT%H:%M:%SZ")


def _in_utc(time: datetime) -> datetime:
    """The same moment in UTC. One that has no year there keeps the clock it was read with."""
    try:
        return time.astimezone(UTC)
    except OverflowError:
        return time.replace(tzinfo=UTC)


_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}


def _find_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind, dec_hook=_from_plain)
    return decoder


def _kind_name(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind)).removeprefix("Wire")


def _from_plain(kind: type, value: Any) -> Any:
    if kind is Quantity and not isinstance(value, bool):
        return Quantity.parse_clamped(value)
    raise TypeError(f"{value!r} is not a {kind.__name__}")
