"""Is a delivery from SNS what it claims to be? The first thing that is wrong turns it away.

Nothing is fetched here: whoever asks brings the certificate, and may only fetch it from the address that
`check_certificate_url` has let pass. SubscribeURL is part of what is signed and is never visited by anyone.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import AuthorityInformationAccessOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from msgspec import Struct

from dovetail.errors import DovetailError

__all__ = [
    "CONFIRMATION",
    "MOST_BYTES",
    "NOTIFICATION",
    "UNSUBSCRIBED",
    "SnsDelivery",
    "TurnedAway",
    "build_signed_text",
    "check_certificate",
    "check_certificate_url",
    "check_signature",
    "check_time",
    "find_issuer_address",
    "find_region",
    "is_issued_by",
    "parse_chain",
    "parse_delivery",
    "parse_issuer",
]

NOTIFICATION, CONFIRMATION = "Notification", "SubscriptionConfirmation"
UNSUBSCRIBED = "UnsubscribeConfirmation"
MOST_BYTES = 256 * 1024
SKEW = timedelta(hours=1)
# What is signed, in this order; a subject only where there is one.
SIGNED: Mapping[str, tuple[str, ...]] = {
    NOTIFICATION: ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    CONFIRMATION: ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
    UNSUBSCRIBED: ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
}
TOPIC = re.compile(r"arn:aws[a-z-]*:sns:(?P<region>[a-z0-9-]+):[0-9]{12}:[A-Za-z0-9_.-]{1,256}")
# Where Amazon's authority keeps certificates of its issuers, which are checked once they are here.
ISSUER = re.compile(r"https?://[a-z0-9.-]+\.amazontrust\.com/[A-Za-z0-9._-]+\.(cer|crt|der|pem)")
DOMAINS = ("amazonaws.com", "amazonaws.com.cn")


class TurnedAway(DovetailError):
    """A delivery that is not taken: the status it is answered with, and a word for the metric."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"a delivery is turned away: {reason}")
        self.status, self.reason = status, reason


class SnsDelivery(Struct, frozen=True):
    """What came, as far as it can be read without trusting any of it."""

    type: str
    topic: str
    fields: Mapping[str, str]

    @property
    def region(self) -> str:
        return find_region(self.topic)

    def get(self, name: str) -> str:
        return self.fields.get(name, "")


def find_region(topic: str) -> str:
    """The region of a topic; empty when that is no topic."""
    found = TOPIC.fullmatch(topic)
    return found["region"] if found else ""


def parse_delivery(
    body: bytes, headers: Mapping[str, str], topics: Sequence[str], method: str = "POST"
) -> SnsDelivery:
    """Steps one to three: its form, its type, and a topic that is ours. `headers` are in lower case."""
    if method != "POST":
        raise TurnedAway(405, "method")
    if len(body) > MOST_BYTES:
        raise TurnedAway(413, "size")
    document = _parse_object(body)
    kind = document.get("Type", "")
    if headers.get("x-amz-sns-message-type") != kind:
        raise TurnedAway(400, "type")
    if kind not in SIGNED:
        raise TurnedAway(400, "type")
    topic = document.get("TopicArn", "")
    told = headers.get("x-amz-sns-topic-arn", topic)
    if (
        not _is_same_text(topic, told)
        or not any(_is_same_text(topic, each) for each in topics)
        or not TOPIC.fullmatch(topic)
    ):
        raise TurnedAway(403, "topic")
    return SnsDelivery(kind, topic, document)


def _parse_object(body: bytes) -> dict[str, str]:
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise TurnedAway(400, "json") from error
    if not isinstance(found, dict) or not all(map(_is_text, (*found, *found.values()))):
        raise TurnedAway(400, "json")
    return found


def _is_text(value: object) -> bool:
    """Whether it is a text that can be written: half a surrogate pair cannot."""
    return isinstance(value, str) and not any("\ud800" <= each <= "\udfff" for each in value)


def _is_same_text(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(errors="replace"), other.encode(errors="replace"))


def check_certificate_url(delivery: SnsDelivery) -> str:
    """Step four, before anything is fetched: the address, if it is one of SNS's own in the topic's region."""
    url = delivery.get("SigningCertURL") or delivery.get("SigningCertUrl")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise TurnedAway(403, "certificate-url") from error
    hosts = {f"sns.{delivery.region}.{domain}" for domain in DOMAINS}
    proper = (
        parts.scheme == "https"
        and parts.netloc in hosts
        and port is None
        and parts.path.endswith(".pem")
        and not parts.query
        and not parts.fragment
        and url.isascii()
        and url.isprintable()
    )
    if not delivery.region or not proper:
        raise TurnedAway(403, "certificate-url")
    return url


def parse_chain(pem: bytes) -> list[x509.Certificate]:
    """The certificates in a file from such an address: SNS's own first, then issuers, if they are there."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise TurnedAway(403, "certificate") from error


def is_issued_by(certificate: x509.Certificate, anchors: Sequence[x509.Certificate]) -> bool:
    """Whether one of the anchors is said to have issued it; that they did is checked with the whole chain."""
    return any(certificate.issuer == each.subject for each in anchors)


def find_issuer_address(certificate: x509.Certificate) -> str:
    """Where a certificate says its issuer's is to be had, if that is Amazon's own authority; empty if not."""
    try:
        access = certificate.extensions.get_extension_for_class(x509.AuthorityInformationAccess).value
    except x509.ExtensionNotFound:
        return ""
    for each in access:
        told = each.access_location
        if each.access_method == AuthorityInformationAccessOID.CA_ISSUERS and _is_trusted_address(told):
            return str(told.value)
    return ""


def _is_trusted_address(told: x509.GeneralName) -> bool:
    if not isinstance(told, x509.UniformResourceIdentifier) or not told.value.isascii():
        return False
    return ISSUER.fullmatch(told.value) is not None


def parse_issuer(data: bytes) -> x509.Certificate:
    """The certificate at such an address."""
    try:
        return x509.load_der_x509_certificate(data)
    except ValueError:
        return parse_chain(data)[0]


def check_certificate(
    chain: Sequence[x509.Certificate],
    delivery: SnsDelivery,
    now: datetime,
    anchors: Sequence[x509.Certificate] = (),
) -> x509.Certificate:
    """The first of a chain, if it is SNS's own, in force, and vouched for.

    With anchors the chain must lead to one of them. Without, it must at least hold together; a lone
    certificate then rests on the verified connection it came over.
    """
    leaf, others = chain[0], chain[1:]
    if not leaf.not_valid_before_utc <= now <= leaf.not_valid_after_utc:
        raise TurnedAway(403, "certificate-expired")
    if not any(name in _list_names(leaf) for name in _list_sns_names(delivery.region)):
        raise TurnedAway(403, "certificate-name")
    _check_chain(leaf, others, now, anchors, delivery.region)
    return leaf


def _check_chain(
    leaf: x509.Certificate,
    others: Sequence[x509.Certificate],
    now: datetime,
    anchors: Sequence[x509.Certificate],
    region: str,
) -> None:
    if not anchors:
        for one, issuer in zip((leaf, *others), others, strict=False):
            try:
                one.verify_directly_issued_by(issuer)
            except (ValueError, TypeError, InvalidSignature) as error:
                raise TurnedAway(403, "certificate-chain") from error
        return
    name = next(each for each in _list_sns_names(region) if each in _list_names(leaf))
    builder = PolicyBuilder().store(Store(list(anchors))).time(now)
    try:
        builder.build_server_verifier(x509.DNSName(name)).verify(leaf, list(others))
    except VerificationError as error:
        raise TurnedAway(403, "certificate-chain") from error


def _list_sns_names(region: str) -> tuple[str, ...]:
    return (
        *(f"sns.{domain}" for domain in DOMAINS),
        *(f"sns.{region}.{domain}" for domain in DOMAINS),
    )


def _list_names(certificate: x509.Certificate) -> frozenset[str]:
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    names = {str(each.value) for each in common}
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset(names)
    return frozenset(names | {*extension.value.get_values_for_type(x509.DNSName)})


def build_signed_text(delivery: SnsDelivery) -> bytes:
    """What SNS signed: each name and value on a line of its own."""
    lines = [
        f"{name}\n{delivery.fields[name]}\n"
        for name in SIGNED[delivery.type]
        if name != "Subject" or "Subject" in delivery.fields
        if name in delivery.fields
    ]
    return "".join(lines).encode()


def check_signature(delivery: SnsDelivery, certificate: x509.Certificate, *, allow_v1: bool = False) -> None:
    """Step five. Version 1 uses SHA-1 and is taken only where someone allows it."""
    version = delivery.get("SignatureVersion")
    if version not in ("1", "2") or (version == "1" and not allow_v1):
        raise TurnedAway(403, "signature-version")
    missing = [n for n in SIGNED[delivery.type] if n not in delivery.fields and n != "Subject"]
    key = certificate.public_key()
    if missing or not isinstance(key, rsa.RSAPublicKey):
        raise TurnedAway(403, "signature")
    digest = hashes.SHA256() if version == "2" else hashes.SHA1()
    try:
        signature = base64.b64decode(delivery.get("Signature"), validate=True)
        key.verify(signature, build_signed_text(delivery), padding.PKCS1v15(), digest)
    except (ValueError, InvalidSignature) as error:
        raise TurnedAway(403, "signature") from error


def check_time(delivery: SnsDelivery, now: datetime) -> None:
    """Step six: what is old or from the future is nobody's news."""
    try:
        sent = datetime.fromisoformat(delivery.get("Timestamp"))
    except ValueError as error:
        raise TurnedAway(403, "timestamp") from error
    if sent.tzinfo is None or abs(now - sent) > SKEW:
        raise TurnedAway(403, "timestamp")
