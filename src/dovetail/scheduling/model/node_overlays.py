"""NodeOverlays: a person's corrections to what the provider says of its instance types.

Overlays are judged in order of weight. Where two of the same weight would correct the same thing, the
later one is turned down as a whole; otherwise the weightiest word on each price and resource holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from dovetail.api import reasons
from dovetail.api.bad_items import describe_failure, reason_of
from dovetail.api.labels import CORE, NODEPOOL, Flavour
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.quantity import Quantity
from dovetail.api.validation.runtime import runtime_complaints_overlay
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.requirements import Requirements

__all__ = [
    "RUNTIME_VALIDATION",
    "OverlaidTypes",
    "OverlayStatus",
    "adjust_price",
    "apply_overlays",
    "price_complaint",
]

RUNTIME_VALIDATION = "RuntimeValidation"

Catalog = tuple[NodePool, Sequence[InstanceType]]


@dataclass(frozen=True, slots=True)
class OverlayStatus:
    """Whether an overlay is in force; if not, under which reason and why."""

    overlay: str
    reason: str = ""
    message: str = ""

    @property
    def valid(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class OverlaidTypes:
    """Instance types by pool as overlays would have them, and what became of each overlay."""

    types: Mapping[str, tuple[InstanceType, ...]]
    statuses: tuple[OverlayStatus, ...]


# A change of price begins with one of these; anything else is a price.
_SIGNS = "+-"


def adjust_price(price: float, change: str) -> float:
    """The price after a change: absolute, or a signed amount or percentage, but never below nothing."""
    if not change:
        return price
    if change[0] not in _SIGNS:
        return float(change)
    if change.endswith("%"):
        return max(price * (1 + float(change[:-1]) / 100), 0.0)
    return max(price + float(change), 0.0)


def price_complaint(change: str) -> str:
    """Why a change of price is none; empty for all that can be applied."""
    try:
        price = adjust_price(1.0, change)
    except (ValueError, OverflowError):
        price = math.nan
    return "" if math.isfinite(price) and price >= 0 else "the price is not a number from 0 up"


@dataclass(slots=True)
class _OverlayChanges:
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


def apply_overlays(
    catalogs: Iterable[Catalog], overlays: Iterable[NodeOverlay], flavour: Flavour = CORE
) -> OverlaidTypes:
    """The catalogues with every valid overlay applied."""
    known = {pool.name: (pool, tuple(types)) for pool, types in catalogs}
    words: dict[tuple[str, int], _OverlayChanges] = {}
    judgements: list[OverlayStatus] = []
    ordered = sorted(overlays, key=lambda each: each.name, reverse=True)
    for overlay in sorted(ordered, key=lambda each: -(each.spec.weight or 0)):
        judgements.append(_evaluate_overlay(overlay, known, words, flavour))
    types = {
        name: tuple(_apply_changes(each, words.get((name, i))) for i, each in enumerate(listed))
        for name, (_, listed) in known.items()
    }
    return OverlaidTypes(types, tuple(judgements))


def _evaluate_overlay(
    overlay: NodeOverlay,
    known: Mapping[str, tuple[NodePool, tuple[InstanceType, ...]]],
    words: dict[tuple[str, int], _OverlayChanges],
    flavour: Flavour,
) -> OverlayStatus:
    """The judgement on one overlay. One that cannot be read or judged is turned down, and no other is.

    Of an overlay that is set aside a requirement may be missing: it would correct what it is not about.
    """
    if why := reason_of(overlay):
        return OverlayStatus(overlay.name, RUNTIME_VALIDATION, f"the overlay is set aside: {why}")
    try:
        return _judge_readable(overlay, known, words, flavour)
    except Exception as error:  # noqa: BLE001 - one overlay must not keep all pools from their catalogue
        return OverlayStatus(overlay.name, RUNTIME_VALIDATION, describe_failure(error))


def _judge_readable(
    overlay: NodeOverlay,
    known: Mapping[str, tuple[NodePool, tuple[InstanceType, ...]]],
    words: dict[tuple[str, int], _OverlayChanges],
    flavour: Flavour,
) -> OverlayStatus:
    complaints = runtime_complaints_overlay(overlay, flavour)
    if complaints:
        message = "; ".join(each.message for each in complaints)
        return OverlayStatus(overlay.name, RUNTIME_VALIDATION, message)
    if wrong := price_complaint(_read_price_change(overlay) or ""):
        return OverlayStatus(overlay.name, RUNTIME_VALIDATION, wrong)
    selected = [each for pool, types in known.values() for each in _list_selected_types(overlay, pool, types)]
    if any(_has_conflict(overlay, each, words) for each in selected):
        return OverlayStatus(overlay.name, reasons.CONFLICT, "conflict with another overlay")
    for each in selected:
        _record_changes(overlay, each, words.setdefault((each.pool, each.index), _OverlayChanges()))
    return OverlayStatus(overlay.name)


def _list_selected_types(
    overlay: NodeOverlay, pool: NodePool, types: Sequence[InstanceType]
) -> Iterator[_Selected]:
    """The instance types an overlay speaks of, and which of their offerings."""
    wanted = Requirements.from_expressions(overlay.spec.requirements)
    labels = Requirements.from_labels({**pool.spec.template.metadata.labels, NODEPOOL: pool.name})
    for i, each in enumerate(types):
        described = each.requirements & labels
        if not described.is_compatible(wanted):
            continue
        offerings = tuple(
            j for j, offering in enumerate(each.offerings) if wanted.intersects(offering.requirements)
        )
        if offerings:
            yield _Selected(pool.name, i, offerings)


def _read_price_change(overlay: NodeOverlay) -> str | None:
    return overlay.spec.price if overlay.spec.price is not None else overlay.spec.price_adjustment


def _has_conflict(
    overlay: NodeOverlay, selected: _Selected, words: Mapping[tuple[str, int], _OverlayChanges]
) -> bool:
    said = words.get((selected.pool, selected.index))
    if said is None:
        return False
    weight = overlay.spec.weight or 0
    if _read_price_change(overlay) is not None and any(
        said.touched.get(i) == weight for i in selected.offerings
    ):
        return True
    return any(said.named.get(name) == weight for name in overlay.spec.capacity)


def _record_changes(overlay: NodeOverlay, selected: _Selected, said: _OverlayChanges) -> None:
    weight = overlay.spec.weight or 0
    change = _read_price_change(overlay)
    if change is not None:
        for i in selected.offerings:
            said.prices.setdefault(i, change)
            said.touched[i] = weight
    for name, amount in overlay.spec.capacity.items():
        said.amounts.setdefault(name, amount)
        said.named[name] = weight


def _overlay_price(offering: Offering, change: str) -> Offering:
    """An overlay is about the instance alone: volumes, addresses and what a person adds come on top of it.

    One that names a price makes it known; one that changes a price leaves an unknown one unknown.
    """
    if change and change[0] not in _SIGNS:
        offering = replace(offering, price_unknown=False)
    corrected = offering.change_parts(instance=adjust_price(offering.instance_price, change))
    return replace(corrected, price_overlaid=True, price_estimated=False)


def _apply_changes(each: InstanceType, said: _OverlayChanges | None) -> InstanceType:
    if said is None:
        return each
    offerings = tuple(
        _overlay_price(offering, said.prices[i]) if i in said.prices else offering
        for i, offering in enumerate(each.offerings)
    )
    if not said.amounts:
        return replace(each, offerings=offerings)
    capacity = {**each.capacity, **said.amounts}
    return replace(each, offerings=offerings, capacity=capacity, capacity_overlaid=True)
