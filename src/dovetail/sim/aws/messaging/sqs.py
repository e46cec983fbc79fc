"""The operations of SQS over the queues."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from dovetail.aws import AwsError
from dovetail.sim.aws.messaging.queues import (
    HANDLE,
    SimMessage,
    SimQueue,
    SimQueues,
    md5_of_attributes,
    message_size,
    render_attributes,
)
from dovetail.sim.aws.service import AwsRequest, Json, operation

__all__: list[str] = []

NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
SERVICE = "AWS.SimpleQueueService"
BATCH_MOST, BATCH_BYTES = 10, 1048576
HIDDEN_MOST = 43200
# SQS takes XML's characters only.
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def _find_queue(request: AwsRequest) -> SimQueue:
    found = request.regional_state(SimQueues).find_by_url(request.get_required("QueueUrl"))
    if found is None:
        raise request.refuse(f"{SERVICE}.NonExistentQueue", "The specified queue does not exist.")
    return found


@operation("sqs", "CreateQueue")
def create_queue(request: AwsRequest) -> Json:
    queues, name = request.regional_state(SimQueues), request.get_required("QueueName")
    attributes = request.get("Attributes", {})
    if name.endswith(".fifo") or attributes.get("FifoQueue") == "true":
        raise request.refuse(
            "InvalidAttributeName", "Unknown Attribute FifoQueue: only standard queues are simulated."
        )
    if not NAME.fullmatch(name):
        raise request.refuse(
            "InvalidParameterValue",
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
        )
    found = queues.by_name.get(name)
    if found is not None and any(found.attributes.get(key) != value for key, value in attributes.items()):
        raise request.refuse(
            "QueueAlreadyExists", "A queue already exists with the same name and a different value."
        )
    made = found or queues.add(name, attributes, request.get("tags", {}))
    return {"QueueUrl": made.url}


@operation("sqs", "GetQueueUrl")
def get_queue_url(request: AwsRequest) -> Json:
    owner = request.get("QueueOwnerAWSAccountId") or request.account
    found = request.world.get_state(SimQueues, owner, request.region).by_name.get(
        request.get_required("QueueName")
    )
    if found is None:
        raise request.refuse(f"{SERVICE}.NonExistentQueue", "The specified queue does not exist.")
    return {"QueueUrl": found.url}


@operation("sqs", "ListQueues")
def list_queues(request: AwsRequest) -> Json:
    prefix = request.get("QueueNamePrefix", "")
    urls = [
        each.url
        for name, each in request.regional_state(SimQueues).by_name.items()
        if name.startswith(prefix)
    ]
    return {"QueueUrls": urls} if urls else {}


@operation("sqs", "DeleteQueue")
def delete_queue(request: AwsRequest) -> Json:
    del request.regional_state(SimQueues).by_name[_find_queue(request).name]
    return {}


@operation("sqs", "PurgeQueue")
def purge_queue(request: AwsRequest) -> Json:
    _find_queue(request).purge()
    return {}


@operation("sqs", "GetQueueAttributes")
def get_attributes(request: AwsRequest) -> Json:
    queue, wanted = _find_queue(request), request.get("AttributeNames", ())
    known = {
        "QueueArn": queue.arn,
        "CreatedTimestamp": str(int(queue.created.timestamp())),
        "LastModifiedTimestamp": str(int(queue.changed.timestamp())),
        **queue.attributes,
        **{name: str(count) for name, count in queue.count_messages().items()},
    }
    return {"Attributes": {name: value for name, value in known.items() if "All" in wanted or name in wanted}}


@operation("sqs", "SetQueueAttributes")
def set_attributes(request: AwsRequest) -> Json:
    queue = _find_queue(request)
    queue.attributes |= request.get_required("Attributes")
    queue.changed = request.world.clock.now()
    return {}


@operation("sqs", "TagQueue")
def tag_queue(request: AwsRequest) -> Json:
    _find_queue(request).tags.update(request.get_required("Tags"))
    return {}


@operation("sqs", "UntagQueue")
def untag_queue(request: AwsRequest) -> Json:
    queue = _find_queue(request)
    for key in request.get_required("TagKeys"):
        queue.tags.pop(key, None)
    return {}


@operation("sqs", "ListQueueTags")
def list_tags(request: AwsRequest) -> Json:
    return {"Tags": dict(_find_queue(request).tags)}


@operation("sqs", "SendMessage")
def send_message(request: AwsRequest) -> Json:
    queue = _find_queue(request)
    _check_message(request, queue, request.given)
    return _send_message(queue, request.given)


@operation("sqs", "SendMessageBatch")
def send_batch(request: AwsRequest) -> Json:
    queue = _find_queue(request)
    entries = _read_entries(request)
    sizes = (message_size(one.get("MessageBody", ""), one.get("MessageAttributes") or {}) for one in entries)
    if (total := sum(sizes)) > BATCH_BYTES:
        raise request.refuse(
            f"{SERVICE}.BatchRequestTooLong",
            f"Batch requests cannot be longer than {BATCH_BYTES} bytes. You have sent {total} bytes.",
        )

    def send(one: Mapping[str, Any]) -> Json:
        _check_message(request, queue, one)
        return _send_message(queue, one)

    return _apply_each(entries, send)


@operation("sqs", "ReceiveMessage")
async def receive_message(request: AwsRequest) -> Json:
    queue = _find_queue(request)
    most = request.get("MaxNumberOfMessages", 1)
    if not 1 <= most <= BATCH_MOST:
        raise request.refuse(
            "InvalidParameterValue",
            f"Value {most} for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10.",
        )
    wait = request.get("WaitTimeSeconds")
    left = float(queue.read_setting("ReceiveMessageWaitTimeSeconds") if wait is None else wait)
    clock = request.world.clock
    until = clock.monotonic() + left
    while not (got := queue.receive_messages(most, request.get("VisibilityTimeout"))):
        left = until - clock.monotonic()
        if left <= 0:
            return {}
        await queue.wait_for_message(left)
    return {"Messages": [_render_message(each, request) for each in got]}


@operation("sqs", "DeleteMessage")
def delete_message(request: AwsRequest) -> Json:
    _delete_message(request, _find_queue(request), request.get_required("ReceiptHandle"))
    return {}


@operation("sqs", "DeleteMessageBatch")
def delete_batch(request: AwsRequest) -> Json:
    queue = _find_queue(request)

    def delete(one: Mapping[str, Any]) -> Json:
        _delete_message(request, queue, one["ReceiptHandle"])
        return {}

    return _apply_each(_read_entries(request), delete)


@operation("sqs", "ChangeMessageVisibility")
def change_visibility(request: AwsRequest) -> Json:
    _change_visibility(request, _find_queue(request), request.given)
    return {}


@operation("sqs", "ChangeMessageVisibilityBatch")
def change_visibility_batch(request: AwsRequest) -> Json:
    queue = _find_queue(request)

    def postpone(one: Mapping[str, Any]) -> Json:
        _change_visibility(request, queue, one)
        return {}

    return _apply_each(_read_entries(request), postpone)


@operation("sqs", "StartMessageMoveTask")
def move_messages(request: AwsRequest) -> Json:
    """Dead letters go back to where they came from."""
    queues = request.regional_state(SimQueues)
    source = queues.find_by_arn(request.get_required("SourceArn"))
    if source is None:
        raise request.refuse(
            "ResourceNotFoundException", "The resource that you specified for SourceArn doesn't exist."
        )
    for message in list(source.messages.values()):
        target = queues.find_by_arn(request.get("DestinationArn") or message.dead_letter_source)
        if target is not None:
            target.send(message.body, message.attributes, message.system)
            source.messages.pop(message.id)
            message.deleted = True
    return {"TaskHandle": request.world.random_uuid()}


@operation("sqs", "ListDeadLetterSourceQueues")
def list_sources(request: AwsRequest) -> Json:
    arn = _find_queue(request).arn
    return {
        "queueUrls": [
            each.url
            for each in request.regional_state(SimQueues).by_name.values()
            if json.loads(each.attributes.get("RedrivePolicy") or "{}").get("deadLetterTargetArn") == arn
        ]
    }


def _read_entries(request: AwsRequest) -> list[Mapping[str, Any]]:
    entries: list[Mapping[str, Any]] = list(request.get("Entries", ()))
    if not entries:
        raise request.refuse(
            f"{SERVICE}.EmptyBatchRequest", "There should be at least one entry in the request."
        )
    if len(entries) > BATCH_MOST:
        raise request.refuse(
            f"{SERVICE}.TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {BATCH_MOST}. You have sent {len(entries)}.",
        )
    ids = [one["Id"] for one in entries]
    if len(set(ids)) < len(ids):
        twice = next(each for at, each in enumerate(ids) if each in ids[:at])
        raise request.refuse(f"{SERVICE}.BatchEntryIdsNotDistinct", f"Id {twice} repeated.")
    if any(not ENTRY_ID.fullmatch(each) for each in ids):
        raise request.refuse(
            f"{SERVICE}.InvalidBatchEntryId",
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be "
            "at most 80 letters long.",
        )
    return entries


def _apply_each(entries: list[Mapping[str, Any]], act: Callable[[Mapping[str, Any]], Json]) -> Json:
    """Every entry on its own: one that fails does not stop the others."""
    done: list[Json] = []
    failed: list[Json] = []
    for one in entries:
        try:
            done.append({"Id": one["Id"], **act(one)})
        except AwsError as error:
            failed.append(
                {"Id": one["Id"], "SenderFault": True, "Code": error.code, "Message": error.message}
            )
    answer: Json = {"Successful": done}
    return answer | ({"Failed": failed} if failed else {})


def _check_message(request: AwsRequest, queue: SimQueue, given: Mapping[str, Any]) -> None:
    body = given.get("MessageBody")
    if not body:
        raise request.refuse("MissingParameter", "The request must contain the parameter MessageBody.")
    if FORBIDDEN.search(body):
        raise request.refuse("InvalidMessageContents", "Invalid characters found.")
    most, size = (
        queue.read_setting("MaximumMessageSize"),
        message_size(body, given.get("MessageAttributes") or {}),
    )
    if size > most:
        raise request.refuse(
            "InvalidParameterValue",
            f"One or more parameters are invalid. Reason: Message must be shorter than {most} bytes.",
        )
    if len(given.get("MessageAttributes") or {}) > 10:
        raise request.refuse(
            "InvalidParameterValue", "Number of message attributes [11] exceeds the allowed maximum [10]."
        )


def _send_message(queue: SimQueue, given: Mapping[str, Any]) -> Json:
    attributes = given.get("MessageAttributes") or {}
    system = dict(given.get("MessageSystemAttributes") or {})
    if group := given.get("MessageGroupId"):
        system["MessageGroupId"] = {"DataType": "String", "StringValue": group}
    message = queue.send(given["MessageBody"], attributes, system, given.get("DelaySeconds"))
    told = {"MessageId": message.id, "MD5OfMessageBody": _compute_md5(message.body)}
    return told | ({"MD5OfMessageAttributes": md5_of_attributes(attributes)} if attributes else {})


def _render_message(message: SimMessage, request: AwsRequest) -> Json:
    told: Json = {
        "MessageId": message.id,
        "ReceiptHandle": message.handle,
        "MD5OfBody": _compute_md5(message.body),
        "Body": message.body,
    }
    wanted = {*request.get("AttributeNames", ()), *request.get("MessageSystemAttributeNames", ())}
    system = {
        name: value for name, value in render_attributes(message).items() if name in wanted or "All" in wanted
    }
    if system:
        told["Attributes"] = system
    names = request.get("MessageAttributeNames", ())
    own = {name: value for name, value in message.attributes.items() if _is_requested(name, names)}
    if own:
        told |= {"MessageAttributes": own, "MD5OfMessageAttributes": md5_of_attributes(own)}
    return told


def _is_requested(name: str, names: list[str]) -> bool:
    starts = [each[:-2] if each.endswith(".*") else None for each in names]
    return (
        "All" in names
        or name in names
        or any(start is not None and name.startswith(start) for start in starts)
    )


def _delete_message(request: AwsRequest, queue: SimQueue, handle: str) -> None:
    _check_handle(request, handle)
    message = queue.find_by_handle(handle)
    if message is not None:
        queue.delete(message, handle)


def _check_handle(request: AwsRequest, handle: str) -> None:
    if not HANDLE.fullmatch(handle):
        raise request.refuse(
            "ReceiptHandleIsInvalid", f'The input receipt handle "{handle}" is not a valid receipt handle.'
        )


def _change_visibility(request: AwsRequest, queue: SimQueue, given: Mapping[str, Any]) -> None:
    handle, seconds = given["ReceiptHandle"], given.get("VisibilityTimeout", 0)
    _check_handle(request, handle)
    message = queue.find_by_handle(handle)
    if not 0 <= seconds <= HIDDEN_MOST:
        raise request.refuse(
            "InvalidParameterValue",
            f"Value {seconds} for parameter VisibilityTimeout is invalid. Reason: 0 to 43200.",
        )
    if message is None or message.handle != handle or not queue.is_in_flight(message):
        raise request.refuse(
            f"{SERVICE}.MessageNotInflight",
            f"Value {handle} for parameter ReceiptHandle is invalid. Reason: Message does not exist or is "
            "not available for visibility timeout change.",
        )
    queue.postpone(message, seconds)


def _compute_md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
