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

    def find(self, ask: AwsRequest, specification: Mapping[str, Any]) -> SimLaunchTemplate:
        """The template a request means; refused when there is none."""
        if name := specification.get("LaunchTemplateName"):
            found = self.by_name.get(name)
            if found is None:
                raise ask.refuse(
                    "InvalidLaunchTemplateName.NotFoundException",
                    f"The specified launch template, with template name {name}, does not exist.",
                )
            return found
        made = self.by_id.get(specification.get("LaunchTemplateId", ""))
        if made is None:
            raise ask.refuse(
                "InvalidLaunchTemplateId.NotFound",
                f"The specified launch template, with template ID {specification.get('LaunchTemplateId')}, "
                "does not exist.",
            )
        return made

    def read_version(
        self, ask: AwsRequest, specification: Mapping[str, Any]
    ) -> tuple[SimLaunchTemplate, int, Mapping[str, Any]]:
        """A template with the number and the contents of the version a request means."""
        found = self.find(ask, specification)
        wanted = specification.get("Version") or "$Default"
        number = {"$Default": found.default, "$Latest": len(found.versions)}.get(wanted)
        if number is None:
            number = int(wanted) if str(wanted).isdigit() else 0
        if not 1 <= number <= len(found.versions):
            raise ask.refuse(
                "InvalidLaunchTemplateId.VersionNotFound",
                f"Could not find the specified version {wanted} for the launch template with ID {found.id}.",
            )
        return found, number, found.versions[number - 1]

    def drop(self, template: SimLaunchTemplate) -> None:
        del self.by_id[template.id], self.by_name[template.name]


def check_user_data(ask: AwsRequest, encoded: str | None) -> None:
    """EC2 takes base64 of at most 16 KiB."""
    if not encoded:
        return
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error):
        raise ask.refuse("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from None
    if len(raw) > USER_DATA_MOST:
        raise ask.refuse("InvalidUserData.Malformed", f"User data is limited to {USER_DATA_MOST} bytes")


@operation("ec2", "CreateLaunchTemplate")
def create_template(ask: AwsRequest) -> Json:
    templates, name, data = (
        ask.regional_state(SimLaunchTemplates),
        ask.get_required("LaunchTemplateName"),
        ask.get_required("LaunchTemplateData"),
    )
    if name in templates.by_name:
        raise ask.refuse(
            "InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use."
        )
    check_user_data(ask, data.get("UserData"))
    made = SimLaunchTemplate(
        f"lt-0{ask.world.random_hex(16)}",
        name,
        ask.world.clock.now(),
        f"arn:aws:iam::{ask.account}:root",
        [data],
        tags_for(ask, "launch-template"),
    )
    templates.by_id[made.id] = templates.by_name[name] = made
    return {"LaunchTemplate": _render_template(made)}


@operation("ec2", "CreateLaunchTemplateVersion")
def create_version(ask: AwsRequest) -> Json:
    found = ask.regional_state(SimLaunchTemplates).find(ask, ask.given)
    data = ask.get_required("LaunchTemplateData")
    check_user_data(ask, data.get("UserData"))
    found.versions.append(data)
    return {"LaunchTemplateVersion": _render_version(found, len(found.versions))}


@operation("ec2", "DescribeLaunchTemplates")
def describe_templates(ask: AwsRequest) -> Json:
    templates = ask.regional_state(SimLaunchTemplates)
    wanted = list(templates.by_id.values())
    if names := ask.get("LaunchTemplateNames"):
        if any(name not in templates.by_name for name in names):
            raise ask.refuse("InvalidLaunchTemplateName.NotFoundException", NO_SUCH_NAME)
        wanted = [templates.by_name[name] for name in names]
    if ids := ask.get("LaunchTemplateIds"):
        if missing := [each for each in ids if each not in templates.by_id]:
            raise ask.refuse(
                "InvalidLaunchTemplateId.NotFound", f"The launch template ID '{missing[0]}' does not exist."
            )
        wanted = [templates.by_id[each] for each in ids]
    found = apply_filters(
        ask,
        wanted,
        lambda each: {
            "launch-template-name": (each.name,),
            "create-time": (each.created.isoformat(),),
        },
        lambda each: each.tags,
    )
    shown, more = take_page(ask, found, most=200, named="LaunchTemplateNames")
    return {"LaunchTemplates": [_render_template(each) for each in shown], **more}


@operation("ec2", "DescribeLaunchTemplateVersions")
def describe_versions(ask: AwsRequest) -> Json:
    found = ask.regional_state(SimLaunchTemplates).find(ask, ask.given)
    marks = {"$Latest": len(found.versions), "$Default": found.default}
    wanted = ask.get("Versions") or [str(at + 1) for at in range(len(found.versions))]
    numbers = [marks[each] if each in marks else int(each) for each in wanted]
    return {
        "LaunchTemplateVersions": [
            _render_version(found, number) for number in numbers if 1 <= number <= len(found.versions)
        ]
    }


@operation("ec2", "DeleteLaunchTemplate")
def delete_template(ask: AwsRequest) -> Json:
    templates = ask.regional_state(SimLaunchTemplates)
    found = templates.find(ask, ask.given)
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
