"""What SpendLimits allow at a moment: the numbers of their active windows, or their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import inf

from msgspec.structs import replace

from dovetail.api.meta import LabelSelector, Record
from dovetail.api.nodepool import NodePool
from dovetail.api.spend_limit import (
    LISTED,
    WARN,
    CoveredPools,
    SpendLimit,
    find_month,
    find_spend_problems,
    find_window,
    parse_dollars,
    read_dollars,
    read_overlap,
    read_time_zone,
)
from dovetail.scheduling.model.label_selectors import matches_selector
from dovetail.scheduling.model.resources import convert_to_nano

__all__ = ["SpendCap", "build_caps"]


class SpendCap(Record, frozen=True):
    """What one SpendLimit allows at a moment: the numbers of its active window, or its own.

    It holds nothing that moves while money is spent, so that two looks at a cluster have equal caps.
    """

    limit: str
    # The NodePools it is about, by name; all of them where `every`.
    pools: tuple[str, ...] = ()
    every: bool = False
    hourly: float | None = None
    nodes: int | None = None
    # By name, in billionths.
    resources: Mapping[str, int] = {}
    # The month whose dollars are spent, and how many these were.
    month: str = ""
    monthly: float = 0.0
    listed: bool = False
    warn: bool = False
    overlap: float = 0.0
    unmanaged: bool = False
    # Pods of this priority are not held.
    priority: int | None = None
    window: str = ""
    # Why it cannot be read; then it holds every new node of its NodePools.
    problem: str = ""

    def covers(self, pool: str) -> bool:
        """Whether it is about nodes of this NodePool."""
        return self.every or pool in self.pools


def build_caps(
    limits: Iterable[SpendLimit], pools: Iterable[NodePool], now: datetime
) -> tuple[SpendCap, ...]:
    """What every limit allows now, by name."""
    known = _LabelledPools(pools)
    return tuple(_build_cap(each, known, now) for each in sorted(limits, key=lambda each: each.name))


class _LabelledPools:
    """NodePools by each of their labels, so that not all are looked at for each limit."""

    def __init__(self, pools: Iterable[NodePool]) -> None:
        self._pools = {each.name: each for each in pools}
        self._names: dict[tuple[str, str], set[str]] = {}
        for each in self._pools.values():
            for pair in each.labels.items():
                self._names.setdefault(pair, set()).add(each.name)

    def list_names(self, chosen: CoveredPools) -> tuple[str, ...]:
        """The NodePools that are chosen, by name."""
        if chosen.names:
            return tuple(sorted(set(chosen.names)))
        found: Iterable[str] = self._pools
        if chosen.match_labels:
            found = set.intersection(*(self._names.get(pair, set()) for pair in chosen.match_labels.items()))
        if chosen.match_expressions:
            wanted = LabelSelector(match_expressions=chosen.match_expressions)
            found = (name for name in found if matches_selector(wanted, self._pools[name].labels))
        return tuple(sorted(found))


def _build_cap(limit: SpendLimit, pools: _LabelledPools, now: datetime) -> SpendCap:
    spec = limit.spec
    chosen = spec.node_pools
    selected = bool(chosen.names or chosen.match_labels or chosen.match_expressions)
    plain = SpendCap(
        limit=limit.name,
        pools=pools.list_names(chosen) if selected else (),
        every=not selected,
        unmanaged=spec.include_unmanaged,
        listed=spec.basis == LISTED,
        overlap=read_overlap(spec),
        priority=spec.priority_at_least,
        warn=spec.mode == WARN,
    )
    problem = next((f"{path}: {why}" for path, why in find_spend_problems(spec)), "")
    return replace(plain, problem=problem) if problem else _add_numbers(plain, limit, now)


def _add_numbers(cap: SpendCap, limit: SpendLimit, now: datetime) -> SpendCap:
    spec = limit.spec
    window = find_window(spec, now)

    def choose(name: str) -> str | None:
        own = getattr(window, name) if window is not None else None
        found: str | None = own if own is not None else getattr(spec, name)
        return found

    hourly, monthly = choose("hourly"), choose("monthly")
    nodes = window.nodes if window is not None and window.nodes is not None else spec.nodes
    resources = window.resources if window is not None and window.resources is not None else spec.resources
    mode = (window.mode if window is not None else None) or spec.mode
    most = parse_dollars(monthly) if monthly is not None else inf
    spent = _read_month_spent(limit, now)
    return replace(
        cap,
        hourly=parse_dollars(hourly) if hourly is not None else None,
        nodes=nodes,
        resources=convert_to_nano(resources or {}),
        month=find_month(now, read_time_zone(spec.time_zone))[0] if spent >= most else "",
        monthly=most if spent >= most else 0.0,
        warn=mode == WARN,
        window=str(window) if window is not None else "",
    )


def _read_month_spent(limit: SpendLimit, now: datetime) -> float:
    """What the status says of this month; nothing where it speaks of another, or of none."""
    month = limit.status.month
    if month is None or month.of != find_month(now, read_time_zone(limit.spec.time_zone))[0]:
        return 0.0
    return read_dollars(month.spent) or 0.0
