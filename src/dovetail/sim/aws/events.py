"""The operations of EventBridge over its buses."""

from __future__ import annotations

import json
from typing import Any

from dovetail.sim.aws.asking import Ask, Json, operation
from dovetail.sim.aws.bus import Bus, Buses, Rule
from dovetail.sim.aws.patterns import BadPattern, check, matches
from dovetail.sim.aws.selecting import tag_list, tags_of

__all__: list[str] = []

TARGETS_MOST, RULES_MOST, ENTRIES_MOST, BYTES_MOST = 5, 300, 10, 262144


def _bus(ask: Ask) -> Bus:
    name = ask.get("EventBusName", "default")
    found = ask.here(Buses).find(name)
    if found is None:
        raise ask.refuse("ResourceNotFoundException", f"Event bus {name} does not exist.")
    return found


def _rule(ask: Ask, name: str) -> Rule:
    found = _bus(ask).rules.get(ask.need(name))
    if found is None:
        raise ask.refuse(
            "ResourceNotFoundException", f"Rule {ask.need(name)} does not exist on EventBus {_bus(ask).name}."
        )
    return found


def _pattern(ask: Ask, text: str) -> Any:
    try:
        pattern = json.loads(text)
        check(pattern)
    except BadPattern as error:
        raise ask.refuse("InvalidEventPatternException", str(error)) from None
    except ValueError:
        raise ask.refuse(
            "InvalidEventPatternException", "Event pattern is not valid. Reason: it is not JSON"
        ) from None
    return pattern


@operation("events", "CreateEventBus")
def create_bus(ask: Ask) -> Json:
    buses, name = ask.here(Buses), ask.need("Name")
    if name in buses.by_name:
        raise ask.refuse("ResourceAlreadyExistsException", f"Event bus {name} already exists.")
    return {"EventBusArn": buses.add(name).arn}


@operation("events", "ListEventBuses")
def list_buses(ask: Ask) -> Json:
    return {"EventBuses": [{"Name": each.name, "Arn": each.arn} for each in ask.here(Buses).by_name.values()]}


@operation("events", "PutRule")
def put_rule(ask: Ask) -> Json:
    bus, name = _bus(ask), ask.need("Name")
    if name not in bus.rules and len(bus.rules) >= RULES_MOST:
        raise ask.refuse(
            "LimitExceededException", "The requested resource exceeds the maximum number allowed."
        )
    text = ask.get("EventPattern")
    pattern = _pattern(ask, text) if text else None
    if pattern is None and not ask.get("ScheduleExpression"):
        raise ask.refuse(
            "ValidationException", "Parameter(s) EventPattern or ScheduleExpression must be specified."
        )
    under = "" if bus.name == "default" else f"{bus.name}/"
    made = bus.rules.setdefault(
        name, Rule(name, f"arn:aws:events:{ask.region}:{ask.account}:rule/{under}{name}")
    )
    made.pattern, made.schedule = pattern, ask.get("ScheduleExpression", "")
    made.enabled = ask.get("State", "ENABLED") != "DISABLED"
    made.description, made.role = ask.get("Description", ""), ask.get("RoleArn", "")
    made.tags |= {each["Key"]: each["Value"] for each in ask.get("Tags", ())}
    return {"RuleArn": made.arn}


@operation("events", "DescribeRule")
def describe_rule(ask: Ask) -> Json:
    return _shown(_rule(ask, "Name"), _bus(ask))


@operation("events", "ListRules")
def list_rules(ask: Ask) -> Json:
    bus, prefix = _bus(ask), ask.get("NamePrefix", "")
    return {"Rules": [_shown(rule, bus) for name, rule in bus.rules.items() if name.startswith(prefix)]}


@operation("events", "EnableRule", "DisableRule")
def enable_rule(ask: Ask) -> Json:
    _rule(ask, "Name").enabled = ask.operation == "EnableRule"
    return {}


@operation("events", "DeleteRule")
def delete_rule(ask: Ask) -> Json:
    bus, name = _bus(ask), ask.need("Name")
    found = bus.rules.get(name)
    if found is not None and found.targets:
        raise ask.refuse("ValidationException", "Rule can't be deleted since it has targets.")
    bus.rules.pop(name, None)
    return {}


@operation("events", "PutTargets")
def put_targets(ask: Ask) -> Json:
    rule = _rule(ask, "Rule")
    wanted = {each["Id"]: each for each in ask.need("Targets")}
    if len(rule.targets.keys() | wanted.keys()) > TARGETS_MOST:
        raise ask.refuse(
            "LimitExceededException", "The requested resource exceeds the maximum number allowed."
        )
    rule.targets |= wanted
    return {"FailedEntryCount": 0, "FailedEntries": []}


@operation("events", "RemoveTargets")
def remove_targets(ask: Ask) -> Json:
    rule = _rule(ask, "Rule")
    for each in ask.need("Ids"):
        rule.targets.pop(each, None)
    return {"FailedEntryCount": 0, "FailedEntries": []}


@operation("events", "ListTargetsByRule")
def list_targets(ask: Ask) -> Json:
    return {"Targets": [dict(each) for each in _rule(ask, "Rule").targets.values()]}


@operation("events", "ListRuleNamesByTarget")
def list_names(ask: Ask) -> Json:
    arn = ask.need("TargetArn")
    rules = _bus(ask).rules.values()
    return {
        "RuleNames": [each.name for each in rules if any(one["Arn"] == arn for one in each.targets.values())]
    }


def _tags(ask: Ask) -> dict[str, str]:
    """The tags of a rule, by its ARN."""
    arn = ask.need("ResourceARN")
    rules = (rule for bus in ask.here(Buses).by_name.values() for rule in bus.rules.values())
    found = next((rule for rule in rules if rule.arn == arn), None)
    if found is None:
        raise ask.refuse("ResourceNotFoundException", f"Rule {arn} does not exist.")
    return found.tags


@operation("events", "ListTagsForResource")
def list_tags(ask: Ask) -> Json:
    return {"Tags": tag_list(_tags(ask))}


@operation("events", "TagResource")
def tag_rule(ask: Ask) -> Json:
    _tags(ask).update(tags_of(ask.need("Tags")))
    return {}


@operation("events", "UntagResource")
def untag_rule(ask: Ask) -> Json:
    tags = _tags(ask)
    for key in ask.need("TagKeys"):
        tags.pop(key, None)
    return {}


@operation("events", "TestEventPattern")
def test_pattern(ask: Ask) -> Json:
    return {"Result": matches(_pattern(ask, ask.need("EventPattern")), json.loads(ask.need("Event")))}


@operation("events", "PutEvents")
def put_events(ask: Ask) -> Json:
    entries, buses = ask.need("Entries"), ask.here(Buses)
    if not 1 <= len(entries) <= ENTRIES_MOST:
        raise ask.refuse(
            "ValidationException", "1 validation error detected: Entries must have length 1 to 10"
        )
    told: list[Json] = []
    for one in entries:
        problem = _problem(one)
        if problem is not None:
            told.append({"ErrorCode": problem[0], "ErrorMessage": problem[1]})
            continue
        when = one.get("Time") or ask.ground.clock.now()
        event = {
            "version": "0",
            "id": ask.ground.uuid(),
            "detail-type": one["DetailType"],
            "source": one["Source"],
            "account": ask.account,
            "time": f"{when:%Y-%m-%dT%H:%M:%SZ}",
            "region": ask.region,
            "resources": list(one.get("Resources") or ()),
            "detail": json.loads(one["Detail"]),
        }
        buses.put(one.get("EventBusName", "default"), event)
        told.append({"EventId": event["id"]})
    return {"FailedEntryCount": sum("ErrorCode" in each for each in told), "Entries": told}


def _problem(one: Json) -> tuple[str, str] | None:
    for name in ("Source", "DetailType", "Detail"):
        if not one.get(name):
            return "InvalidArgument", f"Parameter {name} is not valid. Reason: {name} is a required argument."
    if one["Source"].startswith("aws."):
        return "NotAuthorizedForSourceException", "Not authorized for the source."
    if sum(len(one[name].encode()) for name in ("Source", "DetailType", "Detail")) > BYTES_MOST:
        return "InvalidArgument", "Total size of the entries in the request is over the limit."
    try:
        detail = json.loads(one["Detail"])
    except ValueError:
        detail = None
    return None if isinstance(detail, dict) else ("MalformedDetail", "Detail is malformed.")


def _shown(rule: Rule, bus: Bus) -> Json:
    shown: Json = {
        "Name": rule.name,
        "Arn": rule.arn,
        "State": "ENABLED" if rule.enabled else "DISABLED",
        "EventBusName": bus.name,
    }
    if rule.pattern is not None:
        shown["EventPattern"] = json.dumps(rule.pattern)
    for name, value in (
        ("Description", rule.description),
        ("ScheduleExpression", rule.schedule),
        ("RoleArn", rule.role),
    ):
        if value:
            shown[name] = value
    return shown
