"""Placement groups: the one a class selects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from dovetail.api.nodeclass import EC2NodeClass, PlacementGroupSelector
from dovetail.aws import Aws, AwsError
from dovetail.ports import Clock
from dovetail.providers.aws.queries import filter_by
from dovetail.providers.aws.ttl_cache import TtlCache

__all__ = ["PARTITION", "PlacementGroup", "PlacementGroupProvider"]

FRESH: Final = timedelta(minutes=1)
REMEMBERED: Final = timedelta(hours=24)
PARTITION: Final = "partition"

Key = tuple[str, PlacementGroupSelector]


@dataclass(frozen=True, slots=True)
class PlacementGroup:
    """A group instances are put into. Only one of strategy `partition` has partitions."""

    id: str
    name: str = ""
    strategy: str = ""
    partitions: int = 0

    @property
    def partition_names(self) -> tuple[str, ...]:
        """`1` to the last; empty where the group has none."""
        count = self.partitions if self.strategy == PARTITION else 0
        return tuple(str(number) for number in range(1, count + 1))


class PlacementGroupProvider:
    """Finds the placement groups of classes, and remembers them while EC2 cannot say."""

    def __init__(self, aws: Aws, clock: Clock) -> None:
        self._aws = aws
        self._fresh: TtlCache[Key, PlacementGroup | None] = TtlCache(clock, FRESH)
        self._known: TtlCache[Key, PlacementGroup] = TtlCache(clock, REMEMBERED)

    async def find_group(self, node_class: EC2NodeClass) -> tuple[PlacementGroup | None, AwsError | None]:
        """The group the class selects. When EC2 cannot say: the last one known, together with the error."""
        key = _selector_key(node_class)
        if key is None:
            return None, None
        if key in self._fresh:
            return self._fresh.get(key), None
        try:
            group = await self._describe_group(key[1])
        except AwsError as error:
            return self._known.get(key), error
        self._fresh.put(key, group)
        if group is None:
            self._known.drop(key)
        else:
            self._known.put(key, group)
        return group, None

    def find_known_group(self, node_class: EC2NodeClass) -> PlacementGroup | None:
        """The group last found for the class as it is written now."""
        key = _selector_key(node_class)
        return self._known.get(key) if key is not None else None

    async def _describe_group(self, selector: PlacementGroupSelector) -> PlacementGroup | None:
        asked: dict[str, Any] = {"Filters": [filter_by("state", ["available"])]}
        asked |= {"GroupIds": [selector.id]} if selector.id else {"GroupNames": [selector.name]}
        answer = await self._aws.call("ec2", "DescribePlacementGroups", asked)
        return next((_read_group(each) for each in answer.get("PlacementGroups") or ()), None)


def _read_group(answer: Mapping[str, Any]) -> PlacementGroup:
    return PlacementGroup(
        id=answer["GroupId"],
        name=answer.get("GroupName", ""),
        strategy=answer.get("Strategy", ""),
        partitions=int(answer.get("PartitionCount") or 0),
    )


def _selector_key(node_class: EC2NodeClass) -> Key | None:
    selector = node_class.spec.placement_group_selector
    return (node_class.uid, selector) if selector is not None else None
