"""Back towards balance after a zone was away: one node at a time, for a like one in the zone that is back.

A move takes a node from a zone with at least two more of its pool's nodes than the zone that is back, so
that each brings zones nearer to each other and they come to an end. It never costs more than before, and
asks of budgets, limits and pods what every consolidation asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf, nextafter

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.core import Taint
from dovetail.disruption import churn
from dovetail.disruption.allowance import allowances
from dovetail.disruption.candidates import Candidate, Class, Scene, by_ratio, candidates
from dovetail.disruption.choose import Choice
from dovetail.disruption.command import Command, Method
from dovetail.disruption.consolidation import affordable, why_unconsolidatable
from dovetail.disruption.containment import contained_choice
from dovetail.disruption.simulate import simulate
from dovetail.scheduling import nodes as views
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.plan import PlannedNode
from dovetail.scheduling.requirements import Values
from dovetail.scheduling.snapshot import Snapshot

__all__ = ["REBALANCE", "rebalance", "toward"]

REBALANCE = Method("Underutilized", "rebalance")
# How many more nodes a zone must have: a move of one then leaves it no worse off than the other.
UNEVEN = 2
ELSEWHERE = Taint(key="dovetail.sh/another-zone", effect="NoSchedule")


@contained_choice
def rebalance(
    scene: Scene, returned: frozenset[str], should_stop: Callable[[], bool] = lambda: False
) -> Choice:
    """The first move towards balance that can be made, if there is one."""
    going = [each for each in candidates(scene, Class.GRACEFUL)[0] if why_unconsolidatable(each) is None]
    choice = Choice(allowances(scene, REBALANCE.reason), eligible=len(going))
    counts = _counts(scene)
    for zone in sorted(returned - scene.shifted):
        seen: Scene | None = None
        for candidate in _overfull(going, zone, counts, scene):
            if should_stop():
                choice.timed_out = True
                return choice
            if choice.allowance.left(candidate.pool.name) <= 0:
                choice.allowance.constrained = True
                continue
            seen = seen or _only(scene, zone)
            command = _move(scene, seen, candidate, zone)
            if command is not None:
                choice.commands.append(command)
                return choice
    return choice


def toward(scene: Scene, going: Sequence[Candidate], zone: str) -> Command | None:
    """The same move as it would be made now; None when it would not."""
    (candidate,) = going
    counts = _counts(scene)
    if zone in scene.shifted or not _overfull([candidate], zone, counts, scene):
        return None
    return _move(scene, _only(scene, zone), candidate, zone)


def _counts(scene: Scene) -> Counter[tuple[str, str]]:
    """Nodes by pool and zone, without those that are on their way out."""
    known = (state for state in scene.snapshot.nodes if not views.deleting(state))
    return Counter((views.pool(state), views.labels(state).get(labels.ZONE, "")) for state in known)


def _overfull(
    going: Sequence[Candidate], zone: str, counts: Counter[tuple[str, str]], scene: Scene
) -> list[Candidate]:
    """Nodes of zones that have too many more than this one; of the fullest zone first."""
    now = scene.snapshot.options.now
    found = [
        each
        for each in by_ratio(going)
        if each.zone != zone
        and counts[each.pool.name, each.zone] - counts[each.pool.name, zone] >= UNEVEN
        and churn.resting(each, now) is None
    ]
    return sorted(found, key=lambda each: -counts[each.pool.name, each.zone])


def _move(scene: Scene, seen: Scene, candidate: Candidate, zone: str) -> Command | None:
    """The candidate for one node in the zone, which may cost as much as it and no more."""
    outcome = simulate(seen, (candidate,), consolidating=True, most=1)
    if outcome.problem or len(outcome.plan.new_nodes) != 1:
        return None
    pinned = _pinned(outcome.plan.new_nodes[0], zone)
    node = affordable(seen, pinned, nextafter(candidate.price, inf), (candidate,))
    if isinstance(node, str):
        return None
    return Command(REBALANCE, (candidate,), (node,), outcome.plan, savings=candidate.price - node.price)


def _pinned(node: PlannedNode, zone: str) -> PlannedNode:
    only = Values(frozenset((zone,)))
    return replace(node, requirements=node.requirements.replacing(labels.ZONE, only), zone=zone)


def _only(scene: Scene, zone: str) -> Scene:
    """The world in which pods that move can go to this zone alone."""
    snapshot = scene.snapshot
    nodes = tuple(
        replace(
            state,
            node=replace(
                state.node, spec=replace(state.node.spec, taints=(*state.node.spec.taints, ELSEWHERE))
            ),
        )
        if state.node is not None and state.node.labels.get(labels.ZONE) != zone
        else state
        for state in snapshot.nodes
    )
    catalogs = tuple(tuple(_sold_in(each, zone) for each in types) for types in snapshot.catalogs)
    world: Snapshot = replace(snapshot, nodes=nodes, catalogs=catalogs)
    return Scene(world, scene.queued, scene.buffered, scene.spot_to_spot, scene.shifted)


def _sold_in(each: InstanceType, zone: str) -> InstanceType:
    offerings = tuple(
        replace(offering, available=offering.available and offering.zone == zone)
        for offering in each.offerings
    )
    return replace(each, offerings=offerings)
