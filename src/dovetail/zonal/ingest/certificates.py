"""Signing certificates of SNS: fetched from SNS alone, vouched for by the public roots, kept while in force.

The file at SNS may hold the certificate alone. Who issued it is then asked of Amazon's own authority, at the
address the certificate names; what comes from there counts only if it leads to a root we know.
"""

from __future__ import annotations

import ssl
import warnings
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path

import aiohttp
from cryptography import x509

from dovetail.errors import Misconfigured
from dovetail.throttle import Throttle
from dovetail.zonal.ingest import sns_delivery
from dovetail.zonal.ingest.sns_delivery import SnsDelivery, TurnedAway

__all__ = ["Certificates", "fetch", "public_roots"]

FETCH_SECONDS, CERTIFICATES, CERTIFICATE_BYTES = 2.0, 8, 64 * 1024
# Issuers between the certificate and a root.
HOPS = 3

Fetch = Callable[[str], Awaitable[bytes]]


async def fetch(url: str) -> bytes:
    """A small file from exactly that address, over verified TLS where it says https."""
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


@cache
def public_roots(path: str = "") -> tuple[x509.Certificate, ...]:
    """The authorities in a file, or those the system trusts; Misconfigured where there are none."""
    if path:
        try:
            return tuple(x509.load_pem_x509_certificates(Path(path).read_bytes()))
        except (OSError, ValueError) as error:
            raise Misconfigured(
                f"reading sns-ca-file (ZONAL_SHIFT_SNS_CA_FILE): {path} holds no certificates in PEM; "
                "name a file of authorities, or leave it empty for the system's"
            ) from error
    known = ssl.create_default_context().get_ca_certs(binary_form=True)
    found = tuple(each for each in map(_loaded, known) if each is not None)
    if not found:
        raise Misconfigured(
            "checking certificates of SNS: the system knows no authorities; "
            "install ca-certificates, or name a file with sns-ca-file of the policy"
        )
    return found


def _loaded(der: bytes) -> x509.Certificate | None:
    """A root; None for one that breaks the rules, as a few old ones do."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return x509.load_der_x509_certificate(der)
        except (ValueError, Warning):
            return None


class Certificates:
    """Signing certificates by their address, each for as long as it is in force."""

    def __init__(
        self,
        fetching: Fetch = fetch,
        anchors: Sequence[x509.Certificate] = (),
        fetches: Throttle | None = None,
    ) -> None:
        self._fetch, self._anchors, self._fetches = fetching, anchors, fetches
        self._known: OrderedDict[str, x509.Certificate] = OrderedDict()

    async def of(self, delivery: SnsDelivery, now: datetime) -> x509.Certificate:
        url = sns_delivery.check_certificate_url(delivery)
        known = self._known.get(url)
        if known is not None and now <= known.not_valid_after_utc:
            return known
        if self._fetches is not None and not self._fetches.try_take():
            raise TurnedAway(429, "certificate-rate")
        chain = sns_delivery.parse_chain(await self._fetch(url))
        found = sns_delivery.check_certificate(await self._completed(chain), delivery, now, self._anchors)
        self._known[url] = found
        while len(self._known) > CERTIFICATES:
            self._known.popitem(last=False)
        return found

    async def _completed(self, chain: Sequence[x509.Certificate]) -> Sequence[x509.Certificate]:
        """The chain with the issuers that its file left out."""
        found = [*chain]
        while (
            len(found) <= HOPS and self._anchors and not sns_delivery.is_issued_by(found[-1], self._anchors)
        ):
            address = sns_delivery.find_issuer_address(found[-1])
            if not address:
                break
            found.append(sns_delivery.parse_issuer(await self._fetch(address)))
        return found
