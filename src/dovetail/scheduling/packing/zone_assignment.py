"""Zones first, nodes second: which zone each pod goes to, so that every zone is a problem of its own.

Spreads are judged by the finished state, the only thing that holds whatever order pods are placed in:
all members of a spread, whether they carry it or not, are dealt so that no zone is more than the skew
ahead. What must be together goes whole to the emptiest zone. The rest is dealt by the weight of what
is there already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.scheduling.packing.problem import Bools, Floats, Ints

__all__ = ["ZoneAffinity", "ZoneSpread", "assign_zones", "level_zones", "share_by_weight"]


@dataclass(frozen=True, slots=True)
class ZoneSpread:
    """Members counted by one selector; `before` are pods already running, by zone.

    Owners carry the rule. Those it does not count go anywhere, as long as it is one of its zones.
    """

    members: tuple[int, ...]
    skew: int
    before: tuple[int, ...]
    zones: tuple[bool, ...]  # zones that take part
    owners: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ZoneAffinity:
    """Groups that must share a zone; `zones` where pods they belong with already run, if any do."""

    members: tuple[int, ...]
    zones: tuple[bool, ...] = ()


@dataclass(slots=True)
class _Dealer:
    count: Ints
    weight: Floats  # worth of one pod of a group
    open: Bools  # group x zone
    dealt: Ints  # group x zone
    load: Floats  # zone

    def give_pods(self, group: int, by_zone: Ints) -> None:
        self.dealt[group] = by_zone
        self.load += by_zone * self.weight[group]


def assign_zones(
    count: Ints,
    weight: Floats,
    open_: Bools,
    spreads: Sequence[ZoneSpread],
    together: Sequence[ZoneAffinity],
    own_host: Bools,
    room: Floats | None = None,
) -> tuple[Ints, frozenset[int]]:
    """Pods of each group by zone, and the groups that could not be dealt within their rules.

    `own_host` groups want hosts of their own; they follow the filler that will share those hosts. `room` is
    the worth of what is free on running nodes, by zone: pods that may choose go there first.
    """
    room = np.zeros(open_.shape[1]) if room is None else room
    dealer = _Dealer(count, weight, open_, np.zeros(open_.shape, np.int64), -room)
    failed: set[int] = set()
    for each in sorted(together, key=lambda t: -float((count * weight)[list(t.members)].sum())):
        failed |= _place_together(dealer, each)
    for spread in spreads:
        failed |= _place_spread(dealer, spread)
    # Pods nothing binds go where others must be, to fill up their nodes, and where there is room already.
    ruled = dealer.load + 2 * room
    unbound = np.flatnonzero((count > 0) & ~dealer.dealt.any(axis=1))
    rest = unbound[
        np.lexsort((unbound, -(count * weight)[unbound], open_[unbound].sum(axis=1), own_host[unbound]))
    ]
    for group in rest.tolist():
        if group in failed:
            continue
        if not open_[group].any():
            failed.add(group)
        else:
            fixed = dealer.load + 2 * room if own_host[group] else ruled
            dealer.give_pods(
                group,
                share_by_weight(
                    int(count[group]), np.where(open_[group], np.maximum(fixed, 0.0) + 1e-9, 0.0)
                ),
            )
    return dealer.dealt, frozenset(failed)


def _place_together(dealer: _Dealer, each: ZoneAffinity) -> set[int]:
    members = list(each.members)
    choice: Bools = np.asarray(dealer.open[members].all(axis=0))
    if each.zones:
        choice = choice & np.array(each.zones)
    if not choice.any():
        return set(members)
    zone = int(np.where(choice, dealer.load, np.inf).argmin())
    for group in members:
        by_zone = np.zeros(len(choice), np.int64)
        by_zone[zone] = dealer.count[group]
        dealer.give_pods(group, by_zone)
    return set()


def _place_spread(dealer: _Dealer, spread: ZoneSpread) -> set[int]:
    """Members with fewest zones first, each raising the lowest zones; then the skew must hold."""
    zones = np.array(spread.zones)
    have = np.array(spread.before, np.int64)
    members = np.array(spread.members, np.int64)
    placed = dealer.dealt[members].any(axis=1)  # by another rule: counted, not moved
    have = have + dealer.dealt[members[placed]].sum(axis=0)
    waiting = members[~placed].tolist()
    narrow = dealer.open.sum(axis=1).tolist()
    for group in sorted(waiting, key=lambda g: (narrow[g], g)):
        open_ = dealer.open[group] & zones
        if not open_.any():
            return {*spread.members, *spread.owners}
        by_zone = level_zones(int(dealer.count[group]), have, open_, dealer.load)
        dealer.give_pods(group, by_zone)
        have = have + by_zone
    counts = have[zones]
    uneven = len(counts) > 0 and counts.max() - counts.min() > spread.skew
    return {*spread.members, *spread.owners} if uneven else set()


def level_zones(pods: int, have: Ints, open_: Bools, load: Floats) -> Ints:
    """`pods` poured into the open zones so that the lowest rise first; odd ones to the lightest load."""
    # There are a handful of zones: plain numbers are quicker here than arrays.
    height, weight = have.tolist(), load.tolist()
    zones = [zone for zone, usable in enumerate(open_.tolist()) if usable]
    order = sorted(zones, key=lambda zone: (height[zone], weight[zone], zone))
    out = [0] * len(height)
    left = pods
    for n in range(1, len(order) + 1):
        # The first n zones stand level; raise them to the next one, or as far as the pods go.
        step = height[order[n]] - height[order[n - 1]] if n < len(order) else None
        if step is not None and left >= step * n:
            for zone in order[:n]:
                out[zone] += step
            left -= step * n
            continue
        each, odd = divmod(left, n)
        for at, zone in enumerate(sorted(order[:n], key=lambda zone: (weight[zone], zone))):
            out[zone] += each + (at < odd)
        break
    return np.array(out, np.int64)


def share_by_weight(pods: int, weights: Floats) -> Ints:
    """`pods` divided in proportion to the weights, whole, largest remainders first."""
    exact = pods * weights / weights.sum()
    out: Ints = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - out), kind="stable")
    out[order[: pods - int(out.sum())]] += 1
    return out
