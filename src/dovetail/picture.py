"""What a screen shows: the cluster at one instant, and what Dovetail says about it. Frozen.

It stands below the dashboard, so that a terminal can show the same without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from msgspec import Struct

from dovetail.api.commitment import Commitment
from dovetail.api.spend_limit import SpendLimit
from dovetail.api.zoneshift import ZoneShift
from dovetail.disruption.command import Command
from dovetail.disruption.pricing_rules import RulePrice
from dovetail.disruption.report import BlockedNodeReport, DisruptionReport
from dovetail.history.ring import HistoryRing
from dovetail.history.shadow import ShadowReport
from dovetail.scheduling.bill import Bill
from dovetail.scheduling.explain import NearMiss
from dovetail.scheduling.fleet_cost import bill_running_nodes
from dovetail.scheduling.model import state_node as states
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.resources import Nano, add_resources, compute_nano_requests
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.spend_report import SpendLine

__all__ = [
    "ChangeDocument",
    "ChangeWave",
    "ChangedBudget",
    "ChangedNodeCount",
    "ChangedNodeDrift",
    "ChangedPodCount",
    "Moment",
    "Picture",
    "PricedRules",
    "RememberedHistory",
    "ResourceLoad",
    "SeenShadow",
    "SeenSpend",
]


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
class SeenShadow:
    """What a shadow of the cluster found; `why` says why that is nothing, or not all yet."""

    report: ShadowReport | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class SeenSpend:
    """SpendLimits: what counts against each now, and what a live cluster says of them beside."""

    lines: tuple[SpendLine, ...] = ()
    limits: tuple[SpendLimit, ...] = ()
    # By limit, what was spent of its month by when, as far as it was seen.
    points: Mapping[str, tuple[tuple[datetime, float], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PricedRules:
    """What rules cost, the dearest first, and as of when; `why` says why that is nothing, or not new."""

    prices: tuple[RulePrice, ...] = ()
    at: datetime | None = None
    why: str = ""

    @property
    def held(self) -> Mapping[str, float]:
        """Dollars an hour by node, of the dearest rule that holds it."""
        found: dict[str, float] = {}
        for price in self.prices:
            for node, dollars in price.nodes.items():
                found[node] = max(dollars, found.get(node, 0.0))
        return found


@dataclass(frozen=True, slots=True)
class ResourceLoad:
    """What pods ask for, of what there is."""

    requested: int
    available: int

    @property
    def share(self) -> float | None:
        return self.requested / self.available if self.available else None


class ChangedNodeCount(Struct, frozen=True, rename="camel"):
    """New nodes of one kind, before and after a change."""

    pool: str
    instance_type: str
    capacity_type: str
    before: int
    after: int


class ChangedPodCount(Struct, frozen=True, rename="camel"):
    """The pods of a workload before and after a change, and how many there are at most between the two."""

    kind: str
    namespace: str
    name: str
    before: int
    after: int
    rolled_out: bool = False
    peak: int | None = None


class ChangedNodeDrift(Struct, frozen=True, rename="camel"):
    """A running node that drifts by a change, and what holds it, if something does."""

    node: str
    nodepool: str
    why: str
    held_by: str | None = None


class ChangeWave(Struct, frozen=True, rename="camel"):
    """Nodes that are replaced together, and how long after the change."""

    nodes: tuple[str, ...]
    pods: int
    after_seconds: float


class ChangedBudget(Struct, frozen=True, rename="camel"):
    """The nodes that a PodDisruptionBudget blocks, and what they cost an hour."""

    pdb: str
    nodes: tuple[str, ...]
    hourly: float
    newly: tuple[str, ...] = ()


class ChangeDocument(Struct, frozen=True, rename="camel", kw_only=True):
    """What a change alters, as `dovetail plan --change` prints it for programs; dollars are an hour's."""

    hourly_before: float
    hourly_after: float
    hourly_peak: float | None = None
    floor_before: float = 0.0
    floor_after: float = 0.0
    nodes: tuple[ChangedNodeCount, ...] = ()
    workloads: tuple[ChangedPodCount, ...] = ()
    replaced: tuple[ChangedNodeDrift, ...] = ()
    leaving: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()
    waves: tuple[ChangeWave, ...] = ()
    waves_seconds: float = 0.0
    pdbs: tuple[ChangedBudget, ...] = ()
    newly_unschedulable: tuple[str, ...] = ()
    nearest: dict[str, str] = {}
    newly_placed: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


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
    # What a change that somebody asked about would alter.
    change: ChangeDocument | None = None
    # What its rules cost, where somebody asked.
    rules: PricedRules = PricedRules()
    # What a shadow of the cluster found, where there is one.
    shadow: SeenShadow = SeenShadow()
    spend: SeenSpend = SeenSpend()

    # The cluster's Commitments, with what their status says; none where these are not counted.
    commitments: tuple[Commitment, ...] = ()

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
        return {line.node: line.effective for line in self.bill.lines}

    @cached_property
    def bill(self) -> Bill:
        """What the nodes cost an hour, and which have no known price."""
        return bill_running_nodes(self.snapshot)

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
