"""What Commitments pay for at a moment: read, in force, and cut to this cluster's share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from dovetail.api.commitment import (
    ACCOUNT,
    COMPUTE_PLAN,
    CURRENT,
    FAMILY_PLAN,
    FULL,
    PLANS,
    RESERVED,
    RESERVED_IN_ZONE,
    USD,
    WINDOWS,
    Commitment,
    find_commitment_problems,
    find_family,
    parse_share,
)
from dovetail.api.meta import Record
from dovetail.api.spend_limit import BadSpendLimit, parse_dollars

__all__ = ["ENDING", "CommitmentTerms", "TermsReader", "build_terms", "find_size_factor"]

# What ends this soon is not counted on by who buys a node.
ENDING = timedelta(hours=48)
# The order in which commitments are applied.
STAGES = (RESERVED_IN_ZONE, RESERVED, FAMILY_PLAN, COMPUTE_PLAN)
_SIZES = {"nano": 0.25, "micro": 0.5, "small": 1.0, "medium": 2.0, "large": 4.0, "xlarge": 8.0}
_MULTIPLE = re.compile(r"(?:metal-)?([1-9][0-9]{0,2})(?:xlarge|xl)")
# A bare metal instance counts as much as the largest of its family, or as AWS says it does.
_METAL = {
    factor: families.split()
    for factor, families in {
        32.0: "a1",
        96.0: "m5zn x2iezn z1d",
        128.0: "c6g c6gd i3 m6g m6gd r6g r6gd x2gd",
        144.0: "c5n",
        192.0: "c5 c5d i3en m5 m5d m5dn m5n r5 r5b r5d r5dn r5n",
        256.0: "c6i c6id m6i m6id r6i r6id",
        448.0: "u-18tb1 u-24tb1",
        896.0: "u-6tb1 u-9tb1 u-12tb1",
    }.items()
}
_METAL_OF = {family: factor for factor, families in _METAL.items() for family in families}


def find_size_factor(instance_type: str) -> float | None:
    """How many units an instance counts as within its family; None where sizes are not known."""
    family, _, size = instance_type.partition(".")
    if size == "metal":
        return _METAL_OF.get(family)
    if size in _SIZES:
        return _SIZES[size]
    multiple = _MULTIPLE.fullmatch(size)
    return 8.0 * int(multiple[1]) if multiple else None


class CommitmentTerms(Record, frozen=True):
    """What one Commitment pays for at a moment, as far as it is this cluster's; a part of a Situation.

    `units` is what can be used up: dollars of a plan, instances or sizes in units of what is reserved.
    """

    name: str
    kind: str
    # Dollars an hour that are paid whatever runs.
    hourly: float = 0.0
    units: float = 0.0
    family: str = ""
    instance_type: str = ""
    zone: str = ""
    region: str = ""
    flexible: bool = False
    windows: bool = False
    rates: Mapping[str, float] = {}
    discount: float | None = None
    # What the rest of the account uses, in dollars an hour.
    by_others: float = 0.0
    # It ends so soon that nothing is bought because of it.
    ending: bool = False
    # What its status says: nothing was left of it.
    was_full: bool | None = None

    @property
    def is_plan(self) -> bool:
        return self.kind in PLANS

    def holds_in(self, zone: str) -> bool:
        """Whether the zone is one of its region; without a region every one is."""
        rest = zone[len(self.region) :]
        return not self.region or (zone.startswith(self.region) and not rest[:1].isdigit())

    def find_rate(self, instance_type: str, zone: str, price: float, windows: bool) -> float | None:
        """Of a plan: dollars an hour that an instance of this list price uses up; None if it may not."""
        if not self.holds_in(zone) or (self.family and find_family(instance_type) != self.family):
            return None
        if self.discount is not None:
            # Rates that are equal to a person are equal here: the order of plans depends on it.
            return round(price * (1 - self.discount), 12)
        rate = None if windows else self.rates.get(instance_type)
        return rate if rate is not None and rate <= price else None

    def count_units(self, instance_type: str, zone: str, windows: bool) -> float | None:
        """Of reserved instances: how many units an instance uses up; None if it may not."""
        if windows != self.windows:
            return None
        if self.kind == RESERVED_IN_ZONE:
            return 1.0 if (instance_type, zone) == (self.instance_type, self.zone) else None
        if not self.holds_in(zone):
            return None
        if not self.flexible:
            return 1.0 if instance_type == self.instance_type else None
        return find_size_factor(instance_type) if find_family(instance_type) == self.family else None

    def count_use(self, instance_type: str, zone: str, price: float, windows: bool) -> float | None:
        """How many of its units an on-demand instance of this list price uses up; None if it may not."""
        if self.is_plan:
            return self.find_rate(instance_type, zone, price, windows)
        return self.count_units(instance_type, zone, windows)


def build_terms(commitments: Iterable[Commitment], now: datetime) -> tuple[CommitmentTerms, ...]:
    """What every commitment pays for now, by name; one that is not in force or unreadable pays nothing."""
    return TermsReader().read_terms(commitments, now)


class TermsReader:
    """Reads commitments again and again: terms that are the same as before are the very same."""

    def __init__(self) -> None:
        self._rates: dict[str, tuple[Mapping[str, str], dict[str, float]]] = {}
        self._last: tuple[CommitmentTerms, ...] = ()

    def read_terms(self, commitments: Iterable[Commitment], now: datetime) -> tuple[CommitmentTerms, ...]:
        """What every commitment pays for now, by name."""
        known, self._rates = self._rates, {}
        found: list[CommitmentTerms] = []
        for each in sorted(commitments, key=lambda each: each.name):
            written = each.spec.rates if each.spec.rates is not None else each.status.rates
            before = known.get(each.name)
            rates = before if before is not None and before[0] == written else (written, _read_rates(written))
            self._rates[each.name] = rates
            terms = _read_terms(each, now, rates[1])
            if terms is not None:
                found.append(terms)
        if tuple(found) != self._last:
            self._last = tuple(found)
        return self._last


def _read_terms(commitment: Commitment, now: datetime, rates: Mapping[str, float]) -> CommitmentTerms | None:
    spec = commitment.spec
    if spec.kind not in STAGES or spec.currency != USD or next(find_commitment_problems(spec), None):
        return None
    if (spec.starts is not None and now < spec.starts) or (spec.ends is not None and now >= spec.ends):
        return None
    if _find_status(commitment, CURRENT) == "False":
        return None
    factor = find_size_factor(spec.instance_type)
    flexible = spec.kind == RESERVED and bool(spec.family) and spec.platform != WINDOWS and factor is not None
    whole = parse_dollars(spec.hourly) if spec.hourly is not None else 0.0
    units = whole
    if spec.kind not in PLANS:
        count = spec.count or 0
        units = count * (factor if flexible and factor is not None else 1.0)
        whole = whole if spec.hourly is not None else count * rates.get(spec.instance_type, 0.0)
    part = _find_part(commitment, whole)
    return CommitmentTerms(
        name=commitment.name,
        kind=spec.kind,
        hourly=whole * part,
        units=units * part,
        family=spec.family if flexible or spec.kind == FAMILY_PLAN else "",
        instance_type=spec.instance_type,
        zone=spec.zone,
        region=spec.region,
        flexible=flexible,
        windows=spec.platform == WINDOWS,
        rates=rates,
        discount=parse_share(spec.discount) if spec.discount is not None else None,
        by_others=_read_others(commitment),
        ending=spec.ends is not None and spec.ends - now <= ENDING,
        was_full={"True": True, "False": False}.get(_find_status(commitment, FULL)),
    )


def _find_part(commitment: Commitment, whole: float) -> float:
    """The part of a commitment that is ours: its share, and no more than others leave of it."""
    share = parse_share(commitment.spec.share) or 0.0
    if commitment.spec.observe != ACCOUNT or whole <= 0:
        return share
    return min(share, max(0.0, whole - _read_others(commitment)) / whole)


def _read_others(commitment: Commitment) -> float:
    try:
        return parse_dollars(commitment.status.by_others or "0")
    except BadSpendLimit:
        return 0.0


def _find_status(commitment: Commitment, kind: str) -> str:
    return next((each.status for each in commitment.status.conditions if each.type == kind), "")


def _read_rates(rates: Mapping[str, str]) -> dict[str, float]:
    found = {}
    for name, text in rates.items():
        try:
            found[name] = parse_dollars(text)
        except BadSpendLimit:
            continue  # a type without a rate is not covered
    return found
