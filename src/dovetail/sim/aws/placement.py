"""Placement groups: cluster, spread and partition."""

from __future__ import annotations

from dataclasses import dataclass, field

from dovetail.sim.aws.asking import Ask, Json, Subject, operation
from dovetail.sim.aws.instances import Changed
from dovetail.sim.aws.machine import Machine
from dovetail.sim.aws.selecting import filtered, page, tag_list, tags_for

__all__ = ["SPREAD_MOST", "PlacementGroup", "PlacementGroups"]

# Running instances of a spread group in one zone.
SPREAD_MOST = 7


@dataclass(slots=True)
class PlacementGroup:
    """A placement group, and the instances in it."""

    id: str
    name: str
    strategy: str
    partitions: int = 0
    state: str = "available"
    tags: dict[str, str] = field(default_factory=dict)
    members: dict[str, Machine] = field(default_factory=dict)

    def in_zone(self, zone: str) -> int:
        return sum(each.zone == zone and each.alive for each in self.members.values())

    def emptiest(self) -> int:
        """The partition with the fewest members: where EC2 puts one that names none."""
        counts = dict.fromkeys(range(1, self.partitions + 1), 0)
        for each in self.members.values():
            number = each.placement.get("PartitionNumber", 0)
            if each.alive and number in counts:
                counts[number] += 1
        return min(counts, key=lambda number: (counts[number], number))


class PlacementGroups(Subject):
    """The placement groups of an account in a region."""

    def begin(self) -> None:
        self.by_name: dict[str, PlacementGroup] = {}
        self.ground.listen("instance", self._changed)

    def add(
        self, name: str, strategy: str, partitions: int = 0, tags: dict[str, str] | None = None
    ) -> PlacementGroup:
        count = (partitions or 2) if strategy == "partition" else 0
        made = PlacementGroup(f"pg-0{self.ground.hexes(16)}", name, strategy, count, tags=dict(tags or {}))
        self.by_name[name] = made
        return made

    def find(self, group_id: str = "", name: str = "") -> PlacementGroup | None:
        if name:
            return self.by_name.get(name)
        return next((each for each in self.by_name.values() if each.id == group_id), None)

    def _changed(self, change: Changed) -> None:
        group = self.find(change.machine.placement.get("GroupId", ""))
        if group is not None and change.state == "terminated":
            group.members.pop(change.machine.id, None)


@operation("ec2", "DescribePlacementGroups")
def describe_groups(ask: Ask) -> Json:
    kept = ask.here(PlacementGroups)
    wanted = list(kept.by_name.values())
    if names := ask.get("GroupNames"):
        wanted = [_found(ask, kept.find(name=name), "InvalidPlacementGroup.Unknown", name) for name in names]
    if ids := ask.get("GroupIds"):
        wanted = [_found(ask, kept.find(each), "InvalidPlacementGroupId.NotFound", each) for each in ids]
    found = filtered(
        ask,
        wanted,
        lambda each: {"group-name": (each.name,), "state": (each.state,), "strategy": (each.strategy,)},
        lambda each: each.tags,
    )
    chosen, more = page(ask, found)
    return {"PlacementGroups": [_shown(each, ask) for each in chosen], **more}


@operation("ec2", "CreatePlacementGroup")
def create_group(ask: Ask) -> Json:
    kept, name = ask.here(PlacementGroups), ask.need("GroupName")
    if name in kept.by_name:
        raise ask.refuse("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
    made = kept.add(
        name, ask.get("Strategy", "cluster"), ask.get("PartitionCount", 0), tags_for(ask, "placement-group")
    )
    return {"PlacementGroup": _shown(made, ask)}


@operation("ec2", "DeletePlacementGroup")
def delete_group(ask: Ask) -> Json:
    kept, name = ask.here(PlacementGroups), ask.need("GroupName")
    found = _found(ask, kept.find(name=name), "InvalidPlacementGroup.Unknown", name)
    if any(each.alive for each in found.members.values()):
        raise ask.refuse(
            "InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use and may not be deleted."
        )
    del kept.by_name[name]
    return {}


def _found(ask: Ask, group: PlacementGroup | None, code: str, name: str) -> PlacementGroup:
    if group is None:
        raise ask.refuse(code, f"The Placement Group '{name}' is unknown.")
    return group


def _shown(each: PlacementGroup, ask: Ask) -> Json:
    answer: Json = {
        "GroupId": each.id,
        "GroupName": each.name,
        "GroupArn": f"arn:aws:ec2:{ask.region}:{ask.account}:placement-group/{each.name}",
        "State": each.state,
        "Strategy": each.strategy,
        "Tags": tag_list(each.tags),
    }
    if each.partitions:
        answer["PartitionCount"] = each.partitions
    return answer
