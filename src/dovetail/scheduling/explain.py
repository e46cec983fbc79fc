"""How near a pod without a place came: where it would fit, but for one thing.

Each thing that stands in the way is lifted in turn, for all such pods together, and the plan is asked
again: a taint tolerated, a selector dropped, a limit gone. What then finds a place names the obstacle:
`would fit m7g.large in zone b but for taint team=a:NoSchedule`. Words for people; nothing is decided by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as dataclass_replace

from msgspec.structs import replace

from dovetail.api.labels import NODEPOOL
from dovetail.api.pod import Affinity, Container, Pod, PodSpec, ResourceRequirements, Toleration
from dovetail.api.quantity import ZERO
from dovetail.scheduling.model import state_node, taints
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.plan import Plan, PlannedNode
from dovetail.scheduling.model.pod_requirements import build_strict_requirements
from dovetail.scheduling.model.reasons import Decision, Reason
from dovetail.scheduling.model.requirements import Requirements, describe_values
from dovetail.scheduling.model.resources import (
    compute_requests_with_pod,
    convert_to_nano,
    convert_to_quantities,
)
from dovetail.scheduling.model.snapshot import Snapshot, SnapshotPool
from dovetail.scheduling.postprocess import apply_plan
from dovetail.scheduling.sequential.schedule import schedule_pods
from dovetail.scheduling.solve import QUICK, solve

__all__ = ["NearMiss", "find_near_misses"]

MOST_SHAPES = 200  # pods beyond this many kinds are told the reasons alone
_MOST_RESOURCES = 4
_MOST_CONTEXT = 5_000  # pods up to which those that were placed are taken into account
_ALONE = dataclass_replace(QUICK, most_pods=1)  # a place for each, not what they would share
_EVERYTHING = (Toleration(operator="Exists"),)

Edit = Callable[[PodSpec], PodSpec]
Told = Callable[["_Found"], str]


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A place a pod would have, and the one thing in its way."""

    reason: Reason
    place: str
    obstacle: str

    def __str__(self) -> str:
        return f"would fit {self.place} but for {self.obstacle}"


@dataclass(frozen=True, slots=True)
class _Found:
    """A pod as it is, and the place it found once something was lifted."""

    snapshot: Snapshot
    pod: Pod
    node: PlannedNode | None
    running: str = ""

    @property
    def pool(self) -> SnapshotPool | None:
        return next((each for each in self.snapshot.pools if self.node and each.name == self.node.pool), None)

    @property
    def place(self) -> str:
        if self.node is None:
            return f"node {self.running}"
        return f"{self.node.instance_type} in {self.node.zone}"


@dataclass(frozen=True, slots=True)
class _Lift:
    """One obstacle taken away: when that could help, how it is done, and what to call it."""

    reasons: tuple[Reason, ...]
    edit: Edit
    told: Told
    limits: bool = True

    def match_reason(self, decision: Decision) -> Reason | None:
        met = {rejection.reason for rejection in decision.rejections}
        return next((reason for reason in self.reasons if reason in met), None)


def find_near_misses(
    snapshot: Snapshot, plan: Plan, cache: DecisionCache | None = None
) -> dict[str, NearMiss]:
    """For pods that found no place, by name: the nearest miss, where one thing alone was in the way."""
    cache = DecisionCache() if cache is None else cache
    shapes = _group_decisions(plan)
    waiting = (*snapshot.pods, *(replace(pod, node_name="") for pod in snapshot.moving))
    planned = {node.name: node for node in plan.new_nodes}
    if len(snapshot.pods) <= _MOST_CONTEXT:
        # What the plan places is in the way of some, and leaves room for others.
        snapshot = apply_plan(snapshot, plan)
    decisions = {decisions[0].pod: decisions[0] for decisions in shapes[:MOST_SHAPES]}
    pods = {pod.full_name: pod for pod in waiting if pod.full_name in decisions}
    found: dict[str, NearMiss] = {}
    for lift in _list_lifts(pods.values()):
        asked = {
            name: reason
            for name, decision in decisions.items()
            if name in pods and name not in found and (reason := lift.match_reason(decision)) is not None
        }
        if asked:
            lifted = [pods[name] for name in asked]
            for name, place in _find_places(snapshot, planned, lifted, lift, cache):
                obstacle = lift.told(place)
                if obstacle:
                    found[name] = NearMiss(asked[name], place.place, obstacle)
    named = {decisions[0].pod: decisions for decisions in shapes}
    return {decision.pod: miss for name, miss in found.items() for decision in named[name]}


def _group_decisions(plan: Plan) -> list[list[Decision]]:
    """Decisions for pods without a place; pods of one shape were given the very same rejections."""
    found: dict[int, list[Decision]] = {}
    for decision in plan.decisions:
        if decision.place is None and decision.rejections:
            found.setdefault(id(decision.rejections), []).append(decision)
    return list(found.values())


def _find_places(
    snapshot: Snapshot,
    planned: Mapping[str, PlannedNode],
    pods: Sequence[Pod],
    lift: _Lift,
    cache: DecisionCache,
) -> Iterator[tuple[str, _Found]]:
    """Where the pods would go with this lifted; those that still have no place are left out."""
    lifted = tuple(replace(pod, spec=lift.edit(pod.spec)) for pod in pods)
    pools = snapshot.pools if lift.limits else tuple(_remove_limits(pool) for pool in snapshot.pools)
    asked = replace(snapshot, pods=lifted, pools=pools, moving=(), virtual=())
    # One pod is not a batch: the sequential scheduler's answer is the whole answer.
    plan = schedule_pods(asked, cache=cache) if len(lifted) == 1 else solve(asked, _ALONE, cache=cache)
    originals = {pod.full_name: pod for pod in pods}
    for name, taken in plan.existing.items():
        node = planned.get(name)
        yield from ((pod, _Found(snapshot, originals[pod], node, name)) for pod in taken if pod in originals)
    for node in plan.new_nodes:
        yield from ((pod, _Found(snapshot, originals[pod], node)) for pod in node.pods if pod in originals)


def _remove_limits(pool: SnapshotPool) -> SnapshotPool:
    return replace(pool, nodepool=replace(pool.nodepool, spec=replace(pool.nodepool.spec, limits={})))


def _list_lifts(pods: Iterable[Pod]) -> Iterator[_Lift]:
    """In order of how little they ask of a person."""
    yield _Lift((Reason.LIMIT, Reason.RESOURCES, Reason.TYPES), _keep_spec, _describe_limits, limits=False)
    yield _Lift((Reason.TAINT,), _tolerate_everything, _describe_taints)
    yield _Lift(
        (Reason.LABELS, Reason.TYPES, Reason.OFFERING, Reason.RESOURCES),
        _drop_node_selection,
        _describe_labels,
    )
    yield _Lift((Reason.SPREAD,), _drop_spread, lambda found: "its topology spread")
    yield _Lift((Reason.AFFINITY,), _drop_affinity, lambda found: "the pods it wants to be near")
    yield _Lift((Reason.ANTI_AFFINITY,), _drop_anti_affinity, lambda found: "the pods it must keep away from")
    yield _Lift((Reason.HOST_PORT,), _drop_host_ports, lambda found: "a host port it wants for itself")
    yield _Lift((Reason.VOLUME_ZONE, Reason.VOLUME_LIMIT), _drop_volumes, lambda found: "its volumes")
    for name in sorted({name for pod in pods for name in compute_requests_with_pod(pod)} - {"pods"})[
        :_MOST_RESOURCES
    ]:
        yield _build_resource_lift(name)
    yield _Lift(
        (Reason.TAINT, Reason.LABELS),
        lambda spec: _tolerate_everything(_drop_node_selection(spec)),
        _describe_taints_and_labels,
    )


def _keep_spec(spec: PodSpec) -> PodSpec:
    return spec


def _tolerate_everything(spec: PodSpec) -> PodSpec:
    return replace(spec, tolerations=_EVERYTHING)


def _drop_node_selection(spec: PodSpec) -> PodSpec:
    return replace(spec, node_selector={}, affinity=_drop_affinity_part(spec.affinity, "node_affinity"))


def _drop_spread(spec: PodSpec) -> PodSpec:
    return replace(spec, topology_spread_constraints=())


def _drop_affinity(spec: PodSpec) -> PodSpec:
    return replace(spec, affinity=_drop_affinity_part(spec.affinity, "pod_affinity"))


def _drop_anti_affinity(spec: PodSpec) -> PodSpec:
    return replace(spec, affinity=_drop_affinity_part(spec.affinity, "pod_anti_affinity"))


def _drop_volumes(spec: PodSpec) -> PodSpec:
    return replace(spec, volumes=())


def _drop_affinity_part(affinity: Affinity | None, part: str) -> Affinity | None:
    return None if affinity is None else replace(affinity, **{part: None})


def _drop_host_ports(spec: PodSpec) -> PodSpec:
    return replace(spec, containers=tuple(replace(each, ports=()) for each in spec.containers))


def _describe_limits(found: _Found) -> str:
    pool = found.pool
    limits = pool.nodepool.spec.limits if pool else {}
    told = ", ".join(f"{name} {amount}" for name, amount in sorted(limits.items()))
    return f"the limits of pool {pool.name} ({told})" if pool else "the limits of its pool"


def _describe_taints(found: _Found) -> str:
    listed = _list_untolerated_taints(found)
    return f"taint{'s' if len(listed) > 1 else ''} {', '.join(listed)}" if listed else ""


def _list_untolerated_taints(found: _Found) -> list[str]:
    if found.pool is not None:
        present = found.pool.nodepool.spec.template.spec.taints
    else:
        state = next(each for each in found.snapshot.nodes if state_node.read_name(each) == found.running)
        present = state_node.read_taints(state)
    return [
        taints.format_taint(each) for each in taints.list_untolerated(present, found.pod.spec.tolerations)
    ]


def _describe_labels(found: _Found) -> str:
    unmet = _list_unmet_labels(found)
    return f"its node selector: {', '.join(unmet)}" if unmet else ""


def _describe_taints_and_labels(found: _Found) -> str:
    return " and ".join(part for part in (_describe_taints(found), _describe_labels(found)) if part)


def _list_unmet_labels(found: _Found) -> list[str]:
    """What the pod asks of labels that the place has not."""
    asked, described = build_strict_requirements(found.pod.spec), _describe_place(found)
    well_known = found.snapshot.options.flavour.well_known
    unmet = []
    for key, values in asked.by_key.items():
        known = described.by_key.get(key)
        if not values and not values.open and key in _list_required_keys(found.pod.spec):
            unmet.append(f"{key} cannot have every value it requires")
        elif (known is None and key not in well_known and not values.negative) or (
            known is not None and not known.has_intersection(values)
        ):
            unmet.append(describe_values(key, values))
    return unmet


def _list_required_keys(spec: PodSpec) -> frozenset[str]:
    """Labels that the pod asks some value of."""
    terms = spec.affinity.node_affinity if spec.affinity else None
    required = terms.required.node_selector_terms if terms and terms.required else ()
    asked = {each.key for term in required for each in term.match_expressions if each.operator == "In"}
    return frozenset(asked | set(spec.node_selector))


def _describe_place(found: _Found) -> Requirements:
    pool = found.pool
    if pool is None or found.node is None:
        state = next(each for each in found.snapshot.nodes if state_node.read_name(each) == found.running)
        return Requirements.from_labels(state_node.read_labels(state))
    chosen = next(each for each in found.snapshot.list_types(pool) if each.name == found.node.instance_type)
    template = pool.nodepool.spec.template
    own = Requirements.from_expressions(template.spec.requirements or ())
    return (
        chosen.requirements
        & own
        & Requirements.from_labels({**template.metadata.labels, NODEPOOL: pool.name})
    )


def _build_resource_lift(name: str) -> _Lift:
    def less(spec: PodSpec) -> PodSpec:
        return replace(
            spec,
            containers=_drop_request(name, spec.containers),
            init_containers=_drop_request(name, spec.init_containers),
            resources=None if spec.resources is None else _drop_amount(name, spec.resources),
        )

    return _Lift((Reason.RESOURCES, Reason.TYPES), less, lambda found: _describe_resource(name, found))


def _drop_request(name: str, containers: tuple[Container, ...]) -> tuple[Container, ...]:
    return tuple(replace(each, resources=_drop_amount(name, each.resources)) for each in containers)


def _drop_amount(name: str, asked: ResourceRequirements) -> ResourceRequirements:
    def others(listed: Mapping[str, object]) -> dict[str, object]:
        return {key: amount for key, amount in listed.items() if key != name}

    return replace(asked, requests=others(asked.requests), limits=others(asked.limits))


def _describe_resource(name: str, found: _Found) -> str:
    """What it asks for, and the most there is."""
    asked = convert_to_quantities(convert_to_nano(compute_requests_with_pod(found.pod)))[name]
    types = [each for catalog in found.snapshot.catalogs for each in catalog]
    largest = max(types, key=lambda each: each.allocatable().get(name, ZERO), default=None)
    if largest is None:
        return f"{name}: it requests {asked}"
    most = largest.allocatable().get(name, ZERO)
    if not most:
        return f"{name}: it requests {asked}, and no instance type has any"
    if most >= asked:
        return f"{name}: it requests {asked}, beside everything else"
    return f"{name}: it requests {asked}, and the most there is is {most} ({largest.name})"
