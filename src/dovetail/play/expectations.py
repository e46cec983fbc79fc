"""What is expected of worlds, and what became of it in each.

What a floor proves is told as a proof; what only the plan found does not keep, as just that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase

from dovetail.api import labels, predicates
from dovetail.play.expectations_file import Expectation, Expectations, parse_share
from dovetail.play.expected_worlds import VerifiedWorld, name_workload
from dovetail.scheduling.model import state_node as views
from dovetail.settings.durations import parse_duration as parse_duration

__all__ = ["Judgement", "judge_expectations"]

SHOWN = 3


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of one expectation in one world. `certified` is a proof that no plan keeps it."""

    number: int
    promise: str
    world: str
    kept: bool
    found: str
    certified: bool = False
    pods: tuple[str, ...] = ()


def judge_expectations(
    expectations: Expectations,
    worlds: Iterable[VerifiedWorld],
    step: Callable[[str], None] = lambda text: None,
) -> list[Judgement]:
    """Every expectation in every world it speaks of, in the order of the file."""
    found: list[Judgement] = []
    # World by world, so that of each only what is asked for is worked out, and let go again.
    for world in worlds:
        step(world.label)
        for number, each in enumerate(expectations.expect):
            if each.world in ("", world.world):
                found.append(_judge_expectation(number, each, world))
    return sorted(found, key=lambda each: each.number)


def _judge_expectation(number: int, each: Expectation, world: VerifiedWorld) -> Judgement:
    promise = _describe_promise(each)
    if each.every_pod_placed:
        return _judge_placed(number, promise, each, world)
    if each.hourly_at_most is not None:
        return _judge_hourly(number, promise, float(each.hourly_at_most), world)
    kept, found = _judge_number(each, world)
    return Judgement(number, promise, world.label, kept, found)


def _describe_promise(each: Expectation) -> str:
    ((name, value),) = each.promises.items()
    rest = f" of pool {each.pool}" if each.pool else ""
    rest += f" except {', '.join(each.excepted)}" if each.excepted else ""
    return f"{name}{'' if value is True else f' {value}'}{rest}"


def _judge_placed(number: int, promise: str, each: Expectation, world: VerifiedWorld) -> Judgement:
    pods = {pod.full_name: pod for pod in (*world.snapshot.pods, *world.snapshot.moving)}
    left_out = [
        name
        for name in sorted(world.left_out)
        if not any(fnmatchcase(name, one) for one in each.excepted)
        and not (name in pods and any(fnmatchcase(name_workload(pods[name]), one) for one in each.excepted))
    ]
    if not left_out:
        return Judgement(number, promise, world.label, True, "every pod has a place")
    more = f" and {len(left_out) - SHOWN:,} more" if len(left_out) > SHOWN else ""
    verb = "has" if len(left_out) == 1 else "have"
    why = world.explain_left_out(left_out[0])
    told = f"{', '.join(left_out[:SHOWN])}{more} {verb} no place: {why}"
    return Judgement(number, promise, world.label, False, told, pods=tuple(left_out))


def _judge_hourly(number: int, promise: str, most: float, world: VerifiedWorld) -> Judgement:
    hourly = world.hourly
    if hourly <= most + 1e-9:
        return Judgement(number, promise, world.label, True, f"${hourly:,.2f} an hour")
    floor = world.floor
    if floor > most + 1e-9:
        least = f"${_round_down(floor):,.2f} an hour"
        told = f"cannot be kept by any plan: no fleet for these pods costs less than {least}"
        return Judgement(number, promise, world.label, False, told, certified=True)
    told = f"not kept by the plan found (${hourly:,.2f} an hour; the floor is ${floor:,.2f})"
    return Judgement(number, promise, world.label, False, told)


def _round_down(dollars: float) -> float:
    """To the cent, and never above what was proven."""
    return int(dollars * 100) / 100


def _judge_number(each: Expectation, world: VerifiedWorld) -> tuple[bool, str]:
    if each.evictions_at_most is not None:
        return world.evictions <= each.evictions_at_most, f"{world.evictions:,} evictions"
    if each.replaced_at_most is not None:
        return _judge_replaced(each.replaced_at_most, each.pool, world)
    if each.ready_within is not None:
        within = parse_duration(each.ready_within)
        count = len(world.plan.new_nodes)
        nodes = f"{count:,} new node{'' if count == 1 else 's'}"
        return timedelta(minutes=world.minutes) <= within, f"about {world.minutes:.1f} min for {nodes}"
    if each.zone_share_at_most is not None:
        return _judge_share(each.zone_share_at_most, "zone", _count_by_zone(world))
    return _judge_share(each.spot_pool_share_at_most or "", "spot pool", _count_by_spot_pool(world))


def _judge_replaced(most: int | str, pool: str, world: VerifiedWorld) -> tuple[bool, str]:
    states = [state for state in world.given.situation.snapshot.nodes if views.is_managed(state)]
    states = [state for state in states if not pool or views.read_pool_name(state) == pool]
    change = world.given.change
    drifting = {each.node for each in change.drifts} | change.leaving if change is not None else set[str]()
    count = sum(1 for state in states if views.read_name(state) in drifting)
    limit = most if isinstance(most, int) else (parse_share(most) or 0.0) * len(states)
    return count <= limit + 1e-9, f"{count:,} of {len(states):,} nodes"


def _judge_share(most: str, what: str, counted: tuple[Counter[str], int]) -> tuple[bool, str]:
    by_name, total = counted
    if not by_name or not total:
        return True, f"no pod is in a {what}"
    name, count = min(by_name.items(), key=lambda item: (-item[1], item[0]))
    share = count / total
    return share <= (parse_share(most) or 0.0) + 1e-9, f"{share:.0%} of {total:,} pods in {name}"


def _count_by_zone(world: VerifiedWorld) -> tuple[Counter[str], int]:
    return _count_pods(world, lambda known: known.get(labels.ZONE, ""))


def _count_by_spot_pool(world: VerifiedWorld) -> tuple[Counter[str], int]:
    def name(known: Mapping[str, str]) -> str:
        if known.get(labels.CAPACITY_TYPE) != labels.SPOT:
            return ""
        return f"{known.get(labels.INSTANCE_TYPE, '')} in {known.get(labels.ZONE, '')}"

    return _count_pods(world, name)


def _count_pods(world: VerifiedWorld, name: Callable[[Mapping[str, str]], str]) -> tuple[Counter[str], int]:
    """The pods that have a place, by what their node's labels are called, and all of them."""
    found: Counter[str] = Counter()
    total = 0
    for known, count in _list_places(world):
        total += count
        if word := name(known):
            found[word] += count
    return found, total


def _list_places(world: VerifiedWorld) -> Iterable[tuple[Mapping[str, str], int]]:
    plan = world.plan
    for state in world.snapshot.nodes:
        staying = 0 if views.is_deleting(state) else sum(map(predicates.is_reschedulable, state.pods))
        yield views.read_labels(state), staying + len(plan.existing.get(views.read_name(state), ()))
    for node in plan.new_nodes:
        known = {
            labels.ZONE: node.zone,
            labels.CAPACITY_TYPE: node.capacity_type,
            labels.INSTANCE_TYPE: node.instance_type,
        }
        yield known, len(node.pods)
