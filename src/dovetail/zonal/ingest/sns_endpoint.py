"""The HTTPS endpoint for SNS: every delivery is verified before a word of it is believed.

Nothing is asked but signing certificates, without following redirects. Beside it, where a token or
authorities for clients are given, others may post events to an address of their own. It runs in a process of
its own (`sns_process`), which is all that whoever attacks it can stop.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

from aiohttp import web

from dovetail.aws import Aws
from dovetail.controllers.base import RecentKeys
from dovetail.errors import BadInput, DovetailError, Misconfigured, Throttled
from dovetail.logs import get_logger
from dovetail.ports import Clock
from dovetail.runtime.http_listener import ServerLimits, start_listener
from dovetail.settings import Settings
from dovetail.throttle import Throttle
from dovetail.zonal import shift_metrics
from dovetail.zonal.ingest import sns_delivery
from dovetail.zonal.ingest.certificates import Certificates, fetch, public_roots
from dovetail.zonal.ingest.posted_events import PostedEvents, Signals
from dovetail.zonal.ingest.sns_delivery import SnsDelivery, TurnedAway
from dovetail.zonal.model.events import parse_signal

__all__ = ["Certificates", "SnsEndpoint", "endpoint_wanted", "fetch"]

log = get_logger()
# The certificate and key the endpoint shows, as a mounted Secret of type kubernetes.io/tls has them.
TLS_DIRECTORY = Path("/var/run/dovetail/tls")
# For each topic and for those who post events, counted once they are known: strangers cannot use it up.
PER_SECOND, BURST = 20.0, 20
# Load balancers show SNS and everybody else by a few addresses of their own.
LIMITS = ServerLimits(connections=256, per_source=128)
BODY_SECONDS = 10.0
RELOAD_SECONDS = 60.0
CONFIRM_PAUSES = (1.0, 3.0)
REPLAY_SECONDS, CONFIRM_SECONDS = 7200.0, 60.0
FIRST_PAUSE, LAST_PAUSE = 5.0, 300.0
# As our infrastructure sets it: the default of three repeats within a minute does not outlast a bad hour.
RETRIES = {
    "numRetries": 20,
    "minDelayTarget": 1,
    "maxDelayTarget": 600,
    "backoffFunction": "exponential",
}
# Whoever is turned away learns nothing from how.
REFUSAL = "forbidden"
EVENTS = "events"
# Addresses of certificates that are not known yet may be asked for so often: anybody can name one.
FETCHES, FETCHES_AT_ONCE = 0.5, 5


def endpoint_wanted(settings: Settings) -> bool:
    """Whether there is anybody to be heard by HTTPS."""
    senders = settings.zonal_shift_events_token_file or settings.zonal_shift_events_ca_file
    return bool(settings.zonal_shift_topic_arn or senders)


class SnsEndpoint:
    """Takes notifications of the topics it was told of."""

    def __init__(
        self,
        settings: Settings,
        aws: Aws,
        store: Signals,
        clock: Clock,
        *,
        certificates: Certificates | None = None,
        directory: Path = TLS_DIRECTORY,
    ) -> None:
        self._settings, self._aws, self._store, self._clock = settings, aws, store, clock
        self._topics = settings.zonal_shift_topic_arn
        self._certificates = certificates or Certificates(
            anchors=public_roots(settings.zonal_policy.sns_ca_file) if self._topics else (),
            fetches=Throttle(clock, FETCHES, FETCHES_AT_ONCE),
        )
        self._posted = PostedEvents(settings, store, clock)
        self._directory, self._allow_v1 = directory, settings.zonal_policy.allow_signature_v1
        named = (*self._topics, EVENTS)
        self._throttles = {each: Throttle(clock, PER_SECOND, BURST) for each in named}
        self._seen, self._confirmed = RecentKeys(REPLAY_SECONDS), RecentKeys(CONFIRM_SECONDS)
        self.draining = False
        self._shown: tuple[int, ...] = ()
        self.listening = asyncio.Event()
        # Where it listens, once it does.
        self.addresses: tuple[tuple[Any, ...], ...] = ()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=sns_delivery.MOST_BYTES + 1)
        if self._topics:
            app.add_routes([web.route("*", "/sns", self._handle)])
        if self._posted.wanted:
            app.add_routes([web.route("*", "/events", self._handle_posted)])
        return app

    async def run(self) -> None:
        """Serve until cancelled; the topics are subscribed to once somebody is there to confirm it."""
        await self._posted.check()
        tls = self._tls()
        listener = await start_listener(
            self.app(), self._settings.zonal_shift_https_port, tls=tls, limits=LIMITS
        )
        try:
            self.addresses = listener.addresses
            self.listening.set()
            await asyncio.gather(self.subscribe(), self._reload(tls))
        finally:
            self.draining = True
            await listener.cleanup()

    async def _reload(self, tls: ssl.SSLContext) -> None:
        """Show the certificate that is there now; one that cannot be used leaves the last in force."""
        while True:
            await self._clock.sleep(RELOAD_SECONDS)
            self.renew(tls)

    def renew(self, tls: ssl.SSLContext) -> None:
        """Load the certificate again if its files have changed."""
        if (shown := self._stamps()) == self._shown:
            return
        try:
            self._load(tls)
        except Misconfigured as error:
            log.warning("the certificate of the endpoint cannot be renewed, the last one stays", error=error)
        else:
            log.info("the certificate of the endpoint was renewed")
            self._shown = shown

    def _stamps(self) -> tuple[int, ...]:
        paths = (self._directory / "tls.crt", self._directory / "tls.key")
        return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._shown = self._stamps()
        self._load(context)
        if self._posted.authorities:
            try:
                context.load_verify_locations(self._posted.authorities)
            except OSError as error:
                raise Misconfigured(
                    f"opening /events: {self._posted.authorities} holds no certificates in PEM; "
                    "name the authorities of its clients with ZONAL_SHIFT_EVENTS_CA_FILE"
                ) from error
            # SNS shows no certificate, and needs none; whoever shows one must have it from these.
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self._directory / "tls.crt", self._directory / "tls.key")
        except OSError as error:
            raise Misconfigured(
                f"opening the HTTPS endpoint for SNS: {self._directory} has no tls.crt and tls.key that "
                "can be used; mount a kubernetes.io/tls Secret there, or use ZONAL_SHIFT_QUEUE instead"
            ) from error

    async def _handle_posted(self, request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                status = (
                    503
                    if self.draining
                    else await self._posted.take(request, self._throttles[EVENTS].try_take)
                )
        except TimeoutError:
            status = 408
        return web.Response(status=status, text=REFUSAL if status == 403 else "")

    async def _handle(self, request: web.Request) -> web.Response:
        # SNS compresses nothing, and what is packed small may be large.
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            return web.Response(status=415)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return web.Response(status=413)
        except TimeoutError:
            return web.Response(status=408)
        headers = {name.lower(): value for name, value in request.headers.items()}
        status = await self.take(body, headers, request.method)
        return web.Response(status=status, text=REFUSAL if status == 403 else "")

    async def take(self, body: bytes, headers: dict[str, str], method: str = "POST") -> int:
        """One delivery; the status it is answered with."""
        try:
            delivery = sns_delivery.parse_delivery(body, headers, self._topics, method)
            now = self._clock.now()
            certificate = await self._certificates.of(delivery, now)
            sns_delivery.check_signature(delivery, certificate, allow_v1=self._allow_v1)
            sns_delivery.check_time(delivery, now)
        except TurnedAway as refusal:
            shift_metrics.SIGNATURES.labels(refusal.reason).inc()
            return refusal.status
        if self.draining:
            return 503
        try:
            return await self._believed(delivery)
        except DovetailError as error:
            log.warning("a delivery could not be kept, SNS will repeat it", error=error)
            return 503

    async def _believed(self, delivery: SnsDelivery) -> int:
        message, now = delivery.get("MessageId"), self._clock.monotonic()
        if self._seen.seconds_left(message, now):
            return 200
        if not self._throttles[delivery.topic].try_take():
            return 429
        if delivery.type == sns_delivery.NOTIFICATION:
            try:
                await self._store.put_signal(parse_signal(delivery.get("Message"), "sns"))
            except BadInput as error:
                log.warning("a notification makes no sense", error=error)
                shift_metrics.SIGNALS.labels("sns", "unknown", "unparsable").inc()
        elif delivery.type == sns_delivery.CONFIRMATION:
            await self._confirm(delivery, now)
        else:
            log.error("the endpoint was unsubscribed", topic=delivery.topic)
            # Whoever could do that is looked into like a forged signature.
            shift_metrics.SIGNATURES.labels("unsubscribed").inc()
            await self._subscribe(delivery.topic)
        self._seen.add(message, now)
        return 200

    async def _confirm(self, delivery: SnsDelivery, now: float) -> None:
        """By the API and with our own credentials; the address in the message is never visited."""
        if self._confirmed.seconds_left(delivery.topic, now):
            return
        asked = {
            "TopicArn": delivery.topic,
            "Token": delivery.get("Token"),
            "AuthenticateOnUnsubscribe": "true",
        }
        there = self._aws.scope_to(region=delivery.region)
        for pause in (*CONFIRM_PAUSES, None):
            try:
                await there.call("sns", "ConfirmSubscription", asked)
                break
            except Throttled:
                if pause is None:
                    raise  # answered with 503, so that SNS asks again
                await self._clock.sleep(pause)
        # Only now: what failed must be tried again when SNS repeats it.
        self._confirmed.add(delivery.topic, now)

    async def subscribe(self) -> None:
        """Subscribe to every topic, if that is wanted, and go on trying until it is done."""
        pause, left = FIRST_PAUSE, list(self._topics)
        while left:
            try:
                await self._subscribe(left[0])
                left.pop(0)
            except DovetailError as error:
                log.warning("cannot subscribe, trying again", topic=left[0], seconds=pause, error=error)
                await self._clock.sleep(pause)
                pause = min(pause * 2, LAST_PAUSE)

    async def _subscribe(self, topic: str) -> None:
        if not self._settings.zonal_policy.sns_auto_subscribe or not self._settings.zonal_shift_endpoint_url:
            return
        asked = {
            "TopicArn": topic,
            "Protocol": "https",
            "Endpoint": self._settings.zonal_shift_endpoint_url,
            "Attributes": {"DeliveryPolicy": json.dumps({"healthyRetryPolicy": RETRIES})},
        }
        await self._aws.scope_to(region=sns_delivery.find_region(topic)).call("sns", "Subscribe", asked)
