"""Which spot capacity a cloud prefers, by what it passed over.

EC2 does not launch the cheapest spot instance that a NodeClaim allows, but weighs how likely it is to be
reclaimed. It tells nobody what it knows. What it launched in a recording, while cheaper ones were for sale,
tells how much dearer those were to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.disruption.situation import Situation
from dovetail.history.supply import SpotPlace
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import Snapshot

__all__ = ["SpotChoices"]

# So little more than the price at which both would be the same.
RATHER = 1.000001


@dataclass(slots=True)
class SpotChoices:
    """Reads looks in their order; by what factor a cloud took each spot place for dearer than it was."""

    factors: dict[SpotPlace, float] = field(default_factory=dict)
    _read: set[str] = field(default_factory=set)

    def skip_nodes(self, situation: Situation) -> None:
        """Those that are there already were chosen when others were for sale."""
        self._read.update(uid for uid, _, _ in _list_spot_claims(situation.snapshot))

    def read_look(self, situation: Situation) -> None:
        """Take in the spot instances that were launched since the look before."""
        snapshot = situation.snapshot
        for uid, claim, place in _list_spot_claims(snapshot):
            if uid not in self._read:
                self._read.add(uid)
                self._compare(place, _list_prices(snapshot, claim))

    def _compare(self, chosen: SpotPlace, prices: dict[SpotPlace, float]) -> None:
        """The one that was chosen is worth its price; a cheaper one was taken for dearer than that."""
        price = prices.get(chosen)
        if price is None:
            return
        self.factors.pop(chosen, None)
        for place, other in prices.items():
            if other < price:
                self.factors[place] = max(self.factors.get(place, 1.0), price / other * RATHER)


def _list_spot_claims(snapshot: Snapshot) -> Iterator[tuple[str, NodeClaim, SpotPlace]]:
    for state in snapshot.nodes:
        claim = state.claim
        if claim is not None and claim.labels.get(labels.CAPACITY_TYPE) == labels.SPOT:
            kind, zone = claim.labels.get(labels.INSTANCE_TYPE, ""), claim.labels.get(labels.ZONE, "")
            if kind and zone:  # it was launched
                yield claim.uid or claim.name, claim, SpotPlace(kind, zone)


def _list_prices(snapshot: Snapshot, claim: NodeClaim) -> dict[SpotPlace, float]:
    """What the NodeClaim allowed of all that was for sale, and for how much."""
    pool = next((each for each in snapshot.pools if each.name == claim.labels.get(labels.NODEPOOL)), None)
    types: tuple[InstanceType, ...] = ()
    if pool is not None and pool.catalog >= 0:
        types = snapshot.catalogs[pool.catalog]
    wanted = Requirements.from_expressions(claim.spec.requirements)
    return {
        SpotPlace(each.name, offering.zone): offering.price
        for each in types
        if _allows(wanted, each.requirements)
        for offering in each.offerings
        if offering.available and offering.price > 0 and offering.capacity_type == labels.SPOT
        if _allows(wanted, offering.requirements)
    }


def _allows(wanted: Requirements, have: Requirements) -> bool:
    """Whether nothing that both speak of differs."""
    return all(wanted[key].has_intersection(have[key]) for key in wanted if key in have)
