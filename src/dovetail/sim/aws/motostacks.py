"""What stacks of CloudFormation and Terraform may say and moto does not understand by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

__all__ = ["tell_signature_versions", "understand_policy_texts"]

Json = dict[str, Any]


def understand_policy_texts() -> None:
    """A policy in a stack may be a text, too: names in condition keys can be said no other way.

    And a role may be given policies on conditions: those that do not hold leave nothing behind.
    """
    from moto.iam import models

    _repaired(models.ManagedPolicy, _as_document)
    _repaired(models.Role, _without_nothings)


def _as_document(properties: Json) -> Json:
    given = properties.get("PolicyDocument")
    return {**properties, "PolicyDocument": json.loads(given)} if isinstance(given, str) else properties


def _without_nothings(properties: Json) -> Json:
    if "Policies" not in properties:
        return properties
    return {**properties, "Policies": [_as_text(each) for each in properties["Policies"] if each]}


def _as_text(policy: Json) -> Json:
    given = policy["PolicyDocument"]
    return policy if isinstance(given, str) else {**policy, "PolicyDocument": json.dumps(given)}


def _repaired(kind: Any, repair: Callable[[Json], Json]) -> None:
    """Make things of this kind from repaired properties, once and for all."""
    if getattr(kind, "takes_more", False):
        return
    made = kind.create_from_cloudformation_json.__func__

    def create(cls: Any, resource_name: str, cloudformation_json: Any, *args: Any, **more: Any) -> Any:
        properties = repair(dict(cloudformation_json.get("Properties") or {}))
        return made(cls, resource_name, {**cloudformation_json, "Properties": properties}, *args, **more)

    kind.create_from_cloudformation_json = classmethod(create)
    kind.takes_more = True


def tell_signature_versions() -> None:
    """A topic that is told how to sign says so when it is asked."""
    from moto.sns import responses

    kind: Any = responses.SNSResponse
    if getattr(kind, "tells_signatures", False):
        return
    plain = kind.get_topic_attributes

    def attributes(self: Any) -> Any:
        answer = plain(self)
        topic = self.backend.get_topic(self._get_param("TopicArn"))
        answer.result["Attributes"]["SignatureVersion"] = getattr(topic, "signature_version", "1")
        return answer

    kind.get_topic_attributes = attributes
    kind.tells_signatures = True
