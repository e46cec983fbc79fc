"""Authorities made for the occasion: roots, issuers below them, and certificates for servers and clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "Issued"]

PEM = serialization.Encoding.PEM


def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(True, False, False, False, False, signs, signs, False, False)


@dataclass(frozen=True)
class Issued:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: rsa.RSAPrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(PEM)

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    def written(self, folder: Path, certificate: str = "tls.crt", key: str = "tls.key") -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / certificate).write_bytes(self.pem)
        text = self.key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (folder / key).write_bytes(text)
        return folder


@dataclass
class Authority:
    """Somebody who issues certificates; a root unless it is issued itself."""

    name: str
    now: datetime
    above: Authority | None = None
    # Where the certificate of whoever is above is to be had.
    told_at: str = ""
    key: rsa.RSAPrivateKey = field(default_factory=_key)

    def __post_init__(self) -> None:
        above = self.above or self
        made = self._builder(self.name, self.key, above).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        made = made.add_extension(_usage(signs=True), critical=True)
        self.issued = Issued(self._signed(made, above), self.key)

    def leaf(self, name: str, *, client: bool = False, address: str = "") -> Issued:
        """A certificate for a server of that name, or for a client."""
        key = _key()
        purpose = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        names: list[x509.GeneralName] = [x509.DNSName(name)]
        names += [x509.IPAddress(IPv4Address(address))] if address else []
        made = self._builder(name, key, self).add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        made = made.add_extension(_usage(signs=False), critical=True)
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = made.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        return Issued(self._signed(made, self), key)

    def _builder(self, name: str, key: rsa.RSAPrivateKey, above: Authority) -> x509.CertificateBuilder:
        def named(common: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])

        return (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named(above.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.now - timedelta(days=30))
            .not_valid_after(self.now + timedelta(days=30))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )

    def _signed(self, builder: x509.CertificateBuilder, above: Authority) -> x509.Certificate:
        identity = x509.AuthorityKeyIdentifier.from_issuer_public_key(above.key.public_key())
        builder = builder.add_extension(identity, critical=False)
        if self.told_at:
            where = x509.AccessDescription(
                AuthorityInformationAccessOID.CA_ISSUERS, x509.UniformResourceIdentifier(self.told_at)
            )
            builder = builder.add_extension(x509.AuthorityInformationAccess([where]), critical=False)
        return builder.sign(above.key, hashes.SHA256())
