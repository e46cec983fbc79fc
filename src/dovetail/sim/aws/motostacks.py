"""What stacks of CloudFormation may say and moto does not understand by itself."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["understand_policy_texts"]


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
