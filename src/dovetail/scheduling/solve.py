"""solve(snapshot) -> Plan: the whole batch packed at once, then the odd pods one by one.

    group     pods that are alike become numbers; pods the numbers cannot speak of are set aside
    pack      the packing: a complete plan in milliseconds, made cheaper for a fixed number of rounds
    assign    numbers become pods again, under the exact rules
    finish    the sequential scheduler finds room for those set aside, on the same nodes
    verify    the finished plan is held to every rule; if it breaks one, the sequential plan is used
    compare   a small plan, or one that leaves pods out, must be no worse than the sequential scheduler's,
              which in a small batch is placed again in other domains
    halve     few pods on a node that is a large part of the fleet: two smaller ones, if they cost the same

The same snapshot gives the same plan, whatever the machine or its load: effort is counted in rounds,
and `should_stop` is only an outer limit. A `cache` that is handed in saves work and changes no plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from dovetail.api.bad_items import SetAside
from dovetail.api.pod import Pod
from dovetail.scheduling import verify
from dovetail.scheduling.bad_objects import decide_without_bad_objects
from dovetail.scheduling.model.collector import pause_collector
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.pod_shapes import SchedulingShape
from dovetail.scheduling.model.reasons import Decision
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.packing import QUICK, THOROUGH, Effort, compute_batch_bound, pack_batch
from dovetail.scheduling.packing.adapter.from_groups import PackedPlanInvalid, apply_packed_plan
from dovetail.scheduling.packing.adapter.to_groups import (
    PodGroups,
    build_age_key,
    build_bound_batches,
    group_pods,
)
from dovetail.scheduling.postprocess import NodeSizeLimit, add_headroom, split_large_nodes
from dovetail.scheduling.sequential.nodes import Fit
from dovetail.scheduling.sequential.pending_zones import count_pending_by_zone
from dovetail.scheduling.sequential.results import build_plan
from dovetail.scheduling.sequential.schedule import run_scheduler, schedule_pods
from dovetail.scheduling.sequential.scheduler import SequentialScheduler

__all__ = [
    "FEW",
    "QUICK",
    "THOROUGH",
    "Effort",
    "build_first_plan",
    "compute_price_floor",
    "count_zones",
    "find_cheapest_plan",
    "prove_floor",
    "search_domains",
    "solve",
    "solve_in_parts",
]

MOST_RUNS = 24
_WORK = 1_500  # pods placed, over all runs

Choice = tuple[int, int]
"""Which domain was taken, of how many."""


class GuidedScheduler(SequentialScheduler):
    """A run that takes the given domains at its first choices, and the cheapest ones after that."""

    def __init__(self, snapshot: Snapshot, cache: DecisionCache, guide: Sequence[int] = ()) -> None:
        super().__init__(snapshot, cache=cache)
        self.guide = guide
        self.choices: list[Choice] = []

    def choose_fit(self, fits: Sequence[Fit], price: Callable[[Fit], float]) -> Fit:
        """The domain the guide names, or else the cheapest."""
        at = len(self.choices)
        taken = self.guide[at] if at < len(self.guide) else fits.index(super().choose_fit(fits, price))
        taken = min(taken, len(fits) - 1)
        self.choices.append((taken, len(fits)))
        return fits[taken]


def search_domains(
    snapshot: Snapshot, should_stop: ShouldStop | None = None, cache: DecisionCache | None = None
) -> Plan:
    """The sequential scheduler's plan, or a better one found by choosing other domains than it chose."""
    cache = DecisionCache() if cache is None else cache
    first = GuidedScheduler(snapshot, cache)
    plan = run_scheduler(first, None, should_stop)
    runs = 0 if first.timed_out else min(MOST_RUNS, _WORK // max(1, len(snapshot.pods)))
    best, tried = plan, set[tuple[int, ...]]()
    untried = _list_neighbours(first.choices, tried)
    for _ in range(runs):
        run = GuidedScheduler(snapshot, cache, next(untried, ()))
        if not run.guide:
            break
        run.schedule_all(None, should_stop)
        found = build_plan(run)
        if not run.timed_out and _rank_plan(found, plan) < _rank_plan(best, plan):
            best, untried = found, _list_neighbours(run.choices, tried)
    return best if best is plan else replace(best, zones=plan.zones)


def _rank_plan(plan: Plan, usual: Plan) -> tuple[int, bool, float]:
    """More pods placed; then those that are placed usually; then the cheaper."""
    left_out = plan.left_out
    return len(left_out), left_out != usual.left_out, round(plan.price, 9)


def _list_neighbours(choices: Sequence[Choice], tried: set[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """The same choices up to one that is made otherwise: each such start once."""
    made = tuple(taken for taken, _ in choices)
    for at, (taken, many) in enumerate(choices):
        for other in range(many):
            start = (*made[:at], other)
            if other != taken and start not in tried:
                tried.add(start)
                yield start


ShouldStop = Callable[[], bool]
FindPlan = Callable[[Snapshot], Plan]
FEW = 300  # pods up to which the sequential scheduler's plan is made as well, for it may be the better one
_PROVEN = 1 + 1e-6  # times the bound: a plan this cheap is not searched further
_MANY = 2_000  # pods left for the sequential scheduler before a time limit could matter


def solve(
    snapshot: Snapshot,
    effort: Effort = THOROUGH,
    should_stop: ShouldStop | None = None,
    cache: DecisionCache | None = None,
) -> Plan:
    """Decide where every waiting pod goes. An object that makes this fail is set aside for all others."""
    used = DecisionCache() if cache is None else cache
    plan, found = decide_without_bad_objects(
        snapshot, lambda seen: _solve_snapshot(seen, effort, should_stop, used), used
    )
    return _add_set_aside(plan, snapshot, (*snapshot.set_aside, *found))


def solve_in_parts(
    snapshot: Snapshot,
    decide: Callable[[Snapshot, FindPlan, FindPlan], Plan],
    effort: Effort,
    cache: DecisionCache | None = None,
) -> Plan:
    """The plan that `decide` makes of a large batch, part by part, each of which it need not verify.

    It is given how to plan the whole and how to plan a part; the plan that it makes is to be verified.
    """
    used = DecisionCache() if cache is None else cache

    def find_whole(asked: Snapshot) -> Plan:
        return find_cheapest_plan(asked, effort, cache=used)

    def find_part(asked: Snapshot) -> Plan:
        made = build_first_plan(asked, effort, cache=used)
        return find_whole(asked) if made is None or made.left_out else made

    plan, found = decide_without_bad_objects(
        snapshot, lambda seen: add_headroom(seen, decide(seen, find_whole, find_part)), used
    )
    return _add_set_aside(plan, snapshot, (*snapshot.set_aside, *found))


def _add_set_aside(plan: Plan, snapshot: Snapshot, bad: tuple[SetAside, ...]) -> Plan:
    """The plan with the bad items named; a pod among them is told why it waits."""
    if not bad:
        return plan
    waiting = {pod.full_name for pod in (*snapshot.pods, *snapshot.moving, *snapshot.virtual)}
    pods = {f"{each.namespace}/{each.name}": each.why for each in bad if each.kind == Pod.KIND.kind}
    told = {name: why for name, why in pods.items() if name in waiting}
    decisions = (Decision(name, None, error=why) for name, why in told.items())
    return replace(
        plan,
        set_aside=bad,
        unschedulable={**plan.unschedulable, **told},
        decisions=(*plan.decisions, *decisions),
    )


def _solve_snapshot(
    snapshot: Snapshot, effort: Effort, should_stop: ShouldStop | None, cache: DecisionCache
) -> Plan:
    if snapshot.options.consolidating or snapshot.options.one_by_one:
        return schedule_pods(snapshot, should_stop=should_stop, cache=cache)
    plan = find_cheapest_plan(snapshot, effort, should_stop, cache)

    def again(below: NodeSizeLimit) -> Plan | None:
        made = build_first_plan(snapshot, effort, should_stop, below, cache)
        return None if made is None or verify.verify_plan(snapshot, made, cache) else made

    return add_headroom(snapshot, split_large_nodes(snapshot, plan, again))


def find_cheapest_plan(
    snapshot: Snapshot,
    effort: Effort = THOROUGH,
    should_stop: ShouldStop | None = None,
    cache: DecisionCache | None = None,
) -> Plan:
    """The plan that costs least now, whatever comes later."""
    cache = DecisionCache() if cache is None else cache
    plan = build_first_plan(snapshot, effort, should_stop, cache=cache)
    if plan is None or verify.verify_plan(snapshot, plan, cache):
        return _schedule_one_by_one(snapshot, should_stop, cache)
    if plan.left_out:
        return _choose_better_plan(plan, _schedule_one_by_one(snapshot, should_stop, cache))
    if len(snapshot.pods) <= FEW:
        cheapest_known = plan.price <= plan.bound_as_asked * _PROVEN
        one_by_one = schedule_pods if cheapest_known else search_domains
        return _choose_better_plan(plan, one_by_one(snapshot, should_stop=should_stop, cache=cache))
    return plan


def _schedule_one_by_one(snapshot: Snapshot, should_stop: ShouldStop | None, cache: DecisionCache) -> Plan:
    if len(snapshot.pods) <= FEW:
        return search_domains(snapshot, should_stop, cache)
    return schedule_pods(snapshot, should_stop=should_stop, cache=cache)


def _choose_better_plan(packed: Plan, plain: Plan) -> Plan:
    """The plan with more pods placed; then the one with the sequential scheduler's pods; then the cheaper.

    Where a limit leaves room for some pods only, those that get it are the ones Karpenter would choose.
    """
    usual = plain.left_out

    def rank(plan: Plan) -> tuple[int, bool, float, int]:
        left_out = plan.left_out
        return len(left_out), left_out != usual, round(plan.price, 9), len(plan.new_nodes)

    if rank(plain) < rank(packed):
        kept = {"bound": packed.bound, "bound_as_asked": packed.bound_as_asked}
        return replace(plain, proven_pods=packed.proven_pods, **kept)
    return packed


def build_first_plan(
    snapshot: Snapshot,
    effort: Effort = QUICK,
    should_stop: ShouldStop | None = None,
    below: NodeSizeLimit | None = None,
    cache: DecisionCache | None = None,
) -> Plan | None:
    """The plan the packing leads to, not judged yet; None when it has nothing to say.

    With `below`, of nodes that are no larger than it allows; then there is no bound, as others may be.
    """
    # A consolidation asks about a few pods and many nodes, with rules of its own about which nodes.
    if snapshot.options.consolidating or snapshot.options.one_by_one:
        return None
    with pause_collector():
        return _build_packed_plan(snapshot, effort, should_stop, below, cache)


def _build_packed_plan(
    snapshot: Snapshot,
    effort: Effort,
    should_stop: ShouldStop | None,
    below: NodeSizeLimit | None,
    cache: DecisionCache | None,
) -> Plan | None:
    run = SequentialScheduler(snapshot, cache=cache)
    shapes = _group_by_shape(run)
    zones = count_pending_by_zone(run, shapes.items())
    counted = group_pods(run, shapes, effort.most_pods or snapshot.options.most_pods)
    if counted is None:
        return None
    proving = effort.rounds > 0 and below is None
    bounds = _compute_bounds(run, counted) if proving else (0.0, 0.0)
    if below is not None:
        counted = below.exclude_large_options(counted)
    try:
        apply_packed_plan(run, counted, pack_batch(counted.batch, effort, should_stop or _never_stop))
    except PackedPlanInvalid:
        return None
    _schedule_leftovers(run, should_stop)
    plan = replace(build_plan(run), zones=zones)
    if not proving or not _are_all_placed(run, counted):
        return plan  # what is left out costs nothing, so a bound over everybody would be none
    return replace(plan, bound=bounds[0], bound_as_asked=bounds[1], proven_pods=counted.proven_pods)


def compute_price_floor(snapshot: Snapshot, cache: DecisionCache | None = None) -> float:
    """Dollars an hour that no fleet for these pods can undercut, by the hard rules alone.

    Pods the packing cannot count are left out of it, so the floor still holds with them, if less tightly.
    """
    return prove_floor(snapshot, cache)[0]


def prove_floor(snapshot: Snapshot, cache: DecisionCache | None = None) -> tuple[float, int]:
    """The same, and how many pods it is about."""
    run = SequentialScheduler(snapshot, cache=cache)
    counted = group_pods(run, _group_by_shape(run), snapshot.options.most_pods)
    return (_compute_bounds(run, counted)[0], counted.proven_pods) if counted is not None else (0.0, 0)


def count_zones(snapshot: Snapshot, cache: DecisionCache | None = None) -> Mapping[str, int]:
    """How many pods wait for each zone, as a plan for all of them counts them."""
    run = SequentialScheduler(snapshot, cache=cache)
    return count_pending_by_zone(run, _group_by_shape(run).items())


def _never_stop() -> bool:
    return False


def _group_by_shape(run: SequentialScheduler) -> dict[SchedulingShape, list[Pod]]:
    """The pods of each shape. Most pods share spec and labels with the last one of their kind."""
    found: dict[SchedulingShape, list[Pod]] = {}
    alike: dict[tuple[int, int, str], list[Pod]] = {}
    for pod in run.batch:
        key = (id(pod.spec), id(pod.metadata.labels), pod.metadata.namespace)
        pods = alike.get(key)
        if pods is None or pod.status.container_statuses or pod.status.init_container_statuses:
            pods = found.setdefault(run.shapes.find_shape(pod), [])
            if _is_defined_by_spec(pod):
                alike[key] = pods
        pods.append(pod)
    return found


def _is_defined_by_spec(pod: Pod) -> bool:
    """Nothing but spec and labels matters: no resize under way, no claims made for this pod by its name."""
    resized = pod.status.container_statuses or pod.status.init_container_statuses
    own = pod.spec.resource_claims or any(each.ephemeral for each in pod.spec.volumes)
    return not resized and not own


def _compute_bounds(run: SequentialScheduler, counted: PodGroups) -> tuple[float, float]:
    """What no plan can undercut: by the hard rules alone, and with wishes kept."""
    hard, asked = build_bound_batches(run, counted)
    bound = compute_batch_bound(asked)
    return (bound if hard is asked else min(bound, compute_batch_bound(hard))), bound


def _are_all_placed(run: SequentialScheduler, counted: PodGroups) -> bool:
    groups = zip(counted.names, counted.batch.count.tolist(), strict=True)
    return all(name in run.placements for names, number in groups if number for name in names)


def _schedule_leftovers(run: SequentialScheduler, should_stop: ShouldStop | None) -> None:
    """Schedule the pods that have no node yet one by one, the longest pending first if time is short."""
    everyone = run.batch
    if len(run.placements) == len(everyone):
        return
    homeless = [pod for pod in everyone if pod.full_name not in run.placements]
    order = None
    if should_stop is not None and len(homeless) > _MANY:
        order = [pod.full_name for pod in sorted(homeless, key=build_age_key)]
    run.batch = homeless
    run.schedule_all(order, should_stop)
    run.batch = everyone
