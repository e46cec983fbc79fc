"""What a request needs to be allowed to do: every action and resource AWS would ask IAM about."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from dovetail.aws import AwsError
from dovetail.sim.aws.ec2.instances import SimInstances
from dovetail.sim.aws.ec2.tagging import find_tags_by_id
from dovetail.sim.aws.ec2.templates import SimLaunchTemplates
from dovetail.sim.aws.filters import tags_of
from dovetail.sim.aws.iam.roles import Iam
from dovetail.sim.aws.messaging.queues import SimQueues
from dovetail.sim.aws.service import AwsRequest

__all__ = ["Need", "PolicyDecision", "Principal", "authorize_request", "list_needs"]

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Need:
    """An action on a resource, with what conditions may ask about."""

    action: str
    resource: str = "*"
    context: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """Whether it is allowed, and if not, why not."""

    allowed: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: an ARN and the policies attached to it."""

    arn: str
    documents: Sequence[Document] = ()
    boundary: Document | None = None

    def evaluate_need(self, need: Need) -> PolicyDecision:
        statements = [each for document in self.documents for each in _list_statements(document)]
        matching = [each for each in statements if _is_applicable(each, need)]
        if any(each.get("Effect") == "Deny" for each in matching):
            return PolicyDecision(False, "with an explicit deny in an identity-based policy")
        if not matching:
            return PolicyDecision(False, f"because no identity-based policy allows the {need.action} action")
        if self.boundary is not None and not any(
            _is_applicable(each, need) for each in _list_statements(self.boundary)
        ):
            return PolicyDecision(False, f"because no permissions boundary allows the {need.action} action")
        return PolicyDecision(True)


def _list_statements(document: Document) -> list[Mapping[str, Any]]:
    listed = document.get("Statement", ())
    return [listed] if isinstance(listed, Mapping) else list(listed)


def _is_applicable(statement: Mapping[str, Any], need: Need) -> bool:
    return (
        any(_matches_wildcards(each, need.action, folded=True) for each in _as_list(statement.get("Action")))
        and any(_matches_wildcards(each, need.resource) for each in _as_list(statement.get("Resource", "*")))
        and all(
            _meets_condition(operator, key, _as_list(wanted), need.context)
            for operator, keys in (statement.get("Condition") or {}).items()
            for key, wanted in keys.items()
        )
    )


def _as_list(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(each) for each in value] if isinstance(value, list | tuple) else [_as_text(value)]


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _matches_wildcards(pattern: str, value: str, *, folded: bool = False) -> bool:
    return (
        _compile_pattern(pattern.lower() if folded else pattern).fullmatch(value.lower() if folded else value)
        is not None
    )


@lru_cache(4096)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda wanted, value: wanted == value,
    "StringEqualsIgnoreCase": lambda wanted, value: wanted.casefold() == value.casefold(),
    "StringLike": lambda wanted, value: _matches_wildcards(wanted, value),
    "ArnEquals": lambda wanted, value: _matches_wildcards(wanted, value),
    "ArnLike": lambda wanted, value: _matches_wildcards(wanted, value),
    "Bool": lambda wanted, value: wanted.lower() == value.lower(),
    "NumericLessThanEquals": lambda wanted, value: float(value) <= float(wanted),
}


def _meets_condition(
    operator: str, key: str, wanted: list[str], context: Mapping[str, str | tuple[str, ...]]
) -> bool:
    quantifier, _, plain = operator.rpartition(":")
    lenient = plain.endswith("IfExists")
    plain = plain.removesuffix("IfExists")
    known = {name.lower(): value for name, value in context.items()}
    value = known.get(key.lower())
    if plain == "Null":
        return (value is None) == (wanted == ["true"])
    if value is None:
        # Nothing to compare: true for all of none, and where the operator says so.
        return lenient or quantifier == "ForAllValues" or "Not" in plain
    negated = plain.replace("Not", "") if "Not" in plain else ""
    test = OPERATORS[negated or plain]
    values = (value,) if isinstance(value, str) else value
    met = [any(test(each, one) for each in wanted) is not bool(negated) for one in values]
    return any(met) if quantifier == "ForAnyValue" else all(met)


# Services that say AccessDenied where the JSON ones say AccessDeniedException.
PLAIN = ("iam", "s3", "sqs", "sts")
LAUNCHED = ("instance", "volume", "network-interface")


def authorize_request(request: AwsRequest, principal: Principal) -> AwsError | None:
    """Why the request is refused; None when everything it needs is allowed."""
    for need in list_needs(request):
        verdict = principal.evaluate_need(need)
        if verdict.allowed:
            continue
        who = (
            f"User: {principal.arn} is not authorized to perform: {need.action} on resource: {need.resource}"
        )
        if request.service == "ec2":
            said = f"You are not authorized to perform this operation. {who} {verdict.why}"
            return request.refuse("UnauthorizedOperation", said, 403)
        code = "AccessDenied" if request.service in PLAIN else "AccessDeniedException"
        return request.refuse(code, f"{who} {verdict.why}", 403)
    return None


def list_needs(request: AwsRequest) -> list[Need]:
    """Every action on every resource."""
    special = SPECIAL.get((request.service, request.operation))
    found = special(request) if special else iter([_build_need(request)])
    here = {"aws:RequestedRegion": request.region}
    return [Need(each.action, each.resource, {**here, **each.context}) for each in found]


def _build_need(request: AwsRequest) -> Need:
    action = f"{request.service}:{request.operation}"
    context: dict[str, str | tuple[str, ...]] = {}
    if request.service == "sqs":
        # Several at once need no other permission than one.
        action = action.removesuffix("Batch")
    resource = "*"
    if request.service == "sqs" and (named := request.get("QueueName") or request.get("QueueUrl")):
        resource = f"arn:aws:sqs:{request.region}:{request.account}:{named.rpartition('/')[2]}"
        queue = request.regional_state(SimQueues).by_name.get(named.rpartition("/")[2])
        context = _build_resource_context(queue.tags) if queue is not None else {}
    elif request.service == "eks" and request.get("name"):
        resource = f"arn:aws:eks:{request.region}:{request.account}:cluster/{request.get('name')}"
    elif request.service == "ssm" and request.get("Name"):
        name = request.get("Name")
        owner = "" if name.startswith("/aws/service/") else request.account
        resource = (
            f"arn:aws:ssm:{request.region}:{owner}:parameter{name if name.startswith('/') else '/' + name}"
        )
    elif request.service == "dynamodb" and request.get("TableName"):
        resource = f"arn:aws:dynamodb:{request.region}:{request.account}:table/{request.get('TableName')}"
    elif request.service == "arc-zonal-shift" and request.get("resourceIdentifier"):
        context["arc-zonal-shift:ResourceIdentifier"] = request.get("resourceIdentifier")
    return Need(action, resource, context)


def _build_arn(request: AwsRequest, kind: str, name: str = "*") -> str:
    account = "" if kind in ("image", "snapshot") else request.account
    return f"arn:aws:ec2:{request.region}:{account}:{kind}/{name}"


def _build_request_context(tags: Mapping[str, str]) -> dict[str, str | tuple[str, ...]]:
    if not tags:
        return {}
    return {**{f"aws:RequestTag/{key}": value for key, value in tags.items()}, "aws:TagKeys": tuple(tags)}


def _build_resource_context(tags: Mapping[str, str]) -> dict[str, str | tuple[str, ...]]:
    found: dict[str, str | tuple[str, ...]] = {}
    for key, value in tags.items():
        found |= {f"aws:ResourceTag/{key}": value, f"ec2:ResourceTag/{key}": value}
    return found


def _by_kind(specifications: Any) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for each in specifications or ():
        found.setdefault(each["ResourceType"], {}).update(tags_of(each.get("Tags")))
    return found


def _list_tagging_needs(
    request: AwsRequest, tags: Mapping[str, Mapping[str, str]], creating: str
) -> Iterator[Need]:
    """Tags given while something is made need CreateTags too."""
    for kind, given in tags.items():
        if given:
            context = {**_build_request_context(given), "ec2:CreateAction": creating}
            yield Need("ec2:CreateTags", _build_arn(request, kind), context)


def _create_template(request: AwsRequest) -> Iterator[Need]:
    tags = _by_kind(request.get("TagSpecifications"))
    mine = tags.get("launch-template", {})
    yield Need(
        "ec2:CreateLaunchTemplate", _build_arn(request, "launch-template"), _build_request_context(mine)
    )
    yield from _list_tagging_needs(request, {"launch-template": mine}, "CreateLaunchTemplate")


def _delete_template(request: AwsRequest) -> Iterator[Need]:
    try:
        found = request.regional_state(SimLaunchTemplates).find(request, request.given)
    except AwsError:
        yield Need("ec2:DeleteLaunchTemplate", _build_arn(request, "launch-template"))
        return
    yield Need(
        "ec2:DeleteLaunchTemplate",
        _build_arn(request, "launch-template", found.id),
        _build_resource_context(found.tags),
    )


def _create_fleet(request: AwsRequest) -> Iterator[Need]:
    asked = _by_kind(request.get("TagSpecifications"))
    yield Need(
        "ec2:CreateFleet", _build_arn(request, "fleet"), _build_request_context(asked.get("fleet", {}))
    )
    spot = request.get("TargetCapacitySpecification", {}).get("DefaultTargetCapacityType") == "spot"
    for config in request.get("LaunchTemplateConfigs", ()):
        overrides = config.get("Overrides") or [{}]
        for action in ("ec2:CreateFleet", "ec2:RunInstances"):
            yield from _list_launch_needs(
                request, action, config["LaunchTemplateSpecification"], overrides, asked, spot
            )
    yield from _list_tagging_needs(
        request, {kind: asked[kind] for kind in ("fleet", *LAUNCHED) if kind in asked}, "CreateFleet"
    )


def _run_instances(request: AwsRequest) -> Iterator[Need]:
    asked = _by_kind(request.get("TagSpecifications"))
    if given := request.get("LaunchTemplate"):
        yield from _list_launch_needs(request, "ec2:RunInstances", given, [request.given], asked, False)
    else:
        for kind in LAUNCHED:
            yield Need(
                "ec2:RunInstances", _build_arn(request, kind), _build_request_context(asked.get(kind, {}))
            )
    yield from _list_tagging_needs(
        request, {kind: asked[kind] for kind in LAUNCHED if kind in asked}, "RunInstances"
    )


def _list_launch_needs(
    request: AwsRequest,
    action: str,
    specification: Mapping[str, Any],
    overrides: list[Mapping[str, Any]],
    asked: Mapping[str, Mapping[str, str]],
    spot: bool,
) -> Iterator[Need]:
    """What launching from a template touches: what it reads, and what it makes."""
    try:
        template, _, data = request.regional_state(SimLaunchTemplates).read_version(request, specification)
    except AwsError:
        return
    yield Need(
        action, _build_arn(request, "launch-template", template.id), _build_resource_context(template.tags)
    )
    own = _by_kind(data.get("TagSpecifications"))
    for name in sorted({each.get("SubnetId") or data.get("SubnetId") or "*" for each in overrides}):
        yield Need(action, _build_arn(request, "subnet", name))
    for name in sorted({each.get("ImageId") or data.get("ImageId") or "*" for each in overrides}):
        yield Need(action, _build_arn(request, "image", name))
    interfaces = data.get("NetworkInterfaces") or ()
    groups = {group for one in interfaces for group in one.get("Groups") or ()}
    for name in sorted(groups | set(data.get("SecurityGroupIds") or ())):
        yield Need(action, _build_arn(request, "security-group", name))
    for kind in (*LAUNCHED, *(("spot-instances-request",) if spot else ())):
        tags = {**own.get(kind, {}), **asked.get(kind, {})}
        yield Need(action, _build_arn(request, kind), _build_request_context(tags))
    yield from _pass_role(request, data.get("IamInstanceProfile") or {})


def _pass_role(request: AwsRequest, profile: Mapping[str, str]) -> Iterator[Need]:
    found = request.global_state(Iam).profiles.get(profile.get("Name", ""))
    for role in found.roles if found else ():
        yield Need("iam:PassRole", role.arn, {"iam:PassedToService": "ec2.amazonaws.com"})


def _list_terminate_needs(request: AwsRequest) -> Iterator[Need]:
    instances = request.regional_state(SimInstances)
    for name in request.get("InstanceIds", ()):
        machine = instances.by_id.get(name)
        yield Need(
            "ec2:TerminateInstances",
            _build_arn(request, "instance", name),
            _build_resource_context(machine.tags if machine else {}),
        )


def _create_tags(request: AwsRequest) -> Iterator[Need]:
    tags = tags_of(request.get("Tags"))
    for name in request.get("Resources", ()):
        try:
            kind, known = find_tags_by_id(request, name)
        except AwsError:
            kind, known = "instance", {}
        yield Need(
            "ec2:CreateTags",
            _build_arn(request, kind, name),
            {**_build_request_context(tags), **_build_resource_context(known)},
        )


def _list_profile_needs(request: AwsRequest) -> Iterator[Need]:
    name, iam = request.get("InstanceProfileName", ""), request.global_state(Iam)
    found = iam.profiles.get(name)
    path = found.path if found else request.get("Path", "/")
    context = {
        **_build_request_context(tags_of(request.get("Tags"))),
        **_build_resource_context(found.tags if found else {}),
    }
    arn = f"arn:aws:iam::{request.account}:instance-profile{path}{name}"
    yield Need(f"iam:{request.operation}", arn, context)
    role = iam.roles.get(request.get("RoleName", ""))
    if request.operation == "AddRoleToInstanceProfile" and role is not None:
        yield Need("iam:PassRole", role.arn, {"iam:PassedToService": "ec2.amazonaws.com"})


def _list_bucket_needs(request: AwsRequest) -> Iterator[Need]:
    """Keys are listed by the right to list their bucket."""
    bucket, key = f"arn:aws:s3:::{request.get('Bucket', '')}", request.get("Key", "")
    if request.operation == "ListObjectsV2":
        yield Need("s3:ListBucket", bucket, {"s3:prefix": request.get("Prefix", "")})
    else:
        yield Need(f"s3:{request.operation}", f"{bucket}/{key}" if key else bucket)


def _list_topic_needs(request: AwsRequest) -> Iterator[Need]:
    yield Need("sns:Publish", request.get("TopicArn", ""))


def _list_bus_needs(request: AwsRequest) -> Iterator[Need]:
    """Every entry needs its bus, which is named or said by its ARN."""
    for entry in request.get("Entries", ()):
        bus = entry.get("EventBusName") or "default"
        own = f"arn:aws:events:{request.region}:{request.account}:event-bus/{bus}"
        yield Need("events:PutEvents", bus if bus.startswith("arn:") else own)


def _list_plan_needs(request: AwsRequest) -> Iterator[Need]:
    """Savings Plans have one endpoint, in us-east-1, wherever they are asked for."""
    resource = "*"
    if named := request.get("savingsPlanId"):
        resource = f"arn:aws:savingsplans::{request.account}:savingsplan/{named}"
    yield Need(f"savingsplans:{request.operation}", resource, {"aws:RequestedRegion": "us-east-1"})


SPECIAL: dict[tuple[str, str], Callable[[AwsRequest], Iterator[Need]]] = {
    ("ec2", "CreateFleet"): _create_fleet,
    ("ec2", "RunInstances"): _run_instances,
    ("ec2", "CreateLaunchTemplate"): _create_template,
    ("ec2", "DeleteLaunchTemplate"): _delete_template,
    ("ec2", "TerminateInstances"): _list_terminate_needs,
    ("ec2", "CreateTags"): _create_tags,
    ("sns", "Publish"): _list_topic_needs,
    ("savingsplans", "DescribeSavingsPlans"): _list_plan_needs,
    ("savingsplans", "DescribeSavingsPlanRates"): _list_plan_needs,
    ("events", "PutEvents"): _list_bus_needs,
    **{
        ("s3", name): _list_bucket_needs
        for name in ("CreateBucket", "GetObject", "ListObjectsV2", "PutObject")
    },
    **{
        ("iam", name): _list_profile_needs
        for name in (
            "AddRoleToInstanceProfile",
            "CreateInstanceProfile",
            "DeleteInstanceProfile",
            "GetInstanceProfile",
            "RemoveRoleFromInstanceProfile",
            "TagInstanceProfile",
        )
    },
}
