"""The operations of EventBridge over its buses."""

from __future__ import annotations

import json
from typing import Any

from dovetail.sim.aws.filters import tag_list, tags_of
from dovetail.sim.aws.messaging.eventbridge import (
    BadPattern,
    EventBus,
    EventBuses,
    EventRule,
    check_pattern,
    matches_pattern,
)
from dovetail.sim.aws.service import AwsRequest, Json, operation

__all__: list[str] = []

TARGETS_MOST, RULES_MOST, ENTRIES_MOST, BYTES_MOST = 5, 300, 10, 262144


def _find_bus(request: AwsRequest) -> EventBus:
    name = request.get("EventBusName", "default")
    found = request.regional_state(EventBuses).find(name)
    if found is None:
        raise request.refuse("ResourceNotFoundException", f"Event bus {name} does not exist.")
    return found


def _find_rule(request: AwsRequest, name: str) -> EventRule:
    found = _find_bus(request).rules.get(request.get_required(name))
    if found is None:
        raise request.refuse(
            "ResourceNotFoundException",
            f"Rule {request.get_required(name)} does not exist on EventBus {_find_bus(request).name}.",
        )
    return found


def _parse_pattern(request: AwsRequest, text: str) -> Any:
    try:
        pattern = json.loads(text)
        check_pattern(pattern)
    except BadPattern as error:
        raise request.refuse("InvalidEventPatternException", str(error)) from None
    except ValueError:
        raise request.refuse(
            "InvalidEventPatternException", "Event pattern is not valid. Reason: it is not JSON"
        ) from None
    return pattern


@operation("events", "CreateEventBus")
def create_bus(request: AwsRequest) -> Json:
    buses, name = request.regional_state(EventBuses), request.get_required("Name")
    if name in buses.by_name:
        raise request.refuse("ResourceAlreadyExistsException", f"Event bus {name} already exists.")
    return {"EventBusArn": buses.add(name).arn}


@operation("events", "ListEventBuses")
def list_buses(request: AwsRequest) -> Json:
    return {
        "EventBuses": [
            {"Name": each.name, "Arn": each.arn}
            for each in request.regional_state(EventBuses).by_name.values()
        ]
    }


@operation("events", "PutRule")
def put_rule(request: AwsRequest) -> Json:
    bus, name = _find_bus(request), request.get_required("Name")
    if name not in bus.rules and len(bus.rules) >= RULES_MOST:
        raise request.refuse(
            "LimitExceededException", "The requested resource exceeds the maximum number allowed."
        )
    text = request.get("EventPattern")
    pattern = _parse_pattern(request, text) if text else None
    if pattern is None and not request.get("ScheduleExpression"):
        raise request.refuse(
            "ValidationException", "Parameter(s) EventPattern or ScheduleExpression must be specified."
        )
    under = "" if bus.name == "default" else f"{bus.name}/"
    made = bus.rules.setdefault(
        name, EventRule(name, f"arn:aws:events:{request.region}:{request.account}:rule/{under}{name}")
    )
    made.pattern, made.schedule = pattern, request.get("ScheduleExpression", "")
    made.enabled = request.get("State", "ENABLED") != "DISABLED"
    made.description, made.role = request.get("Description", ""), request.get("RoleArn", "")
    made.tags |= {each["Key"]: each["Value"] for each in request.get("Tags", ())}
    return {"RuleArn": made.arn}


@operation("events", "DescribeRule")
def describe_rule(request: AwsRequest) -> Json:
    return _render_rule(_find_rule(request, "Name"), _find_bus(request))


@operation("events", "ListRules")
def list_rules(request: AwsRequest) -> Json:
    bus, prefix = _find_bus(request), request.get("NamePrefix", "")
    return {"Rules": [_render_rule(rule, bus) for name, rule in bus.rules.items() if name.startswith(prefix)]}


@operation("events", "EnableRule", "DisableRule")
def enable_rule(request: AwsRequest) -> Json:
    _find_rule(request, "Name").enabled = request.operation == "EnableRule"
    return {}


@operation("events", "DeleteRule")
def delete_rule(request: AwsRequest) -> Json:
    bus, name = _find_bus(request), request.get_required("Name")
    found = bus.rules.get(name)
    if found is not None and found.targets:
        raise request.refuse("ValidationException", "Rule can't be deleted since it has targets.")
    bus.rules.pop(name, None)
    return {}


@operation("events", "PutTargets")
def put_targets(request: AwsRequest) -> Json:
    rule = _find_rule(request, "Rule")
    wanted = {each["Id"]: each for each in request.get_required("Targets")}
    if len(rule.targets.keys() | wanted.keys()) > TARGETS_MOST:
        raise request.refuse(
            "LimitExceededException", "The requested resource exceeds the maximum number allowed."
        )
    rule.targets |= wanted
    return {"FailedEntryCount": 0, "FailedEntries": []}


@operation("events", "RemoveTargets")
def remove_targets(request: AwsRequest) -> Json:
    rule = _find_rule(request, "Rule")
    for each in request.get_required("Ids"):
        rule.targets.pop(each, None)
    return {"FailedEntryCount": 0, "FailedEntries": []}


@operation("events", "ListTargetsByRule")
def list_targets(request: AwsRequest) -> Json:
    return {"Targets": [dict(each) for each in _find_rule(request, "Rule").targets.values()]}


@operation("events", "ListRuleNamesByTarget")
def list_names(request: AwsRequest) -> Json:
    arn = request.get_required("TargetArn")
    rules = _find_bus(request).rules.values()
    return {
        "RuleNames": [each.name for each in rules if any(one["Arn"] == arn for one in each.targets.values())]
    }


def _find_tags(request: AwsRequest) -> dict[str, str]:
    """The tags of a rule, by its ARN."""
    arn = request.get_required("ResourceARN")
    rules = (
        rule for bus in request.regional_state(EventBuses).by_name.values() for rule in bus.rules.values()
    )
    found = next((rule for rule in rules if rule.arn == arn), None)
    if found is None:
        raise request.refuse("ResourceNotFoundException", f"Rule {arn} does not exist.")
    return found.tags


@operation("events", "ListTagsForResource")
def list_tags(request: AwsRequest) -> Json:
    return {"Tags": tag_list(_find_tags(request))}


@operation("events", "TagResource")
def tag_rule(request: AwsRequest) -> Json:
    _find_tags(request).update(tags_of(request.get_required("Tags")))
    return {}


@operation("events", "UntagResource")
def untag_rule(request: AwsRequest) -> Json:
    tags = _find_tags(request)
    for key in request.get_required("TagKeys"):
        tags.pop(key, None)
    return {}


@operation("events", "TestEventPattern")
def test_pattern(request: AwsRequest) -> Json:
    return {
        "Result": matches_pattern(
            _parse_pattern(request, request.get_required("EventPattern")),
            json.loads(request.get_required("Event")),
        )
    }


@operation("events", "PutEvents")
def put_events(request: AwsRequest) -> Json:
    entries, buses = request.get_required("Entries"), request.regional_state(EventBuses)
    if not 1 <= len(entries) <= ENTRIES_MOST:
        raise request.refuse(
            "ValidationException", "1 validation error detected: Entries must have length 1 to 10"
        )
    told: list[Json] = []
    for one in entries:
        problem = _find_problem(one)
        if problem is not None:
            told.append({"ErrorCode": problem[0], "ErrorMessage": problem[1]})
            continue
        when = one.get("Time") or request.world.clock.now()
        event = {
            "version": "0",
            "id": request.world.random_uuid(),
            "detail-type": one["DetailType"],
            "source": one["Source"],
            "account": request.account,
            "time": f"{when:%Y-%m-%dT%H:%M:%SZ}",
            "region": request.region,
            "resources": list(one.get("Resources") or ()),
            "detail": json.loads(one["Detail"]),
        }
        buses.put_event(one.get("EventBusName", "default"), event)
        told.append({"EventId": event["id"]})
    return {"FailedEntryCount": sum("ErrorCode" in each for each in told), "Entries": told}


def _find_problem(one: Json) -> tuple[str, str] | None:
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


def _render_rule(rule: EventRule, bus: EventBus) -> Json:
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
