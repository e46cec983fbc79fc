"""The comment on a pull request: what it would do to the cluster, the largest changes first.

Names come from manifests that anybody may have written: every character that means something is escaped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dovetail.app.changed_plan import ChangedPlan
from dovetail.cli.views.expectations import build_judgement, describe_result
from dovetail.cli.views.output import format_count
from dovetail.cli.views.plan_changes import build_change_document, format_length
from dovetail.cli.views.plans import describe_refusals
from dovetail.errors import escape_text
from dovetail.play.expectations import Judgement
from dovetail.scheduling.bill import HOURS_A_MONTH
from dovetail.scheduling.fleet_cost import split_cost
from dovetail.state.changed_workloads import WorkloadChange

__all__ = ["Review", "build_review_document", "render_markdown"]

MOST_BYTES = 60 * 1024
MOST_ROWS = 100
UNCHANGED = "No object that a plan depends on differs between the two sides."
_MEANING = re.compile(r"([\\`*_{}\[\]()<>#+!|~&@:$-])")
# Where a comment is shown, these would notify people and make links, escaped or not.
_CALLS = re.compile(r"([@#]|www(?=\.))", re.IGNORECASE)
_GAPS = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class WorkloadCost:
    """A workload that changed, with its share of the bill in dollars a month, before and after."""

    change: WorkloadChange
    before: float
    after: float

    @property
    def size(self) -> float:
        return abs(self.after - self.before)


@dataclass(frozen=True)
class Review:
    """Everything that is said of a pull request; `planned` is None where nothing differs."""

    planned: ChangedPlan | None
    judgements: tuple[Judgement, ...] = ()
    remarks: tuple[str, ...] = ()

    def list_costs(self) -> list[WorkloadCost]:
        """The changed workloads, those whose bill changes most first."""
        planned = self.planned
        if planned is None:
            return []
        before = split_cost(planned.before.snapshot, planned.before.plan)
        after = split_cost(planned.after.snapshot, planned.after.plan, planned.leaving)
        found = []
        for each in planned.change.workloads:
            old = {pod.full_name for pod in each.running}
            stays = old - {pod.full_name for pod in each.leaving}
            new = stays | {pod.full_name for pod in each.coming}
            was, now = (
                sum(costs.get(name, 0.0) for name in names) * HOURS_A_MONTH
                for costs, names in ((before, old), (after, new))
            )
            found.append(WorkloadCost(each, was, now))
        return sorted(found, key=lambda each: (-each.size, each.change.full_name))


def escape_markdown(text: str) -> str:
    """The text as Markdown shows it, whatever characters it is made of, on one line."""
    plain = _MEANING.sub(r"\\\1", _GAPS.sub(" ", escape_text(text)))
    return _CALLS.sub(r"\1&#8203;", plain)


def render_markdown(review: Review) -> str:
    """The comment: at most 60 KiB, the largest changes first, with a count of what is left out."""
    costs = review.list_costs()
    for most in (MOST_ROWS, 50, 20, 5, 0):
        text = "\n".join(_list_lines(review, costs, most)) + "\n"
        if len(text.encode()) <= MOST_BYTES:
            return text
    return text.encode()[: MOST_BYTES - 8].decode(errors="ignore") + "…\n"


def _list_lines(review: Review, costs: Sequence[WorkloadCost], most: int) -> Iterator[str]:
    planned = review.planned
    if planned is None:
        yield UNCHANGED
        yield from _list_judgements(review.judgements, most)
        return
    was, now = (hourly * HOURS_A_MONTH for hourly in planned.hourly)
    yield f"**\\${was:,.0f} → \\${now:,.0f} a month** ({_format_difference(now - was)})"
    least, still = (floor * HOURS_A_MONTH for floor in planned.floors)
    if least or still:
        yield f"No fleet for these pods costs less than \\${least:,.0f} → \\${still:,.0f} a month."
    if planned.peak is not None:
        peak = planned.peak_hourly * HOURS_A_MONTH
        yield f"While it is rolled out, at most \\${peak:,.0f} a month."
    yield from _list_judgements(review.judgements, most)
    yield from _list_pods(planned, most)
    if costs:
        yield ""
        yield from _list_table(
            ("workload", "pods", "\\$ a month", "change"), (_build_cost_row(each) for each in costs), most
        )
    yield from _list_nodes(planned, most)
    yield from _list_drift(planned, most)
    if review.remarks:
        yield ""
        yield from _limit_lines([f"- {escape_markdown(each)}" for each in review.remarks], most, "note")


def _list_judgements(judgements: Sequence[Judgement], most: int) -> Iterator[str]:
    if not judgements:
        return
    yield ""
    broken = [each for each in judgements if not each.kept]
    rows = ((each.promise, each.world, describe_result(each), each.found) for each in broken)
    yield from _list_table(("expectation", "world", "", "found"), rows, most)
    if broken:
        yield ""
    kept = len(judgements) - len(broken)
    yield f"{kept:,} of {format_count(len(judgements), 'expectation')} kept."


def _format_difference(dollars: float) -> str:
    return f"{'+' if dollars >= 0 else '−'}\\${abs(dollars):,.0f}"


def _build_cost_row(each: WorkloadCost) -> tuple[str, ...]:
    change = each.change
    how = f"{change.before} → {change.after}" + (f", at most {change.peak}" if change.rolled_out else "")
    dollars = f"{each.before:,.0f} → {each.after:,.0f}"
    difference = f"{'+' if each.after >= each.before else '−'}{each.size:,.0f}"
    return f"{change.kind} {change.full_name}", how, dollars, difference


def _list_pods(planned: ChangedPlan, most: int) -> Iterator[str]:
    lost, _ = planned.list_moved()
    if not lost:
        return
    yield ""
    yield f"**{format_count(len(lost), 'pod')} would have no place:**"
    yield ""
    yield from _limit_lines(
        [f"- {escape_markdown(each)}" for each in describe_refusals(planned.after, lost)], most, "reason"
    )


def _list_nodes(planned: ChangedPlan, most: int) -> Iterator[str]:
    old, new = (
        Counter((node.instance_type, node.capacity_type) for node in solved.plan.new_nodes)
        for solved in (planned.before, planned.after)
    )
    kinds = [kind for kind in {*old, *new} if old[kind] != new[kind]]
    kinds.sort(key=lambda kind: (-abs(new[kind] - old[kind]), kind))
    if kinds:
        yield ""
        yield from _list_table(
            ("new nodes", "bought", "before", "after"),
            ((name, bought, str(old[name, bought]), str(new[name, bought])) for name, bought in kinds),
            most,
        )


def _list_drift(planned: ChangedPlan, most: int) -> Iterator[str]:
    if planned.drifts:
        yield ""
        replaced, evicted = len(planned.leaving), len(planned.evicted)
        about = f", in about {format_length(planned.lasts)}" if planned.waves.waves else ""
        yield (
            f"{format_count(len(planned.drifts), 'node')} drift, {replaced:,} of them are replaced and "
            f"{format_count(evicted, 'pod')} evicted{about}:"
        )
        yield ""
        by_reason = Counter((each.pool, each.why) for each in planned.drifts)
        rows = [
            f"- {format_count(count, 'node')} of {escape_markdown(pool)}: {escape_markdown(why)}"
            for (pool, why), count in by_reason.most_common()
        ]
        yield from _limit_lines(rows, most, "reason")
    if planned.held:
        yield ""
        yield from _list_table(
            ("PodDisruptionBudget", "blocks", "\\$ a month"),
            (
                (each.budget, format_count(len(each.nodes), "node"), f"{each.hourly * HOURS_A_MONTH:,.0f}")
                for each in planned.held
            ),
            most,
        )


def _list_table(columns: Sequence[str], rows: Iterable[Sequence[str]], most: int) -> Iterator[str]:
    listed = list(rows)
    if not listed:
        return
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    shown = listed[:most]
    yield from (f"| {' | '.join(map(escape_markdown, row))} |" for row in shown)
    if len(listed) > len(shown):
        yield ""
        yield f"and {len(listed) - len(shown):,} more, all smaller."


def _limit_lines(lines: Sequence[str], most: int, noun: str) -> Iterator[str]:
    yield from lines[:most]
    if len(lines) > most:
        yield f"- and {format_count(len(lines) - most, f'more {noun}')}"


def build_review_document(review: Review) -> dict[str, object]:
    """All of a review, for programs."""
    if review.planned is None:
        return {"changed": False, "remarks": list(review.remarks)}
    return {
        "changed": True,
        **build_change_document(review.planned),
        "workloads": [
            {
                "kind": each.change.kind,
                "namespace": each.change.namespace,
                "name": each.change.name,
                "before": each.change.before,
                "after": each.change.after,
                "rolledOut": each.change.rolled_out,
                "peak": each.change.peak or None,
                "monthlyBefore": each.before,
                "monthlyAfter": each.after,
            }
            for each in review.list_costs()
        ],
        "expectations": [build_judgement(each) for each in review.judgements],
        "remarks": list(review.remarks),
    }
