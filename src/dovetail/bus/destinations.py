"""Which queue belongs to which cluster, and what each cluster wants to hear. Pure.

A cluster is an account, a region and a name: names alone collide. Queue addresses come from here and from
nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from dovetail.bus.events import KINDS, BusPlace
from dovetail.errors import Misconfigured

__all__ = [
    "BusCluster",
    "Destination",
    "DestinationRegistry",
    "check_url",
    "parse_destination",
    "render_value",
]

YEARS = 315_360_000  # ten of them, in seconds
MOST_SHOWN = 100
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class BusCluster(NamedTuple):
    """The one name of a cluster."""

    account: str
    region: str
    name: str

    @property
    def place(self) -> BusPlace:
        return BusPlace(self.account, self.region)

    def __str__(self) -> str:
        return f"{self.account}/{self.region}/{self.name}"


@dataclass(frozen=True, slots=True)
class Destination:
    """A cluster's queue, and its wishes."""

    cluster: BusCluster
    queue_url: str
    role_arn: str = ""
    external_id: str = ""
    kinds: frozenset[str] | None = None
    include_closed: bool = False
    rebalance: str = "forward"
    max_age: float | None = None
    fair_queue: bool = False
    format: str = "raw"
    paused: bool = False
    park_url: str = ""

    def wants_kind(self, kind: str) -> bool:
        if kind == "rebalance_recommendation" and self.rebalance == "skip":
            return False
        return self.kinds is None or kind in self.kinds


class DestinationRegistry:
    """Every destination, by cluster and by place. A change makes a new one."""

    def __init__(self, destinations: Iterable[Destination] = ()) -> None:
        self._by_cluster = {each.cluster: each for each in destinations}
        self._by_place: dict[BusPlace, list[Destination]] = {}
        for each in self._by_cluster.values():
            self._by_place.setdefault(each.cluster.place, []).append(each)

    def find_by_cluster(self, cluster: BusCluster) -> Destination | None:
        return self._by_cluster.get(cluster)

    def list_at_place(self, place: BusPlace) -> list[Destination]:
        return self._by_place.get(place, [])

    def merge_with(self, others: Iterable[Destination]) -> DestinationRegistry:
        """With more destinations; those already here win."""
        return DestinationRegistry([*others, *self._by_cluster.values()])

    def __iter__(self) -> Iterator[Destination]:
        return iter(self._by_cluster.values())

    def __len__(self) -> int:
        return len(self._by_cluster)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DestinationRegistry) and other._by_cluster == self._by_cluster

    __hash__ = None  # type: ignore[assignment]


KEYS = {
    "account",
    "region",
    "cluster",
    "queueUrl",
    "roleArn",
    "externalId",
    "kinds",
    "includeClosed",
    "rebalance",
    "maxAgeSeconds",
    "fairQueue",
    "format",
    "paused",
    "parkQueueUrl",
}


def parse_destination(
    raw: Mapping[str, object], where: str, *, account: str = "", region: str = ""
) -> Destination:
    """A destination as it is written down; `where` names the place in complaints."""
    unknown = sorted(set(raw) - KEYS)
    if unknown:
        known = ", ".join(sorted(KEYS))
        raise Misconfigured(f"{where}: unknown key {unknown[0]}; a destination has {known}")
    cluster = BusCluster(
        _read_text(raw, "account", where, account),
        _read_text(raw, "region", where, region),
        _read_text(raw, "cluster", where),
    )
    for part, value in zip(("account", "region", "cluster"), cluster, strict=True):
        if not value:
            raise Misconfigured(f"{where}: {part} is missing; name the {part} whose events go there")
    if not (len(cluster.account) == 12 and cluster.account.isdecimal()):
        raise Misconfigured(f"{where}: account {cluster.account} is not an account id; it has twelve digits")
    age = raw.get("maxAgeSeconds")
    if age is not None and (
        not isinstance(age, int | float) or isinstance(age, bool) or not 0 < age <= YEARS
    ):
        raise Misconfigured(
            f"{where}: maxAgeSeconds is {render_value(age)}; "
            f"give a number of seconds above 0 and up to {YEARS}"
        )
    park = _read_text(raw, "parkQueueUrl", where, "")
    return Destination(
        cluster,
        check_url(_read_text(raw, "queueUrl", where), f"{where}: queueUrl"),
        _read_text(raw, "roleArn", where, ""),
        _read_text(raw, "externalId", where, ""),
        _read_kinds(raw.get("kinds"), where),
        _read_flag(raw, "includeClosed", where),
        _read_choice(raw, "rebalance", where, ("forward", "skip")),
        float(age) if age is not None else None,
        _read_flag(raw, "fairQueue", where),
        _read_choice(raw, "format", where, ("raw", "annotated")),
        _read_flag(raw, "paused", where),
        check_url(park, f"{where}: parkQueueUrl") if park else "",
    )


def render_value(value: object) -> str:
    """A value as people wrote it, if it is short; numbers of many digits and deep nests have no text."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return "too large to show"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def check_url(url: str, where: str) -> str:
    """A queue URL that can be one: https, a host, an account and a name."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        host = ""
    path = [each for each in parts.path.split("/") if each] if host else []
    safe = host and (parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK))
    if not safe or len(path) != 2 or parts.query or parts.fragment or parts.username:
        raise Misconfigured(
            f"{where}: {url!r} is not the URL of a queue; "
            "give it as https://sqs.<region>.amazonaws.com/<account>/<name>"
        )
    return url


def _read_text(raw: Mapping[str, object], key: str, where: str, default: str | None = None) -> str:
    value = raw.get(key)
    if value is None:
        if default is None:
            raise Misconfigured(f"{where}: {key} is missing; say which {key} it is")
        return default
    if not isinstance(value, str):
        raise Misconfigured(
            f"{where}: {key} is {render_value(value)}; it must be a text, so put it in quotes"
        )
    return value


def _read_flag(raw: Mapping[str, object], key: str, where: str) -> bool:
    value = raw.get(key, False)
    if not isinstance(value, bool):
        raise Misconfigured(f"{where}: {key} is {render_value(value)}; it is true or false")
    return value


def _read_choice(raw: Mapping[str, object], key: str, where: str, choices: tuple[str, ...]) -> str:
    value = raw.get(key, choices[0])
    if value not in choices:
        raise Misconfigured(f"{where}: {key} is {render_value(value)}; it is one of {', '.join(choices)}")
    return str(value)


def _read_kinds(value: object, where: str) -> frozenset[str] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise Misconfigured(f"{where}: kinds is {render_value(value)}; it is a list of kinds")
    unknown = sorted(set(value) - KINDS)
    if unknown:
        raise Misconfigured(f"{where}: there is no kind {unknown[0]}; there are {', '.join(sorted(KINDS))}")
    return frozenset(value)
