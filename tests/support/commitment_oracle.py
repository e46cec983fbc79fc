"""Savings plans and reserved instances applied by brute force, pair by pair, as AWS's guides describe it.

It reads Commitments as they are written and shares nothing with the ledger that it judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from dovetail.api.commitment import Commitment

FACTORS = {
    "nano": Fraction(1, 4),
    "micro": Fraction(1, 2),
    "small": Fraction(1),
    "medium": Fraction(2),
    "large": Fraction(4),
    "xlarge": Fraction(8),
    "2xlarge": Fraction(16),
    "4xlarge": Fraction(32),
    "8xlarge": Fraction(64),
    "12xlarge": Fraction(96),
}


@dataclass
class Instance:
    """One running instance, and how much of its hour nobody has paid yet."""

    name: str
    type: str
    zone: str
    price: Fraction
    system: str = "Linux"
    spot: bool = False
    open: Fraction = Fraction(1)
    by: list[str] = field(default_factory=list)

    @property
    def like(self) -> tuple[str, str, Fraction, bool]:
        return self.type, self.zone, self.price, self.system == "Windows"


@dataclass
class Pot:
    """One commitment, and what is left of it."""

    commitment: Commitment
    left: Fraction

    @property
    def name(self) -> str:
        return self.commitment.metadata.name

    def rate(self, instance: Instance) -> Fraction | None:
        spec = self.commitment.spec
        if spec.kind == "FamilyPlan" and instance.type.split(".")[0] != spec.family:
            return None
        if spec.region and instance.zone[:-1] != spec.region:
            return None
        if spec.discount is not None:
            return instance.price * (100 - int(spec.discount[:-1])) / 100
        written = (spec.rates or {}).get(instance.type)
        return Fraction(written) if written is not None and instance.system == "Linux" else None

    def units(self, instance: Instance) -> Fraction | None:
        spec = self.commitment.spec
        if instance.system != spec.platform:
            return None
        if spec.kind == "ReservedInZone":
            return Fraction(1) if (instance.type, instance.zone) == (spec.instance_type, spec.zone) else None
        if spec.region and instance.zone[:-1] != spec.region:
            return None
        family, size = instance.type.split(".")
        if spec.family and spec.platform == "Linux":
            return FACTORS[size] if family == spec.family else None
        return Fraction(1) if instance.type == spec.instance_type else None


def apply_by_brute_force(fleet: Sequence[Instance], commitments: Sequence[Commitment]) -> list[Pot]:
    """Apply all commitments to the fleet; what is left of instances and of commitments is noted on them."""
    payable = [each for each in fleet if not each.spot]
    pots = [Pot(each, _fill(each)) for each in sorted(commitments, key=lambda each: each.metadata.name)]
    for kind in ("ReservedInZone", "Reserved"):
        mine = [pot for pot in pots if pot.commitment.spec.kind == kind]
        mine.sort(
            key=lambda pot: bool(pot.commitment.spec.family and pot.commitment.spec.platform == "Linux")
        )
        for pot in mine:
            while pot.left and (pair := _find_smallest(pot, payable)):
                _pay(pot, *pair)
    for kind in ("FamilyPlan", "ComputePlan"):
        mine = [pot for pot in pots if pot.commitment.spec.kind == kind]
        while best := _find_best(mine, payable):
            _pay(*best)
    return pots


def _fill(commitment: Commitment) -> Fraction:
    spec = commitment.spec
    share = Fraction(int(spec.share[:-1]), 100)
    if spec.kind.endswith("Plan"):
        return Fraction(spec.hourly or "0") * share
    each = Fraction(1)
    if spec.kind == "Reserved" and spec.family and spec.platform == "Linux":
        each = FACTORS[spec.instance_type.split(".")[1]]
    return (spec.count or 0) * each * share


def _find_smallest(pot: Pot, fleet: Sequence[Instance]) -> tuple[Instance, Fraction] | None:
    fits = [(units, each.like, each.name, each) for each in fleet if each.open and (units := pot.units(each))]
    if not fits:
        return None
    found = min(fits, key=lambda fit: fit[:3])
    return found[3], found[0]


def _find_best(pots: Sequence[Pot], fleet: Sequence[Instance]) -> tuple[Pot, Instance, Fraction] | None:
    pairs = []
    for pot in pots:
        for each in fleet:
            rate = pot.rate(each)
            if rate is None or rate > each.price or not each.open or not pot.left:
                continue
            saving = 1 - rate / each.price
            pairs.append(((-saving, rate, each.like, pot.name, each.name), pot, each, rate))
    return min(pairs, key=lambda pair: pair[0])[1:] if pairs else None


def _pay(pot: Pot, instance: Instance, each: Fraction) -> None:
    taken = min(instance.open, pot.left / each)
    instance.open -= taken
    pot.left -= taken * each
    instance.by.append(pot.name)
