"""A file's text to its documents: cut at the markers, read each stretch alone, flatten the lists.

Cutting first means that one broken document hides no other. `---` at the start of a line always ends
a document in YAML, even inside quotes, so the cut is never wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isinf
from typing import Any

import yaml

from dovetail.api.manifests.composing import Composer, ReadBudget, Unreadable
from dovetail.api.manifests.document import Document, ManifestComplaint, Manifests, ReadLimits, Severity
from dovetail.api.manifests.positions import Positions
from dovetail.api.manifests.scalars import BadScalar, integer_or_float, parse_plain

DEFAULT = ReadLimits()

_MARKER = re.compile(rb"^(---|\.\.\.)(?=[ \t\r\n]|\Z)", re.MULTILINE)
_ONLY_DIRECTIVES = re.compile(rb"(?:[ \t\r]*(?:#[^\n]*)?\n)*(?:%[^\n]*\n|[ \t\r]*(?:#[^\n]*)?\n)+")
_SOMETHING = re.compile(rb"^[ \t\r]*[^\s#]", re.MULTILINE)
_NOTHING = frozenset((b"", b"~", b"null", b"Null", b"NULL"))
# libyaml compares every %TAG line with every other, so that a million of them would take hours.
_MOST_DIRECTIVES = 16
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The text between two document markers."""

    text: bytes
    first_line: int


class _NotPlainJson(Exception):
    """Not JSON, or JSON with something in it that the careful reader should look at."""


@dataclass(slots=True)
class _Reading:
    """One file while it is being read."""

    source: str
    budget: ReadBudget
    documents: list[Document] = field(default_factory=list)
    complaints: list[ManifestComplaint] = field(default_factory=list)

    def add_complaint(
        self,
        message: str,
        line: int | None,
        column: int | None = None,
        path: str = "",
        severity: Severity = Severity.ERROR,
    ) -> None:
        most = self.budget.limits.complaints
        if len(self.complaints) == most:
            message, path, severity = (
                f"more than {most} complaints; the rest is not shown",
                "",
                Severity.ERROR,
            )
        if len(self.complaints) <= most:
            self.complaints.append(ManifestComplaint(self.source, line, column, path, message, severity))

    def build_result(self) -> Manifests:
        return Manifests(tuple(self.documents), tuple(self.complaints))


def parse_manifests(text: bytes | str, source: str, limits: ReadLimits = DEFAULT) -> Manifests:
    """Every Kubernetes object in a file's text, and every complaint about it. Never raises.

    A caller that opens files itself need not read more than `limits.size + 1` bytes of one.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    reading = _Reading(source, ReadBudget(limits))
    refusal = _find_refusal(data, limits)
    if refusal:
        reading.add_complaint(refusal, None)
        return reading.build_result()
    for stretch in _split_stretches(data.removeprefix(b"\xef\xbb\xbf")):
        if len(reading.complaints) > limits.complaints:
            break  # nobody is told of more, so that nothing in the rest could be used
        _read_stretch(stretch, reading)
    return reading.build_result()


def _find_refusal(data: bytes, limits: ReadLimits) -> str | None:
    """Why the file is not even looked into."""
    if len(data) > limits.size:
        return f"the file is larger than {limits.size} bytes; split it"
    if data.startswith(_WIDE_BOMS):
        return "the file is UTF-16 or UTF-32 text; save it as UTF-8"
    if data.count(b"\n---") + data.count(b"\n...") > limits.documents:
        return f"the file holds more than {limits.documents} documents; split it"
    return None


def _split_stretches(data: bytes) -> Iterator[_Stretch]:
    start = line = 0
    for found in _MARKER.finditer(data):
        cut = found.end() if found.group(1) == b"..." else found.start()
        piece = data[start:cut]
        if cut == start or (found.group(1) == b"---" and _is_directives(piece)):
            continue
        yield _Stretch(piece, line)
        line += piece.count(b"\n")
        start = cut
    yield _Stretch(data[start:], line)


def _is_directives(piece: bytes) -> bool:
    """True when nothing but directives was seen yet: the marker that follows begins their document."""
    return (
        b"%" in piece and _ONLY_DIRECTIVES.fullmatch(piece.removeprefix(b"...").lstrip(b"\r\n")) is not None
    )


def _read_stretch(stretch: _Stretch, reading: _Reading) -> None:
    body = stretch.text.removeprefix(b"---").removesuffix(b"...")
    if body.strip() in _NOTHING or not _SOMETHING.search(body):
        return
    try:
        _check_text(stretch.text)
        for ordinal, (value, start) in enumerate(_read_values(stretch, reading)):
            line = None if start is None else stretch.first_line + start + 1
            positions = Positions(
                stretch.text, stretch.first_line + 1, ordinal, reading.budget.limits.depth, line
            )
            _add_objects(value, positions, (), reading)
    except Unreadable as error:
        column = None if error.column is None else error.column + 1
        reading.add_complaint(error.message, stretch.first_line + error.line + 1, column)


def _check_text(text: bytes) -> None:
    """Text that is not text is told apart here, where its place is known."""
    nul = text.find(b"\0")
    if nul >= 0:
        raise Unreadable(
            "a NUL byte stands here; the file is binary, UTF-16 or damaged, save it as UTF-8 text",
            *_find_place(text, nul),
        )
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(
            "these bytes are not UTF-8; save the file as UTF-8", *_find_place(text, error.start)
        ) from error
    if text.count(b"\n%") + text.startswith(b"%") > _MOST_DIRECTIVES:
        raise Unreadable(f"more than {_MOST_DIRECTIVES} lines start with %; quote them or indent them", 0)


def _find_place(text: bytes, offset: int) -> tuple[int, int]:
    before = text[:offset]
    return before.count(b"\n"), len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace"))


def _read_values(stretch: _Stretch, reading: _Reading) -> Iterator[tuple[Any, int | None]]:
    """Each value in the stretch, with its first line where that is known without asking libyaml."""
    text = stretch.text.removeprefix(b"---")
    broken: Unreadable | None = None
    if text.lstrip()[:1] in (b"{", b"["):
        try:
            yield from _read_json_values(stretch.text, reading.budget)
            return
        except _NotPlainJson as error:
            broken = error.__cause__ if isinstance(error.__cause__, Unreadable) else None
    composer = Composer(stretch.text, reading.budget)
    try:
        for value in composer.read_documents():
            yield value, None
    except Unreadable as error:
        raise broken or error from error
    finally:
        for slip in composer.slips:
            severity = Severity.ERROR if slip.fatal else Severity.WARNING
            line = stretch.first_line + slip.line + 1
            reading.add_complaint(slip.message, line, slip.column + 1, slip.path, severity)


def _read_json_values(text: bytes, budget: ReadBudget) -> list[tuple[Any, int]]:
    """The values of JSON text that has nothing odd in it; the fast way through large exports.

    Anything odd (not JSON, a repeated key, too many values) is left to the reader that knows places.
    """
    # Every value but the first follows one of these, so that no more values than this can exist.
    at_most = sum(text.count(mark) for mark in (b",", b":", b"[", b"{")) + 1
    if budget.nodes + at_most > budget.limits.nodes:
        raise _NotPlainJson
    decoder = json.JSONDecoder(object_pairs_hook=_check_unique, parse_constant=_refuse_constant)
    source = text.removeprefix(b"---").decode("utf-8")
    found: list[tuple[Any, int]] = []
    offset = len(source) - len(source.lstrip(" \t\r\n"))
    try:
        while offset < len(source):
            value, end = decoder.raw_decode(source, offset)
            found.append((_tidy_value(value, budget.limits.depth), source.count("\n", 0, offset)))
            offset = end + len(source[end:]) - len(source[end:].lstrip(" \t\r\n"))
    except json.JSONDecodeError as error:
        place = (error.lineno - 1, error.colno - 1)
        looks_like_json = re.match(r'\s*[\[{]\s*["\[{\]}]', source) is not None
        message = f"this is not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise _NotPlainJson from (Unreadable(message, *place) if looks_like_json else None)
    except (ValueError, OverflowError, RecursionError) as error:
        raise _NotPlainJson from error
    budget.nodes += at_most
    return found


def _check_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key is repeated")
    return value


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _tidy_value(value: Any, depth: int) -> Any:
    """JSON as Kubernetes holds it: 64-bit integers, finite numbers, whole characters."""
    if depth < 0:
        raise ValueError("nested too deeply")
    match value:
        case dict():
            return {_replace_surrogates(key): _tidy_value(item, depth - 1) for key, item in value.items()}
        case list():
            return [_tidy_value(item, depth - 1) for item in value]
        case str():
            return _replace_surrogates(value)
        case bool():
            return value
        case int():
            return integer_or_float(value)
        case float() if isinf(value):
            raise ValueError("a number is out of range")
    return value


def _replace_surrogates(text: str) -> str:
    """Half a surrogate pair is no character; Go replaces it, and so do we."""
    return _LONE_SURROGATE.sub("\ufffd", text) if not text.isascii() else text


def _add_objects(value: Any, positions: Positions, base: tuple[str | int, ...], reading: _Reading) -> None:
    """Add the object, or every object of a list, to what was found."""
    waiting: list[tuple[Any, tuple[str | int, ...], str, str]] = [(value, base, "", "")]
    while waiting:
        item, place, version, kind = waiting.pop()
        if isinstance(item, list):
            waiting += [(one, (*place, i), "", "") for i, one in reversed(list(enumerate(item)))]
            continue
        if item is None and not place:
            continue  # an empty document
        if not isinstance(item, dict):
            reading.add_complaint("this is not an object; a manifest is a mapping with apiVersion and kind",
                             positions.line_of(place))  # fmt: skip
            continue
        items = _list_items(item)
        if items is None:
            _add_document(item, positions, place, version, kind, reading)
            continue
        version, kind = _item_type(item)
        waiting += [(one, (*place, "items", i), version, kind) for i, one in reversed(list(enumerate(items)))]


def _list_items(value: dict[str, Any]) -> list[Any] | None:
    kind, items = value.get("kind"), value.get("items")
    if not isinstance(kind, str) or not kind.endswith("List") or ("metadata" in value and _has_name(value)):
        return None
    return items if isinstance(items, list) else [] if items is None and "spec" not in value else None


def _has_name(value: dict[str, Any]) -> bool:
    """True for an object that has a name: then it is a thing called SomethingList, not a list."""
    metadata = value["metadata"]
    return isinstance(metadata, dict) and bool(metadata.get("name"))


def _item_type(listing: dict[str, Any]) -> tuple[str, str]:
    """What the items of a typed list are: the API server leaves it out of each of them."""
    kind = listing["kind"].removesuffix("List")
    version = listing.get("apiVersion")
    return (version, kind) if kind and isinstance(version, str) else ("", "")


def _add_document(
    value: dict[str, Any],
    positions: Positions,
    base: tuple[str | int, ...],
    version: str,
    kind: str,
    reading: _Reading,
) -> None:
    filled = {"apiVersion": version, "kind": kind, **value} if kind else value
    for key in ("apiVersion", "kind"):
        given = filled.get(key)
        if not isinstance(given, str) or not given:
            missing = f"the object has no {key}; every manifest needs one"
            wrong = f"the {key} is not a word; put it in quotes"
            message = missing if given in (None, "") else wrong
            reading.add_complaint(message, positions.line_of((*base, key)), path=key)
            return
    index = len(reading.documents)
    reading.documents.append(
        Document(reading.source, index, filled["apiVersion"], filled["kind"], filled, positions, base)
    )


class _Writer(yaml.CSafeDumper):
    """Quotes what kubectl would take for something else, and writes long text as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True  # shared values are written out: the reader of a manifest expects no anchors


def write_manifest(value: Mapping[str, Any]) -> str:
    """One object as a YAML document, without a document marker."""
    text: str = yaml.dump(
        value, Dumper=_Writer, sort_keys=False, allow_unicode=True, default_flow_style=False, width=2**30
    )
    return text


def _represent_text(writer: _Writer, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text and "\r" not in text else '"' if _needs_quotes(text) else None
    return writer.represent_scalar("tag:yaml.org,2002:str", text, style)


def _needs_quotes(text: str) -> bool:
    try:
        return parse_plain(text) != text or text == "<<"
    except BadScalar:
        return True


_Writer.add_representer(str, _represent_text)
