"""What stacks of CloudFormation and Terraform may say and moto does not understand by itself."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["tell_signature_versions", "understand_policy_texts"]


def understand_policy_texts() -> None:
    """A policy in a stack may be a text, too: names in condition keys can be said no other way."""
    from moto.iam import models

    kind: Any = models.ManagedPolicy
    if getattr(kind, "takes_texts", False):
        return
    made = kind.create_from_cloudformation_json.__func__

    def create(cls: Any, resource_name: str, cloudformation_json: Any, *args: Any, **more: Any) -> Any:
        properties = dict(cloudformation_json.get("Properties") or {})
        if isinstance(properties.get("PolicyDocument"), str):
            properties["PolicyDocument"] = json.loads(properties["PolicyDocument"])
        return made(cls, resource_name, {**cloudformation_json, "Properties": properties}, *args, **more)

    kind.create_from_cloudformation_json = classmethod(create)
    kind.takes_texts = True


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
