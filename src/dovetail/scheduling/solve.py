"""solve(snapshot) -> Plan: the whole batch packed at once, then the odd pods one by one.

    count     pods that are alike become numbers; pods the numbers cannot speak of are set aside
    place     the packing: a complete plan in milliseconds, made cheaper for a fixed number of rounds
    seat      numbers become pods again, under the exact rules
    finish    the exact placer finds room for those set aside, on the same nodes
    judge     the referee looks at the finished plan; if it objects, the exact placer's own plan is used

The same snapshot gives the same plan, whatever the machine or its load: effort is counted in rounds,
and `should_stop` is only an outer limit.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from dovetail.api.pod import Pod
from dovetail.scheduling import exact
from dovetail.scheduling.counting import count
from dovetail.scheduling.exact import Run
from dovetail.scheduling.outcome import plan_of
from dovetail.scheduling.packing.bulk import batch_bound, place
from dovetail.scheduling.packing.improve import QUICK, THOROUGH, Effort
from dovetail.scheduling.plan import Plan
from dovetail.scheduling.seating import Misfit, seat
from dovetail.scheduling.shapes import Shape
from dovetail.scheduling.snapshot import Snapshot

__all__ = ["QUICK", "THOROUGH", "Effort", "solve"]


def solve(
    snapshot: Snapshot, effort: Effort = THOROUGH, should_stop: Callable[[], bool] | None = None
) -> Plan:
    """Decide where every waiting pod goes."""
    plan = None if snapshot.options.consolidating else _packed(snapshot, effort, should_stop)
    return exact.place(snapshot, should_stop=should_stop) if plan is None else plan


def _packed(snapshot: Snapshot, effort: Effort, should_stop: Callable[[], bool] | None) -> Plan | None:
    """The plan the packing leads to; None when it has nothing to say or would break a rule."""
    run = Run(snapshot)
    counted = count(run, _by_shape(run))
    if counted is None:
        return None
    bulk = place(counted.batch, effort, should_stop or _never)
    try:
        seat(run, counted, bulk)
    except Misfit:
        return None
    _finish(run, should_stop)
    plan = plan_of(run)
    if effort.rounds:
        plan = replace(plan, bound=batch_bound(counted.batch))
    return plan


def _never() -> bool:
    return False


def _by_shape(run: Run) -> dict[Shape, list[Pod]]:
    found: dict[Shape, list[Pod]] = {}
    of = run.shapes.of
    for pod in run.batch:
        shape = of(pod)
        if shape in found:
            found[shape].append(pod)
        else:
            found[shape] = [pod]
    return found


def _finish(run: Run, should_stop: Callable[[], bool] | None) -> None:
    """The exact placer's turn: pods without a home yet."""
    everyone = run.batch
    run.batch = [pod for pod in everyone if pod.full_name not in run.homes]
    run.place_all(None, should_stop)
    run.batch = everyone
