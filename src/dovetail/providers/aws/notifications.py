"""Messages to sinks in AWS: published to an SNS topic, or put on an EventBridge bus.

What AWS says about a failure names topics, buses and accounts, so only its code is repeated.
"""

from __future__ import annotations

from typing import Any

from dovetail.aws import Aws, AwsError
from dovetail.errors import Refused, Retry
from dovetail.history.filters import DueBatch
from dovetail.history.messages import NotifyMessage, build_event_type
from dovetail.history.notify import NotifySink

__all__ = ["EventBridgeSender", "SnsSender"]

SOURCE = "sh.dovetail"
DIGEST = "Digest"
INVALID = frozenset(
    {"InvalidParameter", "InvalidParameterValue", "ParameterValueInvalid", "ValidationException"}
)


def _enter_region(aws: Aws, arn: str) -> Aws:
    """The door in the region that an ARN names."""
    region = arn.split(":")[3]
    return aws if region == aws.region else aws.scope_to(region=region)


def _describe_failure(service: str, error: AwsError) -> Retry | Refused:
    """What AWS calls invalid is this message; a missing topic or grant a person may still mend."""
    words = f"{service} answered {error.code}"
    return Refused(words) if error.code in INVALID else Retry(words)


class SnsSender:
    """Publishes messages to a topic; subscribers can filter by the attributes kind, severity and cluster."""

    def __init__(self, sink: NotifySink, aws: Aws, cluster: str) -> None:
        self._topic = sink.to.removeprefix("sns:")
        self._aws = _enter_region(aws, self._topic)
        self._cluster = cluster

    async def send_message(self, message: NotifyMessage, batch: DueBatch) -> None:
        last = batch.records[-1]
        kind = DIGEST if batch.digest else str(last.kind)
        about = {"kind": kind, "severity": str(last.severity), "cluster": self._cluster}
        asked: dict[str, Any] = {
            "TopicArn": self._topic,
            "Message": message.body.decode(),
            "MessageAttributes": {
                name: {"DataType": "String", "StringValue": value} for name, value in about.items() if value
            },
        }
        if self._topic.endswith(".fifo"):
            asked |= {"MessageGroupId": "dovetail", "MessageDeduplicationId": f"{last.id}-{kind}"}
        try:
            await self._aws.call("sns", "Publish", asked)
        except AwsError as error:
            raise _describe_failure("SNS", error) from None


class EventBridgeSender:
    """Puts messages on a bus: the CloudEvent is the detail, its type the detail type."""

    def __init__(self, sink: NotifySink, aws: Aws) -> None:
        self._bus = sink.to.removeprefix("eventbridge:")
        self._aws = _enter_region(aws, self._bus)

    async def send_message(self, message: NotifyMessage, batch: DueBatch) -> None:
        last = batch.records[-1]
        entry = {
            "EventBusName": self._bus,
            "Source": SOURCE,
            "DetailType": build_event_type(DIGEST if batch.digest else last.kind),
            "Detail": message.body.decode(),
            "Time": last.time,
        }
        try:
            answer = await self._aws.call("events", "PutEvents", {"Entries": [entry]})
        except AwsError as error:
            raise _describe_failure("EventBridge", error) from None
        if answer.get("FailedEntryCount"):
            codes = {str(each["ErrorCode"]) for each in answer.get("Entries", ()) if each.get("ErrorCode")}
            raise Retry(f"EventBridge answered {', '.join(sorted(codes)) or 'that it failed'}")
