"""The EKS token, held to signatures that botocore made of the same request at the same moment."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest

from dovetail.errors import Misconfigured
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.eks import AwsKeys, build_eks_token, connect_eks, presign_token, read_environment_keys
from dovetail.sim.certificates import ClusterCertificates
from dovetail.sim.clock import VirtualClock, run_virtual

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SESSION = "FwoGZXIvYXdzE/tok+en=="
# From botocore's RequestSigner.generate_presigned_url, expires_in=60, header x-k8s-aws-id: my-cluster.
GOLDEN = {
    ("us-west-2", ""): "5200d087d1baffb4fc2baaa1d59b9903d3f30d81caa3930983da7f1c380cbd11",
    ("us-west-2", SESSION): "eff1efa58bfaf9c4cad141f97dabd82dfa5cc4a39f334f8940df4df2ac046366",
    ("eu-central-1", SESSION): "d4cd3e75bae69fff95bdcb9d9a0412a62d2e560c999e8982f53f0cf36374b6e9",
    ("us-gov-west-1", ""): "7a66279d0184695a787de266000e79b95b32620339948bcd1d86da54214f8fd5",
    ("cn-north-1", ""): "6c9dd55ef85ec0c428c3ccf3312a78eb83f04ced5b34f80d39527bb895cea277",
    ("cn-north-1", SESSION): "d3a4a82a13ad07ec976d652defbc4e58966712130d2e42aedf92ce22779ae1be",
}


def url_of(token: str) -> str:
    body = token.removeprefix("k8s-aws-v1.")
    assert body != token
    assert not body.endswith("=")
    return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode()


@pytest.mark.parametrize(("region", "session"), GOLDEN)
def test_the_signature_is_the_one_aws_libraries_make(region: str, session: str) -> None:
    url = urlsplit(url_of(presign_token("my-cluster", region, AwsKeys("AKIDEXAMPLE", SECRET, session), NOW)))
    query = {key: values[0] for key, values in parse_qs(url.query).items()}
    assert query["X-Amz-Signature"] == GOLDEN[region, session]
    assert url.netloc == f"sts.{region}.amazonaws.com" + (".cn" if region.startswith("cn") else "")
    assert query["X-Amz-Expires"] == "60"
    assert query.get("X-Amz-Security-Token", "") == session


def test_the_token_is_made_afresh_before_it_runs_out() -> None:
    async def main() -> list[str]:
        clock, asked = VirtualClock(), []

        async def keys() -> AwsKeys:
            asked.append(clock.monotonic())
            return AwsKeys("AKIDEXAMPLE", SECRET)

        credentials = build_eks_token("my-cluster", "us-west-2", clock, keys)
        tokens = []
        for _ in range(16):
            tokens.append((await credentials.build_headers())["Authorization"])
            await clock.sleep(60)
        assert asked == [0, 780], "good for 14 minutes, and given up a minute early"
        return tokens

    tokens = run_virtual(main())
    assert len(set(tokens)) == 2


async def test_a_described_cluster_can_be_reached() -> None:
    async def keys() -> AwsKeys:
        return AwsKeys("AKIDEXAMPLE", SECRET)

    authority = ClusterCertificates().authority
    found = connect_eks("https://abc.eks.example", authority, "my-cluster", "us-west-2", SystemClock(), keys)
    headers = await found.sign_in().build_headers()
    assert headers["Authorization"].startswith("Bearer k8s-aws-v1.")
    assert found.tls is not None
    assert len(found.tls.get_ca_certs()) == 1
    assert SECRET not in repr(found)


async def test_missing_keys_are_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with pytest.raises(Misconfigured, match="AWS_ACCESS_KEY_ID") as caught:
        await read_environment_keys()
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(AwsKeys("a", SECRET, SESSION))
