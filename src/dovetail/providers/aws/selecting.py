"""Selector terms as EC2 filters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dovetail.api.meta import Object
from dovetail.aws import Answer, Aws, pages

__all__ = ["Filter", "every", "key_of", "only", "tagged"]

Filter = Mapping[str, Any]
ANY_VALUE = "*"


def only(name: str, values: Iterable[str]) -> Filter:
    """What has one of these values."""
    return {"Name": name, "Values": list(values)}


def tagged(tags: Mapping[str, str]) -> list[Filter]:
    """What carries all of these tags; a star means the key with any value. EC2's own wildcards pass."""
    return [
        only("tag-key", [key]) if value == ANY_VALUE else only(f"tag:{key}", [value])
        for key, value in tags.items()
    ]


def key_of(thing: Object) -> tuple[str, int]:
    """A class as it is written now: what was found for it holds until it is written again."""
    return thing.uid, thing.metadata.generation


async def every(aws: Aws, operation: str, parameters: Mapping[str, Any], items: str) -> list[Answer]:
    """All items of an EC2 answer, page by page."""
    found: list[Answer] = []
    async for page in pages(aws, "ec2", operation, parameters):
        found += page.get(items) or ()
    return found
