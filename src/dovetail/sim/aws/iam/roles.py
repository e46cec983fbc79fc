"""IAM roles, policies by name and instance profiles: as much as launching instances needs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime

from dovetail.sim.aws.filters import tag_list, tags_of
from dovetail.sim.aws.service import AwsRequest, Json, ServiceState, operation

__all__ = ["Iam", "IamProfile", "IamRole"]

NAME = re.compile(r"[\w+=,.@-]{1,128}")
PAGE = 100


@dataclass(slots=True)
class IamRole:
    """A role, and what may assume it."""

    name: str
    id: str
    arn: str
    path: str
    created: datetime
    trust: str = "{}"
    tags: dict[str, str] = field(default_factory=dict)
    description: str = ""
    # The longest session, in seconds, and the policy that bounds all others.
    lasts: int = 3600
    boundary: str = ""


@dataclass(slots=True)
class IamProfile:
    """An instance profile: at most one role."""

    name: str
    id: str
    arn: str
    path: str
    created: datetime
    roles: list[IamRole] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)


class Iam(ServiceState):
    """The identities of an account; the same in every region."""

    def init_state(self) -> None:
        self.roles: dict[str, IamRole] = {}
        self.profiles: dict[str, IamProfile] = {}
        # Seconds until EC2 knows a new profile: IAM is eventually consistent.
        self.lag = 0.0

    def add_role(
        self, name: str, path: str = "/", trust: str = "{}", tags: dict[str, str] | None = None
    ) -> IamRole:
        made = IamRole(
            name,
            f"AROA{self.world.random_hex(16).upper()}",
            f"arn:aws:iam::{self.account}:role{path}{name}",
            path,
            self.clock.now(),
            trust,
            dict(tags or {}),
        )
        self.roles[name] = made
        return made

    def add_profile(
        self, name: str, path: str = "/", role: str = "", tags: dict[str, str] | None = None
    ) -> IamProfile:
        made = IamProfile(
            name,
            f"AIPA{self.world.random_hex(16).upper()}",
            f"arn:aws:iam::{self.account}:instance-profile{path}{name}",
            path,
            self.clock.now(),
            [self.roles[role]] if role else [],
            dict(tags or {}),
        )
        self.profiles[name] = made
        return made


def _find_profile(request: AwsRequest) -> IamProfile:
    name = request.get_required("InstanceProfileName")
    found = request.global_state(Iam).profiles.get(name)
    if found is None:
        raise request.refuse("NoSuchEntity", f"Instance Profile {name} cannot be found.", 404)
    return found


def _find_role(request: AwsRequest) -> IamRole:
    name = request.get_required("RoleName")
    found = request.global_state(Iam).roles.get(name)
    if found is None:
        raise request.refuse("NoSuchEntity", f"The role with name {name} cannot be found.", 404)
    return found


@operation("iam", "CreateInstanceProfile")
def create_profile(request: AwsRequest) -> Json:
    iam, name = request.global_state(Iam), request.get_required("InstanceProfileName")
    if not NAME.fullmatch(name):
        raise request.refuse(
            "ValidationError",
            "The specified value for instanceProfileName is invalid. It must contain only alphanumeric "
            "characters and/or the following: +=,.@_-",
        )
    if name in iam.profiles:
        raise request.refuse("EntityAlreadyExists", f"Instance Profile {name} already exists.", 409)
    made = iam.add_profile(name, request.get("Path", "/"), tags=tags_of(request.get("Tags")))
    return {"InstanceProfile": _render_profile(made)}


@operation("iam", "GetInstanceProfile")
def get_profile(request: AwsRequest) -> Json:
    return {"InstanceProfile": _render_profile(_find_profile(request))}


@operation("iam", "ListInstanceProfiles")
def list_profiles(request: AwsRequest) -> Json:
    prefix = request.get("PathPrefix", "/")
    found = [each for each in request.global_state(Iam).profiles.values() if each.path.startswith(prefix)]
    start, size = int(request.get("Marker", "0")), request.get("MaxItems", PAGE)
    more = start + size < len(found)
    return {
        "InstanceProfiles": [_render_profile(each) for each in found[start : start + size]],
        "IsTruncated": more,
        **({"Marker": str(start + size)} if more else {}),
    }


@operation("iam", "DeleteInstanceProfile")
def delete_profile(request: AwsRequest) -> Json:
    found = _find_profile(request)
    if found.roles:
        raise request.refuse(
            "DeleteConflict", "Cannot delete entity, must remove roles from instance profile first.", 409
        )
    del request.global_state(Iam).profiles[found.name]
    return {}


@operation("iam", "AddRoleToInstanceProfile")
def add_role(request: AwsRequest) -> Json:
    profile, role = _find_profile(request), _find_role(request)
    if profile.roles:
        raise request.refuse(
            "LimitExceeded", "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1", 409
        )
    profile.roles.append(role)
    return {}


@operation("iam", "RemoveRoleFromInstanceProfile")
def remove_role(request: AwsRequest) -> Json:
    profile, name = _find_profile(request), request.get_required("RoleName")
    if all(each.name != name for each in profile.roles):
        raise request.refuse(
            "NoSuchEntity", f"Role {name} in instance profile {profile.name} cannot be found.", 404
        )
    profile.roles = [each for each in profile.roles if each.name != name]
    return {}


@operation("iam", "TagInstanceProfile")
def tag_profile(request: AwsRequest) -> Json:
    _find_profile(request).tags.update(tags_of(request.get_required("Tags")))
    return {}


@operation("iam", "CreateRole")
def create_role(request: AwsRequest) -> Json:
    iam, name = request.global_state(Iam), request.get_required("RoleName")
    if name in iam.roles:
        raise request.refuse("EntityAlreadyExists", f"Role with name {name} already exists.", 409)
    made = iam.add_role(
        name,
        request.get("Path", "/"),
        request.get("AssumeRolePolicyDocument", "{}"),
        tags_of(request.get("Tags")),
    )
    made.description, made.boundary = request.get("Description", ""), request.get("PermissionsBoundary", "")
    made.lasts = request.get("MaxSessionDuration", made.lasts)
    return {"Role": _render_role(made)}


@operation("iam", "GetRole")
def get_role(request: AwsRequest) -> Json:
    return {"Role": _render_role(_find_role(request))}


@operation("iam", "DeleteRole")
def delete_role(request: AwsRequest) -> Json:
    iam, found = request.global_state(Iam), _find_role(request)
    if any(found in profile.roles for profile in iam.profiles.values()):
        raise request.refuse(
            "DeleteConflict", "Cannot delete entity, must remove roles from instance profile first.", 409
        )
    del iam.roles[found.name]
    return {}


def _render_profile(each: IamProfile) -> Json:
    return {
        "Path": each.path,
        "InstanceProfileName": each.name,
        "InstanceProfileId": each.id,
        "Arn": each.arn,
        "CreateDate": each.created,
        "Roles": [_render_role(role) for role in each.roles],
        "Tags": tag_list(each.tags),
    }


def _render_role(each: IamRole) -> Json:
    return {
        "Path": each.path,
        "RoleName": each.name,
        "RoleId": each.id,
        "Arn": each.arn,
        "CreateDate": each.created,
        "AssumeRolePolicyDocument": json.loads(each.trust),
        "Description": each.description,
        "MaxSessionDuration": each.lasts,
        "Tags": tag_list(each.tags),
        **({"PermissionsBoundary": _render_boundary(each.boundary)} if each.boundary else {}),
    }


def _render_boundary(arn: str) -> Json:
    return {"PermissionsBoundaryType": "Policy", "PermissionsBoundaryArn": arn}
