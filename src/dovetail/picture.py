"""What a screen shows: the cluster at one instant, and what Dovetail says about it. Frozen.

It stands below the dashboard, so that a terminal can show the same without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from dovetail.api import labels
from dovetail.api.zoneshift import ZoneShift
from dovetail.disruption.candidates import find_running_price
from dovetail.disruption.command import Command
from dovetail.disruption.report import BlockedNodeReport, DisruptionReport
from dovetail.history.ring import HistoryRing
from dovetail.scheduling.explain import NearMiss
from dovetail.scheduling.model import state_node as states
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.resources import Nano, add_resources, compute_nano_requests
from dovetail.scheduling.model.snapshot import Snapshot, StateNode

__all__ = ["Moment", "Picture", "RememberedHistory", "ResourceLoad"]


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that was said: when, about what, by which word, and in full."""

    at: datetime
    about: str
    reason: str
    told: str
    warning: bool = False
    times: int = 1


@dataclass(frozen=True, slots=True)
class RememberedHistory:
    """What the leader remembers, as far as it was asked; `why` says why that is nothing, or no longer new."""

    ring: HistoryRing | None = None
    since: datetime | None = None
    why: str = ""
    # The sinks of notifications that heard of a record, by its id; None where there are no sinks.
    told: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class ResourceLoad:
    """What pods ask for, of what there is."""

    requested: int
    available: int

    @property
    def share(self) -> float | None:
        return self.requested / self.available if self.available else None


@dataclass(frozen=True)
class Picture:
    """A snapshot, the plan and the survey made of it, and what the cluster itself has said."""

    # What the cluster is called, and whether it is looked at now or as it was.
    cluster: str
    live: bool
    snapshot: Snapshot
    plan: Plan
    survey: DisruptionReport
    # Where each waiting pod goes or why it cannot, as `dovetail explain` says it.
    sentences: Mapping[str, str] = field(default_factory=dict)
    misses: Mapping[str, NearMiss] = field(default_factory=dict)
    shifts: tuple[ZoneShift, ...] = ()
    # The latest first.
    moments: tuple[Moment, ...] = ()
    decisions: tuple[Moment, ...] = ()
    problems: tuple[str, ...] = ()
    history: RememberedHistory = RememberedHistory()

    @property
    def now(self) -> datetime:
        return self.snapshot.options.now

    @cached_property
    def nodes(self) -> tuple[StateNode, ...]:
        """By pool and name, nodes of no pool last."""
        return tuple(
            sorted(
                self.snapshot.nodes,
                key=lambda s: (not states.read_pool_name(s), states.read_pool_name(s), states.read_name(s)),
            )
        )

    @cached_property
    def blocked(self) -> Mapping[str, BlockedNodeReport]:
        return {each.name: each for each in self.survey.blocked_nodes}

    @cached_property
    def candidates(self) -> Mapping[str, Command]:
        """The command each node would go by."""
        return {c.name: command for command in self.survey.commands for c in command.candidates}

    @cached_property
    def prices(self) -> Mapping[str, float]:
        """Dollars an hour by node; those nobody knows are left out."""
        types = {
            pool.name: {each.name: each for each in self.snapshot.list_types(pool)}
            for pool in self.snapshot.pools
        }
        found = {}
        for state in self.snapshot.nodes:
            known = states.read_labels(state)
            kind = types.get(states.read_pool_name(state), {}).get(known.get(labels.INSTANCE_TYPE, ""))
            if price := find_running_price(known, kind):
                found[states.read_name(state)] = price
        return found

    @cached_property
    def requests(self) -> Mapping[str, Nano]:
        """What the pods of each node ask for."""
        found: dict[str, Nano] = {}
        for state in self.snapshot.nodes:
            total: Nano = {}
            for pod in states.list_running_pods(state.pods):
                total = add_resources(total, compute_nano_requests(pod))
            found[states.read_name(state)] = total
        return found

    def sum_load(self, resource: str, *nodes: StateNode) -> ResourceLoad:
        """Of these nodes together."""
        asked = sum(self.requests[states.read_name(each)].get(resource, 0) for each in nodes)
        return ResourceLoad(asked, sum(states.read_allocatable(each).get(resource, 0) for each in nodes))

    @cached_property
    def _first_labels(self) -> Mapping[str, int]:
        return Counter(states.read_name(each).partition(".")[0] for each in self.snapshot.nodes)

    def shorten_name(self, node: str) -> str:
        """A node's name for people: without its domain, unless another would be called the same."""
        first = node.partition(".")[0]
        return first if self._first_labels.get(first, 0) <= 1 and not first.isdigit() else node

    @property
    def pending(self) -> int:
        return len(self.snapshot.pods)
