"""Events posted by a sender that proves who it is: by a bearer token, or by a client's certificate.

Without either the address does not exist. Who is turned away is so before a word of the body is read.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from aiohttp import web

from dovetail.errors import BadInput, DovetailError, Misconfigured
from dovetail.logs import get_logger
from dovetail.ports import Clock
from dovetail.runtime.credentials import TokenFile
from dovetail.settings import Settings
from dovetail.zonal import shift_metrics
from dovetail.zonal.model.events import ShiftSignal, parse_signal

__all__ = ["PostedEvents", "Signals"]

log = get_logger()
SHORTEST = 16


class Signals(Protocol):
    """Where signals are kept."""

    async def put_signal(self, signal: ShiftSignal) -> str:
        """Keep one; what became of it."""


class PostedEvents:
    """Takes an event as EventBridge wrote it."""

    def __init__(self, settings: Settings, signals: Signals, clock: Clock) -> None:
        self._signals = signals
        self._path, self.authorities = settings.zonal_shift_events_token_file, ""
        self._token = TokenFile(Path(self._path), clock) if self._path else None
        self.authorities = settings.zonal_shift_events_ca_file

    @property
    def wanted(self) -> bool:
        """Whether anybody could be let in."""
        return self._token is not None or bool(self.authorities)

    async def check(self) -> None:
        """Misconfigured when the token is no token."""
        if self._token is None:
            return
        token = (await self._token.build_headers())["Authorization"].removeprefix("Bearer ")
        if len(token) < SHORTEST:
            raise Misconfigured(
                f"opening /events: the token in {self._path} is shorter than {SHORTEST} characters; "
                "write a long random one there"
            )

    async def take(self, request: web.Request, allows: Callable[[], bool] = lambda: True) -> int:
        """One post; the status it is answered with. `allows` is asked once the sender is known."""
        if not await self._known(request):
            shift_metrics.SIGNATURES.labels("events-sender").inc()
            return 403
        if not allows():
            return 429
        if request.method != "POST":
            return 405
        try:
            await self._signals.put_signal(parse_signal(await request.read(), "webhook"))
        except web.HTTPRequestEntityTooLarge:
            return 413
        except BadInput as error:
            log.warning("a posted event makes no sense", error=error)
            shift_metrics.SIGNALS.labels("webhook", "unknown", "unparsable").inc()
            return 400
        except DovetailError as error:
            log.warning("a posted event could not be kept, its sender must repeat it", error=error)
            return 503
        return 200

    async def _known(self, request: web.Request) -> bool:
        transport = request.transport
        # The handshake has checked a certificate that was shown; none at all is let through to here.
        if self.authorities and transport is not None and transport.get_extra_info("peercert"):
            return True
        if self._token is None:
            return False
        given = request.headers.get("Authorization", "")
        wanted = (await self._token.build_headers())["Authorization"]
        long_enough = len(wanted) >= SHORTEST + len("Bearer ")
        # A header may hold bytes that are no text.
        return hmac.compare_digest(given.encode(errors="surrogateescape"), wanted.encode()) and long_enough
