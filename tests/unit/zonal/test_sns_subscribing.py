"""Subscriptions: made once somebody listens, and made again when somebody ends them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dovetail.errors import Misconfigured
from dovetail.settings import examine_settings, read_settings
from dovetail.sim.aws import AwsRequest, SimulatedAws, operation
from dovetail.sim.clock import VirtualClock
from dovetail.zonal.ingest.signals import SignalStore
from dovetail.zonal.ingest.sns_endpoint import Certificates, SnsEndpoint
from support.sns import NOW, TOPIC, Fetched, Signer, authority, headers_of, notification
from support.stage import virtual

URL = "https://shifts.example.test/sns"
FAR = "arn:aws:sns:eu-west-1:111122223333:far"
asked: list[tuple[str, dict[str, Any]]] = []
refusals: list[str] = []


@operation("sns", "Subscribe")
def _subscribe(ask: AwsRequest) -> dict[str, Any]:
    if refusals:
        raise ask.refuse(refusals.pop(), "not now", 403)
    asked.append((ask.region, dict(ask.given)))
    return {"SubscriptionArn": "pending confirmation"}


class Still(VirtualClock):
    def now(self) -> Any:
        return NOW


def endpoint(*flags: str, topics: str = TOPIC) -> SnsEndpoint:
    asked.clear()
    refusals.clear()
    clock = Still()
    given = ("--cluster-name=test", "--enable-zonal-shift", f"--zonal-shift-topic-arn={topics}", *flags)
    store = SignalStore(None, arn=lambda: "", woken=lambda: None)
    certificates = Certificates(Fetched(Signer().pem()), (authority(),))
    aws = SimulatedAws(clock, region="us-west-2")
    return SnsEndpoint(read_settings(given, {}, provider="aws"), aws, store, clock, certificates=certificates)


AUTO = ("--sns-auto-subscribe", f"--zonal-shift-endpoint-url={URL}")


@virtual
async def test_every_topic_is_subscribed_to_in_its_own_region_with_patience_for_bad_hours() -> None:
    await endpoint(*AUTO, topics=f"{TOPIC},{FAR}").subscribe()

    assert [(region, given["TopicArn"], given["Endpoint"]) for region, given in asked] == [
        ("us-west-2", TOPIC, URL),
        ("eu-west-1", FAR, URL),
    ]
    policy = json.loads(asked[0][1]["Attributes"]["DeliveryPolicy"])["healthyRetryPolicy"]
    assert (policy["numRetries"], policy["backoffFunction"]) == (20, "exponential")


@virtual
async def test_nothing_is_subscribed_to_unless_that_is_asked_for() -> None:
    await endpoint(f"--zonal-shift-endpoint-url={URL}").subscribe()
    assert asked == []


@virtual
async def test_what_is_denied_is_tried_again_until_somebody_grants_it() -> None:
    subject = endpoint(*AUTO)
    refusals.extend(["AuthorizationError", "Throttling"])
    await subject.subscribe()
    assert len(asked) == 1


def unsubscribed(topic: str = TOPIC) -> dict[str, str]:
    fields = notification("you are out", Token="t", SubscribeURL="https://evil.test/", TopicArn=topic)
    return Signer().signed({**fields, "Type": "UnsubscribeConfirmation"})


@virtual
async def test_whoever_is_unsubscribed_comes_back_and_tells() -> None:
    subject = endpoint(*AUTO, topics=f"{TOPIC},{FAR}")
    fields = unsubscribed()
    assert await subject.take(json.dumps(fields).encode(), headers_of(fields)) == 200
    assert [given["TopicArn"] for _, given in asked] == [TOPIC]


@virtual
async def test_a_resubscription_that_fails_makes_sns_repeat_the_news() -> None:
    subject = endpoint(*AUTO)
    refusals.append("InternalError")
    fields = unsubscribed()
    body = json.dumps(fields).encode()
    assert await subject.take(body, headers_of(fields)) == 503
    assert await subject.take(body, headers_of(fields)) == 200
    assert len(asked) == 1


@virtual
async def test_without_auto_subscribe_an_end_is_only_told(caplog: pytest.LogCaptureFixture) -> None:
    subject = endpoint()
    fields = unsubscribed()
    assert await subject.take(json.dumps(fields).encode(), headers_of(fields)) == 200
    assert asked == []
    assert "the endpoint was unsubscribed topic=" in caplog.text


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ("--zonal-shift-store=DynamoDB",),
            'ZONAL_SHIFT_STORE is "DynamoDB", but ZONAL_SHIFT_TABLE is empty',
        ),
        (("--zonal-shift-store=Mirror",), 'ZONAL_SHIFT_STORE is "Mirror", but ZONAL_SHIFT_TABLE is empty'),
        (
            ("--enable-zonal-shift", "--sns-auto-subscribe", f"--zonal-shift-topic-arn={TOPIC}"),
            "SNS_AUTO_SUBSCRIBE is true, but ZONAL_SHIFT_ENDPOINT_URL is empty",
        ),
        (
            ("--enable-zonal-shift", "--sns-auto-subscribe", f"--zonal-shift-endpoint-url={URL}"),
            "SNS_AUTO_SUBSCRIBE is true, but ZONAL_SHIFT_TOPIC_ARN is empty",
        ),
        (
            ("--zonal-shift-min-healthy-zones=0",),
            '--zonal-shift-min-healthy-zones is "0", but must be a whole number that is 1 or more',
        ),
    ],
)
def test_settings_that_lack_another_are_told_in_one_sentence(flags: tuple[str, ...], said: str) -> None:
    with pytest.raises(Misconfigured) as found:
        read_settings(("--cluster-name=test", *flags), {}, provider="aws")
    assert str(found.value).startswith(said)
    assert len(examine_settings(("--cluster-name=test", *flags), {}, "aws").problems) == 1
    assert "\n" not in str(found.value)


def test_topics_may_be_given_one_by_one() -> None:
    flags = (f"--zonal-shift-topic-arn={TOPIC}", "--zonal-shift-topic-arn", FAR)
    assert read_settings(("--cluster-name=test", *flags), {}, provider="aws").zonal_shift_topic_arn == (
        TOPIC,
        FAR,
    )
