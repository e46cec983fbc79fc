"""solve(snapshot) -> Plan: the whole batch packed at once, then the odd pods one by one.

    count     pods that are alike become numbers; pods the numbers cannot speak of are set aside
    place     the packing: a complete plan in milliseconds, made cheaper for a fixed number of rounds
    seat      numbers become pods again, under the exact rules
    finish    the exact placer finds room for those set aside, on the same nodes
    judge     the referee looks at the finished plan; if it objects, the exact placer's own plan is used
    compare   a small plan, or one that leaves pods out, must be no worse than the exact placer's, which in a
              small batch is placed again in other domains
    halve     few pods on a node that is a large part of the fleet: two smaller ones, if they cost the same

The same snapshot gives the same plan, whatever the machine or its load: effort is counted in rounds,
and `should_stop` is only an outer limit.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from dovetail.api.pod import Pod
from dovetail.api.setaside import SetAside
from dovetail.explain import Decision
from dovetail.scheduling import exact, referee
from dovetail.scheduling.containment import contain
from dovetail.scheduling.counting import Counted, count, for_bounds, waited
from dovetail.scheduling.domain_search import search_domains
from dovetail.scheduling.exact import Run
from dovetail.scheduling.finer import Below, finer
from dovetail.scheduling.foresight import ahead
from dovetail.scheduling.outcome import plan_of
from dovetail.scheduling.packing import QUICK, THOROUGH, Effort, batch_bound, place
from dovetail.scheduling.plan import Plan
from dovetail.scheduling.seating import Misfit, seat
from dovetail.scheduling.shapes import Shape
from dovetail.scheduling.snapshot import Snapshot
from dovetail.scheduling.zones import waiting_by_zone

__all__ = ["QUICK", "THOROUGH", "Effort", "cheapest", "first_plan", "price_floor", "solve"]

ShouldStop = Callable[[], bool]
_FEW = 300  # pods up to which the exact placer's plan is made as well, for it may be the better one
_PROVEN = 1 + 1e-6  # times the bound: a plan this cheap is not searched further
_MANY = 2_000  # pods left for the exact placer before a time limit could matter


def solve(snapshot: Snapshot, effort: Effort = THOROUGH, should_stop: ShouldStop | None = None) -> Plan:
    """Decide where every waiting pod goes. An object that makes this fail is set aside for all others."""
    plan, found = contain(snapshot, lambda seen: _solve(seen, effort, should_stop))
    return _naming(plan, snapshot, (*snapshot.set_aside, *found))


def _naming(plan: Plan, snapshot: Snapshot, bad: tuple[SetAside, ...]) -> Plan:
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


def _solve(snapshot: Snapshot, effort: Effort, should_stop: ShouldStop | None) -> Plan:
    if snapshot.options.consolidating or snapshot.options.one_by_one:
        return exact.place(snapshot, should_stop=should_stop)
    plan = cheapest(snapshot, effort, should_stop)

    def again(below: Below) -> Plan | None:
        made = first_plan(snapshot, effort, should_stop, below)
        return None if made is None or referee.verify(snapshot, made) else made

    return ahead(snapshot, finer(snapshot, plan, again))


def cheapest(snapshot: Snapshot, effort: Effort = THOROUGH, should_stop: ShouldStop | None = None) -> Plan:
    """The plan that costs least now, whatever comes later."""
    plan = first_plan(snapshot, effort, should_stop)
    if plan is None or referee.verify(snapshot, plan):
        return _placed_one_by_one(snapshot, should_stop)
    if plan.left_out:
        return _better(plan, _placed_one_by_one(snapshot, should_stop))
    if len(snapshot.pods) <= _FEW:
        cheapest_known = plan.price <= plan.bound_as_asked * _PROVEN
        one_by_one = exact.place if cheapest_known else search_domains
        return _better(plan, one_by_one(snapshot, should_stop=should_stop))
    return plan


def _placed_one_by_one(snapshot: Snapshot, should_stop: ShouldStop | None) -> Plan:
    if len(snapshot.pods) <= _FEW:
        return search_domains(snapshot, should_stop)
    return exact.place(snapshot, should_stop=should_stop)


def _better(packed: Plan, plain: Plan) -> Plan:
    """The plan with more pods placed; then the one for the pods the exact placer places; then the cheaper.

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


def first_plan(
    snapshot: Snapshot,
    effort: Effort = QUICK,
    should_stop: ShouldStop | None = None,
    below: Below | None = None,
) -> Plan | None:
    """The plan the packing leads to, not judged yet; None when it has nothing to say.

    With `below`, of nodes that are no larger than it allows; then there is no bound, as others may be.
    """
    # A consolidation asks about a few pods and many nodes, with rules of its own about which nodes.
    if snapshot.options.consolidating or snapshot.options.one_by_one:
        return None
    run = Run(snapshot)
    shapes = _by_shape(run)
    zones = waiting_by_zone(run, shapes.items())
    counted = count(run, shapes, effort.most_pods or snapshot.options.most_pods)
    if counted is None:
        return None
    proving = effort.rounds > 0 and below is None
    bounds = _bounds(run, counted) if proving else (0.0, 0.0)
    if below is not None:
        counted = below.narrowed(counted)
    try:
        seat(run, counted, place(counted.batch, effort, should_stop or _never))
    except Misfit:
        return None
    _finish(run, should_stop)
    plan = replace(plan_of(run), zones=zones)
    if not proving or not _all_placed(run, counted):
        return plan  # what is left out costs nothing, so a bound over everybody would be none
    return replace(plan, bound=bounds[0], bound_as_asked=bounds[1], proven_pods=counted.proven_pods)


def price_floor(snapshot: Snapshot) -> float:
    """Dollars an hour that no fleet for these pods can undercut, by the hard rules alone.

    Pods the packing cannot count are left out of it, so the floor still holds with them, if less tightly.
    """
    run = Run(snapshot)
    counted = count(run, _by_shape(run), snapshot.options.most_pods)
    return _bounds(run, counted)[0] if counted is not None else 0.0


def _never() -> bool:
    return False


def _by_shape(run: Run) -> dict[Shape, list[Pod]]:
    """The pods of each shape. Most pods share spec and labels with the last one of their kind."""
    found: dict[Shape, list[Pod]] = {}
    alike: dict[tuple[int, int, str], list[Pod]] = {}
    for pod in run.batch:
        key = (id(pod.spec), id(pod.metadata.labels), pod.metadata.namespace)
        pods = alike.get(key)
        if pods is None or pod.status.container_statuses or pod.status.init_container_statuses:
            pods = found.setdefault(run.shapes.of(pod), [])
            if _like_its_spec(pod):
                alike[key] = pods
        pods.append(pod)
    return found


def _like_its_spec(pod: Pod) -> bool:
    """Nothing but spec and labels matters: no resize under way, no claims made for this pod by its name."""
    resized = pod.status.container_statuses or pod.status.init_container_statuses
    own = pod.spec.resource_claims or any(each.ephemeral for each in pod.spec.volumes)
    return not resized and not own


def _bounds(run: Run, counted: Counted) -> tuple[float, float]:
    """What no plan can undercut: by the hard rules alone, and with wishes kept."""
    hard, asked = for_bounds(run, counted)
    bound = batch_bound(asked)
    return (bound if hard is asked else min(bound, batch_bound(hard))), bound


def _all_placed(run: Run, counted: Counted) -> bool:
    groups = zip(counted.names, counted.batch.count.tolist(), strict=True)
    return all(name in run.homes for names, number in groups if number for name in names)


def _finish(run: Run, should_stop: ShouldStop | None) -> None:
    """The exact placer's turn: pods without a home yet, those that waited longest first if time is short."""
    everyone = run.batch
    if len(run.homes) == len(everyone):
        return
    homeless = [pod for pod in everyone if pod.full_name not in run.homes]
    order = None
    if should_stop is not None and len(homeless) > _MANY:
        order = [pod.full_name for pod in sorted(homeless, key=waited)]
    run.batch = homeless
    run.place_all(order, should_stop)
    run.batch = everyone
