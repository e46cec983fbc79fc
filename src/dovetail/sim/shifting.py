"""What became of the zonal shifts of a run: how fast they were, what was bought and lost meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dovetail.sim.kube.store import Event
from dovetail.sim.world import World

__all__ = ["ShiftStory", "ShiftTold", "as_line"]

Json = dict[str, Any]
SHIFTS, NODES, PODS = "zoneshifts", "nodes", "pods"
ZONE = "topology.kubernetes.io/zone"
# Phases in which nothing may be bought in the zone.
GATED = ("Pending", "Applying", "Active", "Restoring")


@dataclass(frozen=True, slots=True)
class ShiftTold:
    """One shift, in seconds since the start of the story; None for what did not happen within it."""

    zone: str
    began: float
    active: float | None = None
    restoring: float | None = None
    restored: float | None = None
    refused: bool = False
    # While it lasted: nodes bought in the zone, nodes of it that went, and pods that left it.
    nodes_bought: int = 0
    nodes_gone: int = 0
    pods_gone: int = 0
    # What losing the zone would have meant, as it was told when it began.
    impact: dict[str, str] = field(default_factory=dict)


@dataclass
class _Shift:
    zone: str
    began: float
    phase: str = "Pending"
    moments: dict[str, float] = field(default_factory=dict)
    bought: int = 0
    nodes_gone: int = 0
    pods_gone: int = 0
    impact: dict[str, str] = field(default_factory=dict)


class ShiftStory:
    """Listens to every commit."""

    def __init__(self, world: World) -> None:
        self._clock, self._began = world.clock, world.clock.now()
        self._shifts: dict[str, _Shift] = {}
        self._zone_of: dict[str, str] = {}
        self._leaving: set[str] = set()
        self._heard: dict[str, Callable[[Event], None]] = {
            SHIFTS: self._shift,
            NODES: self._node,
            PODS: self._pod,
        }
        world.server.store.on_commit(self._commit)

    def _commit(self, event: Event) -> None:
        heard = self._heard.get(event.new.info.plural)
        if heard is not None and (self._shifts or heard != self._pod):
            heard(event)

    @property
    def _second(self) -> float:
        return (self._clock.now() - self._began).total_seconds()

    def _shift(self, event: Event) -> None:
        obj = event.new.obj
        if obj["spec"].get("kind") == "SIGNAL":
            return
        name = obj["metadata"]["uid"]
        mine = self._shifts.setdefault(name, _Shift(obj["spec"]["zoneId"], self._second))
        status = obj.get("status") or {}
        phase = status.get("phase", "")
        if phase and phase != mine.phase:
            mine.phase = phase
            mine.moments.setdefault(phase, self._second)
        mine.impact = status.get("impact") or mine.impact

    def _node(self, event: Event) -> None:
        node = event.new.obj
        name, zone = node["metadata"]["name"], (node["metadata"].get("labels") or {}).get(ZONE, "")
        if event.type == "DELETED":
            self._zone_of.pop(name, None)
            for mine in self._lasting(zone):
                mine.nodes_gone += 1
        elif name not in self._zone_of and zone:
            self._zone_of[name] = zone
            for mine in self._lasting(zone):
                mine.bought += 1

    def _pod(self, event: Event) -> None:
        """A pod counts when it is told to go: on a machine that is silent it may stay for long after that."""
        meta = event.new.obj["metadata"]
        if meta["uid"] in self._leaving or not ("deletionTimestamp" in meta or event.type == "DELETED"):
            return
        self._leaving.add(meta["uid"])
        zone = self._zone_of.get((event.new.obj.get("spec") or {}).get("nodeName", ""), "")
        for mine in self._lasting(zone):
            mine.pods_gone += 1

    def _lasting(self, zone: str) -> list[_Shift]:
        return [each for each in self._shifts.values() if each.zone == zone and each.phase in GATED]

    def told(self) -> tuple[ShiftTold, ...]:
        """Every shift so far, in the order in which they began."""
        return tuple(
            ShiftTold(
                zone=each.zone,
                began=round(each.began, 3),
                active=_rounded(each.moments.get("Active")),
                restoring=_rounded(each.moments.get("Restoring")),
                restored=_rounded(each.moments.get("Restored")),
                refused="Refused" in each.moments,
                nodes_bought=each.bought,
                nodes_gone=each.nodes_gone,
                pods_gone=each.pods_gone,
                impact=dict(each.impact),
            )
            for each in self._shifts.values()
        )


def _rounded(second: float | None) -> float | None:
    return None if second is None else round(second, 3)


def as_line(told: ShiftTold) -> str:
    """One shift in a sentence."""
    if told.refused:
        return f"{told.zone} was not stepped out of: too few zones would have been left"
    parts = [f"{told.zone} was shifted away at {_minutes(told.began)}"]
    if told.active is not None:
        parts.append(f"in force {told.active - told.began:.0f} s later")
    parts.append(
        f"{told.nodes_bought} nodes bought there, {told.nodes_gone} gone, {told.pods_gone} pods gone"
    )
    if told.restored is not None:
        parts.append(f"all undone at {_minutes(told.restored)}")
    elif told.restoring is not None:
        parts.append("the way back was not over yet")
    else:
        parts.append("still away at the end")
    return "; ".join(parts)


def _minutes(second: float) -> str:
    return f"{second / 60:.0f}m"
