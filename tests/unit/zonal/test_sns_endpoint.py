"""The endpoint for SNS against everyone who is not SNS."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from dovetail.settings import read_settings
from dovetail.sim.aws import AwsRequest, SimulatedAws, operation
from dovetail.sim.clock import VirtualClock
from dovetail.throttle import Throttle
from dovetail.zonal.ingest.signals import SignalStore
from dovetail.zonal.ingest.sns_delivery import (
    SnsDelivery,
    TurnedAway,
    check_certificate,
    check_certificate_url,
    parse_chain,
)
from dovetail.zonal.ingest.sns_endpoint import Certificates, SnsEndpoint, fetch
from support.sns import NOW, TOPIC, URL, Fetched, Signer, authority, headers_of, notification

Fields = dict[str, str]
EVENT = {
    "version": "0",
    "id": "e-1",
    "detail-type": "Autoshift In Progress",
    "source": "aws.arc-zonal-shift",
    "time": "2026-02-03T10:15:00Z",
    "resources": ["arn:aws:eks:us-west-2:111122223333:cluster/test"],
    "detail": {"metadata": {"awayFrom": "usw2-az1"}},
}
confirmed: list[Any] = []


@operation("sns", "ConfirmSubscription")
def _confirm(ask: AwsRequest) -> dict[str, Any]:
    confirmed.append((ask.region, dict(ask.given)))
    return {"SubscriptionArn": "arn:sub"}


class Still(VirtualClock):
    """It is always the same time of day."""

    def now(self) -> datetime:
        return NOW


class Door:
    """An endpoint with its certificate file and what it kept."""

    def __init__(self, pem: bytes | None = None, *, anchored: bool = True, allow_v1: bool = False) -> None:
        self.fetched = Fetched(pem if pem is not None else Signer().pem())
        self.woken: list[str] = []
        self.store = SignalStore(None, arn=lambda: "", woken=lambda: self.woken.append("woken"))
        self.clock = Still()
        old = ("--zonal-shift-allow-signature-v1",) if allow_v1 else ()
        flags = ("--cluster-name=test", f"--zonal-shift-topic-arn={TOPIC}", *old)
        settings = read_settings(flags, {}, provider="aws")
        self.aws = SimulatedAws(self.clock, region="us-west-2")
        anchors = (authority(),) if anchored else ()
        self.endpoint = SnsEndpoint(
            settings,
            self.aws,
            self.store,
            self.clock,
            certificates=Certificates(self.fetched, anchors),
        )

    async def take(self, fields: Fields, headers: dict[str, str] | None = None) -> int:
        body = json.dumps(fields).encode()
        return await self.endpoint.take(body, headers or headers_of(fields))


async def test_a_signed_notification_is_taken_once() -> None:
    door = Door()
    fields = Signer().signed(notification(EVENT))

    assert await door.take(fields) == 200
    assert door.woken == ["woken"]
    assert door.fetched.asked == [URL]


async def test_a_subject_is_part_of_what_is_signed() -> None:
    door = Door()
    fields = Signer().signed(notification(EVENT, Subject="hello"))
    assert await door.take(fields) == 200
    assert await door.take({**fields, "Subject": "other", "MessageId": "m-1"}) == 403


async def test_version_one_is_refused_unless_allowed() -> None:
    fields = Signer().signed(notification(EVENT, SignatureVersion="1"))
    assert await Door().take(fields) == 403
    allowed = Door(allow_v1=True)
    assert await allowed.take(fields) == 200
    assert allowed.woken == ["woken"]


@pytest.mark.parametrize("name", ["Message", "MessageId", "Timestamp", "Signature"])
async def test_an_altered_field_is_refused(name: str) -> None:
    door = Door()
    fields = Signer().signed(notification(EVENT))
    altered = {**fields, name: fields[name].replace("1", "2").replace("A", "B") + "="}

    assert await door.take(altered) == 403
    assert door.woken == []


async def test_another_topic_is_refused_before_anything_is_fetched() -> None:
    door = Door()
    other = TOPIC.replace("zonal", "other")
    fields = Signer().signed(notification(EVENT, TopicArn=other))

    assert await door.take(fields) == 403
    assert await door.take(Signer().signed(notification(EVENT)), {**headers_of(fields)}) == 403
    assert door.fetched.asked == []


FOREIGN = [
    "https://sns.us-west-2.amazonaws.com.evil.test/x.pem",
    "https://evil.test/sns.us-west-2.amazonaws.com/x.pem",
    "https://sns.eu-west-1.amazonaws.com/x.pem",
    "https://s3.us-west-2.amazonaws.com/x.pem",
    "http://sns.us-west-2.amazonaws.com/x.pem",
    "https://sns.us-west-2.amazonaws.com:8443/x.pem",
    "https://user@sns.us-west-2.amazonaws.com/x.pem",
    "https://sns.us-west-2.amazonaws.com@evil.test/x.pem",
    "https://sns.us-west-2.amazonaws.com/x.txt",
    "https://sns.us-west-2.amazonaws.com/x.pem?next=https://evil.test",
    "https://sns.us-west-2.amazonaws.com\\@evil.test/x.pem",
    "https://sns.us-west-2.amazonaws.com./x.pem",
    "https://[::1]/x.pem",
    "https://169.254.169.254/x.pem",
    "file:///etc/passwd.pem",
    "",
]


@pytest.mark.parametrize("url", FOREIGN)
async def test_a_certificate_from_elsewhere_is_never_asked_for(url: str) -> None:
    door = Door(Signer(host="evil.test").pem())
    fields = Signer(host="evil.test").signed(notification(EVENT, SigningCertURL=url))

    assert await door.take(fields) == 403
    assert door.fetched.asked == []


@given(st.text(max_size=80) | st.from_regex(r"https://[a-z.@:/\\#?-]{0,40}\.pem", fullmatch=True))
def test_no_address_passes_but_those_of_sns_in_the_topics_region(url: str) -> None:
    delivery = SnsDelivery("Notification", TOPIC, {"SigningCertURL": url})
    try:
        found = check_certificate_url(delivery)
    except TurnedAway:
        return
    assert found.startswith(
        ("https://sns.us-west-2.amazonaws.com/", "https://sns.us-west-2.amazonaws.com.cn/")
    )


@pytest.mark.parametrize(
    "signer",
    [
        Signer(ends=NOW - timedelta(days=1), starts=NOW - timedelta(days=9)),
        Signer(starts=NOW + timedelta(days=1)),
        Signer(host="sqs.us-west-2.amazonaws.com"),
        Signer(issuer="somebody's root"),
    ],
    ids=["expired", "not yet", "another name", "another root"],
)
async def test_a_certificate_that_is_not_snss_own_is_refused(signer: Signer) -> None:
    door = Door(signer.pem())
    assert await door.take(signer.signed(notification(EVENT))) == 403
    assert door.woken == []


async def test_a_file_whose_chain_does_not_hold_together_is_refused() -> None:
    signer = Signer()
    delivery = SnsDelivery("Notification", TOPIC, signer.signed(notification()))
    assert check_certificate(parse_chain(signer.pem(authority())), delivery, NOW).serial_number == 2
    with pytest.raises(TurnedAway, match="certificate-chain"):
        check_certificate(parse_chain(signer.pem(authority("another"))), delivery, NOW)


async def test_a_key_that_is_not_the_certificates_is_refused() -> None:
    door = Door()
    fields = replace(Signer(), key="mallory").signed(notification(EVENT))
    assert await door.take(fields) == 403


async def test_a_replay_is_answered_and_ignored_and_an_old_one_refused() -> None:
    door = Door()
    fields = Signer().signed(notification(EVENT))
    assert [await door.take(fields), await door.take(fields)] == [200, 200]
    assert door.woken == ["woken"]
    old = Signer().signed(notification(EVENT, MessageId="m-2", Timestamp="2026-02-03T09:00:00.000Z"))
    ahead = Signer().signed(notification(EVENT, MessageId="m-3", Timestamp="2026-02-03T11:30:00.000Z"))
    assert [await door.take(old), await door.take(ahead)] == [403, 403]


async def test_what_is_too_large_or_no_delivery_at_all_is_refused() -> None:
    door = Door()
    fields = Signer().signed(notification("x" * 300_000))
    assert await door.take(fields) == 413
    assert await door.endpoint.take(b"[]", {}) == 400
    assert await door.endpoint.take(b"not json", {}) == 400
    assert await door.take(notification(EVENT), {"x-amz-sns-message-type": "Other"}) == 400
    assert await door.take({**notification(EVENT), "Type": "Other"}) == 400
    assert await door.endpoint.take(b"{}", {}, "GET") == 405
    # The raw event, unsigned, as if SNS had unwrapped it.
    assert await door.endpoint.take(json.dumps(EVENT).encode(), {}) == 400
    assert door.woken == []


async def test_a_confirmation_is_made_by_the_api_and_its_address_never_visited() -> None:
    confirmed.clear()
    door = Door()
    fields = notification("confirm", Token="t-1", SubscribeURL="https://evil.test/steal")
    fields = Signer().signed({**fields, "Type": "SubscriptionConfirmation"})

    assert await door.take(fields) == 200
    again = Signer().signed({**fields, "MessageId": "m-9"})
    assert await door.take(again) == 200
    assert confirmed == [
        ("us-west-2", {"TopicArn": TOPIC, "Token": "t-1", "AuthenticateOnUnsubscribe": "true"})
    ]
    assert door.fetched.asked == [URL]


async def test_a_certificate_is_fetched_once_and_no_more_than_eight_are_kept() -> None:
    door = Door()
    for number in range(12):
        url = URL.replace("0a1b", f"{number:04x}")
        fields = Signer().signed(notification(EVENT, MessageId=f"m-{number}", SigningCertURL=url))
        assert await door.take(fields) == 200
        assert await door.take(fields) == 200
    assert len(door.fetched.asked) == 12
    await door.take(
        Signer().signed(notification(EVENT, MessageId="m", SigningCertURL=URL.replace("0a1b", "0000")))
    )
    assert len(door.fetched.asked) == 13


async def test_a_redirect_is_not_followed() -> None:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.path)
        raise web.HTTPFound("/elsewhere.pem")

    app = web.Application()
    app.add_routes([web.get("/{name}", answer)])
    async with TestServer(app) as server:
        with pytest.raises(TurnedAway):
            await fetch(str(server.make_url("/certificate.pem")))
    assert seen == ["/certificate.pem"]


async def test_over_http_every_refusal_reads_the_same_and_floods_are_slowed_down() -> None:
    door = Door()
    bad = [
        notification(EVENT, TopicArn="arn:aws:sns:us-west-2:111122223333:other"),
        notification(EVENT, SigningCertURL="https://evil.test/x.pem"),
        {**Signer().signed(notification(EVENT)), "Message": "altered"},
    ]
    async with TestServer(door.endpoint.app()) as server, aiohttp.ClientSession() as session:
        url = server.make_url("/sns")
        replies = []
        for fields in bad:
            async with session.post(url, json=fields, headers=headers_of(fields)) as reply:
                replies.append((reply.status, await reply.text()))
        assert set(replies) == {(403, "forbidden")}
        async with session.post(url, data=b"x" * 400_000) as reply:
            assert reply.status == 413
        good = Signer().signed(notification(EVENT))
        async with session.post(url, json=good, headers=headers_of(good)) as reply:
            assert reply.status == 200
        packed = {"Content-Encoding": "gzip", **headers_of(good)}
        async with session.post(url, data=gzip.compress(json.dumps(good).encode()), headers=packed) as reply:
            assert reply.status == 415
        for _ in range(40):
            async with session.post(url, data=b"{}") as reply:
                assert reply.status == 400
        # What strangers send takes nothing of what SNS may send; each message counts once.
        door.endpoint._throttles[TOPIC] = Throttle(door.clock, 0.001, 3)
        statuses = []
        for number in range(5):
            more = Signer().signed(notification(EVENT, MessageId=f"more-{number}"))
            async with session.post(url, json=more, headers=headers_of(more)) as reply:
                statuses.append(reply.status)
        assert statuses == [200] * 3 + [429] * 2
        async with session.get(server.make_url("/events")) as reply:
            assert reply.status == 404


@pytest.mark.parametrize("field", ["Message", "TopicArn", "Type", "SigningCertURL", "Signature"])
async def test_half_a_surrogate_pair_is_no_text(field: str) -> None:
    fields = {**Signer().signed(notification(EVENT)), field: "\ud800"}
    assert await Door().take(fields) == 400


async def test_a_confirmation_that_is_throttled_is_tried_again_and_then_asked_for_again() -> None:
    door = Door()
    confirmed.clear()
    fields = Signer().signed(
        {
            **notification("confirm", Token="t-1", SubscribeURL="https://evil.test/"),
            "Type": "SubscriptionConfirmation",
        }
    )
    door.aws.faults.refuse("Throttling", "sns:ConfirmSubscription", 3)
    assert await door.take(fields) == 503
    assert await door.take(fields) == 200
    assert len(confirmed) == 1

    other = Door()
    confirmed.clear()
    other.aws.faults.refuse("Throttling", "sns:ConfirmSubscription", 2)
    assert await other.take(fields) == 200
    assert len(confirmed) == 1


async def test_unknown_certificates_are_fetched_seldom_and_known_ones_are_not_held_up() -> None:
    door = Door()
    certificates = Certificates(door.fetched, (authority(),), Throttle(door.clock, 0.5, 5))
    door.endpoint._certificates = certificates
    assert await door.take(Signer().signed(notification(EVENT))) == 200
    answers = []
    for number in range(20):
        strange = notification(
            EVENT, MessageId=f"s-{number}", SigningCertURL=URL.replace("0a1b", f"{number:04x}")
        )
        answers.append(await door.take({**strange, "Signature": "AAAA", "SignatureVersion": "2"}))
    assert answers.count(429) == 16
    assert len(door.fetched.asked) == 5
    assert await door.take(Signer().signed(notification(EVENT, MessageId="known"))) == 200


async def test_while_draining_sns_is_asked_to_come_again() -> None:
    door = Door()
    door.endpoint.draining = True
    assert await door.take(Signer().signed(notification(EVENT))) == 503
