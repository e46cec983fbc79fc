"""What a signing certificate of SNS rests on: a chain to roots we know, from addresses of Amazon's alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.errors import Misconfigured
from dovetail.zonal.ingest.certificates import Certificates, public_roots
from dovetail.zonal.ingest.sns_delivery import SnsDelivery, TurnedAway, find_issuer_address
from support.authorities import Authority, Issued
from support.sns import NOW, TOPIC, URL, notification

HOST = "sns.us-west-2.amazonaws.com"
AT = "http://crt.r2m01.amazontrust.com/r2m01.cer"
ROOT_AT = "http://crt.rootca1.amazontrust.com/rootca1.cer"
DELIVERY = SnsDelivery("Notification", TOPIC, notification())


class Internet:
    """What there is to be fetched, and what was."""

    def __init__(self, **files: bytes) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []

    async def __call__(self, url: str) -> bytes:
        self.asked.append(url)
        if url not in self.files:
            raise TurnedAway(403, "certificate-fetch")
        return self.files[url]


ROOT = Authority("Amazon Root CA 1", NOW)
FOREIGN = Authority("Amazon Root CA 1", NOW)
BETWEEN = Authority("Amazon RSA 2048 M01", NOW, above=ROOT)


def leaf_told_at(address: str, below: Authority = BETWEEN) -> Issued:
    """A leaf that says where its issuer's certificate is."""
    teller = Authority(below.name, NOW, above=below.above, told_at=address, key=below.key)
    return teller.leaf(HOST)


async def verified(net: Internet, *roots: Authority) -> bool:
    certificates = Certificates(net, [each.issued.certificate for each in roots or (ROOT,)])
    try:
        await certificates.of(DELIVERY, NOW)
    except TurnedAway:
        return False
    return True


async def test_a_file_with_its_whole_chain_is_enough() -> None:
    net = Internet()
    net.files[URL] = leaf_told_at("").pem + BETWEEN.issued.pem
    assert await verified(net)
    assert net.asked == [URL]


@pytest.mark.parametrize("form", ["der", "pem"])
async def test_an_issuer_that_the_file_leaves_out_is_asked_of_amazons_authority(form: str) -> None:
    net = Internet()
    net.files = {URL: leaf_told_at(AT).pem, AT: getattr(BETWEEN.issued, form)}
    assert await verified(net)
    assert net.asked == [URL, AT]


async def test_a_lone_certificate_that_names_nobody_is_refused() -> None:
    net = Internet()
    net.files[URL] = leaf_told_at("").pem
    assert not await verified(net)


async def test_an_issuer_that_leads_to_no_root_we_know_is_refused() -> None:
    """The same names throughout, and another key at the top."""
    forged = Authority(BETWEEN.name, NOW, above=FOREIGN)
    net = Internet()
    net.files = {URL: leaf_told_at(AT, forged).pem, AT: forged.issued.der}
    assert not await verified(net)


async def test_what_comes_from_the_authority_must_have_issued_it() -> None:
    other = Authority(BETWEEN.name, NOW, above=ROOT)
    net = Internet()
    net.files = {URL: leaf_told_at(AT).pem, AT: other.issued.der}
    assert not await verified(net)
    net.files[AT] = b"no certificate"
    assert not await verified(net)


async def test_a_chain_that_goes_in_circles_ends() -> None:
    around = Authority("around", NOW, above=Authority("somebody", NOW), told_at=AT)
    net = Internet()
    net.files = {URL: leaf_told_at(AT, around).pem, AT: around.issued.der}
    assert not await verified(net)
    assert len(net.asked) <= 4


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/latest/meta-data.cer",
        "http://amazontrust.com.evil.test/x.cer",
        "http://crt.evil-amazontrust.com/x.cer",
        "http://crt.r2m01.amazontrust.com:8080/x.cer",
        "http://user@crt.r2m01.amazontrust.com/x.cer",
        "http://crt.r2m01.amazontrust.com/x.cer?next=1",
        "http://crt.r2m01.amazontrust.com/../x",
        "ldap://crt.r2m01.amazontrust.com/x.cer",
        "file:///etc/passwd.pem",
    ],
)
async def test_no_other_address_is_ever_asked(address: str) -> None:
    leaf = leaf_told_at(address)
    assert find_issuer_address(leaf.certificate) == ""
    net = Internet()
    net.files[URL] = leaf.pem
    assert not await verified(net)
    assert net.asked == [URL]


def test_the_systems_own_roots_are_there() -> None:
    assert len(public_roots()) > 20


def test_roots_may_be_given_by_a_file(tmp_path: Path) -> None:
    named = tmp_path / "roots.pem"
    named.write_bytes(ROOT.issued.pem + FOREIGN.issued.pem)
    assert len(public_roots(str(named))) == 2


@pytest.mark.parametrize("text", [None, "nothing of the kind"])
def test_a_file_without_roots_is_told_in_one_sentence(tmp_path: Path, text: str | None) -> None:
    named = tmp_path / "roots.pem"
    if text is not None:
        named.write_text(text)
    with pytest.raises(Misconfigured, match=rf"ZONAL_SHIFT_SNS_CA_FILE\): {named} holds no certificates"):
        public_roots(str(named))
