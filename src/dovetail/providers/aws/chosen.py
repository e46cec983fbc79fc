"""The types chosen for claims, worked out once for claims alike: a burst is mostly one order repeated."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from dovetail.api.nodeclaim import NodeClaim
from dovetail.providers.aws.filters import chosen_types
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.requirements import Requirements

__all__ = ["Chosen"]

MOST = 32


class Chosen:
    """Remembers the latest choices. Types that changed in any way are another sequence, so none is stale."""

    def __init__(self, *, strict: bool = True) -> None:
        self._strict = strict
        self._known: OrderedDict[Any, tuple[Sequence[InstanceType], list[InstanceType]]] = OrderedDict()

    def of(self, types: Sequence[InstanceType], claim: NodeClaim) -> list[InstanceType]:
        """At most sixty, the cheapest first; InsufficientCapacity when none is left."""
        requests = claim.spec.resources.requests
        asked = frozenset((name, amount.nano) for name, amount in requests.items())
        key = (id(types), claim.spec.requirements, asked)
        known = self._known.get(key)
        # The sequence is kept beside its choice, so that its id is not given to another meanwhile.
        if known is None:
            wanted = Requirements.of(claim.spec.requirements)
            known = types, chosen_types(types, wanted, requests, strict=self._strict)
        self._known[key] = known
        self._known.move_to_end(key)
        if len(self._known) > MOST:
            self._known.popitem(last=False)
        return known[1]
