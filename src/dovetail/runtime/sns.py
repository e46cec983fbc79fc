"""The HTTPS endpoint for SNS: every delivery is verified before a word of it is believed.

The only address ever asked is that of a signing certificate at SNS itself, without following redirects.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path

import aiohttp
from aiohttp import web
from cryptography import x509

from dovetail.aws import Aws
from dovetail.controllers.base import Remembered
from dovetail.controllers.zonal import counts
from dovetail.controllers.zonal.signals import SignalStore
from dovetail.errors import BadInput, DovetailError, Misconfigured
from dovetail.ports import Clock
from dovetail.runtime.throttle import Throttle
from dovetail.settings import Settings
from dovetail.zonal import sns
from dovetail.zonal.events import signal_of
from dovetail.zonal.sns import Delivery, TurnedAway

__all__ = ["Certificates", "SnsEndpoint", "fetch"]

log = logging.getLogger(__name__)
# The certificate and key the endpoint shows, as a mounted Secret of type kubernetes.io/tls has them.
TLS_DIRECTORY = Path("/var/run/dovetail/tls")
FETCH_SECONDS, CERTIFICATES, CERTIFICATE_BYTES = 2.0, 8, 64 * 1024
PER_SECOND, BURST = 20.0, 20
REPLAY_SECONDS, CONFIRM_SECONDS = 7200.0, 60.0
# Whoever is turned away learns nothing from how.
REFUSAL = "forbidden"

Fetch = Callable[[str], Awaitable[bytes]]


async def fetch(url: str) -> bytes:
    """A small file over verified TLS, from exactly that address."""
    timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.get(url, allow_redirects=False) as reply,
        ):
            if reply.status != 200:
                raise TurnedAway(403, "certificate-fetch")
            return await reply.content.read(CERTIFICATE_BYTES)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise TurnedAway(403, "certificate-fetch") from error


class Certificates:
    """Signing certificates by their address, each for as long as it is in force."""

    def __init__(self, fetching: Fetch = fetch, anchors: Sequence[x509.Certificate] = ()) -> None:
        self._fetch, self._anchors = fetching, anchors
        self._known: OrderedDict[str, x509.Certificate] = OrderedDict()

    async def of(self, delivery: Delivery, now: datetime) -> x509.Certificate:
        url = sns.certificate_url(delivery)
        known = self._known.get(url)
        if known is not None and now <= known.not_valid_after_utc:
            return known
        found = sns.certificate_of(await self._fetch(url), delivery, now, self._anchors)
        self._known[url] = found
        while len(self._known) > CERTIFICATES:
            self._known.popitem(last=False)
        return found


class SnsEndpoint:
    """Takes notifications of the topics it was told of."""

    def __init__(
        self,
        settings: Settings,
        aws: Aws,
        store: SignalStore,
        clock: Clock,
        *,
        certificates: Certificates | None = None,
        directory: Path = TLS_DIRECTORY,
        allow_v1: bool = False,
    ) -> None:
        self._settings, self._aws, self._store, self._clock = settings, aws, store, clock
        self._topics = settings.zonal_shift_topic_arn
        self._certificates = certificates or Certificates()
        self._directory, self._allow_v1 = directory, allow_v1
        self._throttle = Throttle(clock, PER_SECOND, BURST)
        self._seen, self._confirmed = Remembered(REPLAY_SECONDS), Remembered(CONFIRM_SECONDS)
        self.draining = False

    def app(self) -> web.Application:
        app = web.Application(client_max_size=sns.MOST_BYTES + 1)
        app.add_routes([web.route("*", "/sns", self._handle)])
        return app

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._subscribe()
        runner = web.AppRunner(self.app())
        await runner.setup()
        try:
            port = self._settings.zonal_shift_https_port
            await web.TCPSite(runner, None, port, ssl_context=self._tls()).start()
            await asyncio.get_running_loop().create_future()
        finally:
            self.draining = True
            await runner.cleanup()

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self._directory / "tls.crt", self._directory / "tls.key")
        except OSError as error:
            raise Misconfigured(
                f"opening the HTTPS endpoint for SNS: {self._directory} has no tls.crt and tls.key that "
                "can be used; mount a kubernetes.io/tls Secret there, or use ZONAL_SHIFT_QUEUE instead"
            ) from error
        return context

    async def _handle(self, request: web.Request) -> web.Response:
        if not self._throttle.allows():
            return web.Response(status=429)
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return web.Response(status=413)
        headers = {name.lower(): value for name, value in request.headers.items()}
        status = await self.take(body, headers, request.method)
        return web.Response(status=status, text=REFUSAL if status == 403 else "")

    async def take(self, body: bytes, headers: dict[str, str], method: str = "POST") -> int:
        """One delivery; the status it is answered with."""
        try:
            delivery = sns.delivery_of(body, headers, self._topics, method)
            now = self._clock.now()
            certificate = await self._certificates.of(delivery, now)
            sns.check_signature(delivery, certificate, allow_v1=self._allow_v1)
            sns.check_time(delivery, now)
        except TurnedAway as refusal:
            counts.SIGNATURES.labels(refusal.reason).inc()
            return refusal.status
        if self.draining:
            return 503
        try:
            return await self._believed(delivery)
        except DovetailError as error:
            log.warning("a delivery could not be kept, SNS will repeat it: %s", error)
            return 503

    async def _believed(self, delivery: Delivery) -> int:
        message, now = delivery.get("MessageId"), self._clock.monotonic()
        if self._seen.left(message, now):
            return 200
        if delivery.type == sns.NOTIFICATION:
            try:
                await self._store.put(signal_of(delivery.get("Message"), "sns"))
            except BadInput as error:
                log.warning("a notification makes no sense: %s", error)
                counts.SIGNALS.labels("sns", "unknown", "unparsable").inc()
        elif delivery.type == sns.CONFIRMATION:
            await self._confirm(delivery, now)
        else:
            log.error("the endpoint was unsubscribed from %s", delivery.topic)
            await self._subscribe()
        self._seen.add(message, now)
        return 200

    async def _confirm(self, delivery: Delivery, now: float) -> None:
        """By the API and with our own credentials; the address in the message is never visited."""
        if self._confirmed.left(delivery.topic, now):
            return
        self._confirmed.add(delivery.topic, now)
        asked = {
            "TopicArn": delivery.topic,
            "Token": delivery.get("Token"),
            "AuthenticateOnUnsubscribe": "true",
        }
        await self._aws.at(region=delivery.region).call("sns", "ConfirmSubscription", asked)

    async def _subscribe(self) -> None:
        if not self._settings.sns_auto_subscribe or not self._settings.zonal_shift_endpoint_url:
            return
        for topic in self._topics:
            asked = {
                "TopicArn": topic,
                "Protocol": "https",
                "Endpoint": self._settings.zonal_shift_endpoint_url,
            }
            await self._aws.call("sns", "Subscribe", asked)
