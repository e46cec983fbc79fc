"""What a request needs to be allowed to do: every action and resource AWS would ask IAM about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dovetail.aws import AwsError
from dovetail.sim.aws.asking import Ask
from dovetail.sim.aws.iam import Iam
from dovetail.sim.aws.instances import Instances
from dovetail.sim.aws.policies import Need, Principal
from dovetail.sim.aws.queues import Queues
from dovetail.sim.aws.selecting import tags_of
from dovetail.sim.aws.tagging import tags_by_id
from dovetail.sim.aws.templates import Templates

__all__ = ["authorize", "needs"]

# Services that say AccessDenied where the JSON ones say AccessDeniedException.
PLAIN = ("iam", "sts", "sqs")
LAUNCHED = ("instance", "volume", "network-interface")


def authorize(ask: Ask, principal: Principal) -> AwsError | None:
    """Why the request is refused; None when everything it needs is allowed."""
    for need in needs(ask):
        verdict = principal.judge(need)
        if verdict.allowed:
            continue
        who = (
            f"User: {principal.arn} is not authorized to perform: {need.action} on resource: {need.resource}"
        )
        if ask.service == "ec2":
            said = f"You are not authorized to perform this operation. {who} {verdict.why}"
            return ask.refuse("UnauthorizedOperation", said, 403)
        code = "AccessDenied" if ask.service in PLAIN else "AccessDeniedException"
        return ask.refuse(code, f"{who} {verdict.why}", 403)
    return None


def needs(ask: Ask) -> list[Need]:
    """Every action on every resource."""
    special = SPECIAL.get((ask.service, ask.operation))
    found = special(ask) if special else iter([_plain(ask)])
    here = {"aws:RequestedRegion": ask.region}
    return [Need(each.action, each.resource, {**here, **each.context}) for each in found]


def _plain(ask: Ask) -> Need:
    action = f"{ask.service}:{ask.operation}"
    context: dict[str, str | tuple[str, ...]] = {}
    if ask.service == "sqs":
        # Several at once need no other permission than one.
        action = action.removesuffix("Batch")
    resource = "*"
    if ask.service == "sqs" and (named := ask.get("QueueName") or ask.get("QueueUrl")):
        resource = f"arn:aws:sqs:{ask.region}:{ask.account}:{named.rpartition('/')[2]}"
        queue = ask.here(Queues).by_name.get(named.rpartition("/")[2])
        context = _owned(queue.tags) if queue is not None else {}
    elif ask.service == "eks" and ask.get("name"):
        resource = f"arn:aws:eks:{ask.region}:{ask.account}:cluster/{ask.get('name')}"
    elif ask.service == "ssm" and ask.get("Name"):
        name = ask.get("Name")
        owner = "" if name.startswith("/aws/service/") else ask.account
        resource = f"arn:aws:ssm:{ask.region}:{owner}:parameter{name if name.startswith('/') else '/' + name}"
    elif ask.service == "dynamodb" and ask.get("TableName"):
        resource = f"arn:aws:dynamodb:{ask.region}:{ask.account}:table/{ask.get('TableName')}"
    elif ask.service == "arc-zonal-shift" and ask.get("resourceIdentifier"):
        context["arc-zonal-shift:ResourceIdentifier"] = ask.get("resourceIdentifier")
    return Need(action, resource, context)


def _arn(ask: Ask, kind: str, name: str = "*") -> str:
    account = "" if kind in ("image", "snapshot") else ask.account
    return f"arn:aws:ec2:{ask.region}:{account}:{kind}/{name}"


def _request(tags: Mapping[str, str]) -> dict[str, str | tuple[str, ...]]:
    if not tags:
        return {}
    return {**{f"aws:RequestTag/{key}": value for key, value in tags.items()}, "aws:TagKeys": tuple(tags)}


def _owned(tags: Mapping[str, str]) -> dict[str, str | tuple[str, ...]]:
    found: dict[str, str | tuple[str, ...]] = {}
    for key, value in tags.items():
        found |= {f"aws:ResourceTag/{key}": value, f"ec2:ResourceTag/{key}": value}
    return found


def _by_kind(specifications: Any) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for each in specifications or ():
        found.setdefault(each["ResourceType"], {}).update(tags_of(each.get("Tags")))
    return found


def _tagged(ask: Ask, tags: Mapping[str, Mapping[str, str]], creating: str) -> Iterator[Need]:
    """Tags given while something is made need CreateTags too."""
    for kind, given in tags.items():
        if given:
            context = {**_request(given), "ec2:CreateAction": creating}
            yield Need("ec2:CreateTags", _arn(ask, kind), context)


def _create_template(ask: Ask) -> Iterator[Need]:
    tags = _by_kind(ask.get("TagSpecifications"))
    mine = tags.get("launch-template", {})
    yield Need("ec2:CreateLaunchTemplate", _arn(ask, "launch-template"), _request(mine))
    yield from _tagged(ask, {"launch-template": mine}, "CreateLaunchTemplate")


def _delete_template(ask: Ask) -> Iterator[Need]:
    try:
        found = ask.here(Templates).find(ask, ask.given)
    except AwsError:
        yield Need("ec2:DeleteLaunchTemplate", _arn(ask, "launch-template"))
        return
    yield Need("ec2:DeleteLaunchTemplate", _arn(ask, "launch-template", found.id), _owned(found.tags))


def _create_fleet(ask: Ask) -> Iterator[Need]:
    asked = _by_kind(ask.get("TagSpecifications"))
    yield Need("ec2:CreateFleet", _arn(ask, "fleet"), _request(asked.get("fleet", {})))
    spot = ask.get("TargetCapacitySpecification", {}).get("DefaultTargetCapacityType") == "spot"
    for config in ask.get("LaunchTemplateConfigs", ()):
        overrides = config.get("Overrides") or [{}]
        for action in ("ec2:CreateFleet", "ec2:RunInstances"):
            yield from _launch(ask, action, config["LaunchTemplateSpecification"], overrides, asked, spot)
    yield from _tagged(
        ask, {kind: asked[kind] for kind in ("fleet", *LAUNCHED) if kind in asked}, "CreateFleet"
    )


def _run_instances(ask: Ask) -> Iterator[Need]:
    asked = _by_kind(ask.get("TagSpecifications"))
    if given := ask.get("LaunchTemplate"):
        yield from _launch(ask, "ec2:RunInstances", given, [ask.given], asked, False)
    else:
        for kind in LAUNCHED:
            yield Need("ec2:RunInstances", _arn(ask, kind), _request(asked.get(kind, {})))
    yield from _tagged(ask, {kind: asked[kind] for kind in LAUNCHED if kind in asked}, "RunInstances")


def _launch(
    ask: Ask,
    action: str,
    specification: Mapping[str, Any],
    overrides: list[Mapping[str, Any]],
    asked: Mapping[str, Mapping[str, str]],
    spot: bool,
) -> Iterator[Need]:
    """What launching from a template touches: what it reads, and what it makes."""
    try:
        template, _, data = ask.here(Templates).data(ask, specification)
    except AwsError:
        return
    yield Need(action, _arn(ask, "launch-template", template.id), _owned(template.tags))
    own = _by_kind(data.get("TagSpecifications"))
    for name in sorted({each.get("SubnetId") or data.get("SubnetId") or "*" for each in overrides}):
        yield Need(action, _arn(ask, "subnet", name))
    for name in sorted({each.get("ImageId") or data.get("ImageId") or "*" for each in overrides}):
        yield Need(action, _arn(ask, "image", name))
    interfaces = data.get("NetworkInterfaces") or ()
    groups = {group for one in interfaces for group in one.get("Groups") or ()}
    for name in sorted(groups | set(data.get("SecurityGroupIds") or ())):
        yield Need(action, _arn(ask, "security-group", name))
    for kind in (*LAUNCHED, *(("spot-instances-request",) if spot else ())):
        tags = {**own.get(kind, {}), **asked.get(kind, {})}
        yield Need(action, _arn(ask, kind), _request(tags))
    yield from _pass_role(ask, data.get("IamInstanceProfile") or {})


def _pass_role(ask: Ask, profile: Mapping[str, str]) -> Iterator[Need]:
    found = ask.everywhere(Iam).profiles.get(profile.get("Name", ""))
    for role in found.roles if found else ():
        yield Need("iam:PassRole", role.arn, {"iam:PassedToService": "ec2.amazonaws.com"})


def _terminate(ask: Ask) -> Iterator[Need]:
    instances = ask.here(Instances)
    for name in ask.get("InstanceIds", ()):
        machine = instances.by_id.get(name)
        yield Need(
            "ec2:TerminateInstances", _arn(ask, "instance", name), _owned(machine.tags if machine else {})
        )


def _create_tags(ask: Ask) -> Iterator[Need]:
    tags = tags_of(ask.get("Tags"))
    for name in ask.get("Resources", ()):
        try:
            kind, known = tags_by_id(ask, name)
        except AwsError:
            kind, known = "instance", {}
        yield Need("ec2:CreateTags", _arn(ask, kind, name), {**_request(tags), **_owned(known)})


def _profile(ask: Ask) -> Iterator[Need]:
    name, iam = ask.get("InstanceProfileName", ""), ask.everywhere(Iam)
    found = iam.profiles.get(name)
    path = found.path if found else ask.get("Path", "/")
    context = {**_request(tags_of(ask.get("Tags"))), **_owned(found.tags if found else {})}
    arn = f"arn:aws:iam::{ask.account}:instance-profile{path}{name}"
    yield Need(f"iam:{ask.operation}", arn, context)
    role = iam.roles.get(ask.get("RoleName", ""))
    if ask.operation == "AddRoleToInstanceProfile" and role is not None:
        yield Need("iam:PassRole", role.arn, {"iam:PassedToService": "ec2.amazonaws.com"})


SPECIAL: dict[tuple[str, str], Callable[[Ask], Iterator[Need]]] = {
    ("ec2", "CreateFleet"): _create_fleet,
    ("ec2", "RunInstances"): _run_instances,
    ("ec2", "CreateLaunchTemplate"): _create_template,
    ("ec2", "DeleteLaunchTemplate"): _delete_template,
    ("ec2", "TerminateInstances"): _terminate,
    ("ec2", "CreateTags"): _create_tags,
    **{
        ("iam", name): _profile
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
