"""Worlds to be judged: the one given, or that one without a zone, without some of its spot nodes, with more
pods, or at another time, each planned as its controller would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from math import ceil

from msgspec.structs import replace

from dovetail.api import labels, predicates
from dovetail.api.pod import Pod
from dovetail.disruption.blocked_reason import PASSING
from dovetail.disruption.command import DRIFTED
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.drift_waves import plan_waves
from dovetail.disruption.report import build_report
from dovetail.disruption.rules import find_workload
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.errors import BadInput
from dovetail.play.expectations_file import Expectations, WorldSpec
from dovetail.scheduling.bill import sum_known_prices
from dovetail.scheduling.explain import find_near_misses
from dovetail.scheduling.fleet_cost import bill_running_nodes, compute_fleet_floor
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.solve import QUICK, THOROUGH
from dovetail.settings.durations import parse_duration as parse_duration
from dovetail.state.changed_pods import PENDING
from dovetail.state.changes import SnapshotChange, drain_nodes
from dovetail.zonal.model.rehearsal import LAUNCHES, WARM_UP, find_zone_name, rehearse, remove_zone

__all__ = ["FindLooks", "GivenWorld", "VerifiedWorld", "build_worlds", "name_workload"]

EACH = "each"
FEW = 300  # pods up to which the plan is the very one the controller would make


@dataclass(frozen=True, slots=True)
class GivenWorld:
    """A cluster as it was seen, after the change if there is one, and what the change did."""

    situation: Situation
    change: SnapshotChange | None = None
    name: str = ""


@dataclass(frozen=True)
class VerifiedWorld:
    """One world to be judged: its situation, and for a zone that was lost, which one."""

    world: str
    label: str
    given: GivenWorld
    situation: Situation
    lost_zone: str = ""
    cache: DecisionCache = field(default_factory=DecisionCache, compare=False, repr=False)

    @cached_property
    def leaving(self) -> frozenset[str]:
        """The nodes that the change replaces, unless something holds them until a person does something."""
        change = self.given.change
        if change is None:
            return frozenset()
        waves = plan_waves(DisruptionInput.from_situation(self.situation, self.cache))
        stuck = {each.name for each in waves.held if each.blocked_reason not in PASSING}
        there = {views.read_name(state) for state in self.situation.snapshot.nodes}
        return (change.leaving | {each.node for each in change.drifts if each.node not in stuck}) & there

    @cached_property
    def snapshot(self) -> Snapshot:
        """The world that is planned for: without the zone, and with what drifts on its way out."""
        drained = drain_nodes(self.situation.snapshot, self.leaving)
        return remove_zone(drained, self.lost_zone) if self.lost_zone else drained

    @cached_property
    def plan(self) -> Plan:
        snapshot = self.snapshot
        few = len(snapshot.pods) + len(snapshot.moving) <= FEW and not self.lost_zone
        return decide_plan(self.situation.with_snapshot(snapshot), THOROUGH if few else QUICK, self.cache)

    @cached_property
    def left_out(self) -> Mapping[str, str]:
        """The pods without a place, and why; of a world without a zone, those that lost theirs with it."""
        if self.lost_zone:
            drained = drain_nodes(self.situation.snapshot, self.leaving)
            return rehearse(drained, self.lost_zone, cache=self.cache).homeless
        return {**self.plan.ignored, **self.plan.deferred, **self.plan.unschedulable}

    @cached_property
    def hourly(self) -> float:
        """Dollars an hour: the nodes that run and stay, and those the plan buys."""
        return sum_known_prices(self.plan.new_nodes) + bill_running_nodes(self.snapshot, self.leaving).total

    @cached_property
    def floor(self) -> float:
        """Dollars an hour below which no fleet for the pods that have a place can go."""
        plan = self.plan
        left_out = {*plan.ignored, *plan.deferred, *plan.unschedulable}
        return compute_fleet_floor(self.snapshot, left_out, self.cache)

    @property
    def minutes(self) -> float:
        """Minutes until the last new node takes pods, as a rehearsal of a lost zone reckons them."""
        count = len(self.plan.new_nodes)
        return WARM_UP + count / LAUNCHES if count else 0.0

    def explain_left_out(self, name: str) -> str:
        """Where the pod would fit but for one thing, tried out; or why it has no place."""
        if name not in self._near_misses:
            return self.left_out[name].partition(", requirements=")[0]
        return self._near_misses[name]

    @cached_property
    def _near_misses(self) -> Mapping[str, str]:
        found = find_near_misses(self.snapshot, self.plan, self.cache)
        return {name: str(miss) for name, miss in found.items()}

    @cached_property
    def evictions(self) -> int:
        """Pods that the change moves: by drift, and by consolidation that it makes possible."""
        change = self.given.change
        if change is None:
            return 0
        drifting = {pod.full_name for pod in drain_nodes(change.after, self.leaving).moving}
        drifting -= {pod.full_name for pod in change.after.moving}
        before = build_report(DisruptionInput.from_situation(self.situation.with_snapshot(change.before)))
        after = build_report(DisruptionInput.from_situation(self.situation))
        known = {each.name for command in before.commands for each in command.candidates}
        consolidated = {
            pod.full_name
            for command in after.commands
            if command.method != DRIFTED
            for each in command.candidates
            if each.name not in known
            for pod in each.pods
        }
        return len(drifting | consolidated)


FindLooks = Callable[[int], Sequence[GivenWorld]]


def build_worlds(
    expectations: Expectations, given: GivenWorld, find_looks: FindLooks | None = None
) -> Iterator[VerifiedWorld]:
    """Every world of a file, a zone's loss once for each zone; BadInput where one cannot be built.

    `find_looks` gives so many looks of a recording, spread over its time.
    """
    for spec in expectations.worlds:
        yield from _build_world(spec, given, find_looks)


def _build_world(spec: WorldSpec, given: GivenWorld, find_looks: FindLooks | None) -> Iterator[VerifiedWorld]:
    situation = given.situation
    if spec.lose_zone is not None:
        zones = _list_zones(spec, situation.snapshot)
        for zone in zones:
            yield VerifiedWorld(spec.name, f"{spec.name}: {zone}", given, situation, zone)
    elif spec.reclaim is not None:
        lost = _reclaim_nodes(situation.snapshot, spec.reclaim.share)
        yield VerifiedWorld(spec.name, spec.name, given, situation.with_snapshot(lost))
    elif spec.scale is not None:
        grown = _scale_workloads(spec, situation.snapshot, spec.scale.factor, spec.scale.workloads)
        yield VerifiedWorld(spec.name, spec.name, given, situation.with_snapshot(grown))
    elif spec.recording is not None:
        if find_looks is None:
            raise BadInput(f"world {spec.name} is a sample of a recording; give one with --recording")
        for look in find_looks(spec.recording.sample):
            yield VerifiedWorld(spec.name, f"{spec.name}: {look.name}", look, look.situation)
    else:
        yield VerifiedWorld(spec.name, spec.name, given, situation)


def _list_zones(spec: WorldSpec, snapshot: Snapshot) -> list[str]:
    found = sorted({views.read_labels(state).get(labels.ZONE, "") for state in snapshot.nodes} - {""})
    if len(found) < 2:
        where = f"has nodes in {found[0]} alone" if found else "has no node in a zone"
        raise BadInput(f"world {spec.name}: this cluster {where}, so that it cannot lose a zone and go on")
    if spec.lose_zone == EACH:
        return found
    try:
        return [find_zone_name(snapshot, spec.lose_zone or "")]
    except BadInput as error:
        raise BadInput(f"world {spec.name}: {error}") from error


def _reclaim_nodes(snapshot: Snapshot, share: float) -> Snapshot:
    """The world without so large a share of its spot nodes, and without more of what they were."""
    spot = sorted(
        (state for state in snapshot.nodes if _is_spot(state) and not views.is_deleting(state)),
        key=views.read_name,
    )
    count = ceil(len(spot) * share)
    picked = {round(number * (len(spot) - 1) / max(count - 1, 1)) for number in range(count)}
    # Rounding may pick one twice; the next ones fill in.
    picked |= set([n for n in range(len(spot)) if n not in picked][: count - len(picked)])
    lost = [spot[number] for number in sorted(picked)]
    gone = {id(state) for state in lost}
    sold = {(known[labels.INSTANCE_TYPE], known[labels.ZONE]) for known in map(views.read_labels, lost)}
    pods = [pod for state in lost for pod in state.pods if predicates.is_reschedulable(pod)]
    return replace(
        snapshot,
        nodes=tuple(state for state in snapshot.nodes if id(state) not in gone),
        moving=(*snapshot.moving, *pods),
        catalogs=tuple(tuple(_close_spot(each, sold) for each in types) for types in snapshot.catalogs),
    )


def _is_spot(state: StateNode) -> bool:
    known = views.read_labels(state)
    named = labels.INSTANCE_TYPE in known and labels.ZONE in known
    return named and views.is_managed(state) and known.get(labels.CAPACITY_TYPE) == labels.SPOT


def _close_spot(each: InstanceType, sold: set[tuple[str, str]]) -> InstanceType:
    if not any((each.name, offering.zone) in sold for offering in each.offerings):
        return each
    offerings = tuple(
        replace(offering, available=False)
        if offering.capacity_type == labels.SPOT and (each.name, offering.zone) in sold
        else offering
        for offering in each.offerings
    )
    return replace(each, offerings=offerings)


def _scale_workloads(spec: WorldSpec, snapshot: Snapshot, factor: float, patterns: Sequence[str]) -> Snapshot:
    """The world with so many times the pods of these workloads; a factor below 1 takes the last ones away."""
    members: dict[str, list[Pod]] = {}
    for pod in (*(pod for state in snapshot.nodes for pod in state.pods), *snapshot.pods):
        name = name_workload(pod)
        if predicates.is_reschedulable(pod) and any(fnmatchcase(name, each) for each in patterns):
            members.setdefault(name, []).append(pod)
    if not members:
        raise BadInput(f"world {spec.name}: no workload here matches {', '.join(patterns)}")
    more: list[Pod] = []
    fewer: set[str] = set()
    for name in sorted(members):
        pods = members[name]
        wanted = ceil(len(pods) * factor)
        fewer |= {pod.full_name for pod in pods[wanted:]}
        more += [_clone_pod(pods[-1], number) for number in range(wanted - len(pods))]
    nodes = snapshot.nodes
    if fewer:
        nodes = tuple(
            replace(state, pods=tuple(pod for pod in state.pods if pod.full_name not in fewer))
            for state in nodes
        )
    waiting = tuple(pod for pod in snapshot.pods if pod.full_name not in fewer)
    return replace(snapshot, nodes=nodes, pods=(*waiting, *more))


def name_workload(pod: Pod) -> str:
    """Namespace and name of who made the pod, a Deployment by its ReplicaSet; its own where nobody did."""
    return find_workload(pod)[1]


def _clone_pod(pod: Pod, number: int) -> Pod:
    name = f"{pod.name}-more-{number}"
    metadata = replace(pod.metadata, name=name, uid=f"{pod.namespace}/{name}", creation_timestamp=None)
    return replace(pod, metadata=metadata, node_name="", status=PENDING)
