"""Is everything there that the router needs? Queues, their policies, rules, permissions, destinations."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from dovetail.aws import Aws, AwsAbsent, AwsDenied, AwsError, DryRunPassed, pages
from dovetail.aws.messages import READINGS
from dovetail.bus.config import Config
from dovetail.bus.destinations import Registry
from dovetail.bus.events import Lane
from dovetail.bus.senders import others_denied

__all__ = ["Finding", "examine"]

DAY = 86_400
# Queue, the visibility it should have, the days it keeps messages, the receives before the dead letters.
QUEUES = (("urgent", 30, 4, 10), ("bulk", 180, 4, 5), ("park", None, 14, None), ("dlq", None, 14, None))
TARGETS_MOST = 5


class Finding(NamedTuple):
    """One thing looked at. `problem` is empty when it is fine, else what is wrong and what to do."""

    subject: str
    problem: str = ""


async def examine(aws: Aws, config: Config, registry: Registry) -> list[Finding]:
    """Look at everything; nothing is changed and nothing is sent."""
    found = [finding async for finding in _queues(aws, config)]
    found += [finding async for finding in _rules(aws, config)]
    found += [finding async for finding in _permissions(aws, config)]
    found += [finding async for finding in _destinations(aws, registry)]
    return found


async def _queues(aws: Aws, config: Config) -> AsyncIterator[Finding]:
    for lane, visibility, days, receives in QUEUES:
        name = config[f"queues.{lane}"]
        subject = f"queue {name}"
        try:
            url = (await aws.call("sqs", "GetQueueUrl", {"QueueName": name}))["QueueUrl"]
            asked = {"QueueUrl": url, "AttributeNames": ["All"]}
            told = (await aws.call("sqs", "GetQueueAttributes", asked)).get("Attributes", {})
        except AwsAbsent:
            yield Finding(subject, f"it does not exist in {aws.region}; create it")
            continue
        except AwsError as error:
            yield Finding(subject, f"it cannot be read ({error.code}); grant sqs:GetQueueAttributes on it")
            continue
        problem = _queue_problem(told, visibility, days, receives)
        if not problem and lane in tuple(Lane) and not others_denied(told.get("Policy")):
            problem = (
                "its policy denies nobody who has rights in this account; "
                "deny sqs:SendMessage to all but the rules, as the kit's policy does"
            )
        yield Finding(subject, problem)


def _queue_problem(told: Mapping[str, str], visibility: int | None, days: int, receives: int | None) -> str:
    if int(told.get("MessageRetentionPeriod", 0)) < days * DAY:
        return f"it keeps messages for less than {days} days; set MessageRetentionPeriod to {days * DAY}"
    if visibility is not None and int(told.get("VisibilityTimeout", 0)) != visibility:
        return f"its visibility is {told.get('VisibilityTimeout')} s; set VisibilityTimeout to {visibility}"
    if receives is None:
        return ""
    policy = _json(told.get("RedrivePolicy"))
    if not policy:
        return f"it has no dead letters; set a RedrivePolicy with maxReceiveCount {receives}"
    if int(policy.get("maxReceiveCount", 0)) < receives:
        return (
            f"it gives up after {policy.get('maxReceiveCount')} receives; set maxReceiveCount to {receives}"
        )
    return ""


async def _rules(aws: Aws, config: Config) -> AsyncIterator[Finding]:
    wanted = dict.fromkeys(READINGS, False)
    queues = {config["queues.urgent"], config["queues.bulk"]}
    try:
        async for page in pages(aws, "events", "ListRules", {}):
            for rule in page.get("Rules", ()):
                problem = await _rule(aws, rule, queues, wanted)
                if problem is not None:
                    yield Finding(f"rule {rule['Name']}", problem)
    except AwsDenied as error:
        yield Finding("rules", f"they cannot be read ({error.code}); grant events:ListRules to see them")
        return
    for (source, named), there in wanted.items():
        if not there:
            yield Finding(
                f"events {named}", f"no rule for {source} sends them to the central queues; add one"
            )


async def _rule(
    aws: Aws, rule: Mapping[str, Any], queues: set[str], wanted: dict[tuple[str, str], bool]
) -> str | None:
    """What is wrong with a rule that feeds the router; None when it does not."""
    answer = await aws.call("events", "ListTargetsByRule", {"Rule": rule["Name"]})
    targets = answer.get("Targets", ())
    ours = [each for each in targets if each["Arn"].rpartition(":")[2] in queues]
    if not ours:
        return None
    pattern = _json(rule.get("EventPattern"))
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


async def _permissions(aws: Aws, config: Config) -> AsyncIterator[Finding]:
    for unbound in config.unbound:
        yield Finding(
            f"writer of {unbound}",
            "it is not named, so only EventBridge is believed; set senderId to its role's unique id",
        )
    for account in config.accounts:
        subject = f"account {account.id}"
        there = aws.at(role=account.role_arn, external_id=account.external_id) if account.role_arn else aws
        try:
            await there.call("ec2", "DescribeInstances", {"DryRun": True}, retried=False)
        except DryRunPassed:
            yield Finding(subject)
        except AwsDenied as error:
            by = f"the role {account.role_arn}" if account.role_arn else "the router's own role"
            yield Finding(
                subject, f"instances cannot be read ({error.code}); grant ec2:DescribeInstances to {by}"
            )
        except AwsError as error:
            yield Finding(subject, f"instances cannot be read ({error.code}); try again later")
        else:
            yield Finding(subject)


async def _destinations(aws: Aws, registry: Registry) -> AsyncIterator[Finding]:
    if not len(registry):
        yield Finding("destinations", "there are none; register a cluster's queue")
    for each in registry:
        subject = f"cluster {each.cluster}"
        there = aws.at(region=each.cluster.region, role=each.role_arn, external_id=each.external_id)
        try:
            await there.call(
                "sqs", "GetQueueAttributes", {"QueueUrl": each.queue_url, "AttributeNames": ["QueueArn"]}
            )
        except AwsAbsent:
            yield Finding(subject, f"its queue {each.queue_url} does not exist; create it or correct the URL")
        except AwsError as error:
            yield Finding(subject, f"its queue cannot be used ({error.code}); grant sqs:SendMessage on it")
        else:
            yield Finding(subject, "it is paused; its events are parked" if each.paused else "")


def _json(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(text) if isinstance(text, str) and text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
