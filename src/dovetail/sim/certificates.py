"""Certificates of the embedded cluster: an authority made at start, and a server certificate for loopback.

The authority's key never leaves the process; whoever holds the kubeconfig trusts this server alone.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["ClusterCertificates"]

LIFETIME = timedelta(days=365)
NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


class ClusterCertificates:
    """`authority` is what clients trust, in PEM; `context` is what the server listens with."""

    def __init__(self) -> None:
        authority_key = ec.generate_private_key(ec.SECP256R1())
        authority = _sign_certificate("dovetail embedded cluster", authority_key, None)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _sign_certificate("kube-apiserver", key, (authority, authority_key))
        self.authority: bytes = authority.public_bytes(serialization.Encoding.PEM)
        self.context = _build_tls_context(certificate, key)


def _sign_certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A client whose clock is a little behind must not find the certificate too young.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if issuer is None:
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        return builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())
    loopback = [x509.IPAddress(ipaddress.ip_address(a)) for a in ("127.0.0.1", "::1")]
    names = x509.SubjectAlternativeName([*(x509.DNSName(n) for n in NAMES), *loopback])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer[1].public_key())
    return (
        builder.add_extension(names, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(issuer[1], hashes.SHA256())
    )


def _build_tls_context(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pem = certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    # ssl reads certificates from files alone; this one is ours only, and gone at once.
    with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:
        path = Path(folder) / "server.pem"
        path.touch(mode=0o600)
        path.write_bytes(pem)
        context.load_cert_chain(path)
    return context
