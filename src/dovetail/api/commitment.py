"""Commitment: a savings plan or reserved instances that are paid for, whatever runs (dovetail.sh/v1alpha1).

Dollars are strings, as NodeOverlay has them. A cloud's own commitments are mirrored into such objects; people
write others, and say of any which share is this cluster's.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import ClassVar

from dovetail.api.meta import Condition, Kind, Object, Record
from dovetail.api.spend_limit import BadSpendLimit, parse_dollars

__all__ = [
    "ACCOUNT",
    "COMPUTE_PLAN",
    "CURRENT",
    "FAMILY_PLAN",
    "FULL",
    "PLANS",
    "RESERVED",
    "RESERVED_IN_ZONE",
    "USD",
    "WINDOWS",
    "Commitment",
    "CommitmentSpec",
    "CommitmentStatus",
    "find_commitment_problems",
    "find_family",
    "parse_share",
]

COMPUTE_PLAN, FAMILY_PLAN = "ComputePlan", "FamilyPlan"
RESERVED, RESERVED_IN_ZONE = "Reserved", "ReservedInZone"
PLANS = (COMPUTE_PLAN, FAMILY_PLAN)
CLUSTER, ACCOUNT = "Cluster", "Account"
LINUX, WINDOWS = "Linux", "Windows"
USD = "USD"
CURRENT, FULL = "Current", "Full"
"""Condition types: it is in force and can be read; nothing is left of it."""


class CommitmentSpec(Record, frozen=True):
    """What is paid for, and which part of that is this cluster's."""

    ALWAYS_WRITTEN: ClassVar[tuple[str, ...]] = ("kind",)

    kind: str = COMPUTE_PLAN
    # Dollars an hour: of a plan what is committed, of reserved instances what all of them come to.
    hourly: str | None = None
    # Of a FamilyPlan; of regional reserved instances it says that they are size flexible.
    family: str = ""
    instance_type: str = ""
    zone: str = ""
    count: int | None = None
    region: str = ""
    starts: datetime | None = None
    ends: datetime | None = None
    # What reserved instances run, and what the dollars are.
    platform: str = LINUX
    currency: str = USD
    # What an instance type costs under it, by type; or by how much it is cheaper than the price list.
    rates: dict[str, str] | None = None
    discount: str | None = None
    share: str = "100%"
    # Whether the use of the rest of the account is subtracted.
    observe: str = CLUSTER


class CommitmentStatus(Record, frozen=True):
    """What this cluster has of it and uses of it, in dollars an hour."""

    observed_generation: int = 0
    # As the cloud tells them, where the spec says neither rates nor a discount.
    rates: dict[str, str] = {}
    hourly: str = ""
    used: str = ""
    by_others: str = ""
    unused: str = ""
    conditions: tuple[Condition, ...] = ()


class Commitment(Object, frozen=True):
    """A savings plan or reserved instances that are paid for."""

    KIND: ClassVar[Kind] = Kind("dovetail.sh", "v1alpha1", "Commitment", "commitments", namespaced=False)

    spec: CommitmentSpec = CommitmentSpec()
    status: CommitmentStatus = CommitmentStatus()


def find_family(instance_type: str) -> str:
    """The family that a type's name begins with: m6i of m6i.large, c of c-4x-amd64-linux."""
    return instance_type.partition("." if "." in instance_type else "-")[0]


def parse_share(text: str) -> float | None:
    """A percentage from 0% to 100% as a part of one; None where it is no such thing."""
    number = text.removesuffix("%")
    if not text.endswith("%") or not number.isascii() or not number.isdigit() or int(number) > 100:
        return None
    return int(number) / 100


def find_commitment_problems(spec: CommitmentSpec) -> Iterator[tuple[str, str]]:
    """What is wrong with a commitment that a schema cannot see: the path and a sentence of each."""
    for path, text in (("spec.share", spec.share), ("spec.discount", spec.discount)):
        if text is not None and parse_share(text) is None:
            yield path, f'is "{text}"; write a percentage from 0% to 100%, such as "28%"'
    yield from _find_amount_problems(spec)
    if spec.count is not None and spec.count < 0:
        yield "spec.count", f"is {spec.count}; write 0 or more"
    try:
        backwards = spec.starts is not None and spec.ends is not None and spec.ends <= spec.starts
    except TypeError:  # one has a time zone, the other none
        backwards = True
    if backwards:
        yield "spec.ends", "is not after spec.starts; write a later time"
    yield from _find_family_problems(spec)


def _find_amount_problems(spec: CommitmentSpec) -> Iterator[tuple[str, str]]:
    given = {"spec.hourly": spec.hourly} | {
        f"spec.rates[{name}]": text for name, text in (spec.rates or {}).items()
    }
    for path, text in given.items():
        try:
            if text is not None:
                parse_dollars(text)
        except BadSpendLimit:
            yield path, f'is "{text}"; write dollars such as "40.00"'


def _find_family_problems(spec: CommitmentSpec) -> Iterator[tuple[str, str]]:
    if spec.kind != RESERVED or not spec.family:
        return
    if spec.platform == WINDOWS:
        yield "spec.family", "makes reserved instances size flexible, which Windows never is; leave it out"
    own = find_family(spec.instance_type)
    if own != spec.family:
        yield "spec.family", f"is {spec.family}, and {spec.instance_type} is of {own}; write {own}"
