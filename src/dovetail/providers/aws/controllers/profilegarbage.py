"""instanceprofile.garbagecollection: instance profiles of ours that no class and no node uses any more."""

from __future__ import annotations

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.controllers.base import Backoff, Cache, Result, Rounds, after, insisting
from dovetail.providers.aws.profiles import Profiles

__all__ = ["ProfileGarbage"]

EVERY = 1800.0


class ProfileGarbage(Rounds):
    """Every half hour. A profile is kept while a class names it, a claim has it, or it is new."""

    name = "instanceprofile.garbagecollection"
    backoff = Backoff(first=1.0, last=120.0)

    def __init__(self, profiles: Profiles, classes: Cache[EC2NodeClass], claims: Cache[NodeClaim]) -> None:
        self._profiles = profiles
        self._classes = classes
        self._claims = claims

    async def reconcile(self, key: str) -> Result:
        with insisting():
            for name in await self._profiles.ours():
                # Looked at anew for each: deleting takes a while, and a class may turn to one meanwhile.
                if name not in self._used() and not self._profiles.protected(name):
                    await self._profiles.delete(name)
        return after(EVERY)

    def _used(self) -> set[str | None]:
        named = {node_class.status.instance_profile for node_class in self._classes}
        return named | {claim.annotations.get(labels.INSTANCE_PROFILE_NAME) for claim in self._claims}
