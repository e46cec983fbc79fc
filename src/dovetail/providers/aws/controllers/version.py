"""providers.version: the cluster's Kubernetes version, which images are chosen by."""

from __future__ import annotations

import logging

from dovetail.controllers.base import Backoff, Result, Rounds, after, insisting
from dovetail.providers.aws.discovery import Discovery

__all__ = ["Version"]

EVERY = 300.0
log = logging.getLogger(__name__)


class Version(Rounds):
    """Every five minutes. While it cannot be read, the version last known stays."""

    name = "providers.version"
    backoff = Backoff(first=1.0, last=EVERY)

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery
        self._remarked = ""

    async def reconcile(self, key: str) -> Result:
        with insisting():
            await self._discovery.refresh_version()
        remark = self._discovery.remark
        if remark and remark != self._remarked:
            log.error(remark)
        self._remarked = remark
        return after(EVERY)
