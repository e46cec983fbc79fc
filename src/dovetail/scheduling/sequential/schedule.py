"""Schedule the pending pods of a snapshot one by one, as Karpenter does, and say what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from dovetail.api.pod import Pod
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.pod_shapes import SchedulingShape
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.sequential.pending_zones import count_pending_by_zone
from dovetail.scheduling.sequential.results import build_plan
from dovetail.scheduling.sequential.scheduler import SequentialScheduler, sort_queue

__all__ = ["rank_plan", "run_scheduler", "schedule_pods"]


def schedule_pods(
    snapshot: Snapshot,
    order: Sequence[str] | None = None,
    should_stop: Callable[[], bool] | None = None,
    cache: DecisionCache | None = None,
) -> Plan:
    """Decide every waiting pod, one by one.

    `order` puts the pods it names first, in that order; the others follow by size. `should_stop` is
    asked between pods; what is placed by then is kept.
    """
    return run_scheduler(SequentialScheduler(snapshot, cache=cache), order, should_stop)


def run_scheduler(
    run: SequentialScheduler, order: Sequence[str] | None, should_stop: Callable[[], bool] | None
) -> Plan:
    """Place the batch of a run that has not begun, and say what came of it."""
    zones = {} if run.options.consolidating else count_pending_by_zone(run, _list_in_order(run, order))
    run.schedule_all(order, should_stop)
    return replace(_build_best_plan(run, order, should_stop), zones=zones)


def _list_in_order(
    run: SequentialScheduler, order: Sequence[str] | None
) -> Iterator[tuple[SchedulingShape, Sequence[Pod]]]:
    return ((run.shapes.find_shape(pod), (pod,)) for pod in sort_queue(run.batch, run.shapes, order))


def _build_best_plan(
    run: SequentialScheduler, order: Sequence[str] | None, should_stop: Callable[[], bool] | None
) -> Plan:
    if not run.chose or run.timed_out:
        return build_plan(run)
    # What is cheapest for one pod need not be for those that follow: try the plain order as well.
    plain = SequentialScheduler(run.snapshot, thrifty=False, cache=run.cache)
    plain.schedule_all(order, should_stop)
    return build_plan(run) if plain.timed_out else min(build_plan(run), build_plan(plain), key=rank_plan)


def rank_plan(plan: Plan) -> tuple[int, float]:
    return len(plan.unschedulable) + len(plan.deferred), plan.price
