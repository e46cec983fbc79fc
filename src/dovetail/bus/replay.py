"""Give dead letters and parked events another chance: back to the queue they would have come by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dovetail.aws import Aws, AwsDenied
from dovetail.bus.clocks import Clock, Silent
from dovetail.bus.config import Config
from dovetail.bus.events import Event, Lane, read
from dovetail.bus.queues import queue_url, received
from dovetail.bus.senders import read_sealed
from dovetail.errors import Misconfigured

__all__ = ["Replayed", "Wanted", "replay"]

TEN = 10


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages to replay. `since` is in seconds since 1970; empty texts want everything."""

    since: float = 0.0
    kind: str = ""
    cluster: str = ""

    def __call__(self, raw: Mapping[str, Any], event: Event | None) -> bool:
        sent = received(raw, 0.0).sent or 0.0
        if sent < self.since:
            return False
        told = raw.get("MessageAttributes", {})
        kind = event.kind if event is not None else told.get("dt.kind", {}).get("StringValue", "")
        return (not self.kind or kind == self.kind) and (
            not self.cluster or told.get("dt.cluster", {}).get("StringValue") == self.cluster
        )


@dataclass(slots=True)
class Replayed:
    """What a replay did."""

    moved: int = 0
    left: int = 0
    unreadable: int = 0


async def replay(
    aws: Aws, config: Config, source: str, wanted: Wanted, *, clock: Clock, rate: float = 100.0
) -> Replayed:
    """Move what is wanted from a dead-letter or park queue back to its lane, so many a second.

    A message is deleted from where it lay only after its lane has taken it: stopped at any moment, a replay
    loses nothing. What no one can read stays where it is.
    """
    lanes = {lane: await queue_url(aws, config[f"queues.{lane}"]) for lane in Lane}
    await _check_believed(aws, config)
    url, done, seen = await queue_url(aws, source), Replayed(), set[str]()
    while True:
        answer = await aws.call(
            "sqs",
            "ReceiveMessage",
            {
                "QueueUrl": url,
                "MaxNumberOfMessages": TEN,
                "WaitTimeSeconds": 1,
                "AttributeNames": ["All"],
                "MessageAttributeNames": ["All"],
            },
        )
        fresh = [each for each in answer.get("Messages", ()) if each["MessageId"] not in seen]
        if not fresh:
            return done
        for raw in fresh:
            seen.add(raw["MessageId"])
            await _one(aws, config, url, lanes, raw, wanted, done)
        await clock.sleep(len(fresh) / rate)


async def _check_believed(aws: Aws, config: Config) -> None:
    """Refuse to move what the router would only park again."""
    senders = config.rules.senders
    if senders is None or await read_sealed(aws, [config[f"queues.{lane}"] for lane in Lane], Silent()):
        return
    caller = str((await aws.call("sts", "GetCallerIdentity", {})).get("UserId", ""))
    if not senders.believes(caller):
        role = caller.partition(":")[0]
        raise Misconfigured(
            f"the router does not believe {role}, which you are; "
            "add it to `senders`, or replay with a role that is listed there"
        )


async def _one(
    aws: Aws,
    config: Config,
    url: str,
    lanes: Mapping[Lane, str],
    raw: Mapping[str, Any],
    wanted: Wanted,
    done: Replayed,
) -> None:
    message = received(raw, 0.0)
    message.hops = 0  # a replay starts a new way
    # Whoever replays vouches for what is replayed; its lane's policy says who may.
    _, event = read(message, replace(config.rules, senders=None))
    known = event if isinstance(event, Event) else None
    if not wanted(raw, known):
        done.left += 1
        return
    if known is None:
        done.unreadable += 1
        return
    lane = Lane.URGENT if known.urgent else Lane.BULK
    try:
        await aws.call("sqs", "SendMessage", {"QueueUrl": lanes[lane], "MessageBody": message.body})
    except AwsDenied as error:
        raise Misconfigured(
            f"moving an event to {config[f'queues.{lane}']}: {error.code}; replay with a role that the "
            "queue's policy names, which is ReplayRoleArn or replay_role_arn in the kits"
        ) from error
    await aws.call("sqs", "DeleteMessage", {"QueueUrl": url, "ReceiptHandle": message.receipt})
    done.moved += 1
