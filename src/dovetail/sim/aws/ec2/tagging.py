"""CreateTags, DeleteTags and DescribeTags, for every kind of thing that carries tags in EC2."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.sim.aws.ec2.images import SimImages
from dovetail.sim.aws.ec2.instances import SimInstances
from dovetail.sim.aws.ec2.launch_targets import SimPlacementGroups, SimReservations
from dovetail.sim.aws.ec2.network import Network
from dovetail.sim.aws.ec2.templates import SimLaunchTemplates
from dovetail.sim.aws.filters import apply_filters, tags_of, take_page
from dovetail.sim.aws.service import AwsRequest, Json, operation

__all__ = ["find_tags_by_id"]

MOST = 50
Kept = dict[str, dict[str, str]]
# How ids begin, what the thing is called, and where the tags of the known ones are.
KINDS: dict[str, tuple[str, str, Callable[[AwsRequest], Kept]]] = {
    "i-": (
        "instance",
        "InvalidInstanceID.NotFound",
        lambda request: {each.id: each.tags for each in request.regional_state(SimInstances).list_visible()},
    ),
    "subnet-": (
        "subnet",
        "InvalidSubnetID.NotFound",
        lambda request: {name: each.tags for name, each in request.regional_state(Network).subnets.items()},
    ),
    "sg-": (
        "security-group",
        "InvalidGroup.NotFound",
        lambda request: {name: each.tags for name, each in request.regional_state(Network).groups.items()},
    ),
    "vpc-": (
        "vpc",
        "InvalidVpcID.NotFound",
        lambda request: {name: each.tags for name, each in request.regional_state(Network).vpcs.items()},
    ),
    "ami-": (
        "image",
        "InvalidAMIID.NotFound",
        lambda request: {name: each.tags for name, each in request.regional_state(SimImages).known.items()},
    ),
    "lt-": (
        "launch-template",
        "InvalidLaunchTemplateId.NotFound",
        lambda request: {
            name: each.tags for name, each in request.regional_state(SimLaunchTemplates).by_id.items()
        },
    ),
    "cr-": (
        "capacity-reservation",
        "InvalidCapacityReservationId.NotFound",
        lambda request: {
            name: each.tags for name, each in request.regional_state(SimReservations).by_id.items()
        },
    ),
    "pg-": (
        "placement-group",
        "InvalidPlacementGroupId.NotFound",
        lambda request: {
            each.id: each.tags for each in request.regional_state(SimPlacementGroups).by_name.values()
        },
    ),
}


def find_tags_by_id(request: AwsRequest, resource: str) -> tuple[str, dict[str, str]]:
    """What kind of thing an id names, and its tags; refused when it is not there."""
    for start, (kind, code, kept) in KINDS.items():
        if resource.startswith(start):
            if kind == "instance":
                machine = request.regional_state(SimInstances).get(resource)
                found = machine.tags if machine else None
            else:
                found = kept(request).get(resource)
            if found is None:
                raise request.refuse(code, f"The {kind} ID '{resource}' does not exist")
            return kind, found
    raise request.refuse("InvalidID", f"The ID '{resource}' is not valid")


@operation("ec2", "CreateTags")
def create_tags(request: AwsRequest) -> Json:
    tags, found = tags_of(request.get_required("Tags")), []
    for resource in request.get_required("Resources"):
        found.append((resource, *find_tags_by_id(request, resource)))
    for resource, kind, known in found:
        user = [key for key in known.keys() | tags.keys() if not key.startswith("aws:")]
        if len(user) > MOST:
            raise request.refuse(
                "TagLimitExceeded", f"The maximum number of tags for {resource} has been reached"
            )
        if kind == "instance":
            instances = request.regional_state(SimInstances)
            instances.tag_instance(instances.by_id[resource], tags)
        else:
            known |= tags
    return {}


@operation("ec2", "DeleteTags")
def delete_tags(request: AwsRequest) -> Json:
    for resource in request.get_required("Resources"):
        kind, known = find_tags_by_id(request, resource)
        wanted = {each["Key"]: each.get("Value") for each in request.get("Tags", ())} or dict.fromkeys(known)
        gone = [key for key, value in wanted.items() if key in known and value in (None, known[key])]
        if kind == "instance":
            instances = request.regional_state(SimInstances)
            instances.untag_instance(instances.by_id[resource], gone)
        else:
            for key in gone:
                del known[key]
    return {}


@operation("ec2", "DescribeTags")
def describe_tags(request: AwsRequest) -> Json:
    rows = [
        (resource, kind, key, value)
        for kind, _, kept in KINDS.values()
        for resource, tags in kept(request).items()
        for key, value in tags.items()
    ]
    found = apply_filters(
        request,
        rows,
        lambda row: {
            "resource-id": (row[0],),
            "resource-type": (row[1],),
            "key": (row[2],),
            "value": (row[3],),
        },
        lambda row: {row[2]: row[3]},
    )
    chosen, more = take_page(request, found)
    return {
        "Tags": [
            {"ResourceId": resource, "ResourceType": kind, "Key": key, "Value": value}
            for resource, kind, key, value in chosen
        ],
        **more,
    }
