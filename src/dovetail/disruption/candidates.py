"""Which nodes could go at all, what each is worth, and for every other node why it stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from math import isnan
from operator import is_
from typing import TYPE_CHECKING, NamedTuple

from dovetail.api import labels, predicates
from dovetail.api.core import PodDisruptionBudget
from dovetail.api.nodepool import NodePool
from dovetail.api.pdb import PdbLimits
from dovetail.api.pod import Pod
from dovetail.api.setaside import reason_of
from dovetail.disruption.cost import reschedule_cost
from dovetail.disruption.ground import Ground
from dovetail.disruption.held import Held
from dovetail.disruption.room import Room, room_in
from dovetail.disruption.standing import Standing, count
from dovetail.scheduling import nodes as views
from dovetail.scheduling.catalog import InstanceType, worst_launch_price
from dovetail.scheduling.catalog import price as least_price
from dovetail.scheduling.plan import PlannedNode
from dovetail.scheduling.remembered import Remembered
from dovetail.scheduling.requirements import Values
from dovetail.scheduling.selectors import matches
from dovetail.scheduling.snapshot import Snapshot, StateNode

if TYPE_CHECKING:
    from dovetail.disruption.choose import Sifted

__all__ = ["BLOCKED", "QUIET", "UNCONSOLIDATABLE", "Candidate", "Class", "Scene", "Stays", "candidates"]

# How people are told why a node stays: the event's reason, or not at all.
BLOCKED, UNCONSOLIDATABLE, QUIET = "DisruptionBlocked", "Unconsolidatable", ""


class Class(StrEnum):
    """How much a disruption respects: graceful waits for every pod, eventual has a deadline."""

    GRACEFUL = "graceful"
    EVENTUAL = "eventual"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that may go. `price` is per hour, 0 when unknown; `cost` is what moving its pods costs."""

    state: StateNode
    pool: NodePool
    instance_type: InstanceType | None
    price: float
    pods: tuple[Pod, ...]
    cost: float

    @property
    def key(self) -> str:
        return views.provider_id(self.state)

    @property
    def name(self) -> str:
        return views.name(self.state)

    @property
    def labels(self) -> Mapping[str, str]:
        return views.labels(self.state)

    @property
    def capacity_type(self) -> str:
        return self.labels.get(labels.CAPACITY_TYPE, "")

    @property
    def zone(self) -> str:
        return self.labels.get(labels.ZONE, "")

    @property
    def empty(self) -> bool:
        """Nothing on it that would be missed."""
        return self.cost <= 1.0

    @property
    def ratio(self) -> float:
        """What is saved for each unit of disruption: the best go first."""
        return self.price / self.cost


@dataclass(frozen=True, slots=True)
class Stays:
    """A node that stays, and why. `event` names how people are told; QUIET means not at all.

    `held` is the kind of reason, and `pod` the pod that is one.
    """

    state: StateNode
    why: str
    event: str = BLOCKED
    held: Held = Held.UNSAID
    pod: str = ""

    @property
    def name(self) -> str:
        return views.name(self.state)


class Price(NamedTuple):
    """The least a machine costs, and the most a launch of it could; infinite when it cannot be had."""

    least: float
    worst: float


class _Faces:
    """Budgets change with every pod that comes or goes, and what they mean for a node hardly ever does."""

    def __init__(self) -> None:
        self._budgets: tuple[PodDisruptionBudget, ...] = ()
        self._face: tuple[object, ...] = ()

    def of(self, budgets: tuple[PodDisruptionBudget, ...]) -> tuple[object, ...]:
        if budgets is not self._budgets:
            face = tuple(
                (each.full_name, each.spec, each.status.disruptions_allowed == 0) for each in budgets
            )
            self._budgets = budgets
            self._face = self._face if face == self._face else face
        return self._face


_FACES = _Faces()


@dataclass(frozen=True)
class Scene:
    """Everything disruption looks at.

    `queued` are the keys of nodes already being disrupted, `buffered` the names of nodes that hold room
    for capacity buffers, `shifted` the names of zones that are shifted away.
    """

    snapshot: Snapshot
    queued: frozenset[str] = frozenset()
    buffered: frozenset[str] = frozenset()
    spot_to_spot: bool = False
    shifted: frozenset[str] = frozenset()
    pools: Mapping[str, NodePool] = field(init=False)
    types: Mapping[str, Mapping[str, InstanceType]] = field(init=False)

    def __post_init__(self) -> None:
        snapshot = self.snapshot
        known = {pool.name: {each.name: each for each in snapshot.types(pool)} for pool in snapshot.pools}
        usable = {p.name: p.nodepool for p in snapshot.pools if known[p.name] and not reason_of(p.nodepool)}
        object.__setattr__(self, "pools", usable)
        object.__setattr__(self, "types", known)

    @cached_property
    def limits(self) -> PdbLimits:
        return PdbLimits(self.snapshot.budgets, matches)

    @cached_property
    def face(self) -> tuple[object, ...]:
        """The budgets of pods as far as they hold nodes: the very same object while that stays as it is."""
        return _FACES.of(self.snapshot.budgets)

    @cached_property
    def standing(self) -> Standing:
        """How many nodes each pool has, and how many of them are down; counted once."""
        return count(self.snapshot, self.queued)

    @cached_property
    def staying(self) -> list[tuple[str, StateNode]]:
        """The nodes that are not on their way out, each with its name."""
        return [(views.name(state), state) for state in self.snapshot.nodes if not views.deleting(state)]

    @cached_property
    def set_aside_pools(self) -> dict[str, NodePool]:
        """Pools that cannot be read: their nodes stay."""
        return {p.name: p.nodepool for p in self.snapshot.pools if reason_of(p.nodepool)}

    def over(self, snapshot: Snapshot) -> Scene:
        """The same questions about another world."""
        if snapshot is self.snapshot:
            return self
        return Scene(snapshot, self.queued, self.buffered, self.spot_to_spot, self.shifted)

    def counted_as(self, other: Scene) -> Scene:
        """This scene, whose nodes are those of another: how they stand need not be counted again."""
        self.__dict__["standing"] = other.standing
        return self

    @cached_property
    def room(self) -> Room:
        """Reckoned when first asked for, and once."""
        return room_in(self.snapshot, self.ground)

    @cached_property
    def ground(self) -> Ground:
        """What all trials in this scene share; made when first asked for."""
        return Ground(self.snapshot)

    def prices(self, node: PlannedNode) -> Callable[[str], Price]:
        """What each type of machine would cost as this node, looked up once for all nodes like it."""
        wanted = node.requirements
        known = self._prices.setdefault((node.pool, frozenset(wanted.by_key.items())), {})

        def price(name: str) -> Price:
            found = known.get(name)
            if found is None:
                each, undefined = self.types[node.pool][name], self.snapshot.options.flavour.well_known
                least, worst = (of(each, wanted, undefined) for of in (least_price, worst_launch_price))
                found = known[name] = Price(least, worst)
            return found

        return price

    @cached_property
    def movers(self) -> dict[str, tuple[Pod, ...]]:
        """The pods of candidates that would look for a place, as far as anybody has asked."""
        return {}

    @cached_property
    def sifted(self) -> list[Sifted]:
        """What consolidation has to choose from, once anybody has asked."""
        return []

    @cached_property
    def _prices(self) -> dict[tuple[str, frozenset[tuple[str, Values]]], dict[str, Price]]:
        return {}

    def __reduce__(self) -> tuple[Callable[..., Scene], tuple[object, ...]]:
        # What follows from the rest is made anew where it is wanted, rather than sent there.
        return _same_scene, (self.snapshot, self.queued, self.buffered, self.spot_to_spot, self.shifted)


_LAST: list[Scene] = []


def _same_scene(snapshot: Snapshot, *rest: object) -> Scene:
    """Another question about the scene of the last one finds all that was worked out for that."""
    if _LAST:
        scene = _LAST[0]
        known = scene.queued, scene.buffered, scene.spot_to_spot, scene.shifted
        if known == rest and _same_nodes(scene.snapshot, snapshot) and scene.snapshot == snapshot:
            return scene
    _LAST[:] = [Scene(snapshot, *rest)]  # type: ignore[arg-type] # they come from __reduce__
    return _LAST[0]


def _same_nodes(old: Snapshot, new: Snapshot) -> bool:
    """Identity is quick to compare, and what is remembered goes by it."""
    return len(old.nodes) == len(new.nodes) and all(map(is_, old.nodes, new.nodes))


def candidates(scene: Scene, kind: Class) -> tuple[list[Candidate], list[Stays]]:
    """Every node, sorted into those that may go and those that stay."""
    going: list[Candidate] = []
    staying: list[Stays] = []
    for state in scene.snapshot.nodes:
        found = judge(scene, state, kind)
        if isinstance(found, Candidate):
            going.append(found)
        else:
            staying.append(found)
    return going, staying


def judge(scene: Scene, state: StateNode, kind: Class) -> Candidate | Stays:
    """One node: a candidate, or the first reason why not."""
    if views.provider_id(state) in scene.queued:
        return Stays(state, "candidate is already being disrupted", QUIET, Held.UNDER_WAY)
    if scene.shifted and (zone := views.labels(state).get(labels.ZONE, "")) in scene.shifted:
        why = f"ZonalShift: its zone is shifted away (Zone={zone})"
        return Stays(state, why, held=Held.ZONAL_SHIFT)
    world = scene.snapshot.pools, scene.snapshot.catalogs, scene.face
    known = _JUDGED.get(state, *world)
    if known is None:
        known = _judged(scene, state)
        if not any(labels.DO_NOT_DISRUPT in pod.annotations for pod in state.pods):
            # Such an annotation may hold for a while only; all else stays true as long as these do.
            _JUDGED.put(known, state, *world)
    stays, candidate = known
    if candidate is None or (stays is not None and (kind is Class.GRACEFUL or _grace(state) is None)):
        assert stays is not None
        return stays
    return candidate


_JUDGED: Remembered[tuple[Stays | None, Candidate | None]] = Remembered()


def _judged(scene: Scene, state: StateNode) -> tuple[Stays | None, Candidate | None]:
    """Why the node stays, if it does, and what it would be as a candidate, if it can be one."""
    refused = _node_level(scene, state)
    if refused is not None:
        return refused, None
    pool = scene.pools[views.pool(state)]
    instance_type = scene.types[pool.name].get(views.labels(state).get(labels.INSTANCE_TYPE, ""))
    pods = tuple(pod for pod in state.pods if predicates.reschedulable(pod))
    return _pod_level(scene, state), Candidate(
        state=state,
        pool=pool,
        instance_type=instance_type,
        price=price_of(views.labels(state), instance_type),
        pods=state.pods if len(pods) == len(state.pods) else pods,
        cost=reschedule_cost(pods),
    )


def _node_level(scene: Scene, state: StateNode) -> Stays | None:
    if state.claim is None:
        return Stays(state, "node isn't managed by karpenter", QUIET, Held.UNMANAGED)
    if state.node is None:
        return Stays(state, "nodeclaim does not have an associated node", held=Held.NO_NODE)
    for obj in (state.node, state.claim, scene.set_aside_pools.get(views.pool(state))):
        if obj is not None and (why := reason_of(obj)):
            return Stays(state, f"{obj.KIND.kind} {obj.name} is set aside: {why}", held=Held.SET_ASIDE)
    if not views.initialized(state):
        return Stays(state, "node isn't initialized", held=Held.UNINITIALIZED)
    if views.deleting(state):
        return Stays(state, "node is deleting or marked for deletion", held=Held.DELETING)
    if state.nominated:
        return Stays(state, "node is nominated for a pending pod", held=Held.NOMINATED)
    if state.node.annotations.get(labels.DO_NOT_DISRUPT) == labels.TRUE:
        why = f'disruption is blocked through the "{labels.DO_NOT_DISRUPT}" annotation'
        return Stays(state, why, held=Held.NODE_DO_NOT_DISRUPT)
    pool = views.pool(state)
    if not pool:
        why = f"node doesn't have required label (label={labels.NODEPOOL})"
        return Stays(state, why, held=Held.NO_POOL)
    if pool not in scene.pools:
        return Stays(state, f"NodePool not found (NodePool={pool})", held=Held.NO_POOL)
    return None


def _pod_level(scene: Scene, state: StateNode) -> Stays | None:
    """Which pod holds the node; None when none does."""
    now = scene.snapshot.options.now
    for pod in state.pods:
        if why := reason_of(pod):
            return Stays(
                state, f"pod {pod.full_name} is set aside: {why}", held=Held.SET_ASIDE, pod=pod.full_name
            )
        if predicates.active(pod) and predicates.do_not_disrupt(pod, now).active:
            why = f'pod has "{labels.DO_NOT_DISRUPT}" annotation (Pod={pod.full_name})'
            return Stays(state, why, held=Held.POD_DO_NOT_DISRUPT, pod=pod.full_name)
    for pod in state.pods:
        blocking = scene.limits.blocking_now(pod, now)
        if blocking:
            why = f"pdb prevents pod evictions (PodDisruptionBudget=[{blocking[0]}])"
            if len(blocking) > 1:
                listed = ", ".join(blocking)
                why = f"eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{listed}])"
            return Stays(state, why, held=Held.PDB, pod=pod.full_name)
    return None


def _grace(state: StateNode) -> str | None:
    return state.claim.spec.termination_grace_period if state.claim else None


def price_of(known: Mapping[str, str], instance_type: InstanceType | None) -> float:
    """What a node of these labels costs an hour, whether or not more can be had now; 0 when unknown."""
    zone, capacity_type = known.get(labels.ZONE, ""), known.get(labels.CAPACITY_TYPE, "")
    for offering in instance_type.offerings if instance_type else ():
        if offering.zone == zone and offering.capacity_type == capacity_type:
            return 0.0 if isnan(offering.price) else offering.price
    return 0.0


def by_ratio(going: Sequence[Candidate]) -> list[Candidate]:
    """The best bargain first; equals by name, so that the same world gives the same order."""
    return sorted(going, key=lambda candidate: (-candidate.ratio, candidate.name))
