"""Many for several: some nodes go, and several cheaper ones come. Only where a pool asks for it.

A big node with little on it is split into small ones; small ones are merged into few. Which nodes come is
the packing engine's answer for all pods at once. A node that would come back just as it went stays
instead: the search is over sets of nodes none of which is bought again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.disruption.candidates import Candidate, Scene
from dovetail.disruption.command import Command, Method, Verdict
from dovetail.disruption.consolidation import LEFT_OVER, SPOT_FLEXIBILITY, Found, affordable
from dovetail.disruption.holding import hold_up_together
from dovetail.disruption.simulate import Outcome, moved, without
from dovetail.scheduling import nodes as views
from dovetail.scheduling import solve
from dovetail.scheduling.catalog import worst_launch_price
from dovetail.scheduling.plan import Plan, PlannedNode
from dovetail.scheduling.resources import needs
from dovetail.scheduling.snapshot import Snapshot, StateNode

__all__ = ["consider", "several"]

MOST_AT_ONCE = 100
MOST_NEW = 50
# Sums of prices that differ by less are the same.
DUST = 1e-9
NO_GAIN = "Can't replace with several cheaper nodes"


def several(
    scene: Scene,
    ordered: Sequence[Candidate],
    method: Method,
    accept: Callable[[Command], bool],
    should_stop: Callable[[], bool] = lambda: False,
) -> Found:
    """The set whose exchange saves most, of those looked at: each alone, and the most wasteful together."""
    found = Found()
    wasteful = sorted(ordered, key=lambda c: (-_waste(scene, c), c.name))
    for going in _sets(wasteful):
        if should_stop():
            found.timed_out = True
            break
        if _nothing_sold(scene, going) or _too_well_used(scene, going):
            continue
        command = _without_returning(scene, going, method)
        if command is None or not command.replacements:
            continue
        if accept(command) and (found.command is None or command.savings > found.command.savings + DUST):
            found.command, found.proposed = command, [command]
    return found


def _sets(wasteful: Sequence[Candidate]) -> Iterable[Sequence[Candidate]]:
    """Each by itself, and the first two, four, eight … of all."""
    for candidate in wasteful[:MOST_AT_ONCE]:
        yield (candidate,)
    size = 2
    while size < min(len(wasteful), MOST_AT_ONCE):
        yield wasteful[:size]
        size *= 2
    if len(wasteful) > 1:
        yield wasteful[:MOST_AT_ONCE]


def _waste(scene: Scene, candidate: Candidate) -> float:
    """What the node costs beyond what its pods would at the best rate on sale."""
    return candidate.price - _worth(scene, (candidate,))


def _worth(scene: Scene, going: Iterable[Candidate]) -> float:
    """The least that room for these pods could cost, by the resource that costs most; a floor."""
    total: Counter[str] = Counter()
    for candidate in going:
        for pod in candidate.pods:
            total.update(needs(pod))
    rates: dict[str, float] = {}
    for price, size in scene.room.sold:
        for name in total:
            amount = size.get(name, 0)
            if amount > 0:
                rates[name] = min(rates.get(name, price / amount), price / amount)
    return max((amount * rates[name] for name, amount in total.items() if name in rates), default=0.0)


def _nothing_sold(scene: Scene, going: Sequence[Candidate]) -> bool:
    """Spot nodes go for spot nodes or not at all; one alone, only if many types are cheaper."""
    if not all(candidate.capacity_type == labels.SPOT for candidate in going):
        return False
    return not scene.spot_to_spot or (len(going) == 1 and not _many_cheaper(scene, going[0]))


def _many_cheaper(scene: Scene, candidate: Candidate) -> bool:
    cheaper = (
        each
        for each in scene.types[candidate.pool.name].values()
        if any(deal.available and deal.price < candidate.price for deal in each.offerings)
    )
    return len(tuple(islice(cheaper, SPOT_FLEXIBILITY))) == SPOT_FLEXIBILITY


def _too_well_used(scene: Scene, going: Sequence[Candidate]) -> bool:
    """One node alone whose pods are worth its price, with no room for them elsewhere, cannot be bettered."""
    if len(going) > 1:
        return False
    now, keys = scene.snapshot.options.now, {going[0].key}
    pods = [p for p in going[0].pods if scene.limits.currently_reschedulable(p, now)]
    everyone = scene.room.homeless(pods, keys) is not None and all(
        scene.room.homeless((pod,), keys) is not None for pod in pods
    )
    return everyone and _worth(scene, going) >= going[0].price


def _without_returning(scene: Scene, going: Sequence[Candidate], method: Method) -> Command | None:
    """The exchange for those of these nodes that would not be bought again, or none."""
    left = list(going)
    while left:
        command = consider(scene, left, method).command
        if command is None:
            return None
        again = _bought_again(command)
        if not again:
            return command
        left = [candidate for candidate in left if candidate.key not in again]
    return None


def _bought_again(command: Command) -> frozenset[str]:
    """The nodes that could have stayed: for each new node one of the same kind that goes."""
    coming = Counter((n.pool, n.instance_type, n.zone, n.capacity_type) for n in command.replacements)
    kept: set[str] = set()
    # Those with most to move are the first to stay.
    for candidate in sorted(command.candidates, key=lambda c: (-c.cost, c.name)):
        name = candidate.labels.get(labels.INSTANCE_TYPE, "")
        kind = (candidate.pool.name, name, candidate.zone, candidate.capacity_type)
        if coming[kind] > 0:
            coming[kind] -= 1
            kept.add(candidate.key)
    return frozenset(kept)


def consider(scene: Scene, going: Sequence[Candidate], method: Method) -> Verdict:
    """Can these go for several nodes that together cost less? If not, why not."""
    snapshot = _as_new(without(scene, going, consolidating=True))
    plan = solve.cheapest(snapshot, solve.QUICK)
    cost = sum(candidate.price for candidate in going)
    if not plan.unschedulable and plan.price >= cost - DUST:
        # The best plan may still be some percent cheaper, which is not worth moving everybody for.
        return Verdict(why=NO_GAIN)
    plan = solve.cheapest(snapshot)
    waiting = frozenset(pod.full_name for pod in (*scene.snapshot.pods, *scene.snapshot.virtual))
    problem = Outcome(plan, waiting).problem or _on_unready(scene, going, plan)
    if problem:
        return Verdict(why=problem)
    moving = _pods(going)
    if not all(moving.issuperset(node.pods) for node in plan.new_nodes):
        # Provisioning buys for those who wait; what it buys may change everything here.
        return Verdict(why="pods that wait for a node would share the new ones")
    if len(plan.new_nodes) > MOST_NEW:
        return Verdict(why=f"Can't remove without creating {len(plan.new_nodes)} candidates")
    return _exchange(scene, going, method, plan)


def _pods(going: Iterable[Candidate]) -> frozenset[str]:
    return frozenset(pod.full_name for candidate in going for pod in candidate.pods)


def _on_unready(scene: Scene, going: Sequence[Candidate], plan: Plan) -> str:
    """A pod that moves by our choice must not wait for a node that may never come up."""
    moving = _pods(going)
    taken = {name for name, pods in plan.existing.items() if moving.intersection(pods)}
    unready = sorted(taken.intersection(views.name(s) for s in scene.snapshot.nodes if _unready(s)))
    return f"would schedule against uninitialized node/{unready[0]}" if unready else ""


def _unready(state: StateNode) -> bool:
    return views.managed(state) and not views.initialized(state)


def _exchange(scene: Scene, going: Sequence[Candidate], method: Method, plan: Plan) -> Verdict:
    """The new nodes as what they may be, so that all together cost less even if launches go badly."""
    cost = sum(candidate.price for candidate in going)
    slack = cost - sum(_worst(scene, node, node.instance_types[:1]) for node in plan.new_nodes)
    if slack <= DUST:
        return Verdict(why=NO_GAIN)
    bought: list[PlannedNode] = []
    for node in plan.new_nodes:
        # Each may cost what its cheapest type does at worst, and its part of what is saved.
        bound = _worst(scene, node, node.instance_types[:1]) + slack / len(plan.new_nodes)
        found = affordable(scene, node, bound, going)
        if isinstance(found, str):
            return Verdict(why=found)
        bought.append(found)
    saved = cost - sum(node.price for node in bought)
    if not hold_up_together(scene, moved(scene, going), plan, bought, saved):
        return Verdict(why=LEFT_OVER)
    return Verdict(Command(method, tuple(going), tuple(bought), plan, saved))


def _worst(scene: Scene, node: PlannedNode, names: Iterable[str]) -> float:
    undefined = scene.snapshot.options.flavour.well_known
    known = scene.types[node.pool]
    return max(worst_launch_price(known[name], node.requirements, undefined) for name in names)


def _as_new(snapshot: Snapshot) -> Snapshot:
    """The same world, where pods that move are packed all at once, as if they were new."""
    now, pools = snapshot.options.now, {pool.name: pool.nodepool for pool in snapshot.pools}
    # The packing knows nothing of nodes that may not take these pods: to it, they are full.
    nodes = tuple(
        _full(state)
        if _unready(state) or views.too_young(state, pools.get(views.pool(state)), now)
        else state
        for state in snapshot.nodes
    )
    options = replace(snapshot.options, consolidating=False)
    return replace(snapshot, nodes=nodes, options=options)


def _full(state: StateNode) -> StateNode:
    node, claim = state.node, state.claim
    return replace(
        state,
        node=node and replace(node, status=replace(node.status, allocatable={})),
        claim=claim and replace(claim, status=replace(claim.status, allocatable={})),
    )
