"""providers.ssm.invalidation: parameters that name a deprecated image are read again."""

from __future__ import annotations

from dovetail.controllers.base import Backoff, Result, Rounds, after, insisting
from dovetail.providers.aws.images import Images

__all__ = ["SsmInvalidation"]

EVERY = 1800.0


class SsmInvalidation(Rounds):
    """Every half hour: `latest` moves on when its image is deprecated, long before a day is over."""

    name = "providers.ssm.invalidation"
    backoff = Backoff(first=1.0, last=120.0)

    def __init__(self, images: Images) -> None:
        self._images = images

    async def reconcile(self, key: str) -> Result:
        with insisting():
            for name, image in self._images.parameters.mutable():
                if await self._images.deprecated(image):
                    self._images.parameters.forget(name)
        return after(EVERY)
