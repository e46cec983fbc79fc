"""What is asked of a history, as text: parameters of a URL or options of a command, read into a HistoryQuery.

Whatever cannot be read is a BadInput of one sentence, in the words of who asked: `--since` or `since`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import islice

from dovetail.api.manifests.typed_fields import suggest_name
from dovetail.errors import BadInput, shorten_text
from dovetail.history.record import RecordKind
from dovetail.history.ring import LIMIT, HistoryQuery, HistoryRing
from dovetail.settings.durations import parse_duration

__all__ = [
    "PARAMETERS",
    "build_query",
    "encode_query",
    "find_nearest",
    "find_nearest_name",
    "parse_kind",
    "parse_moment",
    "suggest_kind",
]

PARAMETERS = ("name", "since", "until", "kind", "pool", "reason", "acts", "limit")
LONGEST = 1_000
# Finding the nearest of fifty thousand names would take seconds, and a leader has other things to do.
MOST_COMPARED = 500
MOST_LOOKED_AT = 100_000
_FLAGS = {"true": True, "1": True, "": True, "false": False, "0": False}


def parse_moment(text: str, now: datetime, asked: str) -> datetime:
    """A time: so long before now, or a day or time of the calendar; UTC where no zone is given."""
    try:
        length = parse_duration(text)
    except ValueError:
        pass
    else:
        if length.total_seconds() >= 0:
            return now - length
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadInput(
            f"{asked} {shorten_text(text)}: write a duration such as 24h, or a time such as "
            "2026-11-02T03:00:00Z"
        ) from error


def parse_kind(text: str, asked: str) -> RecordKind:
    """A kind of record; what is none gets the nearest and all there are."""
    try:
        return RecordKind(text)
    except ValueError as error:
        near, listed = suggest_kind(text), f"there are {', '.join(sorted(RecordKind))}"
        told = near if near.endswith(listed) else f"{near} T{listed[1:]}"
        raise BadInput(f"{asked} {shorten_text(text)}: there is no such kind{told}") from error


# What people call these who come from other tools.
_OTHER_WORDS = {
    "terminated": "Gone",
    "deleted": "Gone",
    "removed": "Gone",
    "created": "Ordered",
    "held": "Blocked",
}


def suggest_kind(kind: str) -> str:
    """The kind that was probably meant, as the end of a sentence; else all there are."""
    for word, ours in _OTHER_WORDS.items():
        if kind.lower().endswith(word) and f"{kind[: -len(word)]}{ours}" in list(RecordKind):
            return f"; did you mean {kind[: -len(word)]}{ours}?"
    return suggest_name(kind, RecordKind)


def build_query(pairs: Iterable[tuple[str, str]], now: datetime) -> HistoryQuery:
    """The question that the parameters of a URL ask. `kind` may be given again, or name several."""
    given: dict[str, str] = {}
    kinds: list[RecordKind] = []
    for name, value in pairs:
        if name not in PARAMETERS:
            told = f"there is no parameter {shorten_text(name)}; there are {', '.join(PARAMETERS)}"
            raise BadInput(told)
        if len(value) > LONGEST:
            raise BadInput(f"{name} is longer than {LONGEST:,} characters")
        if name == "kind":
            kinds += [parse_kind(each, "kind") for each in value.split(",") if each]
        elif name in given:
            raise BadInput(f"{name} is given twice; give it once")
        else:
            given[name] = value
    since, until = (_read_moment(given, name, now) for name in ("since", "until"))
    if since is not None and until is not None and since > until:
        raise BadInput("since is after until; exchange them")
    return HistoryQuery(
        name=given.get("name", ""),
        since=since,
        until=until,
        kinds=frozenset(kinds),
        pool=given.get("pool", ""),
        reason=given.get("reason", ""),
        acts_only=_read_flag(given, "acts"),
        limit=_read_limit(given),
    )


def _read_moment(given: Mapping[str, str], name: str, now: datetime) -> datetime | None:
    return parse_moment(given[name], now, name) if given.get(name) else None


def _read_flag(given: Mapping[str, str], name: str) -> bool:
    value = given.get(name, "false").lower()
    if value not in _FLAGS:
        raise BadInput(f"{name} {shorten_text(value)}: write true or false")
    return _FLAGS[value]


def _read_limit(given: Mapping[str, str]) -> int:
    text = given.get("limit") or str(LIMIT)
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= LIMIT):
        raise BadInput(f"limit {shorten_text(text)}: write a number from 1 to {LIMIT:,}")
    return int(text)


def encode_query(query: HistoryQuery) -> dict[str, str]:
    """The parameters of a URL that ask this question; those that ask nothing are left out."""
    told = {
        "name": query.name,
        "since": _encode_moment(query.since),
        "until": _encode_moment(query.until),
        "kind": ",".join(sorted(query.kinds)),
        "pool": query.pool,
        "reason": query.reason,
        "acts": "true" if query.acts_only else "",
        "limit": str(query.limit),
    }
    return {name: value for name, value in told.items() if value}


def _encode_moment(time: datetime | None) -> str:
    return "" if time is None else time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def find_nearest(ring: HistoryRing, asked: str) -> str:
    """The name that was probably meant, where a ring knows nothing of the one that was asked for."""
    if ring.knows_name(asked):
        return ""
    if asked.startswith("pool/"):
        nearest = find_nearest_name(asked, ring.list_pools())
        return f"pool/{nearest}" if nearest else ""
    return find_nearest_name(asked, ring.list_names())


def find_nearest_name(asked: str, names: Iterable[str]) -> str:
    """The name something is known of that is most like the one asked for; empty where none is."""
    bare = asked.rpartition("/")[2] or asked
    likely = list(islice(_list_likely(bare, islice(names, MOST_LOOKED_AT)), MOST_COMPARED))
    near = get_close_matches(bare, [name.rpartition("/")[2] for name in likely], 1)
    return next((name for name in likely if near and name.rpartition("/")[2] == near[0]), "")


def _list_likely(bare: str, names: Iterable[str]) -> Iterator[str]:
    """Names that begin or end as this one does, and are about as long."""
    for name in names:
        last = name.rpartition("/")[2]
        if abs(len(last) - len(bare)) <= 3 and (last[:3] == bare[:3] or last[-3:] == bare[-3:]):
            yield name
