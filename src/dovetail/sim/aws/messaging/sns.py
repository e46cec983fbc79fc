"""SNS topics that are published to; what they were sent can be read back."""

from __future__ import annotations

from dovetail.sim.aws.service import AwsRequest, Json, ServiceState, operation

__all__ = ["SimTopics"]

BYTES_MOST = 262_144


class SimTopics(ServiceState):
    """The topics of a region, by ARN, each with the messages that were published to it."""

    def init_state(self) -> None:
        self.messages: dict[str, list[Json]] = {}


@operation("sns", "CreateTopic")
def create_topic(request: AwsRequest) -> Json:
    arn = f"arn:aws:sns:{request.region}:{request.account}:{request.get_required('Name')}"
    request.regional_state(SimTopics).messages.setdefault(arn, [])
    return {"TopicArn": arn}


@operation("sns", "Publish")
def publish_message(request: AwsRequest) -> Json:
    topic, text = request.get_required("TopicArn"), request.get_required("Message")
    published = request.regional_state(SimTopics).messages.get(topic)
    if published is None:
        raise request.refuse("NotFound", "Topic does not exist", 404)
    if not text or len(text.encode()) > BYTES_MOST:
        raise request.refuse("InvalidParameter", "Invalid parameter: Message")
    if topic.endswith(".fifo") and not request.get("MessageGroupId"):
        raise request.refuse("InvalidParameter", "The MessageGroupId parameter is required for FIFO topics")
    published.append(dict(request.given))
    return {"MessageId": request.world.random_uuid()}
