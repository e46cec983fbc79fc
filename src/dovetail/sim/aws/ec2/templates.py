"""Launch templates, by name, id and version."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dovetail.sim.aws.filters import apply_filters, tag_list, tags_for, take_page
from dovetail.sim.aws.service import AwsRequest, Json, ServiceState, operation

__all__ = ["SimLaunchTemplate", "SimLaunchTemplates", "check_user_data"]

USER_DATA_MOST = 16384
NO_SUCH_NAME = "At least one of the launch templates specified in the request does not exist."


@dataclass(slots=True)
class SimLaunchTemplate:
    """A launch template; `versions` in order, the first is number 1."""

    id: str
    name: str
    created: datetime
    by: str
    versions: list[Mapping[str, Any]]
    tags: dict[str, str] = field(default_factory=dict)
    default: int = 1


class SimLaunchTemplates(ServiceState):
    """The launch templates of an account in a region."""

    def init_state(self) -> None:
        self.by_id: dict[str, SimLaunchTemplate] = {}
        self.by_name: dict[str, SimLaunchTemplate] = {}

    def find(self, request: AwsRequest, specification: Mapping[str, Any]) -> SimLaunchTemplate:
        """The template a request means; refused when there is none."""
        if name := specification.get("LaunchTemplateName"):
            found = self.by_name.get(name)
            if found is None:
                raise request.refuse(
                    "InvalidLaunchTemplateName.NotFoundException",
                    f"The specified launch template, with template name {name}, does not exist.",
                )
            return found
        made = self.by_id.get(specification.get("LaunchTemplateId", ""))
        if made is None:
            raise request.refuse(
                "InvalidLaunchTemplateId.NotFound",
                f"The specified launch template, with template ID {specification.get('LaunchTemplateId')}, "
                "does not exist.",
            )
        return made

    def read_version(
        self, request: AwsRequest, specification: Mapping[str, Any]
    ) -> tuple[SimLaunchTemplate, int, Mapping[str, Any]]:
        """A template with the number and the contents of the version a request means."""
        found = self.find(request, specification)
        wanted = specification.get("Version") or "$Default"
        number = {"$Default": found.default, "$Latest": len(found.versions)}.get(wanted)
        if number is None:
            number = int(wanted) if str(wanted).isdigit() else 0
        if not 1 <= number <= len(found.versions):
            raise request.refuse(
                "InvalidLaunchTemplateId.VersionNotFound",
                f"Could not find the specified version {wanted} for the launch template with ID {found.id}.",
            )
        return found, number, found.versions[number - 1]

    def drop(self, template: SimLaunchTemplate) -> None:
        del self.by_id[template.id], self.by_name[template.name]


def check_user_data(request: AwsRequest, encoded: str | None) -> None:
    """EC2 takes base64 of at most 16 KiB."""
    if not encoded:
        return
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error):
        raise request.refuse("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from None
    if len(raw) > USER_DATA_MOST:
        raise request.refuse("InvalidUserData.Malformed", f"User data is limited to {USER_DATA_MOST} bytes")


@operation("ec2", "CreateLaunchTemplate")
def create_template(request: AwsRequest) -> Json:
    templates, name, data = (
        request.regional_state(SimLaunchTemplates),
        request.get_required("LaunchTemplateName"),
        request.get_required("LaunchTemplateData"),
    )
    if name in templates.by_name:
        raise request.refuse(
            "InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use."
        )
    check_user_data(request, data.get("UserData"))
    made = SimLaunchTemplate(
        f"lt-0{request.world.random_hex(16)}",
        name,
        request.world.clock.now(),
        f"arn:aws:iam::{request.account}:root",
        [data],
        tags_for(request, "launch-template"),
    )
    templates.by_id[made.id] = templates.by_name[name] = made
    return {"LaunchTemplate": _render_template(made)}


@operation("ec2", "CreateLaunchTemplateVersion")
def create_version(request: AwsRequest) -> Json:
    found = request.regional_state(SimLaunchTemplates).find(request, request.given)
    data = request.get_required("LaunchTemplateData")
    check_user_data(request, data.get("UserData"))
    found.versions.append(data)
    return {"LaunchTemplateVersion": _render_version(found, len(found.versions))}


@operation("ec2", "DescribeLaunchTemplates")
def describe_templates(request: AwsRequest) -> Json:
    templates = request.regional_state(SimLaunchTemplates)
    wanted = list(templates.by_id.values())
    if names := request.get("LaunchTemplateNames"):
        if any(name not in templates.by_name for name in names):
            raise request.refuse("InvalidLaunchTemplateName.NotFoundException", NO_SUCH_NAME)
        wanted = [templates.by_name[name] for name in names]
    if ids := request.get("LaunchTemplateIds"):
        if missing := [each for each in ids if each not in templates.by_id]:
            raise request.refuse(
                "InvalidLaunchTemplateId.NotFound", f"The launch template ID '{missing[0]}' does not exist."
            )
        wanted = [templates.by_id[each] for each in ids]
    found = apply_filters(
        request,
        wanted,
        lambda each: {
            "launch-template-name": (each.name,),
            "create-time": (each.created.isoformat(),),
        },
        lambda each: each.tags,
    )
    shown, more = take_page(request, found, most=200, named="LaunchTemplateNames")
    return {"LaunchTemplates": [_render_template(each) for each in shown], **more}


@operation("ec2", "DescribeLaunchTemplateVersions")
def describe_versions(request: AwsRequest) -> Json:
    found = request.regional_state(SimLaunchTemplates).find(request, request.given)
    marks = {"$Latest": len(found.versions), "$Default": found.default}
    wanted = request.get("Versions") or [str(at + 1) for at in range(len(found.versions))]
    numbers = [marks[each] if each in marks else int(each) for each in wanted]
    return {
        "LaunchTemplateVersions": [
            _render_version(found, number) for number in numbers if 1 <= number <= len(found.versions)
        ]
    }


@operation("ec2", "DeleteLaunchTemplate")
def delete_template(request: AwsRequest) -> Json:
    templates = request.regional_state(SimLaunchTemplates)
    found = templates.find(request, request.given)
    templates.drop(found)
    return {"LaunchTemplate": _render_template(found)}


def _render_template(each: SimLaunchTemplate) -> Json:
    return {
        "LaunchTemplateId": each.id,
        "LaunchTemplateName": each.name,
        "CreateTime": each.created,
        "CreatedBy": each.by,
        "DefaultVersionNumber": each.default,
        "LatestVersionNumber": len(each.versions),
        "Tags": tag_list(each.tags),
    }


def _render_version(each: SimLaunchTemplate, number: int) -> Json:
    return {
        "LaunchTemplateId": each.id,
        "LaunchTemplateName": each.name,
        "VersionNumber": number,
        "CreateTime": each.created,
        "CreatedBy": each.by,
        "DefaultVersion": number == each.default,
        "LaunchTemplateData": dict(each.versions[number - 1]),
    }
