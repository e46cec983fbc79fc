"""The packing done slowly and obviously: the cheapest plan by trying everything, and a judge of plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product

import numpy as np

from dovetail.scheduling.packing.batch import ANY_ZONE, PackedPlan, PackingBatch
from dovetail.scheduling.packing.problem import PackingProblem, Rows

__all__ = ["cheapest", "objections", "problem", "row_objections"]


def problem(
    requests: Sequence[Sequence[float]],
    counts: Sequence[int],
    rooms: Sequence[Sequence[float]],
    prices: Sequence[float],
    allowed: Sequence[Sequence[bool]] | None = None,
    family: Sequence[int] | None = None,
    limit: Sequence[int] = (),
    twins: Sequence[Sequence[int]] = (),
    per_twin: Sequence[int] = (),
) -> PackingProblem:
    """A problem from plain lists; one pod slot a pod is added as the last resource."""
    slots = 1000.0
    request = np.array([[*each, 1.0] for each in requests], float)
    room = np.array([[*each, slots] for each in rooms], float)
    return PackingProblem(
        request=request,
        count=np.array(counts, np.int64),
        room=room,
        price=np.array(prices, float),
        allowed=np.ones((len(counts), len(prices)), bool) if allowed is None else np.array(allowed, bool),
        family=np.full(len(counts), -1, np.int64) if family is None else np.array(family, np.int64),
        limit=np.array(limit, np.int64),
        twins=tuple(tuple(each) for each in twins),
        per_twin=np.array(per_twin, np.int64),
    )


def cheapest(given: PackingProblem, running: Sequence[tuple[Sequence[float], Sequence[bool]]] = ()) -> float:
    """The least any plan costs. Every way to fill one node, for every state of what is left.

    `running` nodes cost nothing: what room each has left, and which classes it takes.
    """
    nodes = [(counts, price) for counts, price in _nodes(given)]

    @cache
    def best(left: tuple[int, ...]) -> float:
        if not any(left):
            return 0.0
        first = next(i for i, n in enumerate(left) if n)
        found = float("inf")
        for counts, price in nodes:
            if counts[first] and all(a <= b for a, b in zip(counts, left, strict=True)):
                rest = tuple(b - a for a, b in zip(counts, left, strict=True))
                found = min(found, price + best(rest))
        return found

    lefts = {tuple(int(n) for n in given.count)}
    for room, takes in running:
        lefts = {rest for left in lefts for rest in _leave_after(given, left, room, takes)}
    return min(map(best, lefts))


def _leave_after(
    given: PackingProblem, left: tuple[int, ...], room: Sequence[float], takes: Sequence[bool]
) -> Iterator[tuple[int, ...]]:
    """What may be left of these pods once one running node has taken some."""
    most = (n if takes[c] else 0 for c, n in enumerate(left))
    for counts in product(*(range(n + 1) for n in most)):
        if (np.array(counts) @ given.request <= np.array(room)).all():
            yield tuple(b - a for a, b in zip(counts, left, strict=True))


def _nodes(given: PackingProblem) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every content some option holds, at the price of the cheapest such option. Host rules included."""
    cap = given.compute_cap()
    for counts in product(*(range(int(most) + 1) for most in cap)):
        if not any(counts) or not _families_hold(given, counts):
            continue
        need = np.array(counts) @ given.request
        prices = [
            float(given.price[o])
            for o in range(len(given.price))
            if (need <= given.room[o]).all() and all(given.allowed[c, o] for c, n in enumerate(counts) if n)
        ]
        if prices:
            yield counts, min(prices)


def _families_hold(given: PackingProblem, counts: Sequence[int]) -> bool:
    return all(
        sum(n for c, n in enumerate(counts) if given.family[c] == f) <= limit
        for f, limit in enumerate(given.limit.tolist())
    )


def row_objections(given: PackingProblem, rows: Rows) -> list[str]:
    """What is wrong with a plan for a problem; nothing if it is right."""
    found = []
    total = np.zeros(given.classes, np.int64)
    cap = given.compute_cap()
    for row in rows:
        total += row.counts * row.copies
        if (row.counts @ given.request > given.room[row.option]).any():
            found.append(f"option {row.option} holds more than it has room for")
        if any(not given.allowed[c, row.option] for c in np.flatnonzero(row.counts)):
            found.append(f"option {row.option} holds a class it refuses")
        if (row.counts > cap).any() or not _families_hold(given, row.counts.tolist()):
            found.append(f"option {row.option} holds more of a kind than host rules allow")
    if (total != given.count).any():
        found.append(f"placed {total.tolist()} of {given.count.tolist()}")
    return found


def objections(batch: PackingBatch, plan: PackedPlan) -> list[str]:
    """What is wrong with a bulk plan; every pod, node, host and zone looked at on its own."""
    return [*_counts(batch, plan), *_rooms(batch, plan), *_hosts(batch, plan), *_zones(batch, plan)]


def _counts(batch: PackingBatch, plan: PackedPlan) -> Iterator[str]:
    total = plan.left.copy()
    for pods in [*(node.pods for node in plan.new), *plan.running.values()]:
        for group, n in pods.items():
            total[group] += n
    if (total != batch.count).any():
        yield f"placed {total.tolist()} of {batch.count.tolist()}"


def _rooms(batch: PackingBatch, plan: PackedPlan) -> Iterator[str]:
    for node in plan.new:
        need = sum(batch.request[g] * n for g, n in node.pods.items())
        if (need > batch.room[node.option]).any():
            yield f"a new node of option {node.option} is overfull"
        if not all(batch.takes[batch.mask[g], node.option] for g in node.pods):
            yield f"a new node of option {node.option} holds a group it refuses"
    for at, pods in plan.running.items():
        assert batch.running is not None
        need = sum(batch.request[g] * n for g, n in pods.items())
        if (need > batch.running.room[at]).any():
            yield f"running node {at} is overfull"
        if not all(batch.running.takes[batch.running.kind[g], at] for g in pods):
            yield f"running node {at} holds a group it refuses"


def _hosts(batch: PackingBatch, plan: PackedPlan) -> Iterator[str]:
    for at, pods in [*((-1, node.pods) for node in plan.new), *plan.running.items()]:
        for r, rule in enumerate(batch.hosts):
            before = 0
            owned = False
            if at >= 0 and batch.running is not None:
                before = sum(n for i, n in batch.running.counted.get(at, ()) if i == r)
                owned = r in batch.running.owned.get(at, ())
            members = before + sum(n for g, n in pods.items() if g in rule.members)
            owners = sum(n for g, n in pods.items() if g in rule.owners)
            others = members - (1 if any(g in rule.members for g in pods if g in rule.owners) else 0)
            if rule.apart and ((owners and others) or (owned and members > before)):
                yield f"rule {r}: pods that must be apart share a host"
            if not rule.apart and owners and members > rule.limit:
                yield f"rule {r}: {members} pods on a host that takes {rule.limit}"


def _zones(batch: PackingBatch, plan: PackedPlan) -> Iterator[str]:
    where = np.zeros((len(batch.count), batch.zones), np.int64)
    for node in plan.new:
        for g, n in node.pods.items():
            if batch.pinned[g] and node.zone == ANY_ZONE:
                yield f"group {g} is on a node that names no zone"
            if node.zone != ANY_ZONE:
                where[g, node.zone] += n
                if not batch.open[g, node.zone]:
                    yield f"group {g} is in a zone it refuses"
    for at, pods in plan.running.items():
        assert batch.running is not None
        for g, n in pods.items():
            if batch.running.zone[at] != ANY_ZONE:
                where[g, batch.running.zone[at]] += n
    left = set(np.flatnonzero(plan.left).tolist())
    for spread in batch.spreads:
        counts = (np.array(spread.before) + where[list(spread.members)].sum(axis=0))[np.array(spread.zones)]
        if not left & set(spread.members) and counts.max() - counts.min() > spread.skew:
            yield f"a spread with skew {spread.skew} ended at {counts.tolist()}"
    for each in batch.together:
        if not left & set(each.members) and (where[list(each.members)].sum(axis=0) > 0).sum() > 1:
            yield "groups that belong together are in several zones"
