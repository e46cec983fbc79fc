"""Deliveries as SNS signs them, with certificates made for the occasion."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dovetail.zonal.ingest.sns_delivery import SnsDelivery, build_signed_text

__all__ = ["NOW", "TOPIC", "URL", "Fetched", "Signer", "authority", "headers_of", "notification"]

NOW = datetime(2026, 2, 3, 10, 15, tzinfo=UTC)
TOPIC = "arn:aws:sns:us-west-2:111122223333:zonal"
URL = "https://sns.us-west-2.amazonaws.com/SimpleNotificationService-0a1b.pem"
Fields = dict[str, str]


@cache
def _key(name: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


@cache
def authority(name: str = "public root") -> x509.Certificate:
    key = _key(name)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(name))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=365))
        .not_valid_after(NOW + timedelta(days=365))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


@dataclass(frozen=True)
class Signer:
    """Somebody with a key and a certificate; by default SNS itself."""

    host: str = "sns.us-west-2.amazonaws.com"
    starts: datetime = NOW - timedelta(days=1)
    ends: datetime = NOW + timedelta(days=30)
    issuer: str = "public root"
    key: str = "sns"

    def certificate(self) -> x509.Certificate:
        root = authority(self.issuer)
        return (
            x509.CertificateBuilder()
            .subject_name(_name(self.host))
            .issuer_name(root.subject)
            .public_key(_key(self.key).public_key())
            .serial_number(2)
            .not_valid_before(self.starts)
            .not_valid_after(self.ends)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(self.host)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(_key(self.issuer).public_key()),
                critical=False,
            )
            .sign(_key(self.issuer), hashes.SHA256())
        )

    def pem(self, *others: x509.Certificate) -> bytes:
        listed = (self.certificate(), *others)
        return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in listed)

    def signed(self, fields: Fields) -> Fields:
        digest = hashes.SHA1() if fields.get("SignatureVersion") == "1" else hashes.SHA256()
        told = build_signed_text(SnsDelivery(fields["Type"], fields["TopicArn"], fields))
        signature = _key(self.key).sign(told, padding.PKCS1v15(), digest)
        return {**fields, "Signature": base64.b64encode(signature).decode()}


def notification(message: Any = "{}", **more: str) -> Fields:
    text = message if isinstance(message, str) else json.dumps(message)
    return {
        "Type": "Notification",
        "MessageId": "m-1",
        "TopicArn": TOPIC,
        "Message": text,
        "Timestamp": NOW.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "SignatureVersion": "2",
        "SigningCertURL": URL,
        **more,
    }


def headers_of(fields: Fields) -> dict[str, str]:
    return {
        "x-amz-sns-message-type": fields["Type"],
        "x-amz-sns-topic-arn": fields["TopicArn"],
    }


@dataclass
class Fetched:
    """Stands at the door to the network: what was asked for, and the file that is there."""

    pem: bytes
    asked: list[str] = field(default_factory=list)

    async def __call__(self, url: str) -> bytes:
        self.asked.append(url)
        return self.pem
