"""NodeOverlays: a person's corrections to what the provider says of its instance types.

Overlays are judged in order of weight. Where two of the same weight would correct the same thing, the
later one is turned down as a whole; otherwise the weightiest word on each price and resource holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from dovetail.api.labels import CORE, NODEPOOL, Flavour
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.quantity import Quantity
from dovetail.api.setaside import describe_failure, reason_of
from dovetail.api.validation.runtime import runtime_complaints_overlay
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.requirements import Requirements

__all__ = [
    "CONFLICT",
    "RUNTIME_VALIDATION",
    "Judgement",
    "Overlaid",
    "adjusted_price",
    "overlaid",
    "price_complaint",
]

RUNTIME_VALIDATION = "RuntimeValidation"
CONFLICT = "Conflict"

Catalog = tuple[NodePool, Sequence[InstanceType]]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether an overlay is in force; if not, under which reason and why."""

    overlay: str
    reason: str = ""
    message: str = ""

    @property
    def valid(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class Overlaid:
    """Instance types by pool as overlays would have them, and what became of each overlay."""

    types: Mapping[str, tuple[InstanceType, ...]]
    judgements: tuple[Judgement, ...]


def adjusted_price(price: float, change: str) -> float:
    """The price after a change: absolute, or a signed amount or percentage, but never below nothing."""
    if not change:
        return price
    if change[0] not in "+-":
        return float(change)
    if change.endswith("%"):
        return max(price * (1 + float(change[:-1]) / 100), 0.0)
    return max(price + float(change), 0.0)


def price_complaint(change: str) -> str:
    """Why a change of price is none; empty for all that can be applied."""
    try:
        price = adjusted_price(1.0, change)
    except (ValueError, OverflowError):
        price = math.nan
    return "" if math.isfinite(price) and price >= 0 else "the price is not a number from 0 up"


@dataclass(slots=True)
class _Words:
    """What has been said of one instance type of one pool so far."""

    prices: dict[int, str] = field(default_factory=dict)
    """Offering to change: the first word holds."""
    touched: dict[int, int] = field(default_factory=dict)
    """Offering to the weight of the overlay that spoke of its price last."""
    amounts: dict[str, Quantity] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)
    """Resource to the weight of the overlay that named it last."""


@dataclass(frozen=True, slots=True)
class _Selected:
    pool: str
    index: int
    offerings: tuple[int, ...]


def overlaid(
    catalogs: Iterable[Catalog], overlays: Iterable[NodeOverlay], flavour: Flavour = CORE
) -> Overlaid:
    """The catalogues with every valid overlay applied."""
    known = {pool.name: (pool, tuple(types)) for pool, types in catalogs}
    words: dict[tuple[str, int], _Words] = {}
    judgements: list[Judgement] = []
    ordered = sorted(overlays, key=lambda each: each.name, reverse=True)
    for overlay in sorted(ordered, key=lambda each: -(each.spec.weight or 0)):
        judgements.append(_judge(overlay, known, words, flavour))
    types = {
        name: tuple(_applied(each, words.get((name, i))) for i, each in enumerate(listed))
        for name, (_, listed) in known.items()
    }
    return Overlaid(types, tuple(judgements))


def _judge(
    overlay: NodeOverlay,
    known: Mapping[str, tuple[NodePool, tuple[InstanceType, ...]]],
    words: dict[tuple[str, int], _Words],
    flavour: Flavour,
) -> Judgement:
    """The judgement on one overlay. One that cannot be read or judged is turned down, and no other is.

    Of an overlay that is set aside a requirement may be missing: it would correct what it is not about.
    """
    if why := reason_of(overlay):
        return Judgement(overlay.name, RUNTIME_VALIDATION, f"the overlay is set aside: {why}")
    try:
        return _judge_readable(overlay, known, words, flavour)
    except Exception as error:  # noqa: BLE001 - one overlay must not keep all pools from their catalogue
        return Judgement(overlay.name, RUNTIME_VALIDATION, describe_failure(error))


def _judge_readable(
    overlay: NodeOverlay,
    known: Mapping[str, tuple[NodePool, tuple[InstanceType, ...]]],
    words: dict[tuple[str, int], _Words],
    flavour: Flavour,
) -> Judgement:
    complaints = runtime_complaints_overlay(overlay, flavour)
    if complaints:
        message = "; ".join(each.message for each in complaints)
        return Judgement(overlay.name, RUNTIME_VALIDATION, message)
    if wrong := price_complaint(_change(overlay) or ""):
        return Judgement(overlay.name, RUNTIME_VALIDATION, wrong)
    selected = [each for pool, types in known.values() for each in _selected(overlay, pool, types)]
    if any(_contradicts(overlay, each, words) for each in selected):
        return Judgement(overlay.name, CONFLICT, "conflict with another overlay")
    for each in selected:
        _speak(overlay, each, words.setdefault((each.pool, each.index), _Words()))
    return Judgement(overlay.name)


def _selected(overlay: NodeOverlay, pool: NodePool, types: Sequence[InstanceType]) -> Iterator[_Selected]:
    """The instance types an overlay speaks of, and which of their offerings."""
    wanted = Requirements.of(overlay.spec.requirements)
    labels = Requirements.labels({**pool.spec.template.metadata.labels, NODEPOOL: pool.name})
    for i, each in enumerate(types):
        described = each.requirements & labels
        if not described.compatible(wanted):
            continue
        offerings = tuple(
            j for j, offering in enumerate(each.offerings) if wanted.intersects(offering.requirements)
        )
        if offerings:
            yield _Selected(pool.name, i, offerings)


def _change(overlay: NodeOverlay) -> str | None:
    return overlay.spec.price if overlay.spec.price is not None else overlay.spec.price_adjustment


def _contradicts(overlay: NodeOverlay, selected: _Selected, words: Mapping[tuple[str, int], _Words]) -> bool:
    said = words.get((selected.pool, selected.index))
    if said is None:
        return False
    weight = overlay.spec.weight or 0
    if _change(overlay) is not None and any(said.touched.get(i) == weight for i in selected.offerings):
        return True
    return any(said.named.get(name) == weight for name in overlay.spec.capacity)


def _speak(overlay: NodeOverlay, selected: _Selected, said: _Words) -> None:
    weight = overlay.spec.weight or 0
    change = _change(overlay)
    if change is not None:
        for i in selected.offerings:
            said.prices.setdefault(i, change)
            said.touched[i] = weight
    for name, amount in overlay.spec.capacity.items():
        said.amounts.setdefault(name, amount)
        said.named[name] = weight


def _applied(each: InstanceType, said: _Words | None) -> InstanceType:
    if said is None:
        return each
    offerings = tuple(
        replace(offering, price=adjusted_price(offering.price, said.prices[i]), price_overlaid=True)
        if i in said.prices
        else offering
        for i, offering in enumerate(each.offerings)
    )
    if not said.amounts:
        return replace(each, offerings=offerings)
    capacity = {**each.capacity, **said.amounts}
    return replace(each, offerings=offerings, capacity=capacity, capacity_overlaid=True)
