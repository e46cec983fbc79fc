"""Instances as their own clusters publish them: exact, and there before EC2's tags can be asked for.

A table with one item for an instance: `id` (the key) and `clusters`, the names of those that own it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.aws import Aws

__all__ = ["Publisher", "Pushed"]

MOST_READ, MOST_WRITTEN = 100, 25


class Pushed:
    """Reads what clusters publish."""

    def __init__(self, aws: Aws, table: str) -> None:
        self._aws, self._table = aws, table

    async def find(self, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Those of the ids that some cluster calls its own."""
        found: dict[str, tuple[str, ...]] = {}
        for start in range(0, len(ids), MOST_READ):
            found |= await self._read(ids[start : start + MOST_READ])
        return found

    async def _read(self, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        asked: Mapping[str, Any] = {self._table: {"Keys": [{"id": {"S": id}} for id in ids]}}
        found: dict[str, tuple[str, ...]] = {}
        while asked:
            answer = await self._aws.call("dynamodb", "BatchGetItem", {"RequestItems": asked})
            for item in answer.get("Responses", {}).get(self._table, ()):
                names = item.get("clusters", {}).get("SS")
                if names:  # else the item says nothing, and EC2 is asked
                    found[item["id"]["S"]] = tuple(sorted(names))
            asked = answer.get("UnprocessedKeys") or {}
        return found


class Publisher:
    """Writes a cluster's instances; called with what is new since the last time."""

    def __init__(self, aws: Aws, table: str, cluster: str) -> None:
        self._aws, self._table, self._cluster = aws, table, cluster

    async def publish(self, added: Sequence[str], removed: Sequence[str] = ()) -> None:
        """Say which instances are ours from now on, and which no longer are."""
        requests: list[dict[str, Any]] = [
            {"PutRequest": {"Item": {"id": {"S": id}, "clusters": {"SS": [self._cluster]}}}} for id in added
        ]
        requests += [{"DeleteRequest": {"Key": {"id": {"S": id}}}} for id in removed]
        for start in range(0, len(requests), MOST_WRITTEN):
            left: Mapping[str, Any] = {self._table: requests[start : start + MOST_WRITTEN]}
            while left:
                answer = await self._aws.call("dynamodb", "BatchWriteItem", {"RequestItems": left})
                left = answer.get("UnprocessedItems") or {}
