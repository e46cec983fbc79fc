"""Launch templates, by name, id and version."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dovetail.sim.aws.asking import Ask, Json, Subject, operation
from dovetail.sim.aws.selecting import filtered, page, tag_list, tags_for

__all__ = ["Template", "Templates", "check_user_data"]

USER_DATA_MOST = 16384
NO_SUCH_NAME = "At least one of the launch templates specified in the request does not exist."


@dataclass(slots=True)
class Template:
    """A launch template; `versions` in order, the first is number 1."""

    id: str
    name: str
    created: datetime
    by: str
    versions: list[Mapping[str, Any]]
    tags: dict[str, str] = field(default_factory=dict)
    default: int = 1


class Templates(Subject):
    """The launch templates of an account in a region."""

    def begin(self) -> None:
        self.by_id: dict[str, Template] = {}
        self.by_name: dict[str, Template] = {}

    def find(self, ask: Ask, specification: Mapping[str, Any]) -> Template:
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

    def data(self, ask: Ask, specification: Mapping[str, Any]) -> tuple[Template, int, Mapping[str, Any]]:
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

    def drop(self, template: Template) -> None:
        del self.by_id[template.id], self.by_name[template.name]


def check_user_data(ask: Ask, encoded: str | None) -> None:
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
def create_template(ask: Ask) -> Json:
    templates, name, data = (
        ask.here(Templates),
        ask.need("LaunchTemplateName"),
        ask.need("LaunchTemplateData"),
    )
    if name in templates.by_name:
        raise ask.refuse(
            "InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use."
        )
    check_user_data(ask, data.get("UserData"))
    made = Template(
        f"lt-0{ask.ground.hexes(16)}",
        name,
        ask.ground.clock.now(),
        f"arn:aws:iam::{ask.account}:root",
        [data],
        tags_for(ask, "launch-template"),
    )
    templates.by_id[made.id] = templates.by_name[name] = made
    return {"LaunchTemplate": _shown(made)}


@operation("ec2", "CreateLaunchTemplateVersion")
def create_version(ask: Ask) -> Json:
    found = ask.here(Templates).find(ask, ask.given)
    data = ask.need("LaunchTemplateData")
    check_user_data(ask, data.get("UserData"))
    found.versions.append(data)
    return {"LaunchTemplateVersion": _version(found, len(found.versions))}


@operation("ec2", "DescribeLaunchTemplates")
def describe_templates(ask: Ask) -> Json:
    templates = ask.here(Templates)
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
    found = filtered(
        ask,
        wanted,
        lambda each: {
            "launch-template-name": (each.name,),
            "create-time": (each.created.isoformat(),),
        },
        lambda each: each.tags,
    )
    shown, more = page(ask, found, most=200, named="LaunchTemplateNames")
    return {"LaunchTemplates": [_shown(each) for each in shown], **more}


@operation("ec2", "DescribeLaunchTemplateVersions")
def describe_versions(ask: Ask) -> Json:
    found = ask.here(Templates).find(ask, ask.given)
    marks = {"$Latest": len(found.versions), "$Default": found.default}
    wanted = ask.get("Versions") or [str(at + 1) for at in range(len(found.versions))]
    numbers = [marks[each] if each in marks else int(each) for each in wanted]
    return {
        "LaunchTemplateVersions": [
            _version(found, number) for number in numbers if 1 <= number <= len(found.versions)
        ]
    }


@operation("ec2", "DeleteLaunchTemplate")
def delete_template(ask: Ask) -> Json:
    templates = ask.here(Templates)
    found = templates.find(ask, ask.given)
    templates.drop(found)
    return {"LaunchTemplate": _shown(found)}


def _shown(each: Template) -> Json:
    return {
        "LaunchTemplateId": each.id,
        "LaunchTemplateName": each.name,
        "CreateTime": each.created,
        "CreatedBy": each.by,
        "DefaultVersionNumber": each.default,
        "LatestVersionNumber": len(each.versions),
        "Tags": tag_list(each.tags),
    }


def _version(each: Template, number: int) -> Json:
    return {
        "LaunchTemplateId": each.id,
        "LaunchTemplateName": each.name,
        "VersionNumber": number,
        "CreateTime": each.created,
        "CreatedBy": each.by,
        "DefaultVersion": number == each.default,
        "LaunchTemplateData": dict(each.versions[number - 1]),
    }
