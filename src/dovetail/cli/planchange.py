"""What a change of NodePools alters: nodes, dollars, and pods that would have to move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from dovetail.api import labels
from dovetail.cli.output import Output, alike, counted, put, structured, table
from dovetail.cli.planview import HOURS_A_MONTH
from dovetail.cli.solved import Solved
from dovetail.scheduling import nodes
from dovetail.scheduling.plan import Plan
from dovetail.scheduling.snapshot import Snapshot
from dovetail.state.poolchange import Fate

__all__ = ["Change", "show_change"]


@dataclass(frozen=True, slots=True)
class Change:
    """The world before, after, and the nodes that the change turns out."""

    before: Solved
    after: Solved
    fates: tuple[Fate, ...]

    @property
    def leaving(self) -> frozenset[str]:
        return frozenset(fate.node for fate in self.fates if not fate.held_by)

    @property
    def evicted(self) -> tuple[str, ...]:
        return tuple(pod for fate in self.fates if not fate.held_by for pod in fate.evicted)

    def hourly(self) -> tuple[float, float]:
        """Dollars an hour of everything, running and new, before and after."""
        stays = running_price(self.before.snapshot, self.leaving)
        return self.before.price + running_price(self.before.snapshot), self.after.price + stays


def running_price(snapshot: Snapshot, without: Iterable[str] = ()) -> float:
    """What nodes that run cost, as far as the catalogue knows their offerings."""
    gone = frozenset(without)
    prices = {
        (each.name, offering.zone, offering.capacity_type): offering.price
        for catalog in snapshot.catalogs
        for each in catalog
        for offering in each.offerings
    }
    states = [state for state in snapshot.nodes if nodes.managed(state) and nodes.name(state) not in gone]
    keys = (labels.INSTANCE_TYPE, labels.ZONE, labels.CAPACITY_TYPE)
    bought = (tuple(nodes.labels(state).get(key, "") for key in keys) for state in states)
    return sum(prices.get((name, zone, way), 0.0) for name, zone, way in bought)


def show_change(change: Change, output: Output) -> None:
    """The difference, and nothing that stays as it is."""
    if output is not Output.table:
        structured(_document(change), output)
        return
    rows = _rows(change)
    if rows:
        table(
            ("NEW NODES", "BEFORE", "AFTER", "CHANGE"),
            [(kind, str(was), str(now), f"{now - was:+d}") for kind, was, now in rows],
        )
        put("\n")
    if change.fates:
        table(("RUNNING NODE", "POOL", "EVICTIONS", "WHY"), alike(map(_fate_row, change.fates)))
        put("\n")
    _show_sums(change)
    lost, found = _moved(change)
    for word, pods in (("loses its place", lost), ("gains a place", found)):
        for pod in pods:
            put(f"{pod} {word}\n")
    if not rows and not lost and not found and not change.fates:
        put("the change alters nothing\n")


def _show_sums(change: Change) -> None:
    was, now = change.hourly()
    monthly = (now - was) * HOURS_A_MONTH
    put(f"${was:,.2f} → ${now:,.2f} an hour ({now - was:+,.2f}; {monthly:+,.0f} a month)\n")
    if change.fates:
        replaced, evicted = len(change.leaving), len(change.evicted)
        put(f"{counted(replaced, 'node')} replaced, {counted(evicted, 'pod')} evicted\n")


def _fate_row(fate: Fate) -> tuple[str, ...]:
    held = f"; but {fate.held_by} does not allow it" if fate.held_by else ""
    return fate.node, fate.pool, "0" if fate.held_by else str(len(fate.evicted)), fate.why + held


def _document(change: Change) -> dict[str, object]:
    was, now = change.hourly()
    lost, found = _moved(change)
    return {
        "nodes": [
            {"pool": pool, "instanceType": name, "capacityType": way, "before": old, "after": new}
            for kind, old, new in _rows(change)
            for pool, name, way in [kind.split(" / ")]
        ],
        "hourlyBefore": was,
        "hourlyAfter": now,
        "replaced": [
            {"node": fate.node, "nodepool": fate.pool, "why": fate.why, "heldBy": fate.held_by or None}
            for fate in change.fates
        ],
        "evicted": list(change.evicted),
        "newlyUnschedulable": lost,
        "newlyPlaced": found,
    }


def _rows(change: Change) -> list[tuple[str, int, int]]:
    old, new = _kinds(change.before.plan), _kinds(change.after.plan)
    return [(kind, old[kind], new[kind]) for kind in sorted({*old, *new}) if old[kind] != new[kind]]


def _kinds(plan: Plan) -> Counter[str]:
    return Counter(f"{node.pool} / {node.instance_type} / {node.capacity_type}" for node in plan.new_nodes)


def _moved(change: Change) -> tuple[list[str], list[str]]:
    """Pods that had a place and lose it, and those that had none and gain one."""
    before, after = set(change.before.left_out), set(change.after.left_out)
    return sorted(after - before), sorted(before - after)
