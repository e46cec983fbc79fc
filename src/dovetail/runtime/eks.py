"""The token EKS takes: a presigned STS GetCallerIdentity address, signed for one cluster.

No AWS library is needed for it: the signature is Signature Version 4 over one short request.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from urllib.parse import quote

import msgspec

from dovetail.errors import Misconfigured
from dovetail.ports import Clock
from dovetail.runtime.credentials import MintedToken
from dovetail.runtime.kubeconfig import Connection, trust_authority

__all__ = ["AwsKeys", "build_eks_token", "connect_eks", "presign_token", "read_environment_keys"]

# The address is good for 60 s by its own word, but EKS accepts the token for 15 minutes.
URL_SECONDS = 60
TOKEN_LIFETIME = timedelta(minutes=14)


class AwsKeys(msgspec.Struct, frozen=True):
    """Credentials to sign with. Never printed."""

    access_key: str
    secret_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        return "AwsKeys(…)"


async def read_environment_keys() -> AwsKeys:
    """The keys in the standard variables; a provider hands in its own chain where there is one."""
    access, secret = os.environ.get("AWS_ACCESS_KEY_ID", ""), os.environ.get("AWS_SECRET_ACCESS_KEY", "")
    if not access or not secret:
        raise Misconfigured("signing in to EKS: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set")
    return AwsKeys(access, secret, os.environ.get("AWS_SESSION_TOKEN", ""))


def connect_eks(
    endpoint: str,
    authority: bytes,
    cluster: str,
    region: str,
    clock: Clock,
    keys: Callable[[], Awaitable[AwsKeys]] = read_environment_keys,
) -> Connection:
    """An EKS cluster as DescribeCluster names it: its endpoint and its authority in PEM."""
    return Connection(
        server=endpoint,
        sign_in=lambda: build_eks_token(cluster, region, clock, keys),
        tls=trust_authority(authority),
    )


def build_eks_token(
    cluster: str, region: str, clock: Clock, keys: Callable[[], Awaitable[AwsKeys]] = read_environment_keys
) -> MintedToken:
    """Credentials for an EKS cluster, made afresh a minute before they run out."""

    async def mint() -> tuple[str, timedelta]:
        return presign_token(cluster, region, await keys(), clock.now()), TOKEN_LIFETIME

    return MintedToken(mint, clock)


def presign_token(cluster: str, region: str, keys: AwsKeys, now: datetime) -> str:
    """The bearer token for one cluster at one moment."""
    host = f"sts.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    scope = f"{day}/{region}/sts/aws4_request"
    query = {
        "Action": "GetCallerIdentity",
        "Version": "2011-06-15",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{keys.access_key}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(URL_SECONDS),
        "X-Amz-SignedHeaders": "host;x-k8s-aws-id",
    }
    if keys.session_token:
        query["X-Amz-Security-Token"] = keys.session_token
    text = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in sorted(query.items()))
    empty = hashlib.sha256(b"").hexdigest()
    canonical = f"GET\n/\n{text}\nhost:{host}\nx-k8s-aws-id:{cluster}\n\nhost;x-k8s-aws-id\n{empty}"
    to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{keys.secret_key}".encode()
    for part in (day, region, "sts", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    url = f"https://{host}/?{text}&X-Amz-Signature={signature}"
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
