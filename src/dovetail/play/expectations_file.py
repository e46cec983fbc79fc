"""A file of expectations: worlds to look at and what is to hold in them, checked field by field.

Names that do not exist are told with their line and the nearest that does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct, inspect

from dovetail.api.manifests.typed_fields import WrongField, find_unknown_fields, locate_error, suggest_name
from dovetail.errors import BadInput
from dovetail.settings.durations import parse_duration as parse_duration

__all__ = ["EXPECTATIONS", "Expectation", "Expectations", "WorldSpec", "parse_expectations", "parse_share"]

EXPECTATIONS = ("dovetail.sh/v1alpha1", "Expectations")
DOLLARS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)%")
MOST_FACTOR, MOST_SAMPLES = 1_000.0, 1_000

Told = Callable[[str, str], str]


class ReclaimSpec(Struct, frozen=True, rename="camel"):
    """So large a share of the spot nodes is taken away at once."""

    share: float


class ScaleSpec(Struct, frozen=True, rename="camel"):
    """Workloads, as NAMESPACE/NAME with * for any, have so many times their pods."""

    factor: float
    workloads: tuple[str, ...] = ("*/*",)


class SampleSpec(Struct, frozen=True, rename="camel"):
    """So many looks of the recording, spread over its time."""

    sample: int


class WorldSpec(Struct, frozen=True, rename="camel"):
    """A world: the one given, or another that is made of it in one way."""

    name: str
    lose_zone: str | None = None
    reclaim: ReclaimSpec | None = None
    scale: ScaleSpec | None = None
    recording: SampleSpec | None = None


class Expectation(Struct, frozen=True, rename="camel"):
    """What is to hold in a world, or in all of them."""

    every_pod_placed: bool | None = None
    excepted: tuple[str, ...] = msgspec.field(default=(), name="except")
    hourly_at_most: str | None = None
    evictions_at_most: int | None = None
    replaced_at_most: int | str | None = None
    zone_share_at_most: str | None = None
    spot_pool_share_at_most: str | None = None
    ready_within: str | None = None
    pool: str = ""
    world: str = ""

    @property
    def promises(self) -> dict[str, object]:
        """What it promises, by the member that says so."""
        given = {
            "everyPodPlaced": self.every_pod_placed,
            "hourlyAtMost": self.hourly_at_most,
            "evictionsAtMost": self.evictions_at_most,
            "replacedAtMost": self.replaced_at_most,
            "zoneShareAtMost": self.zone_share_at_most,
            "spotPoolShareAtMost": self.spot_pool_share_at_most,
            "readyWithin": self.ready_within,
        }
        return {name: value for name, value in given.items() if value is not None}


NOW = WorldSpec("now")


class Expectations(Struct, frozen=True, rename="camel"):
    """All of a file."""

    expect: tuple[Expectation, ...]
    worlds: tuple[WorldSpec, ...] = (NOW,)
    api_version: str = ""
    kind: str = ""
    metadata: dict[str, Any] = {}


def parse_expectations(value: Mapping[str, Any], told: Told) -> Expectations:
    """Expectations from their parsed document; `told` puts a complaint about a field of it into words."""
    wrong = list(find_unknown_fields(value, inspect.type_info(Expectations)))
    if not wrong:
        try:
            found = msgspec.convert(value, Expectations)
        except msgspec.ValidationError as error:
            wrong = [locate_error(error)]
        else:
            wrong = list(_find_complaints(found))
            if not wrong:
                return found
    raise BadInput("\n".join(told(*each) for each in wrong))


def _find_complaints(found: Expectations) -> Iterator[WrongField]:
    if (found.api_version, found.kind) != EXPECTATIONS:
        yield "kind", f"write apiVersion {EXPECTATIONS[0]} and kind {EXPECTATIONS[1]}"
    names = [world.name for world in found.worlds]
    if not found.worlds:
        yield "worlds", "there is no world; leave worlds out for the world as given"
    if not found.expect:
        yield "expect", "nothing is expected"
    for number, world in enumerate(found.worlds):
        if names.index(world.name) != number:
            yield f"worlds[{number}].name", f"{world.name} is there twice; give each a name of its own"
        yield from _check_world(f"worlds[{number}]", world)
    for number, each in enumerate(found.expect):
        path = f"expect[{number}]"
        if each.world and each.world not in names:
            yield f"{path}.world", f"there is no world {each.world}{suggest_name(each.world, names)}"
        yield from _check_expectation(path, each)


def _check_world(path: str, world: WorldSpec) -> Iterator[WrongField]:
    ways = [
        name
        for name, given in (
            ("loseZone", world.lose_zone),
            ("reclaim", world.reclaim),
            ("scale", world.scale),
            ("recording", world.recording),
        )
        if given is not None
    ]
    if len(ways) > 1:
        yield path, f"it has {' and '.join(ways)}; make a world of each"
    if world.lose_zone == "":
        yield f"{path}.loseZone", "write each, or the name or id of a zone"
    if world.reclaim is not None and not 0 < world.reclaim.share <= 1:
        yield f"{path}.reclaim.share", "write a share above 0 and up to 1, such as 0.4"
    if world.scale is not None:
        if not 0 <= world.scale.factor <= MOST_FACTOR:
            yield f"{path}.scale.factor", f"write a factor from 0 to {MOST_FACTOR:,.0f}, such as 2.5"
        if not world.scale.workloads:
            yield f"{path}.scale.workloads", "name some, such as shop/*"
    if world.recording is not None and not 1 <= world.recording.sample <= MOST_SAMPLES:
        yield f"{path}.recording.sample", f"write a number from 1 to {MOST_SAMPLES:,}"


def _check_expectation(path: str, each: Expectation) -> Iterator[WrongField]:
    promises = each.promises
    if len(promises) != 1:
        known = ", ".join(Expectation(True, (), "", 0, 0, "", "", "").promises)
        what = "it promises nothing" if not promises else f"it has {' and '.join(promises)}"
        yield path, f"{what}; write one of {known}"
    if each.every_pod_placed is False:
        yield f"{path}.everyPodPlaced", "write true; pods that may wait are named in except"
    if each.hourly_at_most is not None and not DOLLARS.fullmatch(each.hourly_at_most):
        yield f"{path}.hourlyAtMost", 'write dollars as a text, such as "95.00"'
    if each.evictions_at_most is not None and each.evictions_at_most < 0:
        yield f"{path}.evictionsAtMost", "write 0 or more"
    for name, share in (
        ("zoneShareAtMost", each.zone_share_at_most),
        ("spotPoolShareAtMost", each.spot_pool_share_at_most),
    ):
        if share is not None and parse_share(share) is None:
            yield f"{path}.{name}", "write a share such as 60%"
    most = each.replaced_at_most
    if (isinstance(most, int) and most < 0) or (isinstance(most, str) and parse_share(most) is None):
        yield f"{path}.replacedAtMost", "write a number of nodes, or a share such as 20%"
    if each.ready_within is not None:
        try:
            good = parse_duration(each.ready_within) > timedelta()
        except (ValueError, OverflowError):
            good = False
        if not good:
            yield f"{path}.readyWithin", "write a duration such as 10m"


def parse_share(text: str) -> float | None:
    """A percentage as a share; None where it is none."""
    found = SHARE.fullmatch(text)
    share = float(found[1]) / 100 if found else None
    return share if share is not None and share <= 1 else None
