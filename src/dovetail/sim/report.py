"""The report of a run: a table for people, JSON for programs; the page with charts is report_page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise, zip_longest
from textwrap import wrap

import msgspec

from dovetail.sim.kube.store import StoreEvent
from dovetail.sim.run_recorder import ObjectiveResult, RunRecorder, Sample, judge_objectives
from dovetail.sim.scenario import Scenario
from dovetail.sim.world import World

__all__ = [
    "RunReport",
    "ShiftRecorder",
    "ShiftResult",
    "build_document",
    "build_report",
    "build_rows",
    "render_shift",
    "render_side_by_side",
    "render_text",
]

SHIFTS, NODES, PODS = "zoneshifts", "nodes", "pods"
ZONE = "topology.kubernetes.io/zone"
# Phases in which nothing may be bought in the zone.
EXCLUDED_PHASES = ("Pending", "Applying", "Active", "Restoring")


@dataclass(frozen=True, slots=True)
class ShiftResult:
    """One shift, in seconds since the start of the story; None for what did not happen within it."""

    zone: str
    began: float
    active: float | None = None
    restoring: float | None = None
    restored: float | None = None
    refused: bool = False
    # While it lasted: nodes bought in the zone, nodes of it that went, and pods that left it.
    nodes_bought: int = 0
    nodes_gone: int = 0
    pods_gone: int = 0
    # What losing the zone would have meant, as it was told when it began.
    impact: dict[str, str] = field(default_factory=dict)


@dataclass
class _Shift:
    zone: str
    began: float
    phase: str = "Pending"
    moments: dict[str, float] = field(default_factory=dict)
    bought: int = 0
    nodes_gone: int = 0
    pods_gone: int = 0
    impact: dict[str, str] = field(default_factory=dict)


class ShiftRecorder:
    """Listens to every commit."""

    def __init__(self, world: World) -> None:
        self._clock, self._began = world.clock, world.clock.now()
        self._shifts: dict[str, _Shift] = {}
        self._zone_of: dict[str, str] = {}
        self._leaving: set[str] = set()
        self._heard: dict[str, Callable[[StoreEvent], None]] = {
            SHIFTS: self._on_shift,
            NODES: self._on_node,
            PODS: self._on_pod,
        }
        world.server.store.on_commit(self._on_commit)

    def _on_commit(self, event: StoreEvent) -> None:
        heard = self._heard.get(event.new.info.plural)
        if heard is not None and (self._shifts or heard != self._on_pod):
            heard(event)

    @property
    def _second(self) -> float:
        return (self._clock.now() - self._began).total_seconds()

    def _on_shift(self, event: StoreEvent) -> None:
        obj = event.new.obj
        if obj["spec"].get("kind") == "SIGNAL":
            return
        name = obj["metadata"]["uid"]
        mine = self._shifts.setdefault(name, _Shift(obj["spec"]["zoneId"], self._second))
        status = obj.get("status") or {}
        phase = status.get("phase", "")
        if phase and phase != mine.phase:
            mine.phase = phase
            mine.moments.setdefault(phase, self._second)
        mine.impact = status.get("impact") or mine.impact

    def _on_node(self, event: StoreEvent) -> None:
        node = event.new.obj
        name, zone = node["metadata"]["name"], (node["metadata"].get("labels") or {}).get(ZONE, "")
        if event.type == "DELETED":
            self._zone_of.pop(name, None)
            for mine in self._list_active(zone):
                mine.nodes_gone += 1
        elif name not in self._zone_of and zone:
            self._zone_of[name] = zone
            for mine in self._list_active(zone):
                mine.bought += 1

    def _on_pod(self, event: StoreEvent) -> None:
        """A pod counts when it is told to go: on a machine that is silent it may stay for long after that."""
        meta = event.new.obj["metadata"]
        if meta["uid"] in self._leaving or not ("deletionTimestamp" in meta or event.type == "DELETED"):
            return
        self._leaving.add(meta["uid"])
        zone = self._zone_of.get((event.new.obj.get("spec") or {}).get("nodeName", ""), "")
        for mine in self._list_active(zone):
            mine.pods_gone += 1

    def _list_active(self, zone: str) -> list[_Shift]:
        return [each for each in self._shifts.values() if each.zone == zone and each.phase in EXCLUDED_PHASES]

    def list_results(self) -> tuple[ShiftResult, ...]:
        """Every shift so far, in the order in which they began."""
        return tuple(
            ShiftResult(
                zone=each.zone,
                began=round(each.began, 3),
                active=_round_second(each.moments.get("Active")),
                restoring=_round_second(each.moments.get("Restoring")),
                restored=_round_second(each.moments.get("Restored")),
                refused="Refused" in each.moments,
                nodes_bought=each.bought,
                nodes_gone=each.nodes_gone,
                pods_gone=each.pods_gone,
                impact=dict(each.impact),
            )
            for each in self._shifts.values()
        )


def _round_second(second: float | None) -> float | None:
    return None if second is None else round(second, 3)


def render_shift(told: ShiftResult) -> str:
    """One shift in a sentence."""
    if told.refused:
        return f"{told.zone} was not shifted away: too few zones would have been left"
    parts = [f"{told.zone} was shifted away at {_format_minutes(told.began)}"]
    if told.active is not None:
        parts.append(f"in force {told.active - told.began:.0f} s later")
    parts.append(
        f"{told.nodes_bought} nodes launched there, {told.nodes_gone} removed, {told.pods_gone} pods removed"
    )
    if told.restored is not None:
        parts.append(f"all undone at {_format_minutes(told.restored)}")
    elif told.restoring is not None:
        parts.append("shifting back was not over yet")
    else:
        parts.append("still shifted away at the end")
    return "; ".join(parts)


def _format_minutes(second: float) -> str:
    return f"{second / 60:.0f}m"


# A column's name is broken into lines of about this length.
HEAD = 20


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run came to."""

    name: str
    seed: int
    hours: float
    dollars: float
    dollars_per_hour: float
    node_hours: float
    nodes_most: int
    nodes_added: int
    nodes_removed: int
    pods_started: int
    pods_waiting: int
    wait_p50: float
    wait_p99: float
    wait_most: float
    evictions: int
    cpu_utilisation: float
    spot_share: float
    # What the cheapest thinkable fleet for the pods that ran would have cost, and what was paid beyond it.
    # Both are over the time in which it was asked; None when it was not.
    dollars_floor: float | None = None
    above_floor: float | None = None
    slo_breaches: int = 0
    objectives: tuple[ObjectiveResult, ...] = ()
    shifts: tuple[ShiftResult, ...] = ()
    samples: tuple[Sample, ...] = ()


def build_report(story: Scenario, measure: RunRecorder, shifts: Sequence[ShiftResult] = ()) -> RunReport:
    """Sum up a run."""
    samples = tuple(measure.samples)
    hours = samples[-1].second / 3600 if samples else 0.0
    dollars, node_hours = (
        _sum_over_time(samples, lambda s: s.dollars),
        _sum_over_time(samples, lambda s: s.nodes),
    )
    offered = _sum_over_time(samples, lambda s: s.cpu_offered)
    waits = sorted([*measure.waits, *measure.list_pending_waits()])
    promises = judge_objectives(story.objectives, measure.list_observed(), hours)
    floor = _sum_floor(samples) if story.floor_every else None
    return RunReport(
        name=story.name,
        seed=story.seed,
        hours=round(hours, 4),
        dollars=round(dollars, 6),
        dollars_per_hour=round(dollars / hours, 6) if hours else 0.0,
        node_hours=round(node_hours, 4),
        nodes_most=max((s.nodes for s in samples), default=0),
        nodes_added=measure.nodes_added,
        nodes_removed=measure.nodes_removed,
        pods_started=len(measure.waits),
        pods_waiting=len(measure.list_pending_waits()),
        wait_p50=round(_find_quantile(waits, 0.5), 3),
        wait_p99=round(_find_quantile(waits, 0.99), 3),
        wait_most=round(waits[-1], 3) if waits else 0.0,
        evictions=measure.evictions,
        cpu_utilisation=round(_sum_over_time(samples, lambda s: s.cpu_used) / offered, 4) if offered else 0.0,
        spot_share=round(_sum_over_time(samples, lambda s: s.spot) / node_hours, 4) if node_hours else 0.0,
        dollars_floor=round(floor, 6) if floor is not None else None,
        above_floor=round(dollars / floor - 1, 4) if floor else None,
        slo_breaches=sum(not each.kept for each in promises),
        objectives=promises,
        shifts=tuple(shifts),
        samples=samples,
    )


def _sum_floor(samples: Sequence[Sample]) -> float:
    """Dollars no fleet could have undercut. Between two answers the lower one is taken to hold."""
    asked = [sample for sample in samples if sample.floor]
    return sum(min(one.floor, two.floor) * (two.second - one.second) for one, two in pairwise(asked)) / 3600


def _sum_over_time(samples: Sequence[Sample], of: Callable[[Sample], float]) -> float:
    """The sum over time, in hours; each sample holds until the next."""
    return sum(of(one) * (after.second - one.second) for one, after in pairwise(samples)) / 3600


def _find_quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


LINES: tuple[tuple[str, str, str], ...] = (
    ("dollars", "dollars", "${:,.2f}"),
    ("dollars an hour", "dollars_per_hour", "${:,.4f}"),
    ("node hours", "node_hours", "{:,.1f}"),
    ("most nodes at once", "nodes_most", "{}"),
    ("nodes added", "nodes_added", "{}"),
    ("nodes removed", "nodes_removed", "{}"),
    ("pods started", "pods_started", "{}"),
    ("pods still pending", "pods_waiting", "{}"),
    ("pending time, median", "wait_p50", "{:.1f} s"),
    ("pending time, p99", "wait_p99", "{:.1f} s"),
    ("longest pending time", "wait_most", "{:.1f} s"),
    ("pods evicted", "evictions", "{}"),
    ("cpu used", "cpu_utilisation", "{:.1%}"),
    ("spot nodes", "spot_share", "{:.1%}"),
    ("cheapest thinkable", "dollars_floor", "${:,.2f}"),
    ("paid above that", "above_floor", "{:.1%}"),
    ("promises broken", "slo_breaches", "{}"),
)


def _format_cell(report: RunReport, key: str, shape: str) -> str:
    value = getattr(report, key)
    return "" if value is None else shape.format(value)


def build_rows(reports: Sequence[RunReport]) -> list[tuple[str, list[str]]]:
    """The lines that have something to say: no floor was asked for, or no promise made, is no line."""
    skipped = set()
    if all(report.dollars_floor is None for report in reports):
        skipped |= {"dollars_floor", "above_floor"}
    if not any(report.objectives for report in reports):
        skipped.add("slo_breaches")
    return [
        (label, [_format_cell(report, key, shape) for report in reports])
        for label, key, shape in LINES
        if key not in skipped
    ]


def render_text(report: RunReport) -> str:
    """The report for a terminal."""
    head = f"{report.name}: {report.hours:g} simulated hours, seed {report.seed}\n"
    numbers = "".join(f"  {label:<22}{cell}\n" for label, (cell,) in build_rows([report]))
    promises = "".join(
        f"  {'kept' if each.kept else 'BROKEN':<8}{each.promise}: {each.measured}"
        + (f" ({each.broken} beyond it)\n" if each.broken else "\n")
        for each in report.objectives
    )
    shifts = "".join(f"  {render_shift(each)}\n" for each in report.shifts)
    return head + numbers + promises + shifts


def render_side_by_side(reports: Sequence[RunReport]) -> str:
    """Several runs in one table; what varies between them stands line by line at the top."""
    heads = [wrap(report.name, HEAD, break_long_words=False, break_on_hyphens=False) for report in reports]
    width = max(18, *(len(line) + 2 for head in heads for line in head))
    lines = zip_longest(*(reversed(head) for head in heads), fillvalue="")
    rows = [f"{'':<24}" + "".join(f"{word:>{width}}" for word in line) for line in lines][::-1]
    rows += [
        f"{label:<24}" + "".join(f"{cell:>{width}}" for cell in cells) for label, cells in build_rows(reports)
    ]
    return "\n".join(rows) + "\n"


def build_document(report: RunReport) -> dict[str, object]:
    """The report for programs, samples included."""
    document: dict[str, object] = msgspec.to_builtins(asdict(report))
    return document
