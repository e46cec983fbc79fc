"""Is everything there that the router needs? Queues, their policies, rules, permissions, destinations."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dovetail.aws import Aws, AwsAbsent, AwsDenied, AwsError, DryRunPassed, list_pages
from dovetail.aws.eventbridge import READINGS
from dovetail.aws.sqs import SqsQueue
from dovetail.bus.config import BusConfig
from dovetail.bus.destinations import DestinationRegistry
from dovetail.bus.events import BusEvent, Lane, read_event
from dovetail.bus.ports import BusClock
from dovetail.bus.queues import denies_others, find_queue_url, parse_message, read_sealed
from dovetail.errors import Misconfigured

__all__ = ["DoctorFinding", "ReplayFilter", "ReplayResult", "examine_setup", "replay_queue", "trace_log"]

DAY = 86_400
# Queue, the visibility it should have, the days it keeps messages, the receives before the dead letters.
QUEUES = (("urgent", 30, 4, 10), ("bulk", 180, 4, 5), ("park", None, 14, None), ("dlq", None, 14, None))
TARGETS_MOST = 5


class DoctorFinding(NamedTuple):
    """One thing looked at. `problem` is empty when it is fine, else what is wrong and what to do."""

    subject: str
    problem: str = ""


async def examine_setup(aws: Aws, config: BusConfig, registry: DestinationRegistry) -> list[DoctorFinding]:
    """Look at everything; nothing is changed and nothing is sent."""
    found = [finding async for finding in _examine_queues(aws, config)]
    found += [finding async for finding in _examine_rules(aws, config)]
    found += [finding async for finding in _examine_permissions(aws, config)]
    found += [finding async for finding in _examine_destinations(aws, registry)]
    return found


async def _examine_queues(aws: Aws, config: BusConfig) -> AsyncIterator[DoctorFinding]:
    for lane, visibility, days, receives in QUEUES:
        name = config[f"queues.{lane}"]
        subject = f"queue {name}"
        try:
            url = (await aws.call("sqs", "GetQueueUrl", {"QueueName": name}))["QueueUrl"]
            asked = {"QueueUrl": url, "AttributeNames": ["All"]}
            told = (await aws.call("sqs", "GetQueueAttributes", asked)).get("Attributes", {})
        except AwsAbsent:
            yield DoctorFinding(subject, f"it does not exist in {aws.region}; create it")
            continue
        except AwsError as error:
            yield DoctorFinding(
                subject, f"it cannot be read ({error.code}); grant sqs:GetQueueAttributes on it"
            )
            continue
        problem = _find_queue_problem(told, visibility, days, receives)
        if not problem and lane in tuple(Lane) and not denies_others(told.get("Policy")):
            problem = (
                "its policy denies nobody who has rights in this account; "
                "deny sqs:SendMessage to all but the rules, as the kit's policy does"
            )
        yield DoctorFinding(subject, problem)


def _find_queue_problem(
    told: Mapping[str, str], visibility: int | None, days: int, receives: int | None
) -> str:
    if int(told.get("MessageRetentionPeriod", 0)) < days * DAY:
        return f"it keeps messages for less than {days} days; set MessageRetentionPeriod to {days * DAY}"
    if visibility is not None and int(told.get("VisibilityTimeout", 0)) != visibility:
        return f"its visibility is {told.get('VisibilityTimeout')} s; set VisibilityTimeout to {visibility}"
    if receives is None:
        return ""
    policy = _parse_json(told.get("RedrivePolicy"))
    if not policy:
        return f"it has no dead letters; set a RedrivePolicy with maxReceiveCount {receives}"
    if int(policy.get("maxReceiveCount", 0)) < receives:
        return (
            f"it gives up after {policy.get('maxReceiveCount')} receives; set maxReceiveCount to {receives}"
        )
    return ""


async def _examine_rules(aws: Aws, config: BusConfig) -> AsyncIterator[DoctorFinding]:
    wanted = dict.fromkeys(READINGS, False)
    queues = {config["queues.urgent"], config["queues.bulk"]}
    try:
        async for page in list_pages(aws, "events", "ListRules", {}):
            for rule in page.get("Rules", ()):
                problem = await _find_rule_problem(aws, rule, queues, wanted)
                if problem is not None:
                    yield DoctorFinding(f"rule {rule['Name']}", problem)
    except AwsDenied as error:
        yield DoctorFinding(
            "rules", f"they cannot be read ({error.code}); grant events:ListRules to see them"
        )
        return
    for (source, named), there in wanted.items():
        if not there:
            yield DoctorFinding(
                f"events {named}", f"no rule for {source} sends them to the central queues; add one"
            )


async def _find_rule_problem(
    aws: Aws, rule: Mapping[str, Any], queues: set[str], wanted: dict[tuple[str, str], bool]
) -> str | None:
    """What is wrong with a rule that feeds the router; None when it does not."""
    answer = await aws.call("events", "ListTargetsByRule", {"Rule": rule["Name"]})
    targets = answer.get("Targets", ())
    ours = [each for each in targets if each["Arn"].rpartition(":")[2] in queues]
    if not ours:
        return None
    pattern = _parse_json(rule.get("EventPattern"))
    for source in pattern.get("source", ()):
        for named in pattern.get("detail-type", ()):
            if (source, named) in wanted:
                wanted[source, named] = True
    if rule.get("State") != "ENABLED":
        return "it is disabled; enable it"
    if len(targets) > TARGETS_MOST - 1:
        return f"it has {len(targets)} targets of {TARGETS_MOST}; make room before the next one"
    if any("DeadLetterConfig" not in each for each in ours):
        return "events it cannot deliver are lost; give its target a DeadLetterConfig"
    return ""


async def _examine_permissions(aws: Aws, config: BusConfig) -> AsyncIterator[DoctorFinding]:
    for unbound in config.unbound:
        yield DoctorFinding(
            f"writer of {unbound}",
            "it is not named, so only EventBridge is believed; set senderId to its role's unique id",
        )
    for account in config.accounts:
        subject = f"account {account.id}"
        there = (
            aws.scope_to(role=account.role_arn, external_id=account.external_id) if account.role_arn else aws
        )
        try:
            await there.call("ec2", "DescribeInstances", {"DryRun": True}, retried=False)
        except DryRunPassed:
            yield DoctorFinding(subject)
        except AwsDenied as error:
            by = f"the role {account.role_arn}" if account.role_arn else "the router's own role"
            yield DoctorFinding(
                subject, f"instances cannot be read ({error.code}); grant ec2:DescribeInstances to {by}"
            )
        except AwsError as error:
            yield DoctorFinding(subject, f"instances cannot be read ({error.code}); try again later")
        else:
            yield DoctorFinding(subject)


async def _examine_destinations(aws: Aws, registry: DestinationRegistry) -> AsyncIterator[DoctorFinding]:
    if not len(registry):
        yield DoctorFinding("destinations", "there are none; register a cluster's queue")
    for each in registry:
        subject = f"cluster {each.cluster}"
        there = aws.scope_to(region=each.cluster.region, role=each.role_arn, external_id=each.external_id)
        try:
            await there.call(
                "sqs", "GetQueueAttributes", {"QueueUrl": each.queue_url, "AttributeNames": ["QueueArn"]}
            )
        except AwsAbsent:
            yield DoctorFinding(
                subject, f"its queue {each.queue_url} does not exist; create it or correct the URL"
            )
        except AwsError as error:
            yield DoctorFinding(
                subject, f"its queue cannot be used ({error.code}); grant sqs:SendMessage on it"
            )
        else:
            yield DoctorFinding(subject, "it is paused; its events are parked" if each.paused else "")


def _parse_json(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(text) if isinstance(text, str) and text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class ReplayFilter:
    """Which messages to replay. `since` is in seconds since 1970; empty texts want everything."""

    since: float = 0.0
    kind: str = ""
    cluster: str = ""

    def __call__(self, raw: Mapping[str, Any], event: BusEvent | None) -> bool:
        sent = parse_message(raw, 0.0).sent or 0.0
        if sent < self.since:
            return False
        told = raw.get("MessageAttributes", {})
        kind = event.kind if event is not None else told.get("dt.kind", {}).get("StringValue", "")
        return (not self.kind or kind == self.kind) and (
            not self.cluster or told.get("dt.cluster", {}).get("StringValue") == self.cluster
        )


@dataclass(slots=True)
class ReplayResult:
    """What a replay did."""

    moved: int = 0
    left: int = 0
    unreadable: int = 0


async def replay_queue(
    aws: Aws, config: BusConfig, source: str, wanted: ReplayFilter, *, clock: BusClock, rate: float = 100.0
) -> ReplayResult:
    """Move what is wanted from a dead-letter or park queue back to its lane, so many a second.

    A message is deleted from where it lay only after its lane has taken it: stopped at any moment, a replay
    loses nothing. What no one can read stays where it is.
    """
    lanes = {lane: await find_queue_url(aws, config[f"queues.{lane}"]) for lane in Lane}
    await _check_sender(aws, config)
    every = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
    queue = SqsQueue(aws, url=await find_queue_url(aws, source), receives=every)
    done, seen = ReplayResult(), set[str]()
    while True:
        fresh = [each for each in await queue.receive(1) if each["MessageId"] not in seen]
        if not fresh:
            return done
        for raw in fresh:
            seen.add(raw["MessageId"])
            await _replay_message(aws, config, queue, lanes, raw, wanted, done)
        await clock.sleep(len(fresh) / rate)


async def _check_sender(aws: Aws, config: BusConfig) -> None:
    """Refuse to move what the router would only park again."""
    senders = config.rules.senders
    if senders is None:
        return
    with suppress(AwsError):
        if all([await read_sealed(aws, config[f"queues.{lane}"]) for lane in Lane]):
            return
    caller = str((await aws.call("sts", "GetCallerIdentity", {})).get("UserId", ""))
    if not senders.trusts_sender(caller):
        role = caller.partition(":")[0]
        raise Misconfigured(
            f"the router does not believe {role}, which you are; "
            "add it to `senders`, or replay with a role that is listed there"
        )


async def _replay_message(
    aws: Aws,
    config: BusConfig,
    queue: SqsQueue,
    lanes: Mapping[Lane, str],
    raw: Mapping[str, Any],
    wanted: ReplayFilter,
    done: ReplayResult,
) -> None:
    message = parse_message(raw, 0.0)
    message.hops = 0  # a replay starts a new way
    # Whoever replays vouches for what is replayed; its lane's policy says who may.
    _, event = read_event(message, replace(config.rules, senders=None))
    known = event if isinstance(event, BusEvent) else None
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
    for answer in await queue.delete([message.receipt]):
        answer.raise_refusal()
    done.moved += 1


FIELDS = ("id", "source", "instance", "instances")


def trace_log(lines: Iterable[str], what: str) -> Iterator[Mapping[str, Any]]:
    """The log's lines about an instance id, an event id or a message id, in their order.

    Deliveries are told at level debug; what was dropped, parked, kept or broadcast is told at any level.
    """
    for line in lines:
        if what not in line:
            continue
        try:
            told = json.loads(line)
        except ValueError:
            continue  # another program's line
        if isinstance(told, dict) and any(_names_id(told.get(field), what) for field in FIELDS):
            yield told


def _names_id(value: Any, what: str) -> bool:
    return what in value if isinstance(value, list) else value == what
