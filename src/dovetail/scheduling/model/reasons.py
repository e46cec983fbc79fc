"""Why things were or were not done: Reason, Rejection, Decision.

Reasons are part of every result. Words are made late: a Rejection holds facts, and becomes a
sentence only when somebody reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import msgspec

__all__ = ["Decision", "NodeReason", "Reason", "find_nearest_miss", "shorten_detail"]


class Reason(StrEnum):
    """Why a place was turned down, in the order in which the checks are made.

    Add freely, never rename: the phrases are in events, on pages and in people's scripts. The later
    in this list, the closer the place came to being chosen.
    """

    IGNORED = "the pod is not for us to place"
    NOT_READY = "the pool is not ready"
    NO_TYPES = "the pool's requirements leave no instance type"
    LEAVING = "the node is being removed"
    TOO_YOUNG = "the node is too young to take pods that only move"
    LIMIT = "the pool's limits are reached"
    TAINT = "a taint is not tolerated"
    LABELS = "the labels do not match"
    VOLUME_ZONE = "the pod's volumes are elsewhere"
    VOLUME_LIMIT = "no more volumes can be attached"
    HOST_PORT = "a host port is taken"
    RESOURCES = "not enough resources"
    OFFERING = "no offering is available"
    TYPES = "no instance type meets everything at once"
    SPREAD = "the pods would not be spread evenly"
    AFFINITY = "the pods it wants to be near are elsewhere"
    ANTI_AFFINITY = "a pod it must keep away from is there"
    MIN_VALUES = "too few kinds of instance are left"
    RESERVED = "the reserved capacity is spoken for"
    DEVICES = "no suitable devices"
    SPEND = "a spend limit is reached"
    TIME = "time ran out"


_CLOSENESS = {reason: rank for rank, reason in enumerate(Reason)}


@dataclass(frozen=True, slots=True)
class NodeReason:
    """One place that was turned down, why, and in which particular."""

    place: str
    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}" + (f" ({self.detail})" if self.detail else "")

    @property
    def brief(self) -> str:
        """The place and its reason, without all that was required of a new node."""
        return shorten_detail(str(self))


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What was settled for one pod, and every place turned down on the way."""

    pod: str
    place: str | None
    rejections: tuple[NodeReason, ...] = ()
    error: str = ""
    relaxed: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.place:
            return f"{self.pod} will run on {self.place}"
        if not self.rejections:
            return (
                f"{self.pod} is unschedulable: {self.error}" if self.error else f"{self.pod} is unschedulable"
            )
        counts = Counter(rejection.reason for rejection in self.rejections).most_common()
        reasons = ", ".join(f"{count} {reason}" for reason, count in counts)
        noun = "pool or node" if len(self.rejections) == 1 else "pools and nodes"
        return f"{self.pod} fits none of {len(self.rejections)} {noun}: {reasons}"

    @property
    def nearest_miss(self) -> NodeReason | None:
        return find_nearest_miss(self.rejections)


def find_nearest_miss(rejections: Iterable[NodeReason]) -> NodeReason | None:
    """The place that came closest: the one that failed the latest check, the first of equals."""
    return max(rejections, key=lambda rejection: _CLOSENESS[rejection.reason], default=None)


def shorten_detail(detail: str) -> str:
    """A detail without the requirements of a new node, which are for those who want everything."""
    return detail.partition(", requirements=")[0]
